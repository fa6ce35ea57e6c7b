"""A real engine that is scaled by itself from one replica to two and back, and the chart of it."""

"""The parts of the fake engine."""

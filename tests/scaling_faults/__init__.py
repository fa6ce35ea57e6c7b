"""What the operator does on a real cluster while metrics lie, pods don't start, or somebody else scales."""

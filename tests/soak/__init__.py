"""The operator on a real cluster against the simulator: the same trace, the same engines, at real speed."""

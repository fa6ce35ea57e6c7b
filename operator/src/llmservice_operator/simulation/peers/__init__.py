"""Other autoscalers' rules, as their source or documentation states them, each at its own period and defaults.

Every module names what it follows. What a rule reads is what its system reads: per-pod gauges, or what Prometheus makes
of scrapes. Where a signal is missing each does what its system does, not what would be wise.
"""

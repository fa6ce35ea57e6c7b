"""One colour, one meaning, on every dashboard; and the limits that are drawn."""

from llmservice_operator.autoscaling.policy import BALANCED

MEASURED = "blue"
"""What is: latency, load, use."""
MEASURED_TOO = "light-blue"
"""The lower quantile, or the second of a pair, of what is measured."""
PROMISED = "red"
"""An objective or a limit, always dashed; and what breaks it."""
PROMISED_TOO = "light-red"
"""The second of a pair of what breaks a promise."""
EXPECTED = "orange"
"""What was planned, predicted or decided."""
GOOD = "green"
"""Ready, within the objective, at work."""
COMING = "purple"
"""On its way: starting, waiting."""
IDLE = "yellow"
"""Held and not used."""
NEUTRAL = "text"
"""Bounds and counts that are neither good nor bad."""

OBJECTIVE_SHARE = 0.95
"""`spec.slo` promises its bound for 95 of 100 requests."""
BUDGET_SHARE = 1 - OBJECTIVE_SHARE

KV_LIMIT = BALANCED.kv_limit
BANDWIDTH_LIMIT = BALANCED.bandwidth_limit
DRAM_ACTIVE_LIMIT = BALANCED.dram_active_limit

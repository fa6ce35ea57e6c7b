"""A condition without its times."""

from dataclasses import dataclass

from llmservice_operator.api.conditions import ConditionStatus


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a condition says."""

    status: ConditionStatus
    reason: str
    message: str = ""

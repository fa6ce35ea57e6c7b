"""When alerts fire and when they do not."""

from observability.cases.conditions import CONDITIONS
from observability.cases.engines import ENGINES
from observability.cases.operator_cases import OPERATOR
from observability.cases.play import Case
from observability.cases.slo import SLO

CASES = (*SLO, *CONDITIONS, *ENGINES, *OPERATOR)

__all__ = ["CASES", "Case"]

"""When a decision is due: four times a minute, and at once where what is seen shouldn't wait for that. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from llmservice_operator.engines.metric_names import Series
from llmservice_operator.engines.metrics_page import MetricsPage

LOOK_SECONDS = 5.0
"""Between two looks at a service."""
DECISION_SECONDS = 15.0
"""Between two decisions, unless one presses."""
_MORE_WORK = 1.1
"""Requests at once, over those at the last decision: more than that is worth another one now."""


@dataclass(frozen=True, slots=True)
class Work:
    """Requests in the engines that answered."""

    engines: int = 0
    total: float = 0.0
    waiting: float = 0.0


def work_of(pages: Iterable[MetricsPage]) -> Work:
    """What the engines of these pages have to do."""
    engines, running, waiting = 0, 0.0, 0.0
    for page in pages:
        engines += 1
        gauges = page.gauges
        if Series.RUNNING in gauges:
            running += gauges[Series.RUNNING].total
        if Series.WAITING in gauges:
            waiting += gauges[Series.WAITING].total
    return Work(engines, running + waiting, waiting)


def is_pressing(now: Work, then: Work) -> bool:
    """Whether this work, after that of the last decision, shouldn't wait for the next: a queue, or more of it."""
    return now.waiting > max(1.0, now.engines) or now.total > _MORE_WORK * then.total + 1.0

"""Observations made by hand."""

from collections.abc import Mapping, Sequence

from llmservice_operator.simulation.observation import History, Observation, PodPage, Scrape
from llmservice_operator.simulation.records import TPOT_BOUNDS_SECONDS, TTFT_BOUNDS_SECONDS
from llmservice_operator.simulation.scraper import COUNTERS


def page(pod: int = 0, **gauges: float) -> PodPage:
    """A pod's gauges; what isn't named is 0."""
    none = {"running": 0.0, "waiting": 0.0, "kv_usage": 0.0, "pending_prompt_tokens": 0.0}
    return PodPage(pod=pod, **{**none, **gauges})


def pods(count: int, **gauges: float) -> list[PodPage]:
    """So many of them, all alike."""
    return [page(pod, **gauges) for pod in range(count)]


def scrape(at: float, pages: Sequence[PodPage], sums: Mapping[str, float] | None = None) -> Scrape:
    """One scrape without histograms."""
    return Scrape(
        at_seconds=at,
        pages=tuple(pages),
        sums={**dict.fromkeys(COUNTERS, 0.0), **(sums or {})},
        ttft=[0.0] * (len(TTFT_BOUNDS_SECONDS) + 1),
        tpot=[0.0] * (len(TPOT_BOUNDS_SECONDS) + 1),
        itl=[0.0] * (len(TPOT_BOUNDS_SECONDS) + 1),
    )


def history(*scrapes: Scrape) -> History:
    """With vLLM's buckets."""
    made = History(TTFT_BOUNDS_SECONDS.tolist(), TPOT_BOUNDS_SECONDS.tolist())
    for each in scrapes:
        made.add(each)
    return made


def seen(
    pages: Sequence[PodPage],
    *,
    now: float = 0.0,
    provisioned: int | None = None,
    most: int = 100,
    past: History | None = None,
) -> Observation:
    """A fleet of these ready pods, each of which has been as it is since ten minutes ago."""
    held = past or history(*(scrape(now - 600.0 + 5.0 * step, pages) for step in range(121)))
    return Observation(
        now_seconds=now,
        metrics_seconds=now,
        provisioned=len(pages) if provisioned is None else provisioned,
        ready=len(pages),
        min_replicas=1,
        max_replicas=most,
        held_requests=0,
        history=held,
    )

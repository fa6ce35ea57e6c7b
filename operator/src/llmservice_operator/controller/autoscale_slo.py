"""Requests within the objectives, counted from engines' histograms: what an error budget is reckoned from. Pure."""

from dataclasses import dataclass

from llmservice_operator.autoscaling.decision import Objectives
from llmservice_operator.autoscaling.histograms import Samples
from llmservice_operator.autoscaling.short_answers import LongAnswers, narrower_of
from llmservice_operator.autoscaling.track import came_between
from llmservice_operator.engines.metric_names import Series
from llmservice_operator.engines.metrics_page import Histogram, MetricsPage

TTFT, TPOT = "ttft", "tpot"


@dataclass(slots=True)
class Count:
    """Of one objective, since the operator began to look; fractions, as a limit lies within a bucket."""

    requests: float = 0.0
    met: float = 0.0


class SloCounter:
    """Adds up what each engine process counted between two looks, so that neither a restart nor a scale-in lowers it.

    What an engine had counted before it was first seen is left out: another process of the operator may have counted
    it already.
    """

    def __init__(self) -> None:
        self.counts = {TTFT: Count(), TPOT: Count()}
        self._seen: dict[tuple[str, str], tuple[str, Histogram]] = {}

    def record(self, pod: str, incarnation: str, page: MetricsPage, objectives: Objectives) -> None:
        """Take a page."""
        for objective, limit_seconds, series in (
            (TTFT, objectives.ttft_p95_seconds, (Series.TTFT,)),
            (TPOT, objectives.tpot_p95_seconds, (Series.TPOT, Series.ITL)),
        ):
            histogram = next((page.histograms[each] for each in series if each in page.histograms), None)
            if histogram is None:
                continue
            before = self._seen.get((pod, objective))
            self._seen[pod, objective] = (incarnation, histogram)
            if limit_seconds is not None and before is not None:
                narrower = _narrower(page) if objective == TPOT and Series.TPOT in page.histograms else 1.0
                self._add(self.counts[objective], limit_seconds, narrower, before, (incarnation, histogram))

    def forget(self, pods: frozenset[str]) -> None:
        """Keep what is known of these pods alone."""
        for known in [each for each in self._seen if each[0] not in pods]:
            del self._seen[known]

    @staticmethod
    def _add(
        count: Count,
        limit_seconds: float,
        narrower: float,
        before: tuple[str, Histogram],
        now: tuple[str, Histogram],
    ) -> None:
        old, new = before[1], now[1]
        is_same = before[0] == now[0] and old.bounds == new.bounds and old.count <= new.count
        if is_same and old.count == new.count:
            return
        grown = came_between(old, new) if is_same else [*new.counts, new.total]
        if grown is None:
            return  # a bucket fell: how many came isn't known
        samples = Samples(new.bounds, grown[:-1], grown[-1])
        if not samples.count > 0:
            return
        count.requests += samples.count
        # The gaps' own mean, of a few seconds on one engine, says no more than that of the answers.
        told = LongAnswers(samples, samples.mean, narrower)
        count.met += samples.count * told.share_within(limit_seconds)


def _narrower(page: MetricsPage) -> float:
    """See short_answers.narrower_of: of all answers since the engine began, which a few seconds' are too few for."""
    lengths = page.histograms.get(Series.OUTPUT_LENGTH)
    return 1.0 if lengths is None else narrower_of(lengths.bounds, lengths.counts)

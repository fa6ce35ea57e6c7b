"""What Prometheus says of the services' cards: DCGM's DRAM_ACTIVE and SM_ACTIVE, for all pods in two queries.

dcgm-exporter names the pod that holds a card in `namespace` and `pod`, or, where Prometheus keeps those for the
exporter's own pod (honorLabels off), in `exported_namespace` and `exported_pod`.
"""

import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass

from llmservice_operator.autoscaling.signals import ABSENT, Signal, SignalState
from llmservice_operator.clients.prometheus import PrometheusClient, PrometheusError, Sample, is_share
from llmservice_operator.clock import Clock
from llmservice_operator.controller.autoscale_service import Activity
from llmservice_operator.controller.autoscale_subject import Subject

logger = logging.getLogger(__name__)

PERIOD_SECONDS = 15.0
STALE_SECONDS, MISSING_SECONDS = 45.0, 120.0
"""Three queries that failed, and eight."""
_BY = "namespace, pod, exported_namespace, exported_pod"
QUERIES = {
    "dram_active": f"avg by ({_BY}) (avg_over_time(DCGM_FI_PROF_DRAM_ACTIVE[1m]))",
    "sm_active": f"avg by ({_BY}) (avg_over_time(DCGM_FI_PROF_SM_ACTIVE[1m]))",
}
"""Of a minute, in which an exporter that has stopped leaves nothing."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """One answer, when it was taken, by (namespace, pod)."""

    at: float
    by_pod: dict[tuple[str, str], float]


class PrometheusActivities:
    """Asks each period; answers from what it was told last, with its age."""

    def __init__(self, client: PrometheusClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._readings: dict[str, _Reading] = {}
        self._is_failing = False

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await self.ask()
            await self._clock.sleep(PERIOD_SECONDS)

    async def ask(self) -> None:
        """Ask once. What fails is told in the log once, until it works again."""
        try:
            for name, query in QUERIES.items():
                samples = await self._client.query(query)
                self._readings[name] = _Reading(self._clock.now(), by_pod(samples))
        except PrometheusError as error:
            if not self._is_failing:
                logger.warning("Prometheus can't be asked", extra={"error": str(error)})
            self._is_failing = True
            return
        except Exception:
            # Whatever Prometheus may say, replicas are decided without it.
            if not self._is_failing:
                logger.exception("an answer of Prometheus can't be used")
            self._is_failing = True
            return
        self._is_failing = False

    def activity(self, subject: Subject, now: float) -> Activity:
        """Of the service's ready pods."""
        where = [(subject.key.namespace, pod) for pod in subject.ready]
        return Activity(
            dram_active=_signal(self._readings.get("dram_active"), where, now),
            sm_active=_signal(self._readings.get("sm_active"), where, now),
        )


def by_pod(samples: Iterable[Sample]) -> dict[tuple[str, str], float]:
    """Values by (namespace, pod); several cards of a pod are one row of the query already."""
    found: dict[tuple[str, str], float] = {}
    for sample in samples:
        labels = sample.labels
        pod = labels.get("exported_pod") or labels.get("pod", "")
        namespace = (
            labels.get("exported_namespace") if labels.get("exported_pod") else labels.get("namespace")
        )
        if pod:
            found[namespace or "", pod] = sample.value
    return found


def _signal(reading: _Reading | None, pods: list[tuple[str, str]], now: float) -> Signal:
    """The mean of the pods. One that isn't there makes it missing, one that can't be makes it invalid."""
    if reading is None or now - reading.at > MISSING_SECONDS or not pods:
        return ABSENT
    values = [reading.by_pod[pod] for pod in pods if pod in reading.by_pod]
    if not values:
        return Signal(None, SignalState.MISSING, reading.at)
    good = [value for value in values if is_share(value)]
    mean = math.fsum(good) / len(good) if good else None
    if len(good) < len(values):
        return Signal(mean, SignalState.INVALID, reading.at)
    is_stale = not -STALE_SECONDS <= now - reading.at <= STALE_SECONDS
    # With pods that no exporter knows of the rest says nothing of the service.
    state = SignalState.STALE if is_stale else SignalState.OK
    return Signal(mean, SignalState.MISSING if len(values) < len(pods) else state, reading.at)

"""Which replicas go when fewer are wanted: the emptiest, told to the ReplicaSet by pod-deletion-cost.

A ReplicaSet with too many pods ends those first that are not ready, then those whose
`controller.kubernetes.io/pod-deletion-cost` is lowest (Kubernetes 1.22 and later, pkg/controller/controller_utils.go,
ActivePodsWithRanks). The costs are written just before the smaller number: an older one tells of requests long gone.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from llmservice_operator.clients.kube import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    KubeClient,
    NotFoundError,
)
from llmservice_operator.controller.keys import Key
from llmservice_operator.controller.podstate import PodStage, PodState
from llmservice_operator.controller.store import Store

DELETION_COST_ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"
NOT_READY_COST = 0
"""What a pod without the annotation costs too."""
MAX_COST = 2**31 - 1
"""The annotation holds an int32."""

logger = logging.getLogger(__name__)


def shrinks(deployment: Mapping[str, Any] | None, manifest: Mapping[str, Any]) -> bool:
    """Whether applying this manifest of the Deployment takes some of its replicas away, but not all.

    At zero all pods go, whatever they cost. A manifest without `replicas` leaves them to another manager.
    """
    wanted = manifest["spec"].get("replicas")
    current = (deployment or {}).get("spec", {}).get("replicas")
    return isinstance(wanted, int) and isinstance(current, int) and 0 < wanted < current


def deletion_costs(pods: Iterable[PodState]) -> dict[str, int]:
    """The cost of each pod that may be chosen, by name: the lowest goes first.

    A pod that is not ready costs nothing, a ready one a point and one more for each request that it has. A ready pod
    that did not say how many is dearest: it may be the busiest. Pods on their way out are not chosen any more.
    """
    gone = (PodStage.STOPPING, PodStage.ENDED)
    return {pod.name: _cost(pod) for pod in pods if pod.stage not in gone}


def _cost(pod: PodState) -> int:
    if pod.stage != PodStage.READY:
        return NOT_READY_COST
    requests = None if pod.report is None else pod.report.requests
    return MAX_COST if requests is None else min(NOT_READY_COST + 1 + requests, MAX_COST)


class DeletionCosts:
    """Writes the costs on the pods."""

    def __init__(self, kube: KubeClient, store: Store) -> None:
        self._kube = kube
        self._store = store

    async def write(self, key: Key, pods: Iterable[PodState]) -> None:
        """Give each of the service's pods its cost, where it has another.

        Raises KubeError where the API server does not answer.
        """
        costs = deletion_costs(pods)
        await asyncio.gather(*(self._write(key.namespace, name, cost) for name, cost in costs.items()))

    async def _write(self, namespace: str, name: str, cost: int) -> None:
        pod = self._store.get("Pod", namespace, name)
        if pod is None or _written(pod) == str(cost):
            return
        body = {"metadata": {"annotations": {DELETION_COST_ANNOTATION: str(cost)}}}
        try:
            self._store.put("Pod", await self._kube.patch("Pod", namespace, name, body))
        except (NotFoundError, ConflictError):
            return  # the pod is gone, or another one by now
        except (ForbiddenError, InvalidError) as error:
            # The order is a preference, the number of replicas is not: that is written all the same.
            logger.warning(
                "a pod's deletion cost cannot be written",
                extra={"namespace": namespace, "pod": name, "error": str(error)},
            )


def _written(pod: Mapping[str, Any]) -> str:
    annotations: Mapping[str, str] = pod["metadata"].get("annotations") or {}
    return annotations.get(DELETION_COST_ANNOTATION, str(NOT_READY_COST))

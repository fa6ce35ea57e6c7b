"""How long a service's replicas took to start: seen as it happens, kept in the status, five of them. Pure."""

from collections.abc import Iterable

from llmservice_operator.controller.autoscale_subject import EnginePod, Role

MOST_KEPT = 5
LONGEST_SECONDS = 2 * 3600.0
"""A pod that took longer waited for something that a new one need not wait for."""


class Starts:
    """The newest starts of a service, in seconds, the newest last.

    Only a pod that was seen on its way is counted: when one that is ready was made ready first can't be told later,
    since it may have failed its probe since.
    """

    def __init__(self, known: Iterable[float] = ()) -> None:
        self.seconds = tuple(known)[-MOST_KEPT:]
        self._on_the_way: set[str] = set()
        self._served: set[str] = set()
        """Incarnations that were ready once."""

    def look(self, pods: Iterable[EnginePod]) -> None:
        """Take in how the pods are now."""
        pods, waiting = tuple(pods), set()
        for pod in pods:
            if pod.role in (Role.STARTING, Role.UNSCHEDULABLE) and not pod.began_anew:
                if not self.has_served(pod):
                    waiting.add(pod.name)
            elif pod.role is Role.READY and pod.name in self._on_the_way and pod.ready_since is not None:
                took = pod.ready_since - pod.created_at
                if took <= LONGEST_SECONDS:
                    # Both times are whole seconds.
                    self.seconds = (*self.seconds, max(1.0, took))[-MOST_KEPT:]
        self._on_the_way = waiting
        self._served = {pod.incarnation for pod in pods if pod.role is Role.READY or self.has_served(pod)}

    def has_served(self, pod: EnginePod) -> bool:
        """Whether this engine was ready once: what is not ready now is no start then, however old the pod is."""
        return pod.incarnation in self._served

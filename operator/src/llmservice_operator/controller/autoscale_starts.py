"""How long a service's replicas took to start: seen as it happens, kept in the status, five of them. Pure."""

import json
from collections.abc import Iterable
from typing import Any

from llmservice_operator.controller.autoscale_subject import EnginePod, Role

MOST_KEPT = 5
LONGEST_SECONDS = 2 * 3600.0
"""A pod that took longer waited for something that a new one need not wait for."""
_KEY = "starts"


class Starts:
    """The newest starts of a service, in seconds, the newest last.

    Only a pod that was seen on its way is counted: when one that is ready was made ready first can't be told later,
    since it may have failed its probe since.
    """

    def __init__(self, known: Iterable[float] = ()) -> None:
        self.seconds = tuple(known)[-MOST_KEPT:]
        self._on_the_way: set[str] = set()

    def look(self, pods: Iterable[EnginePod]) -> None:
        """Take in how the pods are now."""
        waiting = set()
        for pod in pods:
            if pod.role in (Role.STARTING, Role.UNSCHEDULABLE) and not pod.began_anew:
                waiting.add(pod.name)
            elif pod.role is Role.READY and pod.name in self._on_the_way and pod.ready_since is not None:
                took = pod.ready_since - pod.created_at
                if took <= LONGEST_SECONDS:
                    # Both times are whole seconds.
                    self.seconds = (*self.seconds, max(1.0, took))[-MOST_KEPT:]
        self._on_the_way = waiting


def with_starts(state: dict[str, Any], starts: Starts) -> str:
    """The text of `status.scaling.state`: what `decide` remembers, and the starts."""
    kept = {**state, _KEY: [round(each, 1) for each in starts.seconds]}
    return json.dumps(kept, separators=(",", ":"))


def read_memory(text: str) -> tuple[Any, Starts]:
    """What `with_starts` wrote; what can't be read is as if it never was."""
    try:
        data = json.loads(text) if text else None
    except ValueError:
        data = None
    found = data.get(_KEY) if isinstance(data, dict) else None
    known = found if isinstance(found, list) else []
    return data, Starts(
        each for each in known if isinstance(each, int | float) and 0 < each <= LONGEST_SECONDS
    )

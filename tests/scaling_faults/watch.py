"""What was seen of every service: replicas that were asked for, and what conditions said. From watches."""

import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import deploy
from devcluster.fixtures import AnyCluster

WATCHED = ("MetricsAvailable", "ScalingActive")


@dataclass
class Seen:
    """Of one service, by Unix time."""

    replicas: list[tuple[float, int]] = field(default_factory=list)
    """Of its Deployment, at each change."""
    reasons: list[tuple[float, str, str]] = field(default_factory=list)
    """(time, condition, reason), at each change."""
    decisions: dict[str, Any] = field(default_factory=dict)

    def scale_ins(self, begin: float, end: float) -> int:
        """How often fewer were asked for in between."""
        found, last = 0, 0
        for at, replicas in self.replicas:
            found += begin <= at <= end and replicas < last
            last = replicas
        return found

    def most(self, begin: float, end: float) -> int:
        """The most that were asked for in between."""
        before = [replicas for at, replicas in self.replicas if at < begin][-1:]
        return max([*before, *(replicas for at, replicas in self.replicas if begin <= at <= end)], default=0)

    def told(self, begin: float, end: float) -> list[str]:
        """The reasons in between, in their order, each once."""
        return list(dict.fromkeys(reason for at, _, reason in self.reasons if begin <= at <= end))


class Watch:
    """Of a namespace, until it is stopped."""

    def __init__(self, cluster: AnyCluster, namespace: str) -> None:
        self.seen: dict[str, Seen] = {}
        self._cluster, self._over = cluster, threading.Event()
        services = f"/apis/llmservice.dev/v1alpha1/namespaces/{namespace}/llmservices"
        deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        for path, look in ((services, self._service), (deployments, self._deployment)):
            threading.Thread(target=self._follow, args=(path, look), daemon=True).start()

    def stop(self) -> None:
        """No more is looked at."""
        self._over.set()

    def _follow(self, path: str, look: Any) -> None:
        while not self._over.is_set():
            for found in deploy.watch(self._cluster, path, deadline=time.monotonic() + 600):
                if self._over.is_set():
                    return
                look(found)

    def _of(self, found: dict[str, Any]) -> Seen:
        return self.seen.setdefault(found["metadata"]["name"], Seen())

    def _deployment(self, found: dict[str, Any]) -> None:
        seen, replicas = self._of(found), int(found["spec"]["replicas"])
        if not seen.replicas or seen.replicas[-1][1] != replicas:
            seen.replicas.append((time.time(), replicas))

    def _service(self, found: dict[str, Any]) -> None:
        seen, now = self._of(found), time.time()
        for kind in WATCHED:
            reason = deploy.condition(found, kind).get("reason")
            last = next((each for _, each_kind, each in reversed(seen.reasons) if each_kind == kind), None)
            if reason and reason != last:
                seen.reasons.append((now, kind, reason))
        for decision in found.get("status", {}).get("scaling", {}).get("decisions") or ():
            seen.decisions.setdefault(str(decision["at"]), decision)

    def dump(self) -> str:
        """All of it, to look at."""
        return json.dumps({name: vars(seen) for name, seen in self.seen.items()}, indent=1)

"""One writer at a time: a Lease of coordination.k8s.io/v1, renewed while we work.

    standby ──the Lease is free, released, expired or ours──▶ leader ──not renewed for 10 s──▶ lost for good

Expiry is judged by our own clock, from when we saw the record change, never by comparing another machine's
timestamps with ours. A renewal counts from before its request was sent. Once `now > last renewal + deadline`
nothing may be written: another process may hold the Lease 5 s later. A lost Lease is never taken back in the
same process.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from llmservice_operator.clients.kube import ConflictError, KubeClient, KubeError, NotLeaderError
from llmservice_operator.clock import Clock
from llmservice_operator.errors import LLMServiceError

logger = logging.getLogger(__name__)


class LeaseLostError(LLMServiceError):
    """The Lease could not be renewed in time, or another process holds it."""


@dataclass(frozen=True, kw_only=True)
class LeaseTimes:
    """Seconds. The renew period keeps us at no more than twelve writes a minute."""

    lease: int = 15
    renew_deadline: float = 10.0
    renew_period: float = 5.0
    retry_period: float = 0.5
    poll_period: float = 2.0
    jitter: float = 0.05


class LeaderElector:
    """Acquires, keeps and releases one Lease."""

    def __init__(
        self,
        *,
        kube: KubeClient,
        clock: Clock,
        random: Callable[[], float],
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes | None = None,
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._random = random
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._times = times or LeaseTimes()
        self._lease: dict[str, Any] | None = None
        self._renewed_at: float | None = None
        self._seen: tuple[str, float] | None = None
        """The foreign record's resourceVersion and when we first saw it."""
        self.has_looked = False
        """Whether the Lease could be read at least once: a standby that cannot see it stands by for nothing."""

    @property
    def is_leader(self) -> bool:
        """Whether writing is allowed now."""
        if self._renewed_at is None:
            return False
        return self._clock.monotonic() <= self._renewed_at + self._times.renew_deadline

    def permit_write(self) -> None:
        """Raise NotLeaderError unless writing is allowed now."""
        if not self.is_leader:
            raise NotLeaderError(0, "NotLeader", f"{self._identity} does not hold the Lease {self._name}")

    async def acquire(self) -> None:
        """Return once the Lease is ours. An API server that does not answer is asked again."""
        while True:
            try:
                if await self._try_acquire():
                    logger.info("the Lease is ours", extra={"lease": self._name, "identity": self._identity})
                    return
            except ConflictError:
                logger.info("another process was faster", extra={"lease": self._name})
            except KubeError as e:
                logger.warning("the Lease cannot be read or written", extra={"error": str(e)})
            await self._sleep(self._times.poll_period)

    async def keep(self) -> None:
        """Renew until the Lease is lost, then raise LeaseLostError. Never returns."""
        await self._sleep(self._times.renew_period)
        while True:
            renewed = await self._try_renew()
            await self._sleep(self._times.renew_period if renewed else self._times.retry_period)

    async def release(self) -> None:
        """Give the Lease back, so that the next one need not wait for it to expire. Errors do not matter."""
        if not self.is_leader or self._lease is None:
            return
        self._renewed_at = None
        spec = {
            **self._lease["spec"],
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "renewTime": self._now(),
        }
        try:
            await self._kube.replace({**self._lease, "spec": spec})
        except KubeError as e:
            logger.warning("the Lease could not be released", extra={"error": str(e)})

    async def _try_acquire(self) -> bool:
        started = self._clock.monotonic()
        lease = await self._kube.get("Lease", self._namespace, self._name)
        self.has_looked = True
        if lease is None:
            self._lease = await self._kube.create(self._manifest({}, transitions=0))
        elif self._may_take(lease, started):
            spec = lease.get("spec", {})
            same = spec.get("holderIdentity") == self._identity
            transitions = int(spec.get("leaseTransitions", 0)) + (0 if same else 1)
            self._lease = await self._kube.replace(self._manifest(lease["metadata"], transitions=transitions))
        else:
            return False
        self._renewed_at = started
        return True

    def _may_take(self, lease: dict[str, Any], now: float) -> bool:
        spec = lease.get("spec", {})
        if spec.get("holderIdentity") in (None, "", self._identity):
            return True
        version = lease["metadata"]["resourceVersion"]
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, now)
        return now > self._seen[1] + float(spec.get("leaseDurationSeconds") or self._times.lease)

    async def _try_renew(self) -> bool:
        """True if renewed, False if it is to be tried again soon. LeaseLostError when it is too late."""
        started = self._clock.monotonic()
        if not self.is_leader or self._lease is None:
            raise LeaseLostError(
                f"the Lease {self._name} was not renewed for {self._times.renew_deadline:g} s; ending"
            )
        try:
            spec = {**self._lease["spec"], "renewTime": self._now()}
            self._lease = await self._kube.replace({**self._lease, "spec": spec})
        except ConflictError:
            await self._look_who_holds()
            return False
        except KubeError as e:
            logger.warning("the Lease could not be renewed yet", extra={"error": str(e)})
            return False
        self._renewed_at = started
        return True

    async def _look_who_holds(self) -> None:
        """After a conflict: take the new record if it is still ours, else the Lease is lost."""
        try:
            lease = await self._kube.get("Lease", self._namespace, self._name)
        except KubeError as e:
            logger.warning("the Lease cannot be read", extra={"error": str(e)})
            return
        holder = None if lease is None else lease.get("spec", {}).get("holderIdentity")
        if holder != self._identity:
            self._renewed_at = None
            raise LeaseLostError(f"the Lease {self._name} is held by {holder or 'nobody'}; ending")
        self._lease = lease

    def _manifest(self, metadata: dict[str, Any], *, transitions: int) -> dict[str, Any]:
        kept = {"resourceVersion": metadata["resourceVersion"]} if "resourceVersion" in metadata else {}
        now = self._now()
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": self._namespace, "name": self._name, **kept},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": self._times.lease,
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    async def _sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds * (1 + self._times.jitter * self._random()))

"""Keeps what starts have measured, in memory and in one ConfigMap of the operator's namespace.

The ConfigMap is the truth; in memory is what it held when it was last read, and what has been learnt since. Writes are
batched to one a minute, each on top of a fresh read with its resourceVersion, so that another writer's starts stay in
it. Nothing that it holds, or that the API server answers, stops a reconcile: without it there is no calibration.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from llmservice_operator.clients.kube import ConflictError, KubeError, NotFoundError
from llmservice_operator.clock import Clock
from llmservice_operator.controller.deadline import within
from llmservice_operator.controller.recorder import EventType
from llmservice_operator.controller.starts import Measurement
from llmservice_operator.perfmodel.calibration import Calibration, Entry, merged, with_start
from llmservice_operator.resources.calibration import calibration_manifest, read_calibration, seen_last

logger = logging.getLogger(__name__)

WRITE_SECONDS = 60.0
"""A start may be lost with the process for so long; it is measured again at the next one."""
READ_SECONDS = 600.0
"""How soon it is noticed that somebody deleted the ConfigMap to forget what was learnt."""
ATTEMPTS = 3
"""Writes that another writer may get ahead of before the next minute is waited for."""
FIRST_READ_SECONDS, LAST_WRITE_SECONDS = 5.0, 0.5
"""How long the start and the end of the operator wait for it."""


class ConfigMaps(Protocol):
    """The part of the KubeClient that is used."""

    async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        """The object, or None."""

    async def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create."""

    async def replace(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Replace, if the resourceVersion is the current one."""


class Teller(Protocol):
    """Takes Events."""

    def event(self, obj_ref: Mapping[str, Any], type_: EventType, reason: str, message: str) -> None:
        """Say something about an object."""


class CalibrationStore:
    """Notes starts and tells what is known."""

    def __init__(
        self, *, kube: ConfigMaps, clock: Clock, recorder: Teller, namespace: str, name: str
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._recorder = recorder
        self._namespace = namespace
        self._name = name
        self._kept: dict[str, Entry] = {}
        """As last read or written."""
        self._new: dict[str, Entry] = {}
        """Learnt and not written yet."""
        self._calibration = Calibration()
        self._read_at: float | None = None
        self._told: tuple[str, ...] = ()

    @property
    def calibration(self) -> Calibration:
        """What is known now. It is another object once it says something else."""
        return self._calibration

    def note(self, measurement: Measurement) -> None:
        """Take a start in. The same one twice changes nothing."""
        key, start = measurement.key, measurement.start
        known = self._calibration.entry(key)
        if known is not None and with_start(known, start, what="", planned={}) is known:
            return
        # Only what is new: what somebody deleted meanwhile must not be written back with it.
        new = self._new.get(key)
        self._new[key] = with_start(new, start, what=measurement.what, planned=measurement.planned)
        self._show()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Read at the start, write in the background, and once more at the end."""
        async with within(FIRST_READ_SECONDS):
            await self.read()
        task = asyncio.create_task(self.run(), name="calibration")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if self._new:
                async with within(LAST_WRITE_SECONDS):
                    await self.write()

    async def run(self) -> None:
        """Write what is new, or look whether the ConfigMap still is as it was, until cancelled."""
        while True:
            await self._clock.sleep(WRITE_SECONDS)
            now = self._clock.monotonic()
            if self._new:
                await self.write()
            elif self._read_at is None or now - self._read_at >= READ_SECONDS:
                await self.read()

    async def read(self) -> None:
        """Take over what the ConfigMap holds. Errors are logged, and it is tried again."""
        await self._guarded(write=False)

    async def write(self) -> None:
        """Add what is new to the ConfigMap. Errors are logged, and it is tried again."""
        await self._guarded(write=True)

    async def _guarded(self, *, write: bool) -> None:
        try:
            for _attempt in range(ATTEMPTS):
                with contextlib.suppress(ConflictError):
                    await self._sync(write=write)
                    return
            logger.info("other writers were faster; the calibration is written later")
        except KubeError as error:
            where = f"{self._namespace}/{self._name}"
            logger.warning(
                "the calibration's ConfigMap cannot be read or written",
                extra={"configmap": where, "error": str(error)},
            )
        except Exception:
            # Whatever it is, it must not end the operator's work.
            logger.exception("the calibration could not be kept")

    async def _sync(self, *, write: bool) -> None:
        found = await self._kube.get("ConfigMap", self._namespace, self._name)
        read = read_calibration(found)
        self._read_at = self._clock.monotonic()
        self._tell(found, read.problems)
        if read.foreign:
            self._kept, self._new = _joined(self._kept, self._new), {}  # in memory only
            self._show()
            return
        taken = dict(self._new)
        entries = _joined(read.calibration.entries, taken)
        if write and taken:
            await self._put(found, calibration_manifest(self._namespace, self._name, entries))
            # What came while the request ran is still new.
            self._new = {key: entry for key, entry in self._new.items() if entry is not taken.get(key)}
            self._kept = entries
        else:
            self._kept = dict(read.calibration.entries)
        self._show()

    async def _put(self, found: Mapping[str, Any] | None, manifest: dict[str, Any]) -> None:
        if found is None:
            await self._kube.create(manifest)
            return
        metadata = found["metadata"]
        kept = {name: metadata[name] for name in ("annotations", "resourceVersion") if name in metadata}
        labels = {**(metadata.get("labels") or {}), **manifest["metadata"]["labels"]}
        body = {**manifest, "metadata": {**manifest["metadata"], **kept, "labels": labels}}
        try:
            await self._kube.replace(body)
        except NotFoundError as error:
            # Deleted since it was read: the next attempt makes it anew.
            raise ConflictError(error.status, error.reason, error.message) from error

    def _show(self) -> None:
        entries = _joined(self._kept, self._new)
        if entries != self._calibration.entries:
            self._calibration = Calibration(entries=entries)

    def _tell(self, found: Mapping[str, Any] | None, problems: tuple[str, ...]) -> None:
        """Say what cannot be read, once for as long as it is the same."""
        if problems and problems != self._told and found is not None:
            words = "; ".join(problems)[:900]
            logger.warning(
                "a part of the calibration is ignored", extra={"configmap": self._name, "why": words}
            )
            about = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "namespace": self._namespace,
                "name": self._name,
                "uid": found["metadata"].get("uid", ""),
            }
            message = f"a part of the calibration is ignored: {words}"
            self._recorder.event(about, "Warning", "CalibrationUnreadable", message)
        self._told = problems


def _joined(kept: Mapping[str, Entry], new: Mapping[str, Entry]) -> dict[str, Entry]:
    """Both; of too many those that were seen last."""
    entries = dict(kept)
    for key, entry in new.items():
        entries[key] = merged(entries[key], entry) if key in entries else entry
    return seen_last(entries)

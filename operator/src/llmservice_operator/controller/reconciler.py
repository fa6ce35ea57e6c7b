"""One reconcile: gather, decide, write what differs, say what came of it.

It may be killed between any two lines: nothing is kept here that the next run needs, and every write is the whole
of what is wanted.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Protocol

from llmservice_operator.api import labels
from llmservice_operator.api.conditions import Reason
from llmservice_operator.clients.engine import EngineClient
from llmservice_operator.clients.kube import (
    ForbiddenError,
    InvalidError,
    KubeClient,
)
from llmservice_operator.clients.modelhub import ModelHub
from llmservice_operator.clock import Clock
from llmservice_operator.controller import observed as kinds
from llmservice_operator.controller.applier import Applier, ApplyObserver, NotOursError
from llmservice_operator.controller.autoscale_board import Board
from llmservice_operator.controller.autoscale_subject import subject_of
from llmservice_operator.controller.candidates import Candidates
from llmservice_operator.controller.conclude import Conclusion, conclude
from llmservice_operator.controller.decide import Intent, decide
from llmservice_operator.controller.gather import Gatherer
from llmservice_operator.controller.keys import Key
from llmservice_operator.controller.modelconfig import ModelConfigs
from llmservice_operator.controller.observed import Observed, ReconcileSettings
from llmservice_operator.controller.recorder import Recorder
from llmservice_operator.controller.scale_in import DeletionCosts, shrinks
from llmservice_operator.controller.starts import Measurement, measurements
from llmservice_operator.controller.statuswrite import status_json, write_wait_seconds
from llmservice_operator.controller.store import Store
from llmservice_operator.controller.verdicts import WriteProblem
from llmservice_operator.engines.base import EngineAdapter
from llmservice_operator.perfmodel.calibration import NOTHING_KNOWN, Calibration
from llmservice_operator.resources.managed_fields import other_managers
from llmservice_operator.resources.ownership import is_ours
from llmservice_operator.resources.types import Manifest

MAX_REMEMBERED_WRITES = 8192


class Calibrator(Protocol):
    """Keeps what starts have measured."""

    @property
    def calibration(self) -> Calibration:
        """What is known now."""

    def note(self, measurement: Measurement) -> None:
        """Take a start in."""


class NoCalibrator:
    """Learns nothing."""

    calibration = NOTHING_KNOWN

    def note(self, measurement: Measurement) -> None:
        """Forget it."""


class Reconciler:
    """Brings one LLMService at a time to what its user says."""

    def __init__(
        self,
        *,
        kube: KubeClient,
        store: Store,
        recorder: Recorder,
        engine_client: EngineClient,
        modelhub: ModelHub | None,
        engine: EngineAdapter,
        clock: Clock,
        settings: ReconcileSettings,
        observer: ApplyObserver | None = None,
        calibration: Calibrator | None = None,
        board: Board | None = None,
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._clock = clock
        self._applier = Applier(kube, store, observer)
        self._deletion_costs = DeletionCosts(kube, store)
        self._calibrator = calibration or NoCalibrator()
        self._board = board or Board()
        self._catalogue = settings.catalogue
        self._candidates = Candidates(settings, engine, lambda: self._calibrator.calibration)
        self._gatherer = Gatherer(
            kube=kube,
            store=store,
            engines=engine_client,
            models=ModelConfigs(kube=kube, hub=modelhub, clock=clock),
            clock=clock,
            settings=settings,
            board=self._board,
        )
        self._status_written_at: OrderedDict[Key, float] = OrderedDict()

    async def reconcile(self, key: Key) -> float | None:
        """Do what there is to do for this service; in how many seconds again, None: when something changes.

        Raises KubeError where the API server does not answer, or refuses what is not the user's to mend.
        """
        observed = await self._gatherer.gather(key)
        if observed is None:
            self._status_written_at.pop(key, None)
            self._board.observe(key, None)
            return None
        intent = decide(observed, self._candidates)
        problems = await self._write(observed, intent)
        written = self._store.get(kinds.DEPLOYMENT, key.namespace, key.name)
        self._board.observe(key, subject_of(observed, intent, written))
        conclusion = conclude(observed, intent, problems, self._clock.now())
        for measurement in measurements(observed, self._catalogue):
            self._calibrator.note(measurement)
        status_wait = await self._write_status(observed, conclusion)
        self._say(observed, conclusion)
        if self._moved_on(observed):
            return 0.0
        waits = [each for each in (conclusion.again_seconds, status_wait) if each is not None]
        return min(waits, default=None)

    def _moved_on(self, observed: Observed) -> bool:
        """Whether somebody else changed the service or its Deployment while this reconcile ran.

        The answers to our own writes hold such changes already, and they go into the store: the watch's event of
        them is then no news any more, and nobody else would ask for another reconcile.
        """
        key = observed.key
        service = self._store.get(labels.KIND, key.namespace, key.name)
        if service is None:
            return False
        metadata = service["metadata"]
        deployment = self._store.get(kinds.DEPLOYMENT, key.namespace, key.name)
        if deployment is not None and not is_ours(deployment, observed.identity):
            # A stranger's, or an earlier service's: it was not observed, and would differ from that for ever.
            deployment = None
        return (
            metadata.get("generation", 0) != observed.generation
            or metadata.get("annotations", {}) != observed.annotations
            or "deletionTimestamp" in metadata
            or _written_by_others(deployment) != _written_by_others(observed.deployment)
        )

    async def _write(self, observed: Observed, intent: Intent) -> tuple[WriteProblem, ...]:
        """What could not be written. The records go first; an old one goes last, once all else stands."""
        for manifest in intent.first:
            problem = await self._apply(observed, manifest)
            if problem is not None:
                return (problem,)
        outcomes = await asyncio.gather(*(self._apply(observed, manifest) for manifest in intent.children))
        problems = tuple(each for each in outcomes if each is not None)
        if not problems:
            for name in intent.superfluous:
                await self._delete_revision(observed, name)
        return problems

    async def _apply(self, observed: Observed, manifest: Manifest) -> WriteProblem | None:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if kind == kinds.DEPLOYMENT and shrinks(observed.deployment, manifest):
            await self._deletion_costs.write(observed.key, await self._gatherer.serving_pods(observed.key))
        try:
            await self._applier.apply(manifest, observed.identity)
        except NotOursError as error:
            return WriteProblem(kind=kind, reason=Reason.NAME_CONFLICT, message=str(error), needs_person=True)
        except (InvalidError, ForbiddenError) as error:
            return WriteProblem(
                kind=kind,
                reason=Reason.APPLY_REFUSED,
                message=f"the API server refuses {kind} {name}: {error.message}",
                needs_person=True,
            )
        return None

    async def _delete_revision(self, observed: Observed, name: str) -> None:
        found = self._store.get(kinds.REVISION, observed.key.namespace, name)
        if found is not None:
            await self._applier.delete(found, observed.identity)

    async def _write_status(self, observed: Observed, conclusion: Conclusion) -> float | None:
        """Write the status if it is worth it; in how many seconds to try again, None: not needed."""
        key = observed.key
        new = status_json(conclusion.status)
        current = self._store.get(labels.KIND, key.namespace, key.name)
        if current is None or current["metadata"]["uid"] != observed.identity.uid:
            return None
        now = self._clock.monotonic()
        written_at = self._status_written_at.get(key)
        since = None if written_at is None else now - written_at
        wait = write_wait_seconds(_written(current), new, since)
        if wait is None or wait > 0:
            return wait
        await self._applier.apply_status(
            {
                "apiVersion": labels.API_VERSION,
                "kind": labels.KIND,
                "metadata": {"name": key.name, "namespace": key.namespace},
                "status": new,
            }
        )
        self._status_written_at[key] = now
        self._status_written_at.move_to_end(key)
        if len(self._status_written_at) > MAX_REMEMBERED_WRITES:
            self._status_written_at.popitem(last=False)
        return None

    def _say(self, observed: Observed, conclusion: Conclusion) -> None:
        identity = observed.identity
        about = {
            "apiVersion": labels.API_VERSION,
            "kind": labels.KIND,
            "namespace": identity.namespace,
            "name": identity.name,
            "uid": identity.uid,
        }
        for saying in conclusion.sayings:
            self._recorder.event(about, saying.type, saying.reason, saying.message)


def _written(service: Mapping[str, Any]) -> dict[str, Any]:
    """The status on the object, as we would have written it: defaults filled in, unknown fields dropped."""
    return dict(service.get("status") or {})


def _written_by_others(deployment: Mapping[str, Any] | None) -> tuple[Any, ...]:
    """What a decision depends on and its controllers write: the status, and who else holds the replicas."""
    if deployment is None:
        return {}, ()
    return deployment.get("status") or {}, other_managers(deployment, "spec", "replicas")

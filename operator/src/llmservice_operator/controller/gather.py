"""Reads all that one reconcile needs, from the informer's store where it is there, and fills `Observed`."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from pydantic import ValidationError

from llmservice_operator.api import labels
from llmservice_operator.api.quantities import parse_quantity
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.api.status import LLMServiceStatus
from llmservice_operator.clients.engine import EngineClient, EngineReport, EngineUnreachableError
from llmservice_operator.clock import Clock
from llmservice_operator.controller import observed as kinds
from llmservice_operator.controller.autoscale_board import Board
from llmservice_operator.controller.keys import Key
from llmservice_operator.controller.modelconfig import ModelConfigs
from llmservice_operator.controller.observed import (
    CORRECTION_ANNOTATION,
    Observed,
    ReconcileSettings,
    SeenNodes,
    StoredRevision,
    UnreadableRevision,
)
from llmservice_operator.controller.podstate import PodStage, PodState, read_pod, report_address
from llmservice_operator.errors import InvalidInputError
from llmservice_operator.planning.types import MemoryCorrection, NodeAccelerators
from llmservice_operator.resources.inputs import digest
from llmservice_operator.resources.ownership import is_ours, not_ours_message
from llmservice_operator.resources.revision import unpack
from llmservice_operator.resources.types import Identity
from llmservice_operator.resources.volumes import cache_claim_name

CREATION_SECONDS = 15.0
"""A pod whose containers are not made after so long may wait for a volume's source."""
MAX_REPORTS = 16
"""Pods whose supervisor is asked in one reconcile, the oldest first."""
NEW_START_SECONDS = 120.0
"""Every start is a measurement: so long its report is asked for, until it was read."""
MAX_REMEMBERED_STARTS = 8192


class ObjectStore(Protocol):
    """The informer's view, as far as gathering reads it."""

    def get(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        """The object, or None."""

    def owned(self, kind: str, key: Key) -> tuple[Mapping[str, Any], ...]:
        """The objects that carry the service's label."""

    def nodes(self) -> tuple[Mapping[str, Any], ...]:
        """All nodes."""

    def claimed(self) -> Mapping[str, Mapping[str, int]]:
        """By node: devices that known pods hold."""

    def versions(self, kind: str) -> dict[tuple[str, str], tuple[str, int]]:
        """The uid and resourceVersion of every object of the kind."""


class ObjectReader(Protocol):
    """Reads one object from the API server."""

    async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        """The object, or None."""


class Gatherer:
    """Fills `Observed`."""

    def __init__(
        self,
        *,
        kube: ObjectReader,
        store: ObjectStore,
        engines: EngineClient,
        models: ModelConfigs,
        clock: Clock,
        settings: ReconcileSettings,
        board: Board,
    ) -> None:
        self._board = board
        self._kube = kube
        self._store = store
        self._engines = engines
        self._models = models
        self._clock = clock
        self._settings = settings
        self._nodes: tuple[object, SeenNodes] | None = None
        self._reported: OrderedDict[tuple[Key, str, int], None] = OrderedDict()
        """Starts whose report was read; what is forgotten at a restart is read again, and counted once all the same."""

    async def gather(self, key: Key) -> Observed | None:
        """What is known of this service now; None where it does not exist or is being deleted.

        Raises KubeUnavailableError where something has to be read and cannot be.
        """
        service = self._store.get(labels.KIND, key.namespace, key.name)
        if service is None or service["metadata"].get("deletionTimestamp"):
            return None
        metadata = service["metadata"]
        identity = Identity(name=key.name, namespace=key.namespace, uid=metadata["uid"])
        spec, spec_error = _parse_spec(service)
        status = parse_status(service.get("status") or {})
        children, foreign = self._children(key, identity)
        revisions, unreadable = self._revisions(key, identity)
        annotations = metadata.get("annotations") or {}
        pods = await self._pods(key, status)
        return Observed(
            key=key,
            identity=identity,
            generation=metadata.get("generation", 0),
            annotations=annotations,
            spec=spec,
            spec_error=spec_error,
            status=status,
            children=children,
            foreign=foreign,
            revisions=revisions,
            unreadable=unreadable,
            pods=pods,
            model=await self._models.look_up(
                identity, spec, annotations, revisions[-1].revision if revisions else None
            ),
            nodes=self._free_nodes(spec) if not revisions else self._seen_nodes(),
            absent_volumes=await self._absent_volumes(key, pods, children.get(kinds.DEPLOYMENT)),
            scaling=self._board.outcome(key, identity.uid),
        )

    def _children(self, key: Key, identity: Identity) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
        names = {
            kinds.DEPLOYMENT: key.name,
            kinds.SERVICE: key.name,
            kinds.DISRUPTION_BUDGET: key.name,
            kinds.CLAIM: cache_claim_name(identity),
        }
        ours: dict[str, Mapping[str, Any]] = {}
        foreign: dict[str, str] = {}
        for kind, name in names.items():
            found = self._store.get(kind, key.namespace, name)
            if found is None:
                continue
            if is_ours(found, identity):
                ours[kind] = found
            else:
                foreign[kind] = not_ours_message(kind, found, identity)
        return ours, foreign

    def _revisions(
        self, key: Key, identity: Identity
    ) -> tuple[tuple[StoredRevision, ...], tuple[UnreadableRevision, ...]]:
        readable: list[StoredRevision] = []
        unreadable: list[UnreadableRevision] = []
        for manifest in self._store.owned(kinds.REVISION, key):
            if not is_ours(manifest, identity) or manifest["metadata"].get("deletionTimestamp"):
                continue
            try:
                readable.append(
                    StoredRevision(
                        revision=unpack(manifest),
                        data=manifest["data"],
                        uid=manifest["metadata"]["uid"],
                        correction=_correction(manifest),
                    )
                )
            except InvalidInputError as error:
                number = manifest.get("revision")
                unreadable.append(
                    UnreadableRevision(
                        name=manifest["metadata"]["name"],
                        number=number if isinstance(number, int) else 0,
                        message=str(error),
                    )
                )
        readable.sort(key=lambda each: (each.revision.number, each.revision.name))
        return tuple(readable), tuple(unreadable)

    async def _pods(self, key: Key, status: LLMServiceStatus) -> tuple[PodState, ...]:
        now = self._clock.now()
        pods = self._store.owned("Pod", key)
        bare = [read_pod(pod, None, now) for pod in pods]
        new = frozenset(pod.name for pod in bare if self._is_new(key, pod, now))
        states = await self._ask(pods, bare, _worth_asking(bare, status, new))
        for pod in states:
            if pod.report is not None and pod.report.phase == "Ready":
                self._reported[key, pod.name, pod.restarts] = None
        while len(self._reported) > MAX_REMEMBERED_STARTS:
            self._reported.popitem(last=False)
        return states

    def _is_new(self, key: Key, pod: PodState, now: float) -> bool:
        """Whether the pod became ready just now and its report was not read yet."""
        fresh = pod.ready_since is not None and now - pod.ready_since < NEW_START_SECONDS
        return fresh and (key, pod.name, pod.restarts) not in self._reported

    async def _ask(
        self, pods: Sequence[Mapping[str, Any]], bare: Sequence[PodState], asked: frozenset[str]
    ) -> tuple[PodState, ...]:
        reports = await asyncio.gather(
            *(
                self._report(pod) if state.name in asked else _nothing()
                for pod, state in zip(pods, bare, strict=True)
            )
        )
        now = self._clock.now()
        return tuple(
            state if report is None else read_pod(pod, report, now)
            for pod, state, report in zip(pods, bare, reports, strict=True)
        )

    async def serving_pods(self, key: Key) -> tuple[PodState, ...]:
        """The service's pods as they are now, each ready one with what its supervisor says at this moment."""
        now = self._clock.now()
        pods = self._store.owned("Pod", key)
        bare = [read_pod(pod, None, now) for pod in pods]
        ready = frozenset(state.name for state in bare if state.stage == PodStage.READY)
        return await self._ask(pods, bare, ready)

    async def _report(self, pod: Mapping[str, Any]) -> EngineReport | None:
        address = report_address(pod)
        if address is None:
            return None
        try:
            return await self._engines.report(*address)
        except EngineUnreachableError:
            return None  # the pod's own status has to do; it is asked again at the next reconcile

    async def _absent_volumes(
        self, key: Key, pods: tuple[PodState, ...], deployment: Mapping[str, Any] | None
    ) -> tuple[str, ...]:
        """ConfigMaps and claims that a pod waits for. Only the kubelet's events tell of them, and they pass."""
        now = self._clock.now()
        waits = any(
            pod.stage == PodStage.CREATING and pod.trouble is None and now - pod.created_at > CREATION_SECONDS
            for pod in pods
        )
        if not waits or deployment is None:
            return ()
        needed = _volume_sources(deployment["spec"]["template"]["spec"])
        found = await asyncio.gather(*(self._kube.get(kind, key.namespace, name) for kind, name in needed))
        return tuple(f"{kind} {name}" for (kind, name), obj in zip(needed, found, strict=True) if obj is None)

    def _free_nodes(self, spec: LLMServiceSpec | None) -> SeenNodes | None:
        """The nodes with what is free on each, where the first plan of a service has a choice of accelerators.

        Without a choice it changes nothing, and services that say the same may share one plan.
        """
        seen = self._seen_nodes()
        if seen is None or spec is None or len(spec.accelerator.types) == 1:
            return seen
        claimed = self._store.claimed()
        nodes = tuple(_with_free(node, claimed.get(node.node_name, {})) for node in seen.nodes)
        free = [(node.node_name, dict(node.free or {})) for node in nodes if node.free is not None]
        return SeenNodes(nodes=nodes, digest=digest([seen.digest, free]))

    def _seen_nodes(self) -> SeenNodes | None:
        if not self._settings.sees_nodes:
            return None
        versions = tuple(sorted(self._store.versions("Node").items()))
        if self._nodes is None or self._nodes[0] != versions:
            nodes = tuple(_node(each) for each in self._store.nodes())
            seen = [
                (node.node_name, dict(node.labels), dict(node.allocatable), node.free is None)
                for node in nodes
            ]
            self._nodes = (versions, SeenNodes(nodes=nodes, digest=digest(seen)))
        return self._nodes[1]


def parse_status(raw: Mapping[str, Any]) -> LLMServiceStatus:
    """The status as this release reads it. One that it cannot read at all counts as not written yet."""
    try:
        return LLMServiceStatus.model_validate(raw)
    except ValidationError:
        return LLMServiceStatus()


def _parse_spec(service: Mapping[str, Any]) -> tuple[LLMServiceSpec | None, str]:
    try:
        return LLMServiceSpec.model_validate(service.get("spec") or {}), ""
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in ("spec", *first["loc"]))
        return None, f"{where}: {first['msg']}"


def _correction(manifest: Mapping[str, Any]) -> MemoryCorrection | None:
    text = (manifest["metadata"].get("annotations") or {}).get(CORRECTION_ANNOTATION)
    if not text:
        return None
    try:
        fields = MemoryCorrection.__dataclass_fields__
        # A newer release may have learnt more from the same failure.
        return MemoryCorrection(**{name: value for name, value in json.loads(text).items() if name in fields})
    except (AttributeError, TypeError, ValueError) as error:
        name = manifest["metadata"]["name"]
        raise InvalidInputError(
            f"ControllerRevision {name}: {CORRECTION_ANNOTATION} cannot be read"
        ) from error


def _worth_asking(pods: list[PodState], status: LLMServiceStatus, new: frozenset[str]) -> frozenset[str]:
    """Pods on their way, those whose start is new, and one ready pod of each revision without a report."""
    starting = [pod for pod in pods if pod.stage == PodStage.STARTING]
    reported = status.engine.revision if status.engine is not None else ""
    ready = {pod.revision: pod for pod in pods if pod.stage == PodStage.READY and pod.revision != reported}
    fresh = [pod for pod in pods if pod.name in new]
    wanted = sorted((*starting, *fresh, *ready.values()), key=lambda pod: (pod.created_at, pod.name))
    return frozenset(tuple(dict.fromkeys(pod.name for pod in wanted))[:MAX_REPORTS])


def _volume_sources(pod_spec: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """(kind, name) of the ConfigMaps and claims of a pod's volumes. Secrets are not the operator's to read."""
    volumes = pod_spec.get("volumes") or []
    config_maps = [
        ("ConfigMap", each["configMap"].get("name", "")) for each in volumes if "configMap" in each
    ]
    claims = [
        (kinds.CLAIM, each["persistentVolumeClaim"]["claimName"])
        for each in volumes
        if "persistentVolumeClaim" in each
    ]
    return (*config_maps, *claims)


async def _nothing() -> None:
    return None


def _with_free(node: NodeAccelerators, claimed: Mapping[str, int]) -> NodeAccelerators:
    """What pods have left of the node's devices; nothing where it takes no more pods."""
    devices = {name: amount for name, amount in node.allocatable.items() if "/" in name and amount > 0}
    cordoned = node.free is not None
    if not devices or not (claimed or cordoned):
        return node
    return replace(
        node,
        free={
            name: 0 if cordoned else max(0, amount - claimed.get(name, 0)) for name, amount in devices.items()
        },
    )


def _node(node: Mapping[str, Any]) -> NodeAccelerators:
    allocatable = node.get("status", {}).get("allocatable") or {}
    return NodeAccelerators(
        node_name=node["metadata"]["name"],
        labels=node["metadata"].get("labels") or {},
        allocatable={name: int(parse_quantity(amount)) for name, amount in allocatable.items()},
        free={} if node.get("spec", {}).get("unschedulable") else None,
    )

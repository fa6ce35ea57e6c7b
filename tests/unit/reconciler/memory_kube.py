"""An API server in memory, as far as a reconcile can tell, and a service in it to reconcile.

Server-side apply is a merge of what is applied, without managed fields; tests that need those run on a real one.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import factories as make
from llmservice_operator.api.labels import API_VERSION, KIND
from llmservice_operator.clients.engine import EngineReport, EngineUnreachableError, parse_report
from llmservice_operator.clients.kube import ConflictError, InvalidError, KubeError, NotFoundError
from llmservice_operator.clients.modelhub import HubModel, ModelHubError
from llmservice_operator.controller.autoscale_board import Board
from llmservice_operator.controller.calibration import CalibrationStore
from llmservice_operator.controller.keys import Key
from llmservice_operator.controller.observed import ReconcileSettings
from llmservice_operator.controller.reconciler import Reconciler
from llmservice_operator.controller.store import Store
from llmservice_operator.engines.vllm import VllmEngine
from llmservice_operator.perfmodel.accelerators import AcceleratorRow
from llmservice_operator.resources.types import RenderSettings

Object = dict[str, Any]
KEY = Key("default", "chat")
RENDER = RenderSettings(
    supervisor_image="ghcr.io/llmservice/operator:0.1.0",
    engine_images={"default": "vllm/vllm-openai:v0.33.0", "cpu": "ghcr.io/llmservice/vllm-cpu:0.32.0"},
)


class Killed(BaseException):
    """The operator's process dies here."""


class MemoryKube:
    """KubeClient over a dict. `refuse` maps a kind to the error of its applies; `die_after` counts writes."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.writes: list[tuple[str, str, str]] = []
        self.refuse: dict[str, KubeError] = {}
        self.die_after: int | None = None
        self._version = 100

    def put(self, obj: Object) -> Object:
        self._version += 1
        metadata = obj["metadata"]
        metadata.setdefault("namespace", KEY.namespace)
        metadata.setdefault("uid", f"uid-{obj['kind']}-{metadata['name']}-{self._version}")
        metadata["resourceVersion"] = str(self._version)
        self.objects[obj["kind"], metadata["name"]] = obj
        return deepcopy(obj)

    async def get(self, kind: str, namespace: str | None, name: str) -> Object | None:
        del namespace
        return deepcopy(self.objects.get((kind, name)))

    async def apply(self, manifest: Mapping[str, Any], *, force: bool = True) -> Object:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if kind in self.refuse:
            raise self.refuse[kind]
        old = self.objects.get((kind, name))
        if old is not None and not force:
            raise ConflictError(409, "Conflict", "another manager owns a field")
        if old is not None and kind == "ControllerRevision" and old["data"] != manifest["data"]:
            raise InvalidError(422, "Invalid", "data: field is immutable")
        self._write("apply", kind, name)
        return self.put(_merged(old or {}, deepcopy(dict(manifest))))

    async def create(self, manifest: Mapping[str, Any]) -> Object:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if kind in self.refuse:
            raise self.refuse[kind]
        if (kind, name) in self.objects:
            raise ConflictError(409, "AlreadyExists", f"{kind} {name} already exists")
        self._write("create", kind, name)
        return self.put(deepcopy(dict(manifest)))

    async def apply_status(self, manifest: Mapping[str, Any]) -> Object:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        self._write("status", kind, name)
        return self.put({**self.objects[kind, name], "status": deepcopy(dict(manifest["status"]))})

    async def patch(self, kind: str, namespace: str | None, name: str, body: Mapping[str, Any]) -> Object:
        """A merge patch of annotations, the only one that a reconcile sends."""
        del namespace
        if kind in self.refuse:
            raise self.refuse[kind]
        if (kind, name) not in self.objects:
            raise NotFoundError(404, "NotFound", f"{kind} {name} not found")
        self._write("patch", kind, name)
        obj = deepcopy(self.objects[kind, name])
        obj["metadata"].setdefault("annotations", {}).update(body["metadata"]["annotations"])
        return self.put(obj)

    async def delete(self, kind: str, namespace: str | None, name: str, *, uid: str | None = None) -> None:
        del namespace, uid
        self._write("delete", kind, name)
        self.objects.pop((kind, name), None)

    def _write(self, verb: str, kind: str, name: str) -> None:
        if self.die_after is not None:
            if self.die_after == 0:
                raise Killed
            self.die_after -= 1
        self.writes.append((verb, kind, name))


class StillClock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.seconds = make.NOW

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Engines:
    """EngineClient whose supervisors say what the test put here, by address."""

    def __init__(self) -> None:
        self.reports: dict[str, Object] = {}
        self.asked: list[str] = []

    async def report(self, host: str, port: int) -> EngineReport:
        del port
        self.asked.append(host)
        if host not in self.reports:
            raise EngineUnreachableError(f"{host} does not answer")
        import json

        return parse_report(json.dumps(self.reports[host]))


class Hub:
    """ModelHub with these models."""

    def __init__(self) -> None:
        self.models: dict[tuple[str, str], HubModel] = {}
        self.error: ModelHubError | None = None

    async def model(self, repository: str, revision: str) -> HubModel:
        if self.error is not None:
            raise self.error
        return self.models[repository, revision]


class Said:
    """Recorder that keeps what was said."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def event(self, obj_ref: Mapping[str, Any], type_: str, reason: str, message: str) -> None:
        del obj_ref
        self.events.append((type_, reason, message))


@dataclass
class World:
    """A service `chat` and an operator that reconciles it when told to."""

    catalogue: tuple[AcceleratorRow, ...]
    render: RenderSettings = RENDER
    kube: MemoryKube = field(default_factory=MemoryKube)
    clock: StillClock = field(default_factory=StillClock)
    engines: Engines = field(default_factory=Engines)
    hub: Hub = field(default_factory=Hub)
    said: Said = field(default_factory=Said)
    calibration: CalibrationStore = field(init=False)

    def __post_init__(self) -> None:
        import json

        self.start()
        self.kube.put(
            {
                "kind": "ConfigMap",
                "metadata": {"name": "tiny"},
                "data": {"config.json": json.dumps(make.TINY)},
            }
        )

    def start(self, **settings: Any) -> None:
        """Start the operator anew: it remembers nothing."""
        self.store = Store()
        self.board = Board()
        self.calibration = CalibrationStore(
            kube=self.kube,  # type: ignore[arg-type]
            clock=self.clock,
            recorder=self.said,
            namespace="llmservice-system",
            name="llmservice-operator-calibration",
        )
        self.reconciler = Reconciler(
            kube=self.kube,  # type: ignore[arg-type]  the methods that a reconcile uses
            store=self.store,
            recorder=self.said,  # type: ignore[arg-type]
            engine_client=self.engines,
            modelhub=self.hub,
            engine=VllmEngine(),
            clock=self.clock,
            settings=ReconcileSettings(render=self.render, catalogue=self.catalogue, **settings),
            calibration=self.calibration,
            board=self.board,
        )

    def serve(self, *, annotations: Object | None = None, **spec: Any) -> None:
        """Create the service, or change what its user says."""
        old = self.kube.objects.get((KIND, KEY.name))
        body = {
            "model": {"uri": "pvc://models/tiny", "configMap": "tiny"},
            "accelerator": {"types": ["cpu"]},
            **spec,
        }
        generation = 1 if old is None else old["metadata"]["generation"] + (old["spec"] != body)
        metadata = {**(old["metadata"] if old else {"name": KEY.name, "uid": "uid-chat"})}
        metadata |= {"generation": generation, "annotations": annotations or {}}
        status = {"status": old["status"]} if old is not None and "status" in old else {}
        self.kube.put({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": body, **status})

    async def reconcile(self) -> float | None:
        """One reconcile, of all that the API server has now."""
        for (kind, _name), obj in self.kube.objects.items():
            self.store.put(kind, deepcopy(obj))
        for kind in {kind for kind, _ in self.kube.objects} | {
            KIND,
            "Pod",
            "ControllerRevision",
            "Deployment",
            "Service",
        }:
            for where in self.store.versions(kind):
                if (kind, where[1]) not in self.kube.objects:
                    gone = self.store.get(kind, *where)
                    assert gone is not None
                    self.store.drop(kind, gone)
        return await self.reconciler.reconcile(KEY)

    async def settle(self) -> float | None:
        """Reconcile until nothing is written any more."""
        for _ in range(10):
            before = len(self.kube.writes)
            again = await self.reconcile()
            if len(self.kube.writes) == before:
                return again
        raise AssertionError(f"still writing after ten reconciles: {self.kube.writes[-4:]}")

    @property
    def status(self) -> Object:
        status: Object = self.kube.objects[KIND, KEY.name].get("status", {})
        return status

    def condition(self, condition_type: str) -> tuple[str, str, str]:
        """Status, reason and message."""
        found = next(each for each in self.status["conditions"] if each["type"] == condition_type)
        return found["status"], found["reason"], found.get("message", "")

    @property
    def deployment(self) -> Object:
        return self.kube.objects["Deployment", KEY.name]

    @property
    def revision(self) -> str:
        """The one that the Deployment runs."""
        labels: Object = self.deployment["spec"]["template"]["metadata"]["labels"]
        return str(labels["llmservice.dev/revision"])

    @property
    def engine_args(self) -> list[str]:
        args: list[str] = self.deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        return args

    def revisions(self) -> list[Object]:
        found = [obj for (kind, _), obj in self.kube.objects.items() if kind == "ControllerRevision"]
        return sorted(found, key=lambda each: int(each["revision"]))

    def add_pod(self, pod: Object) -> None:
        self.kube.put(pod)

    def drop_pods(self) -> None:
        self.kube.objects = {where: obj for where, obj in self.kube.objects.items() if where[0] != "Pod"}


def _merged(old: Object, new: Object) -> Object:
    merged = {**old, **new}
    for name in ("metadata", "spec"):
        if name in old and name in new:
            merged[name] = {**old[name], **new[name]}
    return merged

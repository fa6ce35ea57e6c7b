"""What the autoscaler is told of a service: only what it needs, taken from one reconcile's findings. Pure.

A reconcile follows every change of a service, its Deployment and its pods, so the newest subject is how things are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from llmservice_operator.api.conditions import Reason
from llmservice_operator.api.durations import parse_duration_seconds
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.autoscaling.capacity import LengthMix
from llmservice_operator.autoscaling.decision import Objectives
from llmservice_operator.controller.autoscale_capacity import CapacityCase, capacity_case, expected_mix
from llmservice_operator.controller.decide import Intent
from llmservice_operator.controller.failures import LOOP_RESTARTS
from llmservice_operator.controller.keys import Key
from llmservice_operator.controller.observed import Observed
from llmservice_operator.controller.podstate import INIT_FAILED, NODE_LOST, PodStage, PodState
from llmservice_operator.engines.versions import Version, parse_version
from llmservice_operator.planning.types import Plan
from llmservice_operator.resources.model_source import parse_model_uri
from llmservice_operator.resources.replicas import scaling_bounds
from llmservice_operator.resources.supervisor import expected_start_seconds

_STUCK = frozenset({Reason.IMAGE_PULL_FAILED, Reason.CONTAINER_CONFIG_INVALID, INIT_FAILED})
"""Troubles of a pod that is being made, and that another pod would have too."""
_AWAY = frozenset({NODE_LOST, Reason.PROBE_FAILING})
"""A replica that served and doesn't answer: it neither serves, nor starts, nor says anything of starts."""


class Role(StrEnum):
    """What a pod is to the autoscaler."""

    READY = "ready"
    STARTING = "starting"
    UNSCHEDULABLE = "unschedulable"
    FAILING = "failing"
    """Its engine ends again and again, or can't be started at all."""
    AWAY = "away"
    """It served once and doesn't answer now."""
    LEAVING = "leaving"
    """It finishes what it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePod:
    """One pod of the service. Times are seconds since the Unix epoch."""

    name: str
    role: Role
    host: str
    """Its address; empty: it has none."""
    incarnation: str
    """Tells one engine process from the next in the same pod."""
    created_at: float
    ready_since: float | None = None
    began_anew: bool = False
    """Its engine was restarted: what it took to be ready says nothing of a new replica's start."""

    @property
    def serves(self) -> bool:
        """Whether its engine may have requests, and so is asked for its metrics."""
        return bool(self.host) and self.role in (Role.READY, Role.LEAVING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """`spec.scaling`."""

    min_replicas: int
    max_replicas: int
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One service as the autoscaler sees it."""

    key: Key
    uid: str
    generation: int
    pods: tuple[EnginePod, ...]
    wanted: int
    """Replicas that the Deployment asks for."""
    refused: bool
    """The API server refuses to make pods: quota, Pod Security or another rule."""
    bounds: Bounds | None
    """None: the service isn't scaled, it is only measured."""
    objectives: Objectives
    expected_mix: LengthMix
    engine_version: Version | None
    accelerator: str
    accelerators_per_replica: int
    peak_bytes_per_second: float | None
    """Of one card's memory; None on CPUs."""
    capacity: CapacityCase
    planned_start_seconds: float
    other_writer: str
    """Who else sets the number of replicas; empty: nobody."""
    paused: bool
    """Nothing is written for the service but its status."""
    memory: str
    """`status.scaling.state` as it was last written."""

    @property
    def ready(self) -> dict[str, float]:
        """Since when each ready pod is so, by name."""
        return {pod.name: pod.ready_since or pod.created_at for pod in self.pods if pod.role is Role.READY}

    def count(self, role: Role) -> int:
        """How many pods are in this role."""
        return sum(pod.role is role for pod in self.pods)


def subject_of(observed: Observed, intent: Intent, deployment: Mapping[str, Any] | None) -> Subject | None:
    """The service with its Deployment as it is after the reconcile's writes; None: there is nothing to look after.

    That is a service without spec.scaling and spec.slo, and one of which nothing runs.
    """
    spec, active = observed.spec, intent.selection.active
    if spec is None or active is None or deployment is None:
        return None
    objectives = objectives_of(spec)
    if spec.scaling is None and objectives == Objectives():
        return None
    plan, choice = active.plan, intent.replicas
    wanted = (deployment.get("spec") or {}).get("replicas")
    return Subject(
        key=observed.key,
        uid=observed.identity.uid,
        generation=observed.generation,
        pods=engine_pods(observed.pods),
        wanted=wanted if isinstance(wanted, int) else 1,
        refused=_is_refused(deployment),
        bounds=_bounds(spec),
        objectives=objectives,
        expected_mix=expected_mix(plan.speed),
        engine_version=parse_version(plan.engine_version),
        accelerator=plan.accelerator.name,
        accelerators_per_replica=plan.accelerators_per_replica,
        peak_bytes_per_second=None
        if plan.accelerator.is_cpu
        else plan.accelerator.memory_bandwidth_bytes_per_second,
        capacity=capacity_case(
            plan,
            revision=active.name,
            config=None if observed.model.facts is None else observed.model.facts.config,
            config_digest=observed.model.config_digest,
            objectives=objectives,
        ),
        planned_start_seconds=_start_seconds(observed, spec, plan),
        other_writer="" if choice is None else ", ".join(choice.held_by),
        paused=intent.paused,
        memory="" if observed.status.scaling is None else observed.status.scaling.state,
    )


def objectives_of(spec: LLMServiceSpec) -> Objectives:
    """`spec.slo` in seconds."""

    def seconds(name: str, text: str | None) -> float | None:
        return None if text is None else parse_duration_seconds(text, field=f"spec.slo.{name}.p95")

    return Objectives(
        ttft_p95_seconds=seconds("ttft", spec.slo.ttft.p95),
        tpot_p95_seconds=seconds("tpot", spec.slo.tpot.p95),
    )


def engine_pods(pods: Iterable[PodState]) -> tuple[EnginePod, ...]:
    """The pods that count; those that have ended for good don't."""
    return tuple(
        EnginePod(
            name=pod.name,
            role=_role(pod),
            host=pod.host,
            incarnation=f"{pod.uid}/{pod.restarts}",
            created_at=pod.created_at if pod.restarts == 0 else pod.engine_started_at or pod.created_at,
            ready_since=pod.ready_since,
            began_anew=pod.restarts > 0,
        )
        for pod in pods
        if pod.stage is not PodStage.ENDED
    )


def _role(pod: PodState) -> Role:
    if pod.stage is PodStage.READY:
        return Role.READY
    if pod.stage is PodStage.STOPPING:
        return Role.LEAVING
    trouble = pod.trouble
    if trouble is None:
        return Role.STARTING
    if pod.stage is PodStage.UNSCHEDULED:
        return Role.UNSCHEDULABLE
    if trouble.reason in _AWAY:
        return Role.AWAY
    loops = trouble.failure is not None and pod.restarts >= LOOP_RESTARTS
    fails = loops or trouble.needs_person or trouble.reason in _STUCK
    return Role.FAILING if fails else Role.STARTING


def _is_refused(deployment: Mapping[str, Any]) -> bool:
    conditions = (deployment.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "ReplicaFailure" and each.get("status") == "True" for each in conditions)


def _bounds(spec: LLMServiceSpec) -> Bounds | None:
    bounds = scaling_bounds(spec)
    if bounds is None or spec.scaling is None:
        return None
    return Bounds(min_replicas=bounds[0], max_replicas=bounds[1], policy=spec.scaling.policy)


def _start_seconds(observed: Observed, spec: LLMServiceSpec, plan: Plan) -> float:
    """As the engine's last start went by its own account, else as starts usually do with so many weights."""
    engine = observed.status.engine
    told = sum(phase.seconds for phase in engine.start) if engine is not None else 0.0
    expected = expected_start_seconds(plan.weights_bytes, local=parse_model_uri(spec.model.uri).local)
    return max(told, 1.0) if told else expected

"""The conditions of an LLMService: their types, their reasons, and how one is set.

Every type is good at True, but for Stalled, which is True only when a person is needed.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field

from llmservice_operator.api.base import StatusModel

ConditionStatus = Literal["True", "False", "Unknown"]

MESSAGE_MAX_LENGTH = 1024
"""Longer messages are cut, so that the whole status stays under 16 KiB."""


class ConditionType(StrEnum):
    """What is told of a service, in the order in which it is told."""

    READY = "Ready"
    """The summary: what was asked for answers requests. True at zero replicas too, as ScaledToZero."""
    STALLED = "Stalled"
    """True: nothing will get better without a person; the reason and message say what to do."""
    PLANNED = "Planned"
    """The model, the accelerator and the workload fit together, and the engine's settings are chosen."""
    AVAILABLE = "Available"
    """At least one replica answers requests (or none is wanted)."""
    PROGRESSING = "Progressing"
    """What is wanted is there or getting there. False: it is stuck, for the reason given."""
    UP_TO_DATE = "UpToDate"
    """What runs is what this release would plan and render now. False is no fault: it offers a refresh."""
    PLAN_ACCURATE = "PlanAccurate"
    """What the engine measured is what was planned, within tolerance. Unknown before the first report."""
    METRICS_AVAILABLE = "MetricsAvailable"
    """What a decision about fewer replicas needs is known and fresh. Told with spec.scaling or spec.slo."""
    SCALING_ACTIVE = "ScalingActive"
    """The operator sets the number of replicas. Told with spec.scaling, and where another manager sets it."""
    SLO_MET = "SLOMet"
    """What clients see is within spec.slo. Unknown where too little was seen to tell. Told with spec.slo."""


class Reason(StrEnum):
    """Why a condition is what it is: one word for machines, beside a message for people."""

    # Planned
    PLANNED = "Planned"
    """A plan stands; status.plan holds it."""
    PLAN_CORRECTED = "PlanCorrected"
    """The engine ran short of memory, and the plan was corrected once from its own numbers."""
    OBJECTIVE_MISSED = "ObjectiveMissed"
    """A plan stands, and its prediction does not keep spec.slo; the message has by how much, and why."""
    DOES_NOT_FIT = "DoesNotFit"
    """The model and the workload do not fit; the message has the shortfall and the cheapest mend."""
    INVALID_SPEC = "InvalidSpec"
    """Fields contradict each other, or the model, in a way that the API server cannot see."""
    UNKNOWN_ACCELERATOR = "UnknownAccelerator"
    """spec.accelerator.types names no row of the catalogue."""
    UNSUPPORTED_MODEL = "UnsupportedModel"
    """config.json tells of an architecture that cannot be sized."""
    INVALID_MODEL_CONFIG = "InvalidModelConfig"
    """config.json was read, and what it says makes no sense."""
    MODEL_CONFIG_UNAVAILABLE = "ModelConfigUnavailable"
    """config.json could not be read; the message has both ways out: a ConfigMap or a hub token."""
    NO_ACCELERATOR_SEEN = "NoAcceleratorSeen"
    """No node with a fitting accelerator is visible yet; pools may start at zero nodes."""
    ACCELERATOR_REQUIRED = "AcceleratorRequired"
    """The operator may not see nodes here, so spec.accelerator.types must say what to use."""

    # Ready, Available, Progressing: the good
    READY = "Ready"
    """Every wanted replica is ready."""
    SCALED_TO_ZERO = "ScaledToZero"
    """No replica is wanted, and none runs."""
    REPLICAS_AVAILABLE = "ReplicasAvailable"
    """At least one replica is ready."""
    COMPLETE = "Complete"
    """Every wanted replica runs the current revision and is ready."""

    # Progressing: on the way
    RECONCILING = "Reconciling"
    """Children are being made or changed."""
    ROLLING_OUT = "RollingOut"
    """Replicas of an older revision are being replaced."""
    SCALING = "Scaling"
    """Replicas are being added or removed."""
    POD_STARTING = "PodStarting"
    """A pod is bound to a node and its containers are being made: volumes, images."""
    ENGINE_STARTING = "EngineStarting"
    """The engine runs and does not serve yet; the message names the step."""
    LOADING_WEIGHTS = "LoadingWeights"
    """The engine reads the weights; the message has done, total, rate and the time left."""
    PROVING_PLAN = "ProvingPlan"
    """One replica starts first, since no engine has reported on this revision; the others follow."""

    # Pods that are stuck
    NO_READY_REPLICAS = "NoReadyReplicas"
    """Replicas are wanted and none is ready."""
    UNSCHEDULABLE = "Unschedulable"
    """No node takes the pod; the message is the scheduler's own."""
    IMAGE_PULL_FAILED = "ImagePullFailed"
    """An image cannot be pulled; the message is the node's own."""
    CONTAINER_CONFIG_INVALID = "ContainerConfigInvalid"
    """A container cannot be made, most often for a Secret or ConfigMap that is not there."""
    VOLUME_NOT_MOUNTED = "VolumeNotMounted"
    """A volume cannot be attached or mounted, most often for a claim that is not bound."""
    POD_EVICTED = "PodEvicted"
    """The node evicted the pod, most often for memory or disk."""
    CRASH_LOOPING = "CrashLooping"
    """The engine ends again and again; the message has its last words."""
    PROBE_FAILING = "ProbeFailing"
    """The pod runs and its probe fails."""
    POD_REFUSED = "PodRefused"
    """The API server refuses to make the pod: quota, Pod Security or another rule, in its own words."""

    # How the engine ended: the supervisor's classes, by the same names
    KV_CACHE_TOO_SMALL = "KvCacheTooSmall"
    """The engine has less memory for the KV cache than one request of full length needs."""
    OUT_OF_MEMORY = "OutOfMemory"
    """The accelerator's memory ran out; the message tells in which stage."""
    DEVICE_NOT_EMPTY = "DeviceNotEmpty"
    """Something else holds memory on the accelerator."""
    MODEL_NOT_FOUND = "ModelNotFound"
    """The model or its revision is not there."""
    MODEL_ACCESS_DENIED = "ModelAccessDenied"
    """The hub wants a token, or another one."""
    MODEL_INVALID = "ModelInvalid"
    """The engine cannot make sense of the model's files."""
    DISK_FULL = "DiskFull"
    """The cache volume is full."""
    BAD_FLAG = "BadFlag"
    """The engine does not know or take one of its flags."""
    PORT_IN_USE = "PortInUse"
    """The engine's port is taken in its pod."""
    SHARED_MEMORY_TOO_SMALL = "SharedMemoryTooSmall"
    """The shared memory of the pod is too small for the ranks' queues."""
    WRONG_ACCELERATOR = "WrongAccelerator"
    """The device that the pod got is not the one that was planned for."""
    ENGINE_DIED = "EngineDied"
    """The engine ended while it served."""
    HOST_OUT_OF_MEMORY = "HostOutOfMemory"
    """The kernel killed the engine for host memory."""
    SIGNAL = "Signal"
    """The engine was ended by a signal."""
    START_TIMEOUT = "StartTimeout"
    """The engine did not serve within its start budget."""
    HUNG = "Hung"
    """Requests ran and no token came for too long."""
    ENGINE_NOT_FOUND = "EngineNotFound"
    """No interpreter in the image can import the engine."""
    STOPPED = "Stopped"
    """The engine was asked to stop."""
    UNKNOWN = "Unknown"
    """The engine ended and its words match no known cause; the message has them."""

    # What stands in the operator's way
    PAUSED = "Paused"
    """The pause annotation is set: nothing is written but the status."""
    NAME_CONFLICT = "NameConflict"
    """A child's name is taken by an object that is not this service's; it is never touched."""
    APPLY_REFUSED = "ApplyRefused"
    """The API server refuses a child; the message is its own."""
    REPLICAS_OWNED_BY_OTHER = "ReplicasOwnedByOther"
    """Another field manager, such as an HPA, sets the Deployment's replicas."""

    # Stalled
    NOT_STALLED = "NotStalled"
    """No person is needed."""

    # UpToDate
    UP_TO_DATE = "UpToDate"
    """This release would plan and render the same."""
    REFRESH_AVAILABLE = "RefreshAvailable"
    """This release would plan or render otherwise; the message has the differences and how to take them."""
    NOT_YET_PLANNED = "NotYetPlanned"
    """There is no revision to compare."""

    # PlanAccurate
    WITHIN_TOLERANCE = "WithinTolerance"
    """Every term that the engine reports is as planned."""
    NOT_YET_REPORTED = "NotYetReported"
    """No engine of this revision has reported yet."""
    REPORT_INCOMPLETE = "ReportIncomplete"
    """The engine did not say what can be compared, most often in a version whose log lines are not known."""
    ACCELERATOR_DIFFERS = "AcceleratorDiffers"
    """The card has another amount of memory than its row of the catalogue says."""
    KV_CACHE_OVER_PROMISED = "KvCacheOverPromised"
    """The engine has less memory for the KV cache than was planned."""
    MEMORY_DIFFERS = "MemoryDiffers"
    """A term of the account is off; the message names it and says by how much."""
    MEMORY_LEFT_UNUSED = "MemoryLeftUnused"
    """The engine has more memory for the KV cache than was planned, beyond the plan's margin."""

    # MetricsAvailable
    METRICS_FRESH = "MetricsFresh"
    """Every signal that a decision needs was measured lately."""
    METRICS_STALE = "MetricsStale"
    """A signal is older than it should be, or does not move although the engine has work."""
    METRICS_MISSING = "MetricsMissing"
    """A signal is not there: a replica cannot be scraped, or its engine does not export it."""
    METRICS_INVALID = "MetricsInvalid"
    """A signal is not a number, negative or beyond what any engine reaches."""
    METRICS_RESET = "MetricsReset"
    """A counter began anew, so what came in between is not known."""
    METRICS_STARTING = "MetricsStarting"
    """Replicas are scraped, and not for long enough yet to tell a rate."""

    # ScalingActive
    SCALING_ACTIVE = "ScalingActive"
    """The number of replicas follows the load; the message has the last decision."""
    AT_MAXIMUM = "AtMaximum"
    """The load asks for more replicas than maxReplicas; the message says how many, and by which measure."""
    POLICY_NOT_FOUND = "PolicyNotFound"
    """There is no ScalingPolicy of the name in spec.scaling.policy; the number of replicas is held."""
    POLICY_INVALID = "PolicyInvalid"
    """The ScalingPolicy says what cannot be meant; the number of replicas is held."""
    SCALING_INPUT_INVALID = "ScalingInputInvalid"
    """The service's own fields say what cannot be scaled by; the number of replicas is held."""
    WITHIN_BOUNDS = "WithinBounds"
    """The number of replicas is within spec.scaling and is kept."""
    RAISED_TO_MINIMUM = "RaisedToMinimum"
    """The number of replicas was below spec.scaling.minReplicas."""
    LOWERED_TO_MAXIMUM = "LoweredToMaximum"
    """The number of replicas was above spec.scaling.maxReplicas."""

    # SLOMet
    OBJECTIVES_MET = "ObjectivesMet"
    """95 of 100 requests or more were served within each objective."""
    OBJECTIVES_MISSED = "ObjectivesMissed"
    """An objective is missed; the message says which, and by how much."""
    OBJECTIVES_UNREACHABLE = "ObjectivesUnreachable"
    """No number of replicas keeps an objective; the message says which, and what bounds it."""
    TOO_FEW_REQUESTS = "TooFewRequests"
    """There were too few requests to tell a p95."""
    NO_TRAFFIC = "NoTraffic"
    """There were no requests."""


class Condition(StatusModel):
    """One condition, in the shape of `metav1.Condition`."""

    type: str = Field(min_length=1, max_length=63)
    """Ready, Stalled, Planned, Available, Progressing, UpToDate, PlanAccurate, MetricsAvailable, ScalingActive or
    SLOMet. All but Stalled are good at True."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: str = Field(min_length=1, max_length=63)
    """One word for machines."""
    message: str = Field(default="", max_length=MESSAGE_MAX_LENGTH)
    """What it means and what to do, for people."""
    observed_generation: int = Field(default=0, ge=0)
    """metadata.generation that this was decided from."""
    last_transition_time: datetime
    """When `status` last changed (RFC 3339)."""


def timestamp(now: float) -> datetime:
    """The time of a condition from seconds since the Unix epoch, in whole seconds as Kubernetes keeps it."""
    return datetime.fromtimestamp(int(now), tz=UTC)


def find_condition(conditions: Iterable[Condition], condition_type: ConditionType) -> Condition | None:
    """The condition of this type, if it is set."""
    return next((each for each in conditions if each.type == condition_type), None)


def set_condition(
    conditions: Iterable[Condition],
    condition_type: ConditionType,
    status: ConditionStatus,
    reason: str,
    message: str,
    *,
    generation: int,
    now: float,
) -> tuple[Condition, ...]:
    """The conditions with this one added or changed, in the types' order; unknown types stay, at the end.

    lastTransitionTime moves only when the status does. `now` is in seconds since the Unix epoch.
    """
    before = tuple(conditions)
    old = find_condition(before, condition_type)
    kept = old is not None and old.status == status
    changed = Condition(
        type=condition_type.value,
        status=status,
        reason=str(reason),
        message=_shortened(message),
        observed_generation=generation,
        last_transition_time=old.last_transition_time if old is not None and kept else timestamp(now),
    )
    others = tuple(each for each in before if each.type != condition_type)
    return tuple(sorted((*others, changed), key=lambda each: _rank(each.type)))


def _shortened(message: str) -> str:
    return message if len(message) <= MESSAGE_MAX_LENGTH else message[: MESSAGE_MAX_LENGTH - 1] + "…"


def _rank(condition_type: str) -> int:
    order = [each.value for each in ConditionType]
    return order.index(condition_type) if condition_type in order else len(order)

"""Closed shapes of the core API's types that a pod template passes through as they are.

The fields are those of core/v1 in Kubernetes 1.36; what would give a pod more than its namespace (privilege,
host namespaces, capabilities, sysctls) is left out on purpose.
"""

from typing import Annotated, Literal

from pydantic import Field

from llmservice_operator.api.base import SpecModel
from llmservice_operator.api.markers import Rule, Satisfies, says
from llmservice_operator.api.names import LabelMap
from llmservice_operator.api.quantities import QUANTITY_MAX_LENGTH, QUANTITY_MEND, parse_quantity
from llmservice_operator.errors import InvalidInputError

Key = Annotated[str, Field(min_length=1, max_length=317)]
Values = Annotated[tuple[Annotated[str, Field(max_length=63)], ...], Field(max_length=64)]
Weight = Annotated[int, Field(ge=1, le=100)]


class Requirement(SpecModel):
    """A requirement on a label or a field."""

    key: Key
    """The label's or the field's name."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """How key and values relate."""
    values: Values | None = None
    """Values, for In, NotIn, Gt and Lt."""


class NodeSelectorTerm(SpecModel):
    """Requirements that a node must all meet."""

    match_expressions: tuple[Requirement, ...] | None = Field(default=None, max_length=32)
    """Requirements on the node's labels."""
    match_fields: tuple[Requirement, ...] | None = Field(default=None, max_length=32)
    """Requirements on the node's fields; only metadata.name is one."""


class NodeSelector(SpecModel):
    """Terms of which a node must meet one."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = Field(min_length=1, max_length=32)
    """The terms."""


class PreferredNodes(SpecModel):
    """A preference among nodes."""

    weight: Weight
    """1 to 100."""
    preference: NodeSelectorTerm
    """What is preferred."""


class NodeAffinity(SpecModel):
    """Which nodes a pod must or should run on."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """What a node must have."""
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredNodes, ...] | None = Field(
        default=None, max_length=32
    )
    """What a node should have."""


class LabelRequirement(SpecModel):
    """A requirement on a label."""

    key: Key
    """The label's name."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How key and values relate."""
    values: Values | None = None
    """Values, for In and NotIn."""


class LabelSelector(SpecModel):
    """Objects by their labels."""

    match_labels: LabelMap | None = None
    """Labels that must be there."""
    match_expressions: tuple[LabelRequirement, ...] | None = Field(default=None, max_length=32)
    """Requirements that must be met."""


class PodAffinityTerm(SpecModel):
    """Pods to be near to, or far from."""

    label_selector: LabelSelector | None = None
    """The pods."""
    namespaces: Values | None = None
    """Their namespaces; absent: the pod's own."""
    namespace_selector: LabelSelector | None = None
    """Their namespaces, by labels."""
    topology_key: Key
    """The node label whose equal values mean near."""
    match_label_keys: Values | None = None
    """Label keys whose values are taken from the new pod."""
    mismatch_label_keys: Values | None = None
    """Label keys whose values must differ from the new pod's."""


class PreferredPods(SpecModel):
    """A preference for pods near by."""

    weight: Weight
    """1 to 100."""
    pod_affinity_term: PodAffinityTerm
    """The pods."""


class PodAffinity(SpecModel):
    """Which pods to be near to, or far from."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] | None = Field(
        default=None, max_length=32
    )
    """What must hold."""
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredPods, ...] | None = Field(
        default=None, max_length=32
    )
    """What should hold."""


class Affinity(SpecModel):
    """Where a pod is scheduled, in the core API's own shape."""

    node_affinity: NodeAffinity | None = None
    """By nodes. The operator adds the accelerator's own node labels to every term."""
    pod_affinity: PodAffinity | None = None
    """Near these pods."""
    pod_anti_affinity: PodAffinity | None = None
    """Far from these pods."""


class Toleration(SpecModel):
    """A taint that the pod tolerates, in the core API's own shape."""

    key: str | None = Field(default=None, max_length=317)
    """The taint's key; absent: every taint."""
    operator: Literal["Exists", "Equal"] | None = None
    """Default: Equal."""
    value: str | None = Field(default=None, max_length=63)
    """The taint's value, for Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Absent: every effect."""
    toleration_seconds: int | None = Field(default=None, ge=0, le=604_800)
    """How long NoExecute is tolerated, in seconds; absent: for ever."""


class TopologySpreadConstraint(SpecModel):
    """How pods are spread, in the core API's own shape."""

    max_skew: int = Field(ge=1, le=1_000)
    """How uneven the spread may be, in pods."""
    topology_key: Key
    """The node label whose values are spread over."""
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    """What to do where the spread cannot be had."""
    label_selector: LabelSelector | None = None
    """The pods that are counted; absent: the service's own."""
    min_domains: int | None = Field(default=None, ge=1, le=1_000)
    """How many values there must be at least."""
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    """Whether the pod's node affinity limits the nodes that count."""
    node_taints_policy: Literal["Honor", "Ignore"] | None = None
    """Whether taints limit the nodes that count."""
    match_label_keys: Values | None = None
    """Label keys whose values are taken from the new pod."""


def _amount_fault(amounts: dict[str, int | str]) -> str | None:
    for name, amount in amounts.items():
        try:
            value = parse_quantity(amount)
        except InvalidInputError:
            return f"{name} is {str(amount)[:64]!r}: {QUANTITY_MEND}"
        if not 0 <= value <= parse_quantity("64Ti"):
            return f"{name} is {amount}: {AMOUNT_BOUNDS}"
        if name in ACCELERATOR_RESOURCES or name.startswith(ACCELERATOR_PREFIX):
            return f"{name}: {ACCELERATOR_MEND}"
    return None


AMOUNT_BOUNDS = "an amount must be from 0 to 64Ti"
ACCELERATOR_RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu")
ACCELERATOR_PREFIX = "nvidia.com/mig-"
ACCELERATOR_MEND = (
    "the plan asks for the accelerators; set spec.accelerator.resourceName, spec.accelerator.types and "
    "spec.accelerator.parallelism.tensor"
)

# Kubernetes 1.31 takes a value that may be a number for a string of any length, and charges each call for it: with 16
# amounts, or one call of string() or quantity() more, it refuses the CRD.
_IS_AMOUNT = "(type(self[k]) == int || isQuantity(self[k]))"
_IN_BOUNDS = (
    "(type(self[k]) == int ? int(self[k]) >= 0"
    " : !self[k].startsWith('-') && !quantity(self[k]).isGreaterThan(quantity('64Ti')))"
)
_IS_ACCELERATOR = (
    f"(k in [{', '.join(map(repr, ACCELERATOR_RESOURCES))}] || k.startsWith('{ACCELERATOR_PREFIX}'))"
)

Amount = Annotated[
    int | Annotated[str, Field(max_length=QUANTITY_MAX_LENGTH)],
    Field(json_schema_extra={"x-kubernetes-int-or-string": True, "maxLength": QUANTITY_MAX_LENGTH}),
]
Amounts = Annotated[
    dict[str, Amount],
    Field(max_length=12),
    Satisfies(
        _amount_fault,
        (
            Rule(
                rule=f"self.all(k, {_IS_AMOUNT})",
                message_expression=says(f"%s: {QUANTITY_MEND}", f"self.filter(k, !{_IS_AMOUNT})"),
            ),
            Rule(
                rule=f"self.all(k, !{_IS_AMOUNT} || {_IN_BOUNDS})",
                message_expression=says(
                    f"%s: {AMOUNT_BOUNDS}", f"self.filter(k, {_IS_AMOUNT} && !{_IN_BOUNDS})"
                ),
            ),
            Rule(
                rule=f"self.all(k, !{_IS_ACCELERATOR})",
                message_expression=says(f"%s: {ACCELERATOR_MEND}", f"self.filter(k, {_IS_ACCELERATOR})"),
            ),
        ),
    ),
]


class Resources(SpecModel):
    """Host resources of the engine's container, in the core API's own shape."""

    requests: Amounts | None = None
    """What the scheduler keeps for the container: cpu, memory, ephemeral-storage, rdma/..., but not accelerators.
    Absent: planned. Example: {cpu: 8, memory: 64Gi}."""
    limits: Amounts | None = None
    """What the container may not exceed. On the `cpu` row the memory limit is what the model is sized for.
    Example: {memory: 96Gi}."""


class SeccompProfile(SpecModel):
    """The system calls that the container may make."""

    type: Literal["RuntimeDefault", "Localhost"]
    """RuntimeDefault or Localhost."""
    localhost_profile: str | None = Field(default=None, max_length=253)
    """The node's own profile, for Localhost."""


UserId = Annotated[int, Field(ge=0, le=2_147_483_647)]


class PodSecurityContext(SpecModel):
    """User, groups and profile of the pod. Privilege, capabilities and sysctls cannot be given."""

    run_as_user: UserId | None = None
    """User id of every container. Default: 2000."""
    run_as_group: UserId | None = None
    """Group id of every container. Default: 2000."""
    run_as_non_root: bool | None = None
    """Whether user id 0 is refused. Default: true."""
    fs_group: UserId | None = None
    """Group that owns the volumes. Default: 2000."""
    fs_group_change_policy: Literal["OnRootMismatch", "Always"] | None = None
    """When a volume's ownership is changed. Default: OnRootMismatch."""
    supplemental_groups: Annotated[tuple[UserId, ...], Field(max_length=32)] | None = None
    """Further groups of every container."""
    seccomp_profile: SeccompProfile | None = None
    """The system calls that may be made. Default: RuntimeDefault."""


__all__ = [
    "Affinity",
    "PodSecurityContext",
    "Resources",
    "Toleration",
    "TopologySpreadConstraint",
]

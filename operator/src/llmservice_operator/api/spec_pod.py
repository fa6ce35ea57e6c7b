"""`spec.podTemplate`: the closed subset of a pod's fields that a user may set."""

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from llmservice_operator.api.base import SpecModel
from llmservice_operator.api.core_shapes import (
    Affinity,
    PodSecurityContext,
    Resources,
    Toleration,
    TopologySpreadConstraint,
)
from llmservice_operator.api.markers import CoreShape, Matches, Rule, Satisfies, cel_string, rules
from llmservice_operator.api.names import AbsolutePath, Annotations, LabelMap, Labels, ObjectName
from llmservice_operator.api.spec_model import CacheEmptyDir

RESERVED_VOLUME_PREFIX = "llmservice"
_VOLUME_MEND = f"names that begin with {RESERVED_VOLUME_PREFIX} are the operator's; use another name"
RESERVED_MOUNT_PATHS = ("/", "/cache", "/dev", "/llmservice", "/models", "/proc", "/sys", "/tmp")  # noqa: S108
_MOUNT_MEND = "is the operator's or the system's own; mount it elsewhere, such as /data"


def _is_reserved_mount(path: str) -> bool:
    trimmed = path.rstrip("/") or "/"
    return trimmed in RESERVED_MOUNT_PATHS or trimmed.startswith(("/dev/", "/proc/", "/sys/"))


_RESERVED_MOUNT_CEL = (
    f"self in [{', '.join(map(cel_string, RESERVED_MOUNT_PATHS))}]"
    f" || self in [{', '.join(cel_string(path + '/') for path in RESERVED_MOUNT_PATHS if path != '/')}]"
    " || self.startsWith('/dev/') || self.startsWith('/proc/') || self.startsWith('/sys/')"
)

MountPath = Annotated[
    AbsolutePath,
    Satisfies(
        lambda path: f"{path} {_MOUNT_MEND}" if _is_reserved_mount(path) else None,
        (Rule(rule=f"!({_RESERVED_MOUNT_CEL})", message=_MOUNT_MEND),),
    ),
]
VolumeName = Annotated[
    str,
    Field(min_length=1, max_length=63),
    Matches("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "must be lower-case letters, digits and '-'"),
    Satisfies(
        lambda name: _VOLUME_MEND if name.startswith(RESERVED_VOLUME_PREFIX) else None,
        (Rule(rule=f"!self.startsWith('{RESERVED_VOLUME_PREFIX}')", message=_VOLUME_MEND),),
    ),
]

_SOURCES = ("claim", "configMap", "secret", "emptyDir")
_SOURCE_MEND = "set exactly one of claim, configMap, secret and emptyDir"


class PodVolume(SpecModel):
    """A volume for the engine's container, and where it is mounted. Exactly one source is set."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                rule=f"[{', '.join(f'has(self.{source})' for source in _SOURCES)}].filter(each, each).size() == 1",
                message=_SOURCE_MEND,
            )
        )
    )

    name: VolumeName
    """The volume's name."""
    mount_path: MountPath
    """Where it is mounted. Example: /data."""
    sub_path: (
        Annotated[
            str,
            Field(min_length=1, max_length=1_024),
            Matches("^[^/\\s][^\\s]*$", "must be a path inside the volume, not beginning with '/'"),
        ]
        | None
    ) = None
    """Path inside the volume that is mounted. Default: the whole volume."""
    read_only: bool = True
    """Whether writes are refused; an emptyDir is always writable."""
    claim: ObjectName | None = None
    """A PersistentVolumeClaim in the service's namespace."""
    config_map: ObjectName | None = None
    """A ConfigMap in the service's namespace."""
    secret: ObjectName | None = None
    """A Secret in the service's namespace."""
    empty_dir: CacheEmptyDir | None = None
    """Scratch space that lives as long as its pod."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum(each is not None for each in (self.claim, self.config_map, self.secret, self.empty_dir)) != 1:
            raise ValueError(_SOURCE_MEND)
        return self


class PodTemplate(SpecModel):
    """A closed subset of a pod's fields: no containers, no host namespaces, no privilege."""

    labels: Labels = Field(default_factory=dict)
    """Further labels of the pods."""
    annotations: Annotations = Field(default_factory=dict)
    """Further annotations of the pods."""
    node_selector: LabelMap = Field(default_factory=dict)
    """Labels that a node must have, beside those of the accelerator."""
    affinity: Annotated[dict[str, Any], CoreShape(Affinity)] | None = None
    """Where pods are scheduled. The accelerator's own node labels are added."""
    tolerations: Annotated[
        tuple[Annotated[dict[str, Any], CoreShape(Toleration)], ...], Field(max_length=32)
    ] = ()
    """Taints that pods tolerate."""
    priority_class_name: ObjectName | None = None
    """Priority class of the pods."""
    scheduler_name: ObjectName | None = None
    """Scheduler of the pods. Default: the cluster's own."""
    service_account_name: ObjectName | None = None
    """Service account of the pods; its token is not mounted. Default: the namespace's default."""
    image_pull_secrets: Annotated[tuple[ObjectName, ...], Field(max_length=16)] = ()
    """Names of Secrets to pull images with."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """When the engine's image is pulled. Default: by the tag, as in Kubernetes."""
    runtime_class_name: ObjectName | None = None
    """Runtime class of the pods. Example: nvidia."""
    topology_spread_constraints: Annotated[
        tuple[Annotated[dict[str, Any], CoreShape(TopologySpreadConstraint)], ...], Field(max_length=16)
    ] = ()
    """How pods are spread. Default: softly over nodes."""
    resources: Annotated[dict[str, Any], CoreShape(Resources)] | None = None
    """Host resources of the engine's container. Default: planned. Example: {limits: {memory: 64Gi}}."""
    volumes: Annotated[
        tuple[PodVolume, ...],
        Field(
            max_length=16,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = ()
    """Further volumes of the engine's container."""
    security_context: Annotated[dict[str, Any], CoreShape(PodSecurityContext)] | None = None
    """User, groups and seccomp profile of the pods. Default: user 2000, not root, RuntimeDefault."""

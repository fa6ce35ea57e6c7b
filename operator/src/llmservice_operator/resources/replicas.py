"""How many replicas to write into the Deployment, or whose business that is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.resources.managed_fields import other_managers


@dataclass(frozen=True, kw_only=True)
class ReplicaChoice:
    """What to write, and what is wanted in the end."""

    replicas: int | None
    """For `render_deployment`; None: another manager holds the field, and it is left out of our apply."""
    wanted: int
    """What the spec asks for, or what the other manager set."""
    held_by: tuple[str, ...] = ()
    """The other managers of the field."""
    held_back: bool = False
    """Fewer than wanted are written, since no engine has reported on this revision yet."""
    message: str = ""
    """Why another manager's number stands, and how to take it back; empty where ours does."""


def replicas_to_apply(
    spec: LLMServiceSpec,
    observed: Mapping[str, Any] | None,
    *,
    unproven: bool = False,
    decided: int | None = None,
) -> ReplicaChoice:
    """The number of replicas for the next apply.

    The field is in every apply of ours while nobody else manages it: once we own it alone, leaving it out
    removes it, and the API server then defaults it to 1, whatever ran before. An autoscaler that exists and
    has not written yet manages nothing, so our number stands until it does. From its first write (through the
    `scale` subresource, as `kubectl scale` too) the number is its own and we leave the field out; there is
    then another owner, so nothing is reset.

    `observed`: the Deployment, None where there is none yet. `unproven`: no engine has reported on this
    revision; then the count never grows beyond one, and what runs already is not taken away. `decided`: what the
    scaling loop wants; None where it has decided nothing yet, and what runs is kept.
    """
    current = _current(observed)
    held_by = other_managers(observed, "spec", "replicas") if observed is not None else ()
    if observed is not None and current is not None and held_by:
        return ReplicaChoice(
            replicas=None,
            wanted=current,
            held_by=held_by,
            message=_held_message(spec, observed, current, held_by),
        )
    wanted = _wanted(spec, current if decided is None else decided)
    if unproven and wanted > max(1, current or 0):
        return ReplicaChoice(replicas=max(1, current or 0), wanted=wanted, held_back=True)
    return ReplicaChoice(replicas=wanted, wanted=wanted)


def scaling_bounds(spec: LLMServiceSpec) -> tuple[int, int] | None:
    """(least, most) replicas while `spec.scaling` is set. A maximum below the minimum counts as it."""
    if spec.scaling is None:
        return None
    least = spec.scaling.min_replicas
    return least, max(least, spec.scaling.max_replicas)


def _wanted(spec: LLMServiceSpec, current: int | None) -> int:
    bounds = scaling_bounds(spec)
    if bounds is None:
        return spec.replicas
    least, most = bounds
    return least if current is None else min(max(current, least), most)


def _current(observed: Mapping[str, Any] | None) -> int | None:
    if observed is None:
        return None
    replicas = observed.get("spec", {}).get("replicas")
    return replicas if isinstance(replicas, int) else None


def _who(manager: str) -> str:
    """The manager, with what it stands for where its name hides it."""
    is_autoscaler = manager.startswith("kube-controller-manager")
    return f"{manager}, which a HorizontalPodAutoscaler writes by (KEDA's too)" if is_autoscaler else manager


def _held_message(
    spec: LLMServiceSpec, observed: Mapping[str, Any], current: int, held_by: tuple[str, ...]
) -> str:
    name = observed.get("metadata", {}).get("name", "")
    namespace = observed.get("metadata", {}).get("namespace", "")
    bounds = scaling_bounds(spec)
    ours = f"spec.replicas {spec.replicas}" if bounds is None else f"spec.scaling {bounds[0]} to {bounds[1]}"
    return (
        f"Deployment {name} has {current} replicas, set by {', '.join(map(_who, held_by))}; {ours} is not used while "
        "another manager holds the field. To take it back, remove that autoscaler, then run: "
        f"kubectl -n {namespace} patch deployment {name} --type=json "
        """-p='[{"op":"replace","path":"/metadata/managedFields","value":[{}]}]'"""
    )

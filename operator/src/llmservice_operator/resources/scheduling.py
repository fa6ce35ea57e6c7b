"""Which nodes a pod may run on, and which it would rather."""

from copy import deepcopy
from itertools import product
from typing import Any

from llmservice_operator.api.labels import SERVICE_LABEL
from llmservice_operator.api.spec import PodTemplate
from llmservice_operator.planning.types import Plan
from llmservice_operator.resources.types import Identity, Manifest

HOSTNAME_KEY = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def affinity(plan: Plan, user: dict[str, Any] | None) -> Manifest | None:
    """The user's affinity, held to nodes of the planned accelerator as well.

    A node has the accelerator if any of the row's labels says so (GPU feature discovery's or a cloud's), so
    each label is a term: the scheduler takes any. A user's own terms are alternatives too; both
    must hold, so every pair becomes one term. `nodeSelector` needs nothing: the scheduler always asks for it
    besides.
    """
    row_terms = [
        [{"key": key, "operator": "In", "values": list(values)}]
        for key, values in plan.accelerator.node_labels
    ]
    if not plan.resource_name or not row_terms:
        return deepcopy(user) if user else None
    merged = deepcopy(user) if user else {}
    node_affinity = merged.setdefault("nodeAffinity", {})
    user_terms = (node_affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    node_affinity[_REQUIRED] = {"nodeSelectorTerms": _terms(user_terms, row_terms)}
    return merged


def _terms(user_terms: list[Manifest], row_terms: list[list[Manifest]]) -> list[Manifest]:
    if not user_terms:
        return [{"matchExpressions": expressions} for expressions in row_terms]
    # An empty term matches no node at all; joined with ours it would match some.
    matching = [term for term in user_terms if term.get("matchExpressions") or term.get("matchFields")]
    if not matching:
        return [{}]
    return [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *expressions]}
        for term, expressions in product(matching, row_terms)
    ]


def topology_spread(identity: Identity, template: PodTemplate) -> list[Manifest]:
    """The user's spread constraints, and a soft one over hosts unless they have their own for hosts.

    A constraint without a selector counts no pods, so the service's own selector is filled in.
    """
    selector = {"matchLabels": {SERVICE_LABEL: identity.name}}
    constraints = [
        {"labelSelector": selector, **constraint} for constraint in template.topology_spread_constraints
    ]
    if all(constraint.get("topologyKey") != HOSTNAME_KEY for constraint in constraints):
        constraints.append(
            {
                "labelSelector": selector,
                "maxSkew": 1,
                "topologyKey": HOSTNAME_KEY,
                "whenUnsatisfiable": "ScheduleAnyway",
            }
        )
    return deepcopy(constraints)


def tolerations(plan: Plan, template: PodTemplate) -> list[Manifest]:
    """The user's tolerations, and one for the taint that keeps pods without accelerators off their nodes.

    The taint's key is the resource's name by convention (the ExtendedResourceToleration admission plugin).
    """
    result = [dict(toleration) for toleration in template.tolerations]
    if plan.resource_name and all(toleration.get("key") != plan.resource_name for toleration in result):
        result.append({"key": plan.resource_name, "operator": "Exists", "effect": "NoSchedule"})
    return result

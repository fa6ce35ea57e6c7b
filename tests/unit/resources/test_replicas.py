"""How many replicas are written, and by whom."""

import pytest

from llmservice_operator.resources.replicas import replicas_to_apply
from llmservice_operator.resources.types import Manifest
from unit.resources.samples import spec

REPLICAS: Manifest = {"f:spec": {"f:replicas": {}}}
OURS: Manifest = {"manager": "llmservice-operator", "operation": "Apply", "fieldsV1": REPLICAS}
HPA: Manifest = {
    "manager": "kube-controller-manager",
    "operation": "Update",
    "subresource": "scale",
    "fieldsV1": REPLICAS,
}


def deployment(replicas: int, *managers: Manifest) -> Manifest:
    return {
        "metadata": {"name": "qwen3-8b", "namespace": "team-a", "managedFields": list(managers or (OURS,))},
        "spec": {"replicas": replicas},
    }


def test_a_new_deployment_gets_the_specs_number() -> None:
    assert replicas_to_apply(spec(replicas=3), None).replicas == 3


def test_the_number_is_in_every_apply_of_the_sole_owner() -> None:
    """Leaving it out would reset it to 1."""
    assert replicas_to_apply(spec(replicas=3), deployment(3)).replicas == 3


def test_zero_is_a_number() -> None:
    assert replicas_to_apply(spec(replicas=0), deployment(3)).replicas == 0


def test_an_autoscaler_that_has_not_written_yet_changes_nothing() -> None:
    """It owns no field before its first write, so the five replicas that run are in our next apply."""
    choice = replicas_to_apply(spec(replicas=5), deployment(5))

    assert (choice.replicas, choice.held_by) == (5, ())


def test_the_number_is_left_out_once_another_manager_wrote_it() -> None:
    choice = replicas_to_apply(spec(replicas=5), deployment(7, OURS, HPA))

    assert (choice.replicas, choice.wanted) == (None, 7)


def test_the_other_manager_is_named_with_the_way_back() -> None:
    choice = replicas_to_apply(spec(replicas=5), deployment(7, HPA))

    assert choice.held_by == ("kube-controller-manager (scale)",)
    assert (
        "kube-controller-manager (scale), which a HorizontalPodAutoscaler writes by (KEDA's too); spec.replicas 5"
        in choice.message
    )
    assert "kubectl -n team-a patch deployment qwen3-8b --type=json" in choice.message


@pytest.mark.parametrize(("current", "applied"), [(None, 2), (1, 2), (2, 2), (5, 5), (8, 8), (9, 8)])
def test_scaling_holds_the_number_within_its_bounds(current: int | None, applied: int) -> None:
    service = spec(scaling={"minReplicas": 2, "maxReplicas": 8})
    observed = None if current is None else deployment(current)

    assert replicas_to_apply(service, observed).replicas == applied


def test_scaling_leaves_an_autoscalers_number_alone() -> None:
    choice = replicas_to_apply(spec(scaling={"minReplicas": 2, "maxReplicas": 8}), deployment(12, HPA))

    assert (choice.replicas, choice.wanted) == (None, 12)


def test_an_unproven_revision_starts_on_one_replica() -> None:
    choice = replicas_to_apply(spec(replicas=4), None, unproven=True)

    assert (choice.replicas, choice.wanted, choice.held_back) == (1, 4, True)


def test_an_unproven_revision_starts_on_one_replica_after_zero() -> None:
    assert replicas_to_apply(spec(replicas=4), deployment(0), unproven=True).replicas == 1


def test_what_serves_is_not_taken_away_for_an_unproven_revision() -> None:
    """A roll replaces one pod after another and stops at the first that is not ready: proof enough."""
    choice = replicas_to_apply(spec(replicas=4), deployment(4), unproven=True)

    assert (choice.replicas, choice.held_back) == (4, False)


def test_an_unproven_revision_does_not_hold_back_less() -> None:
    assert replicas_to_apply(spec(replicas=0), deployment(4), unproven=True).replicas == 0

"""spec.replicas has one writer: the user where the service is fixed, nobody where it is scaled."""

import json

import pytest

from integration.api.kubectl import Kubectl

pytestmark = pytest.mark.light

NOT_USED = "spec.replicas is not used while spec.scaling is set; change scaling.minReplicas or maxReplicas"


@pytest.fixture
def apply(kubectl: Kubectl, namespace: str) -> "Apply":
    return Apply(kubectl, namespace)


class Apply:
    """Applies one service in a namespace of its own and tells what happened."""

    def __init__(self, kubectl: Kubectl, namespace: str) -> None:
        self._kubectl = kubectl
        self._namespace = namespace

    def __call__(self, **spec: object) -> str:
        """What kubectl said; empty: it was accepted."""
        manifest = {
            "apiVersion": "llmservice.dev/v1alpha1",
            "kind": "LLMService",
            "metadata": {"name": "one", "namespace": self._namespace},
            "spec": {"model": {"uri": "hf://Qwen/Qwen3-8B"}, **spec},
        }
        return self._kubectl("apply", "-f", "-", stdin=json.dumps(manifest)).stderr

    def scale(self, replicas: int) -> str:
        """What `kubectl scale` said; empty: it was accepted."""
        return self._kubectl("scale", "llmsvc/one", "-n", self._namespace, f"--replicas={replicas}").stderr

    def wants(self, replicas: int) -> None:
        """Write a status in which so many replicas are wanted, as the operator does."""
        status = json.dumps({"status": {"desiredReplicas": replicas}})
        patch = ("patch", "llmsvc/one", "-n", self._namespace, "--subresource=status", "--type=merge")
        self._kubectl.output(*patch, "-p", status)

    def replicas(self) -> int:
        found = self._kubectl("get", "llmsvc/one", "-n", self._namespace, "-o", "jsonpath={.spec.replicas}")
        return int(found.stdout)


def test_kubectl_scale_works_on_a_fixed_service(apply: Apply) -> None:
    apply(replicas=2)

    assert apply.scale(5) == ""
    assert apply.replicas() == 5


def test_kubectl_scale_to_zero_and_back_works_on_a_fixed_service(apply: Apply) -> None:
    apply()

    assert (apply.scale(0), apply.replicas(), apply.scale(1), apply.replicas()) == ("", 0, "", 1)


def test_kubectl_scale_is_refused_on_a_scaled_service(apply: Apply) -> None:
    apply(scaling={"maxReplicas": 8})

    assert NOT_USED in apply.scale(5)
    assert apply.replicas() == 1


def test_a_scaled_service_refuses_a_change_of_replicas(apply: Apply) -> None:
    apply(scaling={"maxReplicas": 8})

    assert NOT_USED in apply(replicas=4, scaling={"maxReplicas": 8})


def test_bounds_of_a_scaled_service_can_change(apply: Apply) -> None:
    apply(scaling={"maxReplicas": 8})

    assert apply(scaling={"minReplicas": 2, "maxReplicas": 4}) == ""


def test_scaling_can_be_added_to_a_fixed_service_of_any_size(apply: Apply) -> None:
    apply(replicas=3)

    assert apply(replicas=3, scaling={"maxReplicas": 8}) == ""


def test_scaling_can_be_added_and_replicas_left_out_at_once(apply: Apply) -> None:
    apply(replicas=3)

    assert apply(scaling={"maxReplicas": 8}) == ""
    assert apply.replicas() == 1


def test_replicas_can_be_set_again_once_scaling_is_removed(apply: Apply) -> None:
    apply(scaling={"maxReplicas": 8})

    assert apply(replicas=3) == ""
    assert apply.scale(2) == ""
    assert apply.replicas() == 2


def test_scaling_is_not_removed_while_replicas_would_take_running_ones(apply: Apply) -> None:
    apply(scaling={"maxReplicas": 8})
    apply.wants(5)

    assert (
        "spec.replicas is used again once spec.scaling is removed, and is 1 where 5 are wanted now: "
        "set it to 5 or more in the same change; it can be lowered afterwards"
    ) in apply()


def test_scaling_is_removed_with_as_many_replicas_as_are_wanted(apply: Apply) -> None:
    apply(scaling={"maxReplicas": 8})
    apply.wants(5)

    assert apply(replicas=5) == ""
    assert apply.scale(2) == ""


def test_a_scaled_service_takes_a_status_with_any_number(apply: Apply) -> None:
    """The rule on removal must not stand in the way of the operator's own writes."""
    apply(scaling={"maxReplicas": 8})
    apply.wants(5)
    apply.wants(2)

    assert apply(scaling={"maxReplicas": 4}) == ""


def test_a_fixed_service_of_many_can_shrink(apply: Apply) -> None:
    apply(replicas=5)
    apply.wants(5)

    assert apply(replicas=1) == ""


def test_an_autoscaler_is_refused_on_a_scaled_service_and_told_what_to_change(
    apply: Apply, kubectl: Kubectl, namespace: str
) -> None:
    """An HPA writes through the scale subresource, as this does."""
    apply(scaling={"maxReplicas": 8})
    path = f"/apis/llmservice.dev/v1alpha1/namespaces/{namespace}/llmservices/one/scale"
    scale = json.loads(kubectl.output("get", "--raw", path))
    refused = kubectl(
        "replace", "--raw", path, "-f", "-", stdin=json.dumps({**scale, "spec": {"replicas": 3}})
    )

    assert NOT_USED in refused.stderr

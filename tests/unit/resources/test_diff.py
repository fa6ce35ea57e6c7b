"""What counts as a difference between desired and observed, and between two rendered values."""

from copy import deepcopy

import pytest

from llmservice_operator.resources.diff import changes, differs
from llmservice_operator.resources.types import Manifest
from unit.resources.samples import pod

DESIRED: Manifest = {
    "spec": {
        "replicas": 2,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "engine",
                        "image": "vllm/vllm-openai:v0.33.0",
                        "args": ["--", "python3"],
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                        "ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
                        "resources": {"requests": {"cpu": "2", "memory": "4096Mi"}},
                    }
                ],
                "volumes": [{"name": "tmp", "emptyDir": {}}],
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
            }
        },
    }
}


def engine(manifest: Manifest) -> Manifest:
    container: Manifest = manifest["spec"]["template"]["spec"]["containers"][0]
    return container


def observed_as_the_api_server_has_it() -> Manifest:
    """DESIRED with the defaults that kube-apiserver 1.36 adds, and quantities in canonical form."""
    observed = deepcopy(DESIRED)
    observed["metadata"] = {"uid": "1", "generation": 1}
    observed["spec"]["minReadySeconds"] = 0
    engine(observed)["resources"]["requests"] = {"cpu": "2", "memory": "4Gi"}
    engine(observed)["terminationMessagePath"] = "/dev/termination-log"
    engine(observed)["imagePullPolicy"] = "IfNotPresent"
    observed["spec"]["template"]["spec"] |= {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst"}
    return observed


def test_defaults_are_no_difference() -> None:
    assert differs(DESIRED, observed_as_the_api_server_has_it()) == ()


def test_a_changed_value_is_named_by_its_path() -> None:
    observed = observed_as_the_api_server_has_it()
    engine(observed)["image"] = "other"

    assert differs(DESIRED, observed) == ("spec.template.spec.containers[engine].image",)


def test_fields_of_others_are_no_difference() -> None:
    observed = observed_as_the_api_server_has_it()
    engine(observed)["env"].insert(0, {"name": "INJECTED", "value": "x"})
    observed["spec"]["template"]["spec"]["containers"].append({"name": "sidecar", "image": "mesh"})

    assert differs(DESIRED, observed) == ()


def test_a_missing_item_is_a_difference() -> None:
    observed = observed_as_the_api_server_has_it()
    del engine(observed)["env"][0]

    assert differs(DESIRED, observed) == ("spec.template.spec.containers[engine].env[A]",)


def test_lists_without_keys_are_one_value() -> None:
    observed = observed_as_the_api_server_has_it()
    engine(observed)["args"].append("--more")

    assert differs(DESIRED, observed) == ("spec.template.spec.containers[engine].args",)


def test_defaults_within_lists_without_keys_are_no_difference() -> None:
    observed = observed_as_the_api_server_has_it()
    observed["spec"]["template"]["spec"]["tolerations"][0]["effect"] = "NoSchedule"

    assert differs(DESIRED, observed) == ()


@pytest.mark.parametrize(
    ("desired", "observed", "same"),
    [
        ("4096Mi", "4Gi", True),
        ("1000m", "1", True),
        ("1e3", "1k", True),
        ("0.5", "500m", True),
        ("4Gi", "4G", False),
        ("4Gi", "4.5Gi", False),
    ],
)
def test_quantities_are_compared_by_value(desired: str, observed: str, *, same: bool) -> None:
    found = differs({"resources": {"limits": {"x": desired}}}, {"resources": {"limits": {"x": observed}}})

    assert (found == ()) is same


def test_other_text_is_compared_as_it_is() -> None:
    assert differs({"env": [{"name": "A", "value": "1000m"}]}, {"env": [{"name": "A", "value": "1"}]}) == (
        "env[A].value",
    )


@pytest.mark.parametrize(("desired", "observed"), [(8000, "8000"), ("http", "http"), (1, 1)])
def test_ports_and_counts_may_be_text(desired: object, observed: object) -> None:
    assert differs({"targetPort": desired}, {"targetPort": observed}) == ()


@pytest.mark.parametrize("empty", [None, "", [], {}])
def test_what_is_empty_may_be_left_out(empty: object) -> None:
    """The API server drops empty optional fields: a toleration's `value: ""`, for one."""
    assert differs({"a": {"b": empty}}, {"a": {}}) == ()


@pytest.mark.parametrize("value", [False, 0])
def test_false_and_zero_are_values(value: object) -> None:
    assert differs({"a": value}, {}) == ("a",)


def test_a_port_is_found_without_its_protocol() -> None:
    desired = {"ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}

    assert differs(desired, {"ports": [{"name": "http", "port": 80, "nodePort": 30000}]}) == (
        "ports[80].protocol",
    )


def test_rendered_pods_equal_themselves() -> None:
    assert changes(pod(), pod()) == ()


def test_changes_are_told_both_ways() -> None:
    old = {"env": [{"name": "A", "value": "1"}, {"name": "GONE", "value": "x"}], "n": 1}
    new = {"env": [{"name": "A", "value": "2"}, {"name": "NEW", "value": "y"}], "n": 1}

    assert changes(old, new, at="template") == (
        "template.env[A].value: 1 → 2",
        "template.env[GONE]: {'name': 'GONE', 'value': 'x'} → absent",
        "template.env[NEW]: absent → {'name': 'NEW', 'value': 'y'}",
    )


def test_long_values_are_cut() -> None:
    (text,) = changes({"a": "x" * 500}, {"a": "y"})

    assert len(text) < 150

"""Who manages which field. The entries are as kube-apiserver 1.36 writes them."""

from llmservice_operator.resources.managed_fields import other_managers, unwanted
from llmservice_operator.resources.types import Manifest

OURS: Manifest = {
    "manager": "llmservice-operator",
    "operation": "Apply",
    "fieldsV1": {
        "f:metadata": {"f:labels": {"f:a": {}, "f:b": {}}},
        "f:spec": {
            "f:replicas": {},
            "f:template": {
                "f:spec": {
                    "f:containers": {
                        'k:{"name":"engine"}': {
                            ".": {},
                            "f:image": {},
                            "f:name": {},
                            "f:env": {
                                'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}},
                                'k:{"name":"B"}': {".": {}, "f:name": {}, "f:value": {}},
                            },
                            "f:ports": {
                                'k:{"containerPort":8000,"protocol":"TCP"}': {
                                    ".": {},
                                    "f:containerPort": {},
                                    "f:name": {},
                                }
                            },
                        }
                    }
                }
            },
        },
    },
}
SCALER: Manifest = {
    "manager": "kube-controller-manager",
    "operation": "Update",
    "subresource": "scale",
    "fieldsV1": {"f:spec": {"f:replicas": {}}},
}


def desired() -> Manifest:
    container = {
        "name": "engine",
        "image": "i",
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
        "ports": [{"containerPort": 8000, "name": "http"}],
    }
    return {
        "metadata": {"labels": {"a": "1", "b": "2"}},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [container]}}},
    }


def observed(*entries: Manifest) -> Manifest:
    return {"metadata": {"managedFields": list(entries)}}


def test_all_that_we_own_is_wanted() -> None:
    assert unwanted(desired(), observed(OURS)) == ()


def test_a_label_that_we_dropped() -> None:
    now = desired()
    del now["metadata"]["labels"]["b"]

    assert unwanted(now, observed(OURS)) == ("metadata.labels.b",)


def test_an_item_that_we_dropped() -> None:
    now = desired()
    del now["spec"]["template"]["spec"]["containers"][0]["env"][1]

    assert unwanted(now, observed(OURS)) == ("spec.template.spec.containers.engine.env.B",)


def test_a_field_of_an_item_that_we_dropped() -> None:
    now = desired()
    del now["spec"]["template"]["spec"]["containers"][0]["image"]

    assert unwanted(now, observed(OURS)) == ("spec.template.spec.containers.engine.image",)


def test_what_others_own_is_not_ours_to_drop() -> None:
    theirs = {**OURS, "manager": "kubectl"}

    assert unwanted({}, observed(theirs, SCALER)) == ()


def test_our_status_is_not_compared() -> None:
    """The status is applied by itself; it is not part of a desired child."""
    assert unwanted({}, observed({**OURS, "subresource": "status"})) == ()


def test_other_managers_of_a_field() -> None:
    assert other_managers(observed(OURS, SCALER), "spec", "replicas") == ("kube-controller-manager (scale)",)


def test_we_are_no_other_manager() -> None:
    assert other_managers(observed(OURS), "spec", "replicas") == ()


def test_managers_of_other_fields_do_not_count() -> None:
    status = {"manager": "x", "operation": "Update", "fieldsV1": {"f:status": {"f:replicas": {}}}}

    assert other_managers(observed(status), "spec", "replicas") == ()


def test_objects_without_managed_fields() -> None:
    assert (other_managers({}, "spec"), unwanted({}, {"metadata": {}})) == ((), ())

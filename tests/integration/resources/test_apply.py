"""Rendered children on a real API server: taken as they are, and found unchanged when read back."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import deploy
from devcluster.errors import CommandError
from devcluster.fixtures import AnyLightCluster
from llmservice_operator.engines.vllm import VllmEngine
from llmservice_operator.resources.children import (
    render_cache_claim,
    render_deployment,
    render_pdb,
    render_service,
)
from llmservice_operator.resources.diff import differs
from llmservice_operator.resources.managed_fields import other_managers, unwanted
from llmservice_operator.resources.ownership import is_ours
from llmservice_operator.resources.pod import render_pod_template
from llmservice_operator.resources.replicas import replicas_to_apply
from llmservice_operator.resources.revision import Revision, pack, unpack
from llmservice_operator.resources.types import Identity, Manifest
from unit.resources.samples import CPU_PLAN, H200_PLAN, RICH, SETTINGS, spec

pytestmark = pytest.mark.light

ROOT = Path(__file__).resolve().parents[3]
NAMESPACE = "rendered"
SPECS = {
    "cpu": ({"model": {"uri": "pvc://models/smollm2"}}, CPU_PLAN),
    "gpu": ({"model": {"uri": "hf://Qwen/Qwen3-8B"}}, H200_PLAN),
    "rich": (RICH, H200_PLAN),
}


def apply(cluster: AnyLightCluster, manifest: Manifest) -> Manifest:
    """Server-side apply as the operator does it."""
    text = cluster.kubectl(
        "apply", "--server-side", "--field-manager=llmservice-operator", "--force-conflicts", "-o", "json",
        "--show-managed-fields", "--validate=strict", "-f", "-", stdin=json.dumps(manifest),
    )  # fmt: skip
    applied: Manifest = json.loads(text)
    return applied


@pytest.fixture(scope="module")
def namespace(light_cluster: AnyLightCluster) -> Iterator[AnyLightCluster]:
    """A namespace at Pod Security `restricted`, with the service account that pods need to be admitted."""
    light_cluster.kubectl("create", "namespace", NAMESPACE)
    light_cluster.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    light_cluster.kubectl("create", "serviceaccount", "default", "-n", NAMESPACE)
    light_cluster.kubectl("apply", "-f", str(ROOT / "crds" / "llmservices.yaml"))
    deploy.wait_for_crd(light_cluster)
    yield light_cluster
    light_cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def service(cluster: AnyLightCluster, name: str, fields: Manifest) -> Identity:
    """An LLMService of this name on the API server."""
    manifest = {
        "apiVersion": "llmservice.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": fields,
    }
    created = json.loads(cluster.kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(manifest)))
    return Identity(name=name, namespace=NAMESPACE, uid=created["metadata"]["uid"])


def children(identity: Identity, fields: Manifest, plan: Any, replicas: int | None = 2) -> list[Manifest]:
    """All children of such a service."""
    said = spec(**fields)
    template = render_pod_template(identity, said, plan, SETTINGS, None, engine=VllmEngine())
    revision = Revision(
        name=f"{identity.name}-0123456789",
        template=template,
        plan=plan,
        inputs={"model": fields["model"]},
        inputs_hash="0123456789abcdef",
        engine_image="e",
        supervisor_image="s",
        model_revision=None,
    )
    rendered = [
        pack(identity, revision),
        render_deployment(identity, revision, replicas),
        render_service(identity, said),
        render_pdb(identity),
        render_cache_claim(identity, said),
    ]
    return [child for child in rendered if child is not None]


@pytest.mark.parametrize("name", SPECS)
def test_what_is_applied_is_found_unchanged(namespace: AnyLightCluster, name: str) -> None:
    """No default that the API server adds, and no canonical form, makes the next reconcile write again."""
    fields, plan = SPECS[name]
    identity = service(namespace, name, fields)
    for desired in children(identity, fields, plan):
        observed = apply(namespace, desired)

        assert differs(desired, observed) == ()
        assert unwanted(desired, observed) == ()
        assert is_ours(observed, identity)


@pytest.mark.parametrize("name", SPECS)
def test_pods_are_admitted_where_pod_security_is_restricted(namespace: AnyLightCluster, name: str) -> None:
    fields, plan = SPECS[name]
    identity = Identity(name=f"{name}-pod", namespace=NAMESPACE, uid="1")
    deployment = next(child for child in children(identity, fields, plan) if child["kind"] == "Deployment")
    template = deployment["spec"]["template"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": "pod", "namespace": NAMESPACE},
        "spec": template["spec"],
    }

    assert "created" in namespace.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))


def test_a_revision_survives_the_api_server(namespace: AnyLightCluster) -> None:
    identity = service(namespace, "survives", SPECS["gpu"][0])
    packed = children(identity, *SPECS["gpu"])[0]

    assert unpack(apply(namespace, packed)) == unpack(packed)


def test_words_are_remembered_on_a_revision_that_stands(namespace: AnyLightCluster) -> None:
    identity = service(namespace, "remembers", SPECS["gpu"][0])
    packed = children(identity, *SPECS["gpu"])[0]
    stored = unpack(apply(namespace, packed))
    later = replace(stored, inputs={"model": {"uri": "hf://a/b"}}, inputs_hash="f" * 16, number=4)

    assert unpack(apply(namespace, pack(identity, later))) == later


def test_data_of_a_revision_cannot_be_changed(namespace: AnyLightCluster) -> None:
    """Why the user's words stand in annotations."""
    identity = service(namespace, "fixed", SPECS["gpu"][0])
    packed = children(identity, *SPECS["gpu"])[0]
    apply(namespace, packed)
    packed["data"]["engineImage"] = "other"

    with pytest.raises(CommandError, match="field is immutable"):
        apply(namespace, packed)


def test_a_field_that_is_dropped_is_told_and_removed(namespace: AnyLightCluster) -> None:
    identity = service(namespace, "dropped", SPECS["rich"][0])
    fields = json.loads(json.dumps(RICH))
    before = {child["kind"]: apply(namespace, child) for child in children(identity, fields, H200_PLAN)}
    del fields["podTemplate"]["volumes"], fields["service"]["annotations"], fields["engine"]["env"][2]
    later = {child["kind"]: child for child in children(identity, fields, H200_PLAN)}
    deployment, front = later["Deployment"], later["Service"]

    assert unwanted(front, before["Service"]) == ("metadata.annotations",)
    told = unwanted(deployment, before["Deployment"])
    assert "spec.template.spec.containers.engine.env.KEY" in told
    assert "spec.template.spec.volumes.own" in told
    after = apply(namespace, deployment)
    assert unwanted(deployment, after) == ()
    assert differs(deployment, after) == ()
    names = [each["name"] for each in after["spec"]["template"]["spec"]["containers"][0]["env"]]
    assert "KEY" not in names


def test_a_rollout_restart_survives_the_next_apply(namespace: AnyLightCluster) -> None:
    identity = service(namespace, "restarted", SPECS["gpu"][0])
    desired = children(identity, *SPECS["gpu"])[1]
    apply(namespace, desired)
    namespace.kubectl("rollout", "restart", "deployment/restarted", "-n", NAMESPACE)
    again = apply(namespace, desired)

    assert "kubectl.kubernetes.io/restartedAt" in again["spec"]["template"]["metadata"]["annotations"]


def scale(cluster: AnyLightCluster, name: str, replicas: int) -> None:
    """What an autoscaler does: it writes through the scale subresource."""
    body = json.dumps({"spec": {"replicas": replicas}})
    cluster.kubectl(
        "patch", "deployment", name, "-n", NAMESPACE, "--subresource=scale", "--type=merge", f"-p={body}",
        "--field-manager=kube-controller-manager",
    )  # fmt: skip


def observe(cluster: AnyLightCluster, name: str) -> Manifest:
    text = cluster.kubectl("get", "deployment", name, "-n", NAMESPACE, "-o", "json", "--show-managed-fields")
    observed: Manifest = json.loads(text)
    return observed


def test_leaving_replicas_out_as_sole_owner_resets_them(namespace: AnyLightCluster) -> None:
    """Why the number is in every apply of ours, also while an autoscaler exists that has not written yet."""
    identity = service(namespace, "trap", SPECS["gpu"][0])
    apply(namespace, children(identity, *SPECS["gpu"], replicas=5)[1])

    assert apply(namespace, children(identity, *SPECS["gpu"], replicas=None)[1])["spec"]["replicas"] == 1


def test_an_autoscalers_first_write_takes_the_number_over(namespace: AnyLightCluster) -> None:
    fields, plan = SPECS["gpu"]
    identity = service(namespace, "scaled", fields)
    said = spec(**fields, replicas=5)
    first = replicas_to_apply(said, None)
    apply(namespace, children(identity, fields, plan, replicas=first.replicas)[1])
    assert replicas_to_apply(said, observe(namespace, "scaled")).replicas == 5

    scale(namespace, "scaled", 7)
    observed = observe(namespace, "scaled")
    choice = replicas_to_apply(said, observed)
    again = apply(namespace, children(identity, fields, plan, replicas=choice.replicas)[1])

    assert other_managers(observed, "spec", "replicas") == ("kube-controller-manager (scale)",)
    assert (choice.replicas, again["spec"]["replicas"]) == (None, 7)


def test_the_told_command_takes_the_number_back(namespace: AnyLightCluster) -> None:
    fields, plan = SPECS["gpu"]
    identity = service(namespace, "returned", fields)
    said = spec(**fields, replicas=2)
    apply(namespace, children(identity, fields, plan, replicas=2)[1])
    scale(namespace, "returned", 7)
    message = replicas_to_apply(said, observe(namespace, "returned")).message
    arguments = message.partition("kubectl ")[2].replace("'", "").split()
    namespace.kubectl(*arguments)
    choice = replicas_to_apply(said, observe(namespace, "returned"))
    again = apply(namespace, children(identity, fields, plan, replicas=choice.replicas)[1])

    assert again["spec"]["replicas"] == 2

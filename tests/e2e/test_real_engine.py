"""The real vLLM behind an LLMService: restricted namespace, unmapped uid, read-only root, the model's own answer."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import deploy
from e2e.conftest import Platform

pytestmark = [pytest.mark.cluster, pytest.mark.real_engine]

SAMPLE = Path(__file__).parents[2] / "crds" / "samples" / "smollm2.yaml"
NAME = "smollm2"
START_SECONDS = 600
UNMAPPED_UID = 24680
CHILDREN = "deployment,service,poddisruptionbudget,controllerrevision,replicaset,pod"

STREAM = """
import json, sys, urllib.request
body = {"model": "smollm2", "prompt": "Once upon a time", "max_tokens": 200, "stream": True, "ignore_eos": True}
request = urllib.request.Request(sys.argv[1], json.dumps(body).encode(), {"Content-Type": "application/json"})
for line in urllib.request.urlopen(request, timeout=120):
    print(line.decode().strip(), flush=True)
"""


@pytest.fixture(scope="module")
def service(platform: Platform, namespace: str) -> Iterator[dict[str, Any]]:
    """The sample, on the node that has the engine's image, under a uid that no image knows; Ready."""
    objects = list(yaml.safe_load_all(SAMPLE.read_text()))
    for each in objects:
        each["metadata"]["namespace"] = namespace
        if each["kind"] == "LLMService":
            each["spec"]["podTemplate"] = {
                "nodeSelector": {"kubernetes.io/hostname": platform.engine_node},
                "securityContext": {
                    "runAsUser": UNMAPPED_UID,
                    "runAsGroup": UNMAPPED_UID,
                    "fsGroup": UNMAPPED_UID,
                },
            }
    deploy.apply(platform.cluster, *objects)
    began = time.monotonic()
    ready = deploy.wait_until(
        platform.cluster,
        deploy.llmservice_path(namespace, NAME),
        lambda each: deploy.condition(each, "Ready").get("status") == "True",
        timeout_seconds=START_SECONDS,
    )
    print(f"\napply → Ready: {time.monotonic() - began:.1f} s")
    yield ready
    platform.cluster.kubectl(
        "delete", "llmservice", NAME, "-n", namespace, "--ignore-not-found", "--wait=true"
    )


def test_the_model_answers_through_the_service(
    platform: Platform, namespace: str, service: dict[str, Any]
) -> None:
    """SmolLM2's own answer at temperature 0."""
    answer = deploy.ask(platform.cluster, namespace, NAME, "What is the capital of France?")

    assert answer == "The capital of France is Paris."


def test_the_engine_holds_as_many_tokens_as_planned(service: dict[str, Any]) -> None:
    """1 GiB / (30 layers x 3 KV heads x 64 x 2 x 4 B), in whole blocks of 128: 23,296 tokens."""
    assert service["status"]["plan"]["kvCacheTokens"] == 23_296
    assert service["status"]["engine"]["kvCacheTokens"] == 23_296


def test_the_engines_report_is_found_as_planned(service: dict[str, Any]) -> None:
    found = deploy.condition(service, "PlanAccurate")

    assert (found["status"], found["reason"]) == ("True", "WithinTolerance")


def test_the_engine_runs_under_the_uid_asked_for(
    platform: Platform, namespace: str, service: dict[str, Any]
) -> None:
    """The uid has no name in the image, which has crashed engines before."""
    uid = platform.cluster.kubectl(
        "exec", "-n", namespace, f"deployment/{NAME}", "-c", "engine", "--", "id", "-u"
    )

    assert uid.strip() == str(UNMAPPED_UID)


def test_a_stream_that_runs_when_the_service_is_deleted_ends_whole_and_nothing_is_left(
    platform: Platform, namespace: str, service: dict[str, Any]
) -> None:
    """The last replica drains: its clients lose nothing, and then everything of the service is gone."""
    address = json.dumps(f"http://{NAME}.{namespace}.svc:8000/v1/completions")
    command = (
        deploy.program("kubectl"), f"--kubeconfig={platform.cluster.kubeconfig}", "exec", "-n",
        deploy.OPERATOR_NAMESPACE, f"deployment/{deploy.RELEASE}", "--", "python3", "-c", STREAM, json.loads(address),
    )  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        first = client.stdout.readline()
        platform.cluster.kubectl("delete", "llmservice", NAME, "-n", namespace, "--wait=true")
        lines = [first, *client.stdout]
    platform.cluster.kubectl(
        "wait", "--for=delete", "pod", "-n", namespace, "-l", f"llmservice.dev/service={NAME}", "--timeout=120s",
        timeout_seconds=130,
    )  # fmt: skip
    left = platform.cluster.kubectl("get", CHILDREN, "-n", namespace, "-o", "name")

    assert "data: [DONE]" in {line.strip() for line in lines}
    assert left.strip() == ""

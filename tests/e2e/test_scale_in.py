"""Fewer replicas: the emptiest goes, and what a busy one streams is not cut."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import deploy
from e2e.conftest import Platform
from e2e.fleet import FAKE_ENGINE, WAIT_SECONDS, Fleet, config_map

pytestmark = pytest.mark.cluster

TOKENS = 500
SLOW = {"image": FAKE_ENGINE, "env": [{"name": "FAKE_ENGINE_TPOT_SECONDS", "value": "0.1"}]}

STREAM = """
import json, sys, urllib.request
fields = {"prompt": "The capital of France is", "max_tokens": int(sys.argv[1]), "ignore_eos": True, "stream": True}
body = json.dumps({"model": "chat", **fields}).encode()
headers = {"Content-Type": "application/json"}
request = urllib.request.Request("http://127.0.0.1:8000/v1/completions", body, headers)
print(urllib.request.urlopen(request, timeout=30).read().decode().split()[-1])
"""

SEEN = """
import json, time, urllib.request
while json.load(urllib.request.urlopen("http://127.0.0.1:9410/report", timeout=30))["requests"]["running"] != 1:
    time.sleep(0.2)
"""
"""Ends once the supervisor has seen the stream: it looks every ten seconds."""


@pytest.fixture(scope="module")
def fleet(platform: Platform, namespace: str) -> Iterator[Fleet]:
    """`chat`: two replicas, one older than the other. Both ready."""
    fleet = Fleet(cluster=platform.cluster, namespace=namespace)
    deploy.apply(platform.cluster, config_map(namespace))
    fleet.apply("chat", engine=SLOW)
    fleet.wait_ready("chat")
    fleet.kubectl("scale", "llmservice", "chat", "--replicas=2")
    fleet.wait_ready("chat", replicas=2)
    yield fleet
    fleet.remove_all()


def pods(fleet: Fleet) -> list[str]:
    """The pods' names, the oldest first."""
    text = fleet.kubectl("get", "pods", "-l", "llmservice.dev/service=chat", "-o", "json")
    found = sorted(json.loads(text)["items"], key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    return [pod["metadata"]["name"] for pod in found]


def python(fleet: Fleet, pod: str, script: str, *arguments: str) -> str:
    """What the script prints, run beside the pod's engine."""
    return fleet.kubectl("exec", pod, "-c", "engine", "--", "python3", "-c", script, *arguments).strip()


def test_idle_replica_goes_and_the_stream_of_the_other_ends_by_itself(fleet: Fleet) -> None:
    """The younger one is busy: of two that cost the same, a ReplicaSet ends the younger."""
    idle, busy = pods(fleet)

    with ThreadPoolExecutor(max_workers=1) as threads:
        stream = threads.submit(python, fleet, busy, STREAM, str(TOKENS))
        python(fleet, busy, SEEN)
        fleet.kubectl("scale", "llmservice", "chat", "--replicas=1")
        fleet.kubectl("wait", "--for=delete", f"pod/{idle}", "--timeout=60s")
        last = stream.result(WAIT_SECONDS)

    assert last == "[DONE]"
    assert pods(fleet) == [busy]

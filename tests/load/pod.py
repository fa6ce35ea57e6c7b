"""The generator in a pod of the cluster: it reaches Services as any client does, on whatever cluster it is."""

import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import deploy
from devcluster.fixtures import AnyCluster
from load import generator
from load.generator import Request, Result, Target

IMAGE = "ghcr.io/llmservice/fake-engine:0.32.0"
NAME = "load"


def manifest(namespace: str) -> dict[str, Any]:
    """A pod that waits to be told what to send."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {
            "containers": [
                {
                    "name": "load",
                    "image": IMAGE,
                    "command": ["sleep", "86400"],
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 2000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "terminationGracePeriodSeconds": 0,
        },
    }


@dataclass
class Replay:
    """A replay that goes on, or is over."""

    requests: Sequence[Request]
    process: "subprocess.Popen[str]"
    began: float
    """Unix time of its begin."""
    results: list[Result] = field(default_factory=list)
    """Of what has ended so far."""

    def wait(self, timeout_seconds: float) -> list[Result]:
        """All results; AssertionError if the generator failed or is not done by then."""
        code = self.process.wait(timeout_seconds)
        self.reader.join(10)
        assert code == 0, f"the load generator ended with {code}"
        return self.results

    def lateness_seconds(self, begin: float, end: float) -> float:
        """By how much requests that were due in between (Unix times) were sent late at most; so far as is told."""
        late = (each.sent_seconds - self.requests[each.index].at_seconds for each in list(self.results))
        due = (self.requests[each.index].at_seconds + self.began for each in list(self.results))
        return max((by for by, at in zip(late, due, strict=True) if begin <= at <= end), default=0.0)

    def __post_init__(self) -> None:
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.results.append(Result(*json.loads(line)))


@contextmanager
def replay(
    cluster: AnyCluster,
    namespace: str,
    targets: Sequence[Target],
    requests: Sequence[Request],
    *,
    timeout_seconds: float = generator.DEFAULT_TIMEOUT_SECONDS,
) -> Iterator[Replay]:
    """Send these requests from a pod of the namespace, of which there is one at a time.

    When the block is left the pod goes, and with it whatever is in flight or was not sent yet.
    """
    told = {
        "targets": [asdict(each) for each in targets],
        "requests": [list(asdict(each).values()) for each in requests],
        "timeout_seconds": timeout_seconds,
    }
    script = Path(generator.__file__).read_text()
    command = deploy.kubectl_command(
        cluster, "-n", namespace, "exec", "-i", NAME, "--", "python3", "-c", script
    )
    deploy.apply(cluster, manifest(namespace))
    cluster.kubectl("-n", namespace, "wait", "--for=condition=Ready", f"pod/{NAME}", "--timeout=60s")
    environ = deploy.direct_environment()
    with tempfile.TemporaryFile("w+") as plan:
        json.dump(told, plan)
        plan.seek(0)
        process = subprocess.Popen(command, stdin=plan, stdout=subprocess.PIPE, text=True, env=environ)
        assert process.stdout is not None
        played: Replay | None = None
        try:
            began = json.loads(process.stdout.readline())["began"]
            played = Replay(requests, process, began)
            yield played
        finally:
            cluster.kubectl("-n", namespace, "delete", "pod", NAME, "--wait=true")
            process.kill()
            process.wait()
            if played is not None:
                played.reader.join(10)
            process.stdout.close()

"""The operator as a process of its own, and the controllers of a cluster that has no nodes. For tests of the whole."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil
import yaml
from prometheus_client.parser import text_string_to_metric_families

from devcluster.api import Api, ApiError
from devcluster.light import LightCluster
from ports import free_port

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[1]
APPLY = "application/apply-patch+yaml"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SERVICES = "/apis/llmservice.dev/v1alpha1"
COMMAND = "import sys; from llmservice_operator.cli_run import run; sys.exit(run())"
WAIT_SECONDS = 60.0

SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "rms_norm_eps": 1e-05,
    "rope_theta": 100000,
    "hidden_act": "silu",
}
"""SmolLM2-135M-Instruct's config.json."""


def wait_for(
    look: Callable[[], T | None], what: str, seconds: float = WAIT_SECONDS, *, every: float = 0.05
) -> T:
    """The first answer that is not None or False; AssertionError that says what was waited for."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found is not None and found is not False:
            return found
        time.sleep(every)
    raise AssertionError(f"waited {seconds:g} s for {what}")


class OperatorProcess:
    """`llmservice run` against a kubeconfig. It keeps its identity when it is started again, as in one pod."""

    def __init__(self, kubeconfig: Path, folder: Path, *, name: str = "operator", **environ: str) -> None:
        self.log = folder / f"{name}.log"
        self.port = free_port()
        self._environ = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "LLMSERVICE_NAMESPACE": "default",
            "LLMSERVICE_IDENTITY": name,
            "LLMSERVICE_HTTP_HOST": "127.0.0.1",
            "LLMSERVICE_HTTP_PORT": str(self.port),
            "LLMSERVICE_HUB_ENDPOINT": "http://127.0.0.1:9",
            **environ,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start; it is not ready yet."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", COMMAND], env=self._environ, stdout=log, stderr=log
            )

    def start_ready(self, state: str = "working") -> float:
        """Start and wait until it works (or stands by); in seconds."""
        started = time.monotonic()
        self.start()
        self.wait_state(state)
        return time.monotonic() - started

    def wait_state(self, *states: str, seconds: float = WAIT_SECONDS) -> str:
        """Wait until /readyz says one of these."""

        def look() -> str | None:
            assert self.running, f"the operator has ended:\n{self.tail()}"
            state = self.state()
            return state if state in states else None

        return wait_for(look, f"the operator to be {' or '.join(states)}", seconds)

    def state(self) -> str:
        """What /readyz says; empty where nothing answers."""
        return self.page("/readyz")[1].strip()

    def page(self, path: str) -> tuple[int, str]:
        """Status code and text of a page; 0 where nothing answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metrics(self) -> dict[str, float]:
        """Every sample, such as `llmservice_applies_total{kind="Service",result="created"}`."""
        _, text = self.page("/metrics")
        return {
            sample.name + _label_text(sample.labels): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def process(self) -> psutil.Process:
        assert self._process is not None
        return psutil.Process(self._process.pid)

    def terminate(self, seconds: float = 12.0) -> int:
        """SIGTERM, and the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=seconds)

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait_end(self, seconds: float) -> int:
        """Wait until it ends by itself; the exit code."""
        assert self._process is not None
        return self._process.wait(timeout=seconds)

    def tail(self) -> str:
        """The last of its log."""
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""

    def lines(self) -> list[dict[str, Any]]:
        """Its log's lines."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]


class Controllers:
    """The cluster's own controllers beside an API server without nodes: deployments, garbage collection."""

    NAMES = (
        "deployment-controller",
        "disruption-controller",
        "garbage-collector-controller",
        "replicaset-controller",
        "serviceaccount-controller",
    )

    def __init__(self, cluster: LightCluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        command = [
            str(self._cluster.program("kube-controller-manager")),
            f"--kubeconfig={self._cluster.kubeconfig}",
            f"--authentication-kubeconfig={self._cluster.kubeconfig}",
            f"--authorization-kubeconfig={self._cluster.kubeconfig}",
            f"--controllers={','.join(self.NAMES)}",
            f"--cert-dir={self._folder / 'controllers'}",
            f"--secure-port={free_port()}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ]
        with (self._folder / "controllers.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def install_crds(api: Api) -> None:
    """The project's CRDs, and wait until the API server serves them."""
    for crd in (yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").glob("*.yaml"))):
        name = crd["metadata"]["name"]
        api.request("PATCH", f"{CRDS}/{name}?fieldManager=tests&force=true", crd, content_type=APPLY)
        for found in api.events(CRDS, deadline=time.monotonic() + WAIT_SECONDS):
            conditions = found.get("status", {}).get("conditions") or []
            established = any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
            if found["metadata"]["name"] == name and established:
                break


def ensure(api: Api, path: str, body: Mapping[str, Any]) -> None:
    """POST the object; one that is there already is left as it is."""
    try:
        api.request("POST", path, body)
    except ApiError as error:
        if error.status != 409:
            raise


def make_namespace(api: Api, name: str) -> None:
    """A namespace with the ServiceAccount that pods need, and SmolLM2's config.json as ConfigMap `smollm2`."""
    ensure(api, "/api/v1/namespaces", {"metadata": {"name": name}})
    ensure(api, f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
    config = {"metadata": {"name": "smollm2"}, "data": {"config.json": json.dumps(SMOLLM2)}}
    ensure(api, f"/api/v1/namespaces/{name}/configmaps", config)


def service_manifest(name: str, *, replicas: int = 0, **spec: Any) -> dict[str, Any]:
    """An LLMService of SmolLM2 on the CPU."""
    return {
        "apiVersion": "llmservice.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": name},
        "spec": {
            "model": {"uri": "pvc://models/smollm2", "configMap": "smollm2"},
            "accelerator": {"types": ["cpu"]},
            "workload": {"context": {"max": 2048}},
            "replicas": replicas,
            **spec,
        },
    }


def services_path(namespace: str, name: str = "") -> str:
    """URL path of a namespace's LLMServices, or of one."""
    return f"{SERVICES}/namespaces/{namespace}/llmservices" + (f"/{name}" if name else "")


def condition(obj: Mapping[str, Any], type_: str) -> dict[str, Any]:
    """One condition of an object, empty where it has none of the type."""
    conditions: Iterable[dict[str, Any]] = obj.get("status", {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == type_), {})


def get(api: Api, path: str) -> dict[str, Any] | None:
    """The object, or None where there is none."""
    try:
        found: dict[str, Any] = api.request("GET", path)
    except ApiError as error:
        if error.status == 404:
            return None
        raise
    return found


def _label_text(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{k}="{v}"' for k, v in sorted(labels.items())) + "}" if labels else ""

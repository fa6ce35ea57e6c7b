"""`vllm bench serve` in a pod of the engine's own image.

The CPU package's command `vllm` looks for a distribution of that name and fails; its benchmark does not.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import deploy
from devcluster.fixtures import AnyCluster

POD = "bench"
IMAGE = "ghcr.io/llmservice/vllm-cpu:0.32.0"
MODEL = "/models/smollm2"
BLOCK_TOKENS = 16
"""Of the prompts of a timed trace, by the benchmark's default."""

BENCH = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
RUN = 'cat > /tmp/trace.jsonl && exec python3 -c "$0" "$@" >&2'


@dataclass(frozen=True, kw_only=True)
class Request:
    """One line of a timed trace."""

    timestamp: float
    """Seconds from the begin."""
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]
    """Names of blocks of the prompt, so that no two prompts share a prefix."""


def manifest(namespace: str, node: str) -> dict[str, Any]:
    """The pod, with the model's tokenizer."""
    container = {
        "name": "bench",
        "image": IMAGE,
        "command": ["sleep", "86400"],
        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "HF_HUB_OFFLINE", "value": "1"}],
        "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}},
        "volumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": POD, "namespace": namespace},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [container],
            "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 2000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "terminationGracePeriodSeconds": 0,
        },
    }


def bench(
    cluster: AnyCluster,
    namespace: str,
    address: str,
    model: str,
    trace: Sequence[Request],
    *,
    timeout_seconds: float,
) -> dict[str, Any]:
    """Play a timed trace; the benchmark's own result, with every request's latencies."""
    lines = "\n".join(json.dumps(asdict(each)) for each in trace)
    flags = {
        "backend": "openai",
        "base-url": address,
        "endpoint": "/v1/completions",
        "model": MODEL,
        "served-model-name": model,
        "dataset-name": "timed_trace",
        "dataset-path": "/tmp/trace.jsonl",
        "num-prompts": str(len(trace)),
        "result-dir": "/tmp",
        "result-filename": "result.json",
        "percentile-metrics": "ttft,tpot,e2el",
        "metric-percentiles": "50,95,99",
    }
    words = [f"--{name}={value}" for name, value in flags.items()]
    words += ["--ignore-eos", "--save-result", "--save-detailed", "--disable-tqdm", "--no-oversample"]
    cluster.kubectl(
        "-n", namespace, "exec", "-i", POD, "--", "sh", "-c", RUN, BENCH, *words,
        stdin=lines, timeout_seconds=timeout_seconds,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(
        cluster.kubectl("-n", namespace, "exec", POD, "--", "cat", "/tmp/result.json", timeout_seconds=60)
    )
    return found


def start(cluster: AnyCluster, namespace: str, node: str) -> None:
    """The pod, once it runs."""
    deploy.apply(cluster, manifest(namespace, node))
    cluster.kubectl("-n", namespace, "wait", "--for=condition=Ready", f"pod/{POD}", "--timeout=60s")

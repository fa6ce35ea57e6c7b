"""`make scaling-demo`: the real vLLM on two cores goes from one replica to two and back, by itself.

    python -m scaling_demo        from tests/

First what one replica does: latencies while it has little to do, and its rate while it has too much. The objectives
and the load follow from these: little, then more than one replica takes, then little again. The record goes to
tests/scaling_demo/results/DATE.json, the chart to operator/docs/images/scaling-demo.png.
"""

import argparse
import json
import math
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import deploy
from bench.operator import machine
from devcluster import Cluster
from e2e.fleet import config_map
from scaling_demo import client
from scaling_demo.chart import draw
from scaling_demo.client import Request
from scaling_demo.record import Recorder

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
PICTURE = ROOT / "operator" / "docs" / "images" / "scaling-demo.png"
NAMESPACE, NAME = "demo", "smollm2"
ADDRESS = f"http://{NAME}.{NAMESPACE}.svc:8000"
INPUT_TOKENS, OUTPUT_TOKENS = 64, 32
CORES = "800m"
"""Of each engine: two of them leave a fifth of a small machine to all else."""
IDLE_REQUESTS, IDLE_GAP_SECONDS = 12, 4.0
FULL_REQUESTS = 48
LOW_SHARE, HIGH_SHARE = 0.25, 1.8
"""Of the rate of one replica that has too much to do."""
STAGE_SECONDS = (60.0, 210.0, 330.0)
TTFT_SLACK, TPOT_SLACK = 3.0, 2.0
"""Objectives over what is measured while one request at a time runs: a batch shares the core."""
START_SECONDS = 400.0


def main() -> int:
    """Run, record, draw."""
    parser = argparse.ArgumentParser(prog="scaling_demo", description=__doc__)
    parser.parse_args()
    with deploy.platform("scaling-demo", "vllm-cpu", namespace=NAMESPACE) as cluster:
        deploy.provide_models(cluster, NAMESPACE, deploy.build_model())
        deploy.apply(cluster, config_map(NAMESPACE), service(cluster.nodes[0]))
        client.start(cluster, NAMESPACE, cluster.nodes[0])
        wait_ready(cluster)
        say("one replica is ready")
        record = measure(cluster)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{record['date']}.json").write_text(json.dumps(record, separators=(",", ":")) + "\n")
    PICTURE.parent.mkdir(exist_ok=True)
    draw(record, PICTURE)
    replicas = [count for _, count in record["replicas"]]
    say(f"replicas: {' → '.join(map(str, replicas))}; chart in {PICTURE.relative_to(ROOT)}")
    return 0 if replicas[-3:] == [1, 2, 1] else 1


def measure(cluster: Cluster) -> dict[str, Any]:
    """The record: one replica alone and full, and then the stages."""
    idle = run(cluster, evenly(IDLE_REQUESTS, IDLE_GAP_SECONDS))
    full = run(cluster, evenly(FULL_REQUESTS, 0.0))
    rate = full["request_throughput"]
    objectives = {
        "ttft": {"p95": _milliseconds(TTFT_SLACK * idle["p95_ttft_ms"])},
        "tpot": {"p95": _milliseconds(TPOT_SLACK * idle["p95_tpot_ms"])},
    }
    say(f"alone: TTFT p95 {idle['p95_ttft_ms']:.0f} ms, TPOT p95 {idle['p95_tpot_ms']:.0f} ms; "
        f"at most {rate:.2f} requests/s; objectives {objectives}")  # fmt: skip
    deploy.apply(cluster, service(cluster.nodes[0], slo=objectives, scaling={"maxReplicas": 2}))
    wait_ready(cluster)
    stages = [
        (LOW_SHARE, STAGE_SECONDS[0]),
        (HIGH_SHARE, STAGE_SECONDS[1]),
        (LOW_SHARE, STAGE_SECONDS[2]),
    ]
    with Recorder(cluster, NAMESPACE, NAME) as recorder:
        result = run(cluster, poisson([(share * rate, seconds) for share, seconds in stages]))
        # The benchmark takes a while to load before its first request, and is done soon after the last.
        began = time.time() - result["duration"]
    return {
        "date": datetime.now(tz=UTC).date().isoformat(),
        "machine": f"{machine()}; load average {os.getloadavg()[2]:.1f}",
        "alone": figures(idle),
        "full": figures(full),
        "objectives": objectives,
        "stages": [[share * rate, seconds] for share, seconds in stages],
        "load": figures(result),
        "began": began,
        **recorder.as_json(),
        "requests": {key: result[key] for key in ("start_times", "ttfts", "itls") if key in result},
    }


def service(node: str, **more: Any) -> dict[str, Any]:
    """SmolLM2 on one thread a replica, on the node that has the engine's image."""
    return {
        "apiVersion": "llmservice.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "model": {"uri": "pvc://models/smollm2", "configMap": "smollm2-config"},
            "engine": {
                "version": "0.32.0",
                "args": {"enforce-eager": "true"},
                "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
                "pin": {"maxNumSeqs": 8},
            },
            "accelerator": {"types": ["cpu"]},
            "workload": {
                "context": {"max": 2048},
                "inputTokens": {"p50": INPUT_TOKENS},
                "outputTokens": {"p50": OUTPUT_TOKENS},
            },
            "drain": {"timeout": "1m"},
            "podTemplate": {
                "nodeSelector": {"kubernetes.io/hostname": node},
                "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": CORES}},
            },
            **more,
        },
    }


def run(cluster: Cluster, trace: list[Request]) -> dict[str, Any]:
    """Play it; its end is that of the last answer."""
    seconds = trace[-1].timestamp
    return client.bench(cluster, NAMESPACE, ADDRESS, NAME, trace, timeout_seconds=seconds + 400.0)


def wait_ready(cluster: Cluster) -> None:
    """Until what is wanted runs and serves."""
    deploy.wait_until(
        cluster,
        deploy.llmservice_path(NAMESPACE, NAME),
        lambda each: (
            each.get("status", {}).get("observedGeneration") == each["metadata"]["generation"]
            and deploy.condition(each, "Ready").get("status") == "True"
            and deploy.condition(each, "Progressing").get("reason") == "Complete"
        ),
        timeout_seconds=START_SECONDS,
    )


def evenly(count: int, gap_seconds: float) -> list[Request]:
    """So many requests, one each `gap_seconds`."""
    return [_request(number, number * gap_seconds) for number in range(count)]


def poisson(stages: list[tuple[float, float]], seed: int = 1) -> list[Request]:
    """Stages of (requests a second, seconds), one after the other."""
    chance, end = np.random.default_rng(seed), 0.0
    found: list[Request] = []
    for rate, seconds in stages:
        at, end = end, end + seconds
        while (at := at + float(chance.exponential(1.0 / rate))) < end:
            found.append(_request(len(found), at))
    return found


def _request(number: int, at: float) -> Request:
    blocks = math.ceil(INPUT_TOKENS / client.BLOCK_TOKENS)
    names = tuple(range(number * blocks, (number + 1) * blocks))
    return Request(
        timestamp=round(at, 3), input_length=INPUT_TOKENS, output_length=OUTPUT_TOKENS, hash_ids=names
    )


def figures(result: dict[str, Any]) -> dict[str, float]:
    """The benchmark's summary."""
    wanted = ("completed", "failed", "duration", "request_throughput", "output_throughput")
    kept = {key: result[key] for key in wanted if key in result}
    latencies = (f"{rank}_{name}_ms" for rank in ("p50", "p95", "p99") for name in ("ttft", "tpot"))
    return kept | {key: result[key] for key in latencies if key in result}


def _milliseconds(value: float) -> str:
    """Rounded up to two digits."""
    grain = 10 ** max(0, math.floor(math.log10(value)) - 1)
    return f"{math.ceil(value / grain) * grain:.0f}ms"


def say(text: str) -> None:
    print(f"{datetime.now(tz=UTC):%H:%M:%S} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

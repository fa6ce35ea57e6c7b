"""What is played in both worlds: a service, its engine's law of steps, and twenty minutes of a recorded load.

Qwen3-32B on one H200 each, and twenty minutes of Azure's code completions of 2023 (minutes 14 to 34), thinned: they
begin from rest with a burst, and have silences of a minute. Few tokens come out of long prompts, so that engines and
clients are little work for a small machine.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fakes.planned import memory_environment, plans_of
from llmservice_operator.cli_simulate import simulated_service
from llmservice_operator.planning.types import Plan, PlanInputs
from llmservice_operator.simulation.loads import Load, make_load
from llmservice_operator.simulation.policies import Service
from llmservice_operator.simulation.tables import Tables
from soak.law import StepLaw, fit, tables

TESTS = Path(__file__).resolve().parents[1]
TRACE = TESTS / "data" / "traces" / "azure2023_code.csv"
MODEL = TESTS / "data" / "models" / "Qwen--Qwen3-32B" / "config.json"
NAMESPACE = NAME = "soak"
FAKE_ENGINE = "ghcr.io/llmservice/fake-engine:0.32.0"
FIRST_MINUTE, MINUTES = 14, 20
SHARE, SHARE_SEED = 0.3, 1
"""Of the requests, each kept by chance: three to five replicas' worth. Time is not touched."""
MOST_REPLICAS = 8
LOAD_SECONDS, COMPILE_SECONDS, CAPTURE_SECONDS = 40.0, 8.0, 5.0
"""Of a start of the fake engine: some 55 s with the pod's own."""
CONTEXT_TOKENS = 8192


@dataclass(frozen=True, kw_only=True)
class Setting:
    """All of it."""

    inputs: PlanInputs
    plan: Plan
    service: Service
    law: StepLaw
    tables: Tables
    load: Load
    read_bytes_per_step: float

    @property
    def engine_environment(self) -> dict[str, str]:
        """The fake engine that is this engine."""
        return {
            **self.law.environment(read_bytes_per_step=self.read_bytes_per_step),
            **memory_environment(self.plan),
            "FAKE_ENGINE_LOAD_SECONDS": str(LOAD_SECONDS),
            "FAKE_ENGINE_COMPILE_SECONDS": str(COMPILE_SECONDS),
            "FAKE_ENGINE_CAPTURE_SECONDS": str(CAPTURE_SECONDS),
        }


def manifest(environment: dict[str, str]) -> dict[str, Any]:
    """The LLMService, on engines with this environment."""
    return {
        "apiVersion": "llmservice.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "model": {"uri": "pvc://models/qwen3-32b", "configMap": "qwen3-32b"},
            "engine": {
                "image": FAKE_ENGINE,
                "env": [{"name": name, "value": value} for name, value in environment.items()],
            },
            "accelerator": {"types": ["nvidia-h200"], "parallelism": {"tensor": 1}},
            "workload": {
                "context": {"max": CONTEXT_TOKENS},
                "inputTokens": {"p50": 1469, "p95": 7315},
                "outputTokens": {"p50": 13, "p95": 90},
                "concurrency": {"min": 1},
            },
            "slo": {"ttft": {"p95": "2s"}, "tpot": {"p95": "200ms"}},
            "scaling": {"maxReplicas": MOST_REPLICAS},
            "drain": {"timeout": "1m"},
            "podTemplate": {"resources": {"requests": {"cpu": "10m", "memory": "64Mi"}}},
        },
    }


def config_map(namespace: str = NAMESPACE) -> dict[str, Any]:
    """The model's config.json."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "qwen3-32b", "namespace": namespace},
        "data": {"config.json": MODEL.read_text()},
    }


def recorded_load(seconds: float = MINUTES * 60.0) -> Load:
    """The trace's requests at their times, thinned and kept within the context."""
    begin = FIRST_MINUTE * 60.0
    with TRACE.open() as lines:
        rows = [
            (int(row["milliseconds"]) / 1000.0 - begin, int(row["prompt_tokens"]), int(row["answer_tokens"]))
            for row in csv.DictReader(lines)
        ]
    chosen = np.random.default_rng(SHARE_SEED).random(len(rows)) < SHARE
    kept = np.array([row for row, take in zip(rows, chosen, strict=True) if take and 0.0 <= row[0] < seconds])
    prompt = np.clip(kept[:, 1], 1, CONTEXT_TOKENS - 1).astype(np.int64)
    answer = np.clip(kept[:, 2], 1, CONTEXT_TOKENS - prompt).astype(np.int64)
    return make_load("azure2023 code", kept[:, 0], prompt, answer, seconds=seconds)


def make_setting(seconds: float = MINUTES * 60.0) -> Setting:
    """Plan the service as the operator does, and take the law of its engine from the speed model."""
    ((inputs, plan),) = plans_of([manifest({})], [config_map()])
    service = simulated_service(inputs, plan, static_replicas=MOST_REPLICAS, start_seconds=60.0)
    speed = service.speed
    law = fit(speed)
    work = speed.timer.work
    read_bytes = work.dense.bytes_read + work.head.bytes_read
    peak = speed.case.accelerator.memory_bandwidth_bytes_per_second
    return Setting(
        inputs=inputs,
        plan=plan,
        service=service,
        law=law,
        tables=tables(
            law,
            token_budget=plan.knobs.max_num_batched_tokens,
            max_num_seqs=plan.knobs.max_num_seqs,
            max_model_len=plan.knobs.max_model_len,
            pool_tokens=float(plan.kv_cache_tokens),
            traffic_seconds_per_step=read_bytes / peak,
        ),
        load=recorded_load(seconds),
        read_bytes_per_step=read_bytes,
    )

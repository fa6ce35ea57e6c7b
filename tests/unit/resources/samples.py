"""Specs, plans and settings that the tests of rendering start from, each with overrides."""

from dataclasses import replace
from typing import Any

from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.perfmodel.accelerators import AcceleratorRow
from llmservice_operator.planning.types import Knobs, MemoryTerm, ModelFacts, Plan
from llmservice_operator.resources.pod import render_pod_template
from llmservice_operator.resources.types import Identity, Manifest, RenderSettings

GIB = 1024**3

IDENTITY = Identity(name="qwen3-8b", namespace="team-a", uid="2b1f6a5e-0000-4000-8000-000000000001")

SETTINGS = RenderSettings(
    supervisor_image="ghcr.io/llmservice/operator:0.1.0",
    supervisor_pull_policy="IfNotPresent",
    engine_images={"default": "vllm/vllm-openai:v0.33.0", "cpu": "ghcr.io/llmservice/vllm-cpu:0.32.0"},
    hub_endpoint="https://huggingface.co",
)

H200 = AcceleratorRow(
    name="nvidia-h200",
    memory_bytes=150_109_159_424,
    memory_bandwidth_bytes_per_second=4.8e12,
    bf16_flops_per_second=989e12,
    fp8_flops_per_second=1979e12,
    compute_capability="9.0",
    resource_name="nvidia.com/gpu",
    node_labels=(
        ("nvidia.com/gpu.product", ("NVIDIA-H200", "NVIDIA-H200-SHARED")),
        ("cloud.google.com/gke-accelerator", ("nvidia-h200-141gb",)),
    ),
    device_name_contains=("H200",),
    cost_per_hour=4.0,
    sources={},
    evidence="measured",
)

CPU = replace(
    H200,
    name="cpu",
    memory_bytes=0,
    compute_capability=None,
    fp8_flops_per_second=None,
    resource_name="",
    node_labels=(),
    device_name_contains=(),
)

H200_PLAN = Plan(
    accelerator=H200,
    accelerators_per_replica=2,
    resource_name="nvidia.com/gpu",
    knobs=Knobs(
        max_model_len=32768,
        gpu_memory_utilization=0.92,
        max_num_seqs=64,
        max_num_batched_tokens=8192,
        kv_cache_dtype="auto",
        block_size=None,
        tensor_parallel_size=2,
    ),
    memory=(MemoryTerm(name="weights", size_bytes=8 * GIB, explanation="8.19e9 x 2 B / 2 ranks"),),
    total_bytes=H200.memory_bytes,
    requested_bytes=138_100_426_670,
    kv_cache_tokens=1_500_000,
    max_concurrency=45.7,
    weights_bytes=16_400_000_000,
    host_memory_bytes=24 * GIB,
    host_memory_limited=False,
    host_cpu_cores=4,
    shm_bytes=2 * GIB,
    engine_version="0.33.0",
)

CPU_PLAN = replace(
    H200_PLAN,
    accelerator=CPU,
    accelerators_per_replica=0,
    resource_name="",
    knobs=replace(
        H200_PLAN.knobs,
        max_model_len=2048,
        gpu_memory_utilization=None,
        tensor_parallel_size=1,
        kv_cache_bytes=GIB,
    ),
    weights_bytes=269_000_000,
    host_memory_bytes=4 * GIB,
    host_memory_limited=True,
    host_cpu_cores=2,
    shm_bytes=GIB,
    engine_version="0.32.0",
    env={"VLLM_CPU_KVCACHE_SPACE": "1"},
)


RICH: Manifest = {
    "model": {
        "uri": "hf://Qwen/Qwen3-8B",
        "tokenSecret": {"name": "hf"},
        "cache": {"create": {"size": "50Gi", "accessMode": "ReadWriteMany"}},
    },
    "engine": {
        "apiKeySecret": {"name": "keys"},
        "args": {"tool-call-parser": "hermes", "seed": "1"},
        "env": [
            {"name": "OWN", "value": "$(x)"},
            {"name": "IP", "valueFrom": {"fieldRef": "status.podIP"}},
            {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
        ],
    },
    "service": {"type": "NodePort", "port": 80, "annotations": {"a": "b"}},
    "podTemplate": {
        "labels": {"team": "a"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
                    ]
                }
            }
        },
        "tolerations": [{"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
            }
        ],
        "resources": {"requests": {"cpu": 8, "ephemeral-storage": "0.5Gi"}, "limits": {"cpu": "16000m"}},
        "volumes": [
            {"name": "own", "mountPath": "/data", "secret": "s"},
            {"name": "scratch", "mountPath": "/scratch", "emptyDir": {"sizeLimit": "1024Mi"}},
        ],
        "imagePullSecrets": ["registry"],
    },
}
"""A spec with nearly every field that ends up in a pod."""


class RecordedEngine:
    """An engine adapter whose arguments tell what it was given."""

    def default_command(self) -> tuple[str, ...]:
        return ("python3", "-m", "engine.server")

    def arguments(self, spec: LLMServiceSpec, plan: Plan, identity: Identity, /) -> tuple[str, ...]:
        extra = tuple(
            word for flag, value in sorted(spec.engine.args.items()) for word in (f"--{flag}", value)
        )
        revision = ("--revision", spec.model.revision)
        return ("--max-model-len", str(plan.knobs.max_model_len), "--name", identity.name, *revision, *extra)


def spec(**fields: Any) -> LLMServiceSpec:
    """A spec from camelCase fields, of a model on a hub unless `model` is given."""
    return LLMServiceSpec.model_validate({"model": {"uri": "hf://Qwen/Qwen3-8B"}, **fields})


def pod(
    *,
    plan: Plan = H200_PLAN,
    settings: RenderSettings = SETTINGS,
    facts: ModelFacts | None = None,
    restart: str = "",
    **fields: Any,
) -> Manifest:
    """The pod template for such a spec."""
    return render_pod_template(
        IDENTITY, spec(**fields), plan, settings, facts, engine=RecordedEngine(), restart=restart
    )


def engine(template: Manifest) -> Manifest:
    """The engine's container."""
    container: Manifest
    (container,) = template["spec"]["containers"]
    assert container["name"] == "engine"
    return container


def environment(template: Manifest) -> dict[str, Any]:
    """The engine's variables: name → value, or what it is read from."""
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in engine(template)["env"]}


def mounts(template: Manifest) -> dict[str, Manifest]:
    """Mount path → the volume mounted there, with `readOnly` where it is set."""
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    return {
        mount["mountPath"]: {
            **volumes[mount["name"]],
            **({"readOnly": True} if mount.get("readOnly") else {}),
        }
        for mount in engine(template)["volumeMounts"]
    }

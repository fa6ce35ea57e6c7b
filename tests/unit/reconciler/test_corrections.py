"""One correction for each way in which a start runs out of memory, by what the engine measured.

The engine's words are those of vLLM 0.26 and torch 2.11.
"""

import json
from typing import Any

import pytest

import factories as make
from unit.perfmodel.samples import load_config

from .memory_kube import World

GIB = 1 << 30
ADDRESS = "10.0.0.7"
LLAMA = "meta-llama--Meta-Llama-3.1-8B"

OUT_AT_LOAD = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 21.96 GiB "
    "of which 512.00 MiB is free. Including non-PyTorch memory, this process has 21.40 GiB memory in use. Of the "
    "allocated memory 20.75 GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated."
)
OUT_IN_WARMUP = (
    "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering "
    "`max_num_seqs` or `gpu_memory_utilization` when initializing the engine."
)
OUT_BESIDE_OTHERS = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB "
    "of which 1.00 GiB is free. Process 4711 has 60.00 GiB memory in use. Including non-PyTorch memory, this process "
    "has 78.00 GiB memory in use. Of the allocated memory 77.00 GiB is allocated by PyTorch, and 0 bytes is reserved."
)
NOT_EMPTY = (
    "ValueError: Free memory on device cuda:0 (60.00/139.80 GiB) on startup is less than desired GPU memory "
    "utilization (0.95, 132.81 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
)


async def served(world: World, *cards: str, config: dict[str, Any] | None = None, **spec: Any) -> None:
    """A service of Llama-3.1-8B, or of another config, on one of these cards."""
    data = {"config.json": json.dumps(config or load_config(LLAMA))}
    world.kube.put({"kind": "ConfigMap", "metadata": {"name": "model"}, "data": data})
    said = {"accelerator": {"types": list(cards)}, "engine": {"version": "0.26.0"}}
    world.serve(model={"uri": "pvc://m/x", "configMap": "model"}, **{**said, **spec})
    await world.settle()


async def fail(
    world: World,
    failure_class: str,
    message: str,
    *,
    stage: str,
    pod: str = "chat-1",
    restarts: int = 0,
    memory: dict[str, Any] | None = None,
    devices: list[dict[str, Any]] | None = None,
    **fields: Any,
) -> None:
    """The engine of the running revision fails and is held by its supervisor."""
    failure = make.failure(failure_class, message=message, stage=stage, **fields)
    world.add_pod(make.running_pod(name=pod, revision=world.revision, started=True, restarts=restarts))
    report = make.report(
        revision=world.revision, phase="Failed", failure=failure, memory=memory or {}, devices=devices or []
    )
    world.engines.reports = {ADDRESS: report}
    await world.settle()
    world.drop_pods()


def flag(world: World, name: str) -> float:
    args = world.engine_args
    return float(args[args.index(f"--{name}") + 1]) if f"--{name}" in args else 1.0


def corrected(world: World) -> bool:
    return world.condition("Planned")[1] == "PlanCorrected"


async def test_load_that_outgrows_a_card_is_spread_over_two(world: World) -> None:
    await served(world, "nvidia-l4")
    assert flag(world, "tensor-parallel-size") == 1

    await fail(world, "OutOfMemory", OUT_AT_LOAD, stage="load")

    assert corrected(world)
    assert flag(world, "tensor-parallel-size") == 2


async def test_load_that_outgrows_the_only_card_is_refused_with_zero_replicas(world: World) -> None:
    await served(world, "nvidia-l4", accelerator={"types": ["nvidia-l4"], "parallelism": {"tensor": 1}})

    await fail(world, "OutOfMemory", OUT_AT_LOAD, stage="load")

    assert world.deployment["spec"]["replicas"] == 0
    assert world.condition("Stalled")[0] == "True"


async def test_warm_up_that_runs_out_gets_fewer_sequences_and_more_room(world: World) -> None:
    await served(world, "nvidia-h200")
    before = flag(world, "gpu-memory-utilization"), flag(world, "max-num-seqs")

    await fail(world, "OutOfMemory", OUT_IN_WARMUP, stage="warmup")

    assert corrected(world)
    assert flag(world, "gpu-memory-utilization") < before[0]
    assert flag(world, "max-num-seqs") < before[1]


@pytest.mark.parametrize("stage", ["profile", "capture"])
async def test_shortage_with_figures_lowers_the_budget_by_what_was_missing(world: World, stage: str) -> None:
    await served(world, "nvidia-h200")
    before = flag(world, "gpu-memory-utilization")
    words = OUT_AT_LOAD.replace("21.96", "139.80").replace(
        "Tried to allocate 1.00 GiB", "Tried to allocate 14.00 GiB"
    )

    await fail(world, "OutOfMemory", words, stage=stage)

    assert before - flag(world, "gpu-memory-utilization") >= 13.75 / 139.8


async def test_neighbour_on_the_card_is_planned_around(world: World) -> None:
    await served(world, "nvidia-h200")

    await fail(world, "OutOfMemory", OUT_BESIDE_OTHERS, stage="profile")

    assert corrected(world)
    assert flag(world, "gpu-memory-utilization") <= (139.8 - 60.0) / 139.8


async def test_card_that_stays_in_use_is_planned_around_at_the_second_start(world: World) -> None:
    await served(world, "nvidia-h200")
    first = world.revision

    await fail(world, "DeviceNotEmpty", NOT_EMPTY, stage="load")
    assert world.revision == first
    await fail(world, "DeviceNotEmpty", NOT_EMPTY, stage="load", restarts=1)

    assert corrected(world)
    assert world.deployment["spec"]["replicas"] == 1
    assert flag(world, "gpu-memory-utilization") <= 60.0 / 139.8


async def test_card_that_is_in_use_all_the_same_ends_without_a_replica(world: World) -> None:
    await test_card_that_stays_in_use_is_planned_around_at_the_second_start(world)

    for restarts in range(2):
        await fail(world, "DeviceNotEmpty", NOT_EMPTY, stage="load", pod="chat-2", restarts=restarts)

    assert world.deployment["spec"]["replicas"] == 0
    assert world.condition("Stalled")[:2] == ("True", "DeviceNotEmpty")


async def test_smaller_card_than_the_catalogue_says_is_planned_for(world: World) -> None:
    """A row of 139.8 GiB, a card of 80."""
    await served(world, "nvidia-h200", config=load_config("Qwen--Qwen3-32B"))
    words = OUT_AT_LOAD.replace("21.96", "79.19").replace("20.75", "78.00")

    await fail(world, "OutOfMemory", words, stage="profile")

    assert corrected(world)
    assert world.status["plan"]["totalBytes"] == pytest.approx(79.19 * GIB, rel=0.001)


async def test_device_that_the_supervisor_lists_tells_the_cards_size(world: World) -> None:
    await served(world, "nvidia-h200")

    await fail(
        world,
        "KvCacheTooSmall",
        "No available memory for the cache blocks.",
        stage="profile",
        devices=[{"name": "NVIDIA H200 MIG 1g.18gb", "memoryBytes": 18 * GIB}],
    )

    assert world.status["plan"]["totalBytes"] <= 18 * GIB


async def test_config_that_lies_of_the_weights_is_corrected_by_those_that_were_loaded(world: World) -> None:
    """The ConfigMap tells of half the layers; the engine loads the true ones and has no room left for the context."""
    config = {**load_config(LLAMA), "num_hidden_layers": 16}
    await served(world, "nvidia-l4", config=config)
    loaded = int(14.99 * GIB)

    await fail(
        world,
        "KvCacheTooSmall",
        "No available memory for the cache blocks.",
        stage="profile",
        memory={"weightsBytes": loaded, "totalBytes": int(21.96 * GIB)},
    )

    assert corrected(world)
    weights = next(each["sizeBytes"] for each in world.status["plan"]["memory"] if each["name"] == "weights")
    assert weights * world.status["plan"]["acceleratorsPerReplica"] >= loaded


async def test_room_that_one_card_had_binds_no_plan_for_two(world: World) -> None:
    """The engine on one card had 0.2 GiB of KV cache; two cards have 20 times as much."""
    await served(world, "nvidia-l4", workload={"context": {"min": 8192, "max": 8192}})

    await fail(
        world,
        "KvCacheTooSmall",
        "To serve at least one request",
        stage="profile",
        kvCacheAvailableBytes=GIB // 5,
        memory={"weightsBytes": int(18.5 * GIB)},
    )

    assert flag(world, "tensor-parallel-size") == 2
    assert flag(world, "max-model-len") == 8192


async def test_failure_whose_hold_was_missed_is_corrected_from_the_words_it_left(world: World) -> None:
    await served(world, "nvidia-l4")
    message = make.termination_message("OutOfMemory", message=OUT_AT_LOAD, stage="load")
    world.add_pod(make.crashed_pod(message.replace(make.REVISION, world.revision), revision=world.revision))

    await world.settle()

    assert corrected(world)
    assert flag(world, "tensor-parallel-size") == 2


async def test_words_of_a_card_mean_nothing_on_the_cpu_row(world: World) -> None:
    world.serve()
    await world.settle()
    before = world.status["plan"]["totalBytes"]

    await fail(
        world, "OutOfMemory", OUT_AT_LOAD, stage="load", memory={"totalBytes": GIB, "weightsBytes": 90 * GIB}
    )

    assert before < world.status["plan"]["totalBytes"] < 2 * before


async def test_container_that_its_limit_ended_is_given_more_on_the_cpu_row(world: World) -> None:
    world.serve()
    await world.settle()
    before = world.status["plan"]["totalBytes"]
    killed = make.terminated(exit_code=137, reason="OOMKilled")
    world.add_pod(make.running_pod(revision=world.revision, restarts=1, last=killed))

    await world.settle()

    assert corrected(world)
    assert world.status["plan"]["totalBytes"] > before


async def test_container_with_the_users_own_limit_is_given_less_cache(world: World) -> None:
    limits = {"resources": {"limits": {"memory": "8Gi"}}}
    world.serve(podTemplate=limits, workload={"concurrency": {"min": 1}})
    await world.settle()
    before = world.status["plan"]["knobs"]["kvCacheBytes"]
    killed = make.terminated(exit_code=137, reason="OOMKilled")
    world.add_pod(make.running_pod(revision=world.revision, restarts=1, last=killed))

    await world.settle()

    assert (world.status["plan"]["totalBytes"], corrected(world)) == (8 * GIB, True)
    assert world.status["plan"]["knobs"]["kvCacheBytes"] < before


async def test_killed_engine_on_a_gpu_is_no_fault_of_the_plan(world: World) -> None:
    await served(world, "nvidia-h200")
    first = world.revision
    killed = make.terminated(exit_code=137, reason="OOMKilled")
    world.add_pod(make.running_pod(revision=first, restarts=1, last=killed))

    await world.settle()

    assert world.revision == first


async def test_correction_is_read_back_as_it_was_made(world: World) -> None:
    await served(world, "nvidia-l4")
    await fail(world, "OutOfMemory", OUT_AT_LOAD, stage="load")
    revision = world.revision

    world.start()
    await world.settle()

    assert world.revision == revision
    assert world.condition("UpToDate")[:2] == ("True", "UpToDate")


async def test_correction_of_a_newer_release_is_read_as_far_as_it_is_known(world: World) -> None:
    await served(world, "nvidia-l4")
    await fail(world, "OutOfMemory", OUT_AT_LOAD, stage="load")
    revision = world.revision
    manifest = next(each for each in world.revisions() if each["metadata"]["name"] == revision)
    annotations = manifest["metadata"]["annotations"]
    name = "llmservice.dev/memory-correction"
    annotations[name] = json.dumps({**json.loads(annotations[name]), "learnt_later": 1})
    world.kube.put(manifest)

    world.start()
    await world.settle()

    assert world.revision == revision
    assert world.condition("Planned")[0] == "True"

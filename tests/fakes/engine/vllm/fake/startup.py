"""The start: vLLM's steps with their log lines, in real time, and every way that it can fail."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from vllm.fake.arguments import Arguments
from vllm.fake.faults import Faults
from vllm.fake.logs import Log, traceback
from vllm.fake.model import GIB, Model
from vllm.fake.parameters import Parameters

_DOCS = "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."

_STREAMS_APART_SECONDS = 0.05


class StartError(Exception):
    """The engine core failed to start; the text is the last line of its traceback."""


@dataclass(frozen=True)
class Start:
    """Everything that a start needs."""

    arguments: Arguments
    parameters: Parameters
    model: Model
    faults: Faults
    api: Log
    core: Log
    sleep: Callable[[float], None] = time.sleep


def run(start: Start) -> None:
    """All steps in vLLM's order.

    Raises:
        StartError: when a fault or the arithmetic says that it fails.

    """
    _import(start)
    _load(start)
    _profile(start)
    _size_kv_cache(start)
    _warm_up(start)


def _step(start: Start, name: str, seconds: float) -> None:
    """Let the time pass, unless this step is where a fault ends it."""
    if start.faults.text("die", "step", "") == name:
        sys.stdout.flush()
        os._exit(int(start.faults.number("die", "code", 1)))
    if start.faults.text("sigkill", "step", "") == name:
        os.kill(os.getpid(), signal.SIGKILL)
    start.sleep(seconds)


def _import(start: Start) -> None:
    version, model = start.parameters.version, start.arguments.model
    start.sleep(start.parameters.import_seconds)
    start.api.info("utils.py:233", f"non-default args: {start.arguments.non_default}")
    start.api.info("model.py:2170", f"Using max model len {start.model.max_model_len}")
    if "model-not-found" in start.faults:
        raise StartError(_not_found(model))
    if "model-gated" in start.faults:
        raise StartError(
            f"OSError: You are trying to access a gated repo.\nMake sure to have access to it at "
            f"https://huggingface.co/{model}.\n"
            f"403 Client Error. (Request ID: Root=1-0)\n\nCannot access gated repo for url "
            f"https://huggingface.co/{model}/resolve/main/config.json.\nAccess to model {model} is "
            "restricted and you "
            "are not in the authorized list."
        )
    _step(start, "import", 0)
    start.core.info("core.py:117", f"Initializing a V1 LLM engine (v{version}) with config: model='{model}'")
    if "shm-too-small" in start.faults:
        raise StartError(
            "RuntimeError: Insufficient space in /dev/shm for shared memory ring buffer: 160 MiB required, "
            "64 MiB free. "
            "Increase /dev/shm (e.g. --shm-size or --ipc=host)."
        )


def _not_found(model: str) -> str:
    if model.startswith("/"):
        return f"ValueError: Invalid repository ID or local directory specified: '{model}'."
    return (
        f"OSError: {model} is not a local folder and is not a valid model identifier listed on "
        "'https://huggingface.co/models'\nIf this is a private repository, make sure to pass a token "
        "having permission "
        "to this repo either by logging in with `hf auth login` or by passing `token=<your_token>`"
    )


def _load(start: Start) -> None:
    faults, parameters, core = start.faults, start.parameters, start.core
    requested = parameters.total_bytes * start.arguments.gpu_memory_utilization
    if "device-not-empty" in faults:
        free = parameters.total_bytes * 0.3
        raise StartError(_not_empty(start, free, requested))
    core.info("model_runner.py:390", f"Starting to load model {start.arguments.model}...")
    shards = int(faults.number("slow-load", "shards", parameters.load_shards))
    seconds = faults.number("slow-load", "seconds", parameters.load_seconds)
    if "disk-full" in faults:
        raise StartError("OSError: [Errno 28] No space left on device")
    if "model-invalid" in faults:
        raise StartError("ValueError: Model architectures ['FooForCausalLM'] are not supported for now.")
    began = time.monotonic()
    for done in range(shards + 1):
        _progress(done, shards)
        if done < shards:
            _step(start, "load", seconds / shards)
        if "oom-load" in faults and done == shards // 2:
            raise StartError(_oom(parameters))
    core.info("default_loader.py:507", f"Loading weights took {time.monotonic() - began:.2f} seconds")
    gib = start.model.weights_bytes / GIB / start.arguments.tensor_parallel_size
    core.info(
        "model_runner.py:429",
        f"Model loading took {gib:.2f} GiB memory and {time.monotonic() - began:.6f} seconds",
    )


def _progress(done: int, shards: int) -> None:
    percent = 100 * done // shards
    text = (
        f"Loading safetensors checkpoint shards: {percent:3}% Completed | {done}/{shards} "
        "[00:00<00:00,  1.00it/s]"
    )
    sys.stderr.write(f"\r{text}" if done < shards else f"\r{text}\n")
    sys.stderr.flush()


def _not_empty(start: Start, free: float, requested: float) -> str:
    total, fraction = start.parameters.total_bytes, start.arguments.gpu_memory_utilization
    if start.parameters.device == "cpu":
        return (
            f"ValueError: Available memory on node 0 ({free / GIB:.2f}/{total / GIB:.2f} GiB) on startup "
            "is less than "
            f"desired CPU memory utilization ({fraction}, {requested / GIB:.2f} GiB). On the CPU backend, "
            "the "
            "`--gpu-memory-utilization` flag controls the fraction of CPU memory reserved (despite its "
            "name). To "
            "resolve: decrease `--gpu-memory-utilization` (e.g. `--gpu-memory-utilization 0.5`) or reduce "
            "CPU memory "
            "used by other processes."
        )
    return (
        f"ValueError: Free memory on device cuda:0 ({free / GIB:.2f}/{total / GIB:.2f} GiB) on startup is "
        "less than "
        f"desired GPU memory utilization ({fraction}, {requested / GIB:.2f} GiB). Decrease GPU memory "
        "utilization or "
        "reduce GPU memory used by other processes."
    )


def _oom(parameters: Parameters) -> str:
    total = parameters.total_bytes / GIB
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
        "capacity of "
        f"{total:.2f} GiB of which 1.02 GiB is free. Including non-PyTorch memory, this process has "
        f"{total - 1.02:.2f} GiB "
        "memory in use."
    )


def _profile(start: Start) -> None:
    parameters, core = start.parameters, start.core
    if parameters.device == "cpu":
        core.info("cpu_model_runner.py:82", "Warming up model for the compilation...")
        _step(start, "compile", parameters.compile_seconds)
    elif parameters.compile_seconds:
        core.info(
            "backends.py:1051",
            "Using cache directory: /tmp/torch_compile_cache/0/rank_0_0 for vLLM's torch.compile",
        )
        _step(start, "compile", parameters.compile_seconds)
        core.info("monitor.py:81", f"torch.compile took {parameters.compile_seconds:.2f} s in total")
    if "oom-profile" in start.faults:
        raise StartError(_oom(parameters))
    _step(start, "profile", parameters.profile_seconds)
    if parameters.device == "cpu":
        core.info("cpu_model_runner.py:92", "Warming up done.")
    if "oom-warmup" in start.faults:
        raise StartError(
            f"RuntimeError: CUDA out of memory occurred when warming up sampler with "
            f"{start.arguments.max_num_seqs or 1024} "
            "dummy requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization` when "
            "initializing the engine."
        )


def _size_kv_cache(start: Start) -> None:
    model, core, parameters = start.model, start.core, start.parameters
    available = 0 if "no-kv" in start.faults else model.kv_cache_bytes
    total = parameters.total_bytes / GIB
    if parameters.device == "cpu":
        core.info(
            "cpu_worker.py:262",
            f"Explicitly set ({available / GIB:.2f}/{total:.2f}) GiB for KV cache on node 0.",
        )
    else:
        core.info("gpu_worker.py:773", f"Available KV cache memory: {available / GIB:.2f} GiB")
    tokens = model.kv_cache_tokens
    if "kv-too-small" in start.faults:
        tokens = model.max_model_len // 2
        available = tokens * model.kv_bytes_per_token
    if available <= 0:
        raise StartError(
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` "
            "when "
            f"initializing the engine (this flag also controls CPU memory reservation on the CPU backend, "
            f"despite its name). {_DOCS}"
        )
    if model.max_model_len > tokens:
        needed = model.max_model_len * model.kv_bytes_per_token / GIB
        raise StartError(
            f"ValueError: To serve at least one request with the model's max seq len "
            f"({model.max_model_len}), "
            f"({needed:.2f} GiB KV cache is needed, which is larger than the available KV cache memory "
            f"({available / GIB:.2f} GiB). Based on the available memory, the estimated maximum model "
            f"length is {tokens}. "
            "Try increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU backend) "
            "or decreasing "
            f"`max_model_len` when initializing the engine. {_DOCS}"
        )
    _kv_size_lines(start, tokens)


def _kv_size_lines(start: Start, tokens: int) -> None:
    """One joined line since 0.28, two before (v1/core/kv_cache_utils.py)."""
    kind = "CPU" if start.parameters.device == "cpu" else "GPU"
    length = start.model.max_model_len
    size = f"{kind} KV cache size: {tokens:,} tokens"
    concurrency = f"Maximum concurrency for {length:,} tokens per request: {tokens / length:.2f}x"
    if tuple(int(part) for part in start.parameters.version.split(".")[:2]) >= (0, 28):
        start.core.info("kv_cache_utils.py:1148", f"{size}, {concurrency}")
    else:
        start.core.info("kv_cache_utils.py:1314", size)
        start.core.info("kv_cache_utils.py:1319", concurrency)


def _warm_up(start: Start) -> None:
    parameters, core = start.parameters, start.core
    if parameters.device == "cuda":
        # Standard output and error are two streams: as in a real start, time tells which line came first.
        start.sleep(_STREAMS_APART_SECONDS)
        sys.stderr.write(
            "\rCapturing CUDA graphs (mixed prefill-decode, PIECEWISE):   0%|          | 0/51 [00:00<?, "
            "?it/s]"
        )
        sys.stderr.flush()
        _step(start, "capture", parameters.capture_seconds)
        if "oom-capture" in start.faults:
            sys.stderr.write("\n")
            raise StartError(_oom(parameters))
        sys.stderr.write(
            "\rCapturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|██████████| 51/51 "
            "[00:01<00:00]\n"
        )
        sys.stderr.flush()
        graphs = parameters.cuda_graph_bytes / GIB
        core.info(
            "model_runner.py:1164",
            f"Graph capturing finished in {parameters.capture_seconds:.0f} secs, took {graphs:.2f} GiB",
        )
        core.info("gpu_worker.py:1045", _summary(start))
    _step(start, "warmup", parameters.warmup_seconds)
    core.info(
        "core.py:396",
        "init engine (profile, create kv cache, warmup model) took 1.00 s (compilation: 0.00 s)",
    )
    start.api.info(
        "entry.py:139", f"Starting vLLM server on http://{start.arguments.host}:{start.arguments.port}"
    )


def _summary(start: Start) -> str:
    parameters, model = start.parameters, start.model
    total, requested = (
        parameters.total_bytes / GIB,
        parameters.total_bytes * start.arguments.gpu_memory_utilization / GIB,
    )
    weights = model.weights_bytes / GIB / start.arguments.tensor_parallel_size
    non_torch, peak = parameters.non_torch_bytes / GIB, parameters.activation_bytes / GIB
    kv = model.kv_cache_bytes / GIB
    return (
        f"Free memory on device ({total - 0.5:.2f}/{total:.2f} GiB) on startup. Desired GPU memory "
        "utilization is "
        f"({start.arguments.gpu_memory_utilization}, {requested:.2f} GiB). Actual usage is "
        f"{weights + non_torch:.2f} GiB for "
        f"consumed memory (weights + non-torch), {peak:.2f} GiB for peak activation, and "
        f"{parameters.cuda_graph_bytes / GIB:.2f} GiB for CUDAGraph memory. Replace gpu_memory_utilization "
        "config with "
        f"`--kv-cache-memory={model.kv_cache_bytes}` ({kv:.2f} GiB) to fit into requested memory, or "
        f"`--kv-cache-memory={model.kv_cache_bytes}` ({kv:.2f} GiB) to fully utilize gpu memory. Current "
        "kv cache memory in "
        f"use is {kv:.2f} GiB."
    )


def report_failure(api: Log, core: Log, error: str) -> None:
    """What both processes leave in the log when the core does not come up (v1/engine/core.py, "
    "v1/engine/utils.py).
    """
    core.error("core.py:1584", "EngineCore failed to start.\n" + traceback(error))
    core.raw("Process EngineCore:\n" + traceback(error))
    api.raw(
        traceback(
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
            "{'EngineCore': 1}"
        )
    )

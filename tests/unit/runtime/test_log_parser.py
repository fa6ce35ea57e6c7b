"""One line of log → data, over versions and devices. Texts from vLLM's source at the named versions."""

import pytest

from llmservice_runtime.log_parser import GIB, parse, split_prefix, version_known
from llmservice_runtime.memory_facts import EngineFacts, fold


def gib(value: float) -> int:
    return int(value * GIB)


CORE = "(EngineCore pid=77) INFO 11-29 23:00:00 "
SUMMARY_026 = (
    CORE + "[gpu_worker.py:741] Free memory on device (139.29/139.8 GiB) on startup. Desired GPU memory "
    "utilization is "
    "(0.92, 128.62 GiB). Actual usage is 15.0 GiB for weight, 1.78 GiB for peak activation, 0.22 GiB for "
    "non-torch "
    "memory, and 0.99 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with "
    "`--kv-cache-memory=118624224359` (110.48 GiB) to fit into requested memory, or "
    "`--kv-cache-memory=130080611840` "
    "(121.15 GiB) to fully utilize gpu memory. Current kv cache memory in use is 111.61 GiB."
)
SUMMARY_033 = (
    CORE + "[gpu_worker.py:1045] Free memory on device (139.29/139.8 GiB) on startup. Desired GPU memory "
    "utilization "
    "is (0.92, 128.62 GiB). Actual usage is 15.5 GiB for consumed memory (weights + non-torch), 2.75 GiB "
    "for peak "
    "activation, and 0.99 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with "
    "`--kv-cache-memory=1` (1.0 GiB) to fit into requested memory, or `--kv-cache-memory=2` (2.0 GiB) to "
    "fully utilize "
    "gpu memory. Current kv cache memory in use is 110.4 GiB."
)

ONE_LINE = [
    pytest.param(
        "(APIServer pid=1) INFO 11-29 23:49:21 [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0",
        {"version": "0.32.0"},
        id="the version in the banner, 0.32",
    ),
    pytest.param(
        "(APIServer pid=7) INFO 03-08 16:44:28 [utils.py:302] vLLM API server version 0.19.0",
        {"version": "0.19.0"},
        id="the version in a sentence, 0.19",
    ),
    pytest.param(
        CORE + "[core.py:133] Initializing a V1 LLM engine (v0.26.0) with config: model='m'",
        {"version": "0.26.0"},
        id="the version of the core",
    ),
    pytest.param(
        "(APIServer pid=1) INFO 11-29 23:49:40 [model.py:2152] Using max model len 131072",
        {"max_model_len": 131072},
        id="max model len",
    ),
    pytest.param(
        "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:13<00:40, 13.45s/it]",
        {"shard_fraction": 0.25},
        id="shards, with no prefix",
    ),
    pytest.param(
        "(Worker_TP1 pid=9) Multi-thread loading shards: 100% Completed | 2/2 [00:00<00:00,  5.00it/s]",
        {"shard_fraction": 1.0},
        id="shards by several threads",
    ),
    pytest.param(
        CORE + "[gpu_model_runner.py:4820] Model loading took 7.16 GiB memory and 10.353895 seconds",
        {"weights": gib(7.16)},
        id="weights",
    ),
    pytest.param(
        "INFO 01-30 03:18:12 [gpu_model_runner.py:848] Model loading took 14.99 GiB and 3.2 seconds",
        {"weights": gib(14.99)},
        id="weights without the word memory",
    ),
    pytest.param(
        CORE + "[weight_utils.py:1108] Filesystem type for checkpoints: EXT4. Checkpoint size: 0.25 GiB. "
        "Available "
        "RAM: 20.29 GiB.",
        {"checkpoint": gib(0.25)},
        id="checkpoint size",
    ),
    pytest.param(
        CORE + "[gpu_worker.py:456] Available KV cache memory: 17.36 GiB",
        {"kv_cache": gib(17.36)},
        id="KV memory",
    ),
    pytest.param(
        CORE + "[gpu_model_runner.py:5993] Estimated CUDA graph memory: 0.73 GiB total",
        {"cuda_graph_estimate": gib(0.73)},
        id="graph estimate",
    ),
    pytest.param(
        CORE + "[kv_cache_utils.py:1148] GPU KV cache size: 914,304 tokens, Maximum concurrency for 8,192 "
        "tokens per "
        "request: 111.61x",
        {"kv_tokens": 914304, "max_model_len": 8192, "max_concurrency": 111.61},
        id="KV size, joined line since 0.28",
    ),
    pytest.param(
        CORE + "[kv_cache_utils.py:1314] GPU KV cache size: 188,640 tokens",
        {"kv_tokens": 188640},
        id="KV size, first of two lines before 0.28",
    ),
    pytest.param(
        CORE + "[kv_cache_utils.py:1319] Maximum concurrency for 131,072 tokens per request: 5.23x",
        {"max_model_len": 131072, "max_concurrency": 5.23},
        id="concurrency, second of two lines before 0.28",
    ),
    pytest.param(
        CORE + "[kv_cache_planning.py:1405] Auto-fit max_model_len: reduced from 131072 to 40960 to fit in "
        "available "
        "KV cache memory (5.1 GiB)",
        {"max_model_len": 40960},
        id="auto-fitted length",
    ),
    pytest.param(
        CORE + "[model_runner.py:1164] Graph capturing finished in 4 secs, took 0.11 GiB",
        {"cuda_graph": gib(0.11)},
        id="graphs",
    ),
    pytest.param(
        CORE + "[gpu_worker.py:1004] CUDA graph pool memory: 0.56 GiB (actual), 1.19 GiB (estimated), "
        "difference: 0.63 "
        "GiB (112.5%).",
        {"cuda_graph": gib(0.56), "cuda_graph_estimate": gib(1.19)},
        id="graphs, actual and estimated",
    ),
    pytest.param(
        "(Worker pid=5) INFO 11-29 23:52:00 [cpu_worker.py:262] Explicitly set (1.0/23.42) GiB for KV "
        "cache on node 0.",
        {"kv_cache": gib(1.0), "total": gib(23.42)},
        id="CPU, KV by the variable",
    ),
    pytest.param(
        "(Worker pid=5) INFO 11-29 23:52:00 [cpu_worker.py:262] Auto set (20.1/23.42) GiB for KV cache on "
        "node 0, with "
        "21.55 GiB requested memory for the worker. 1.45 GiB memory was consumed by non-kv usages.",
        {"kv_cache": gib(20.1), "total": gib(23.42), "requested": gib(21.55)},
        id="CPU, KV by the fraction",
    ),
    pytest.param(
        CORE + "[gpu_worker.py:664] Initial free memory 79.1 GiB, reserved 20.0 GiB memory for KV Cache as "
        "specified "
        "by kv_cache_memory_bytes config and skipped memory profiling.",
        {"free": gib(79.1), "kv_cache": gib(20.0)},
        id="KV bytes given by the flag",
    ),
]


@pytest.mark.parametrize(("line", "values"), ONE_LINE)
def test_a_line_gives_its_values(line: str, values: dict[str, float | str]) -> None:
    observation = parse(line)

    assert observation is not None
    assert values == dict(observation.values)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "INFO",
        '(APIServer pid=1) INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK',
        CORE
        + "[loggers.py:276] Engine 000: Avg prompt throughput: 1.0 tokens/s, Running: 3 reqs, GPU KV cache "
        "usage: 2.0%",
        "\ufffd\ufffd\x00 KV cache size: many tokens",
        "(" * 4000,
    ],
)
def test_other_lines_give_nothing(line: str) -> None:
    assert parse(line) is None


@pytest.mark.parametrize(
    ("line", "step"),
    [
        (CORE + "[gpu_model_runner.py:1] Starting to load model Qwen/Qwen3-8B...", "load"),
        (CORE + "[model_runner.py:284] Loading model from scratch...", "load"),
        (CORE + "[backends.py:1111] Dynamo bytecode transform time: 4.50 s", "compile"),
        (CORE + "[cpu_model_runner.py:87] Warming up model for the compilation...", "compile"),
        (CORE + "[monitor.py:53] torch.compile took 16.27 s in total", "profile"),
        (CORE + "[monitor.py:34] torch.compile takes 54.73 s in total", "profile"),
        ("Capturing CUDA graphs (PIECEWISE):   0%|          | 0/3 [00:00<?, ?it/s]", "capture"),
        (
            "Capturing CUDA graphs (mixed prefill-decode, FULL):   0%|          | 0/3 [00:00<?, ?it/s]",
            "capture",
        ),
        ("Capturing prefill CUDA graphs (FULL):   0%|          | 0/1 [00:00<?, ?it/s]", "capture"),
        (
            CORE + "[core.py:273] init engine (profile, create kv cache, warmup model) took 2.60 seconds",
            "warmup",
        ),
    ],
)
def test_a_line_begins_a_step(line: str, step: str) -> None:
    observation = parse(line)

    assert observation is not None
    assert observation.step == step


@pytest.mark.parametrize(
    ("line", "ended"),
    [
        (CORE + "[model_runner.py:305] Model loading took 15.0 GiB and 1.995831 seconds", ("load", 1.995831)),
        (CORE + "[gpu_model_runner.py:1347] Model loading took 14.9596 GiB and 3.5 seconds", ("load", 3.5)),
        (CORE + "[backends.py:1155] Dynamo bytecode transform time: 8.52 s", ("compile", 8.52)),
        (CORE + "[backends.py:1188] [backbone] Dynamo bytecode transform time: 8.52 s", ("compile", 8.52)),
        (CORE + "[monitor.py:53] torch.compile took 25.09 s in total", ("compile", 25.09)),
    ],
)
def test_a_line_tells_how_long_a_step_took(line: str, ended: tuple[str, float]) -> None:
    observation = parse(line)

    assert observation is not None
    assert observation.ended == ended


@pytest.mark.parametrize(
    "line",
    [
        "(APIServer pid=1) INFO 11-29 23:00:00 [entry.py:139] Starting vLLM server on http://0.0.0.0:8000",
        "(APIServer pid=1) INFO 11-29 23:00:00 [a.py:500] Starting vLLM API server 0 on http://0.0.0.0:8000",
        "(APIServer pid=1) INFO:     Application startup complete.",
    ],
)
def test_a_line_says_that_the_port_opens(line: str) -> None:
    observation = parse(line)

    assert observation is not None
    assert observation.serving_soon


def facts_of(*lines: str) -> EngineFacts:
    facts = EngineFacts()
    for line in lines:
        observation = parse(line)
        assert observation is not None, line
        facts = fold(facts, observation)
    return facts


def test_the_summary_of_0_26_gives_every_term() -> None:
    facts = facts_of(SUMMARY_026)

    assert facts == EngineFacts(
        total_bytes=gib(139.8),
        requested_bytes=gib(128.62),
        free_bytes=gib(139.29),
        weights_bytes=gib(15.0),
        activation_bytes=gib(1.78),
        non_torch_bytes=gib(0.22),
        cuda_graph_bytes=gib(0.99),
        kv_cache_bytes=gib(111.61),
        weights_loaded=True,
    )


@pytest.mark.parametrize(
    ("line", "free", "requested"),
    [
        (
            (
                "Free memory on device cuda:0 (78.77/139.8 GiB) on startup is less than desired GPU memory "
                "utilization (0.95, 132.81 GiB)."
            ),
            78.77,
            132.81,
        ),
        (
            (
                "Available memory on node 0 (18.0/139.8 GiB) on startup is less than desired CPU memory "
                "utilization (0.9, 125.82 GiB)."
            ),
            18.0,
            125.82,
        ),
    ],
)
def test_a_device_that_is_not_empty_tells_the_budget(line: str, free: float, requested: float) -> None:
    assert facts_of(line) == EngineFacts(
        total_bytes=gib(139.8), free_bytes=gib(free), requested_bytes=gib(requested)
    )


def test_torch_tells_how_large_the_device_is() -> None:
    line = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.75 GiB. GPU 0 has a total capacity of "
        "139.80 GiB of which 725.12 MiB is free."
    )

    assert facts_of(line) == EngineFacts(total_bytes=gib(139.8))


def test_the_joined_terms_since_0_28_are_taken_apart() -> None:
    facts = facts_of(
        CORE + "[model_runner.py:429] Model loading took 15.0 GiB memory and 2.659747 seconds",
        CORE + "[gpu_worker.py:1004] CUDA graph pool memory: 0.99 GiB (actual), 1.0 GiB (estimated), "
        "difference: 0.01 "
        "GiB (1.0%).",
        SUMMARY_033,
    )

    assert facts.non_torch_bytes == pytest.approx(gib(0.5), abs=2)
    assert facts.activation_bytes == pytest.approx(gib(1.75), abs=2)


def test_of_several_ranks_the_fullest_counts() -> None:
    facts = facts_of(
        "(Worker_TP0 pid=1) INFO 11-29 23:00:00 [gpu_worker.py:773] Available KV cache memory: 40.5 GiB",
        "(Worker_TP1 pid=2) INFO 11-29 23:00:00 [gpu_worker.py:773] Available KV cache memory: 40.1 GiB",
        "(Worker_TP0 pid=1) INFO 11-29 23:00:00 [model_runner.py:429] Model loading took 7.5 GiB memory "
        "and 1.0 seconds",
        "(Worker_TP1 pid=2) INFO 11-29 23:00:00 [model_runner.py:429] Model loading took 7.4 GiB memory "
        "and 1.0 seconds",
    )

    assert (facts.kv_cache_bytes, facts.weights_bytes) == (gib(40.1), gib(7.5))


def test_the_two_lines_before_0_28_give_what_the_joined_line_gives() -> None:
    two = facts_of(
        CORE + "[kv_cache_utils.py:1314] GPU KV cache size: 188,640 tokens",
        CORE + "[kv_cache_utils.py:1319] Maximum concurrency for 131,072 tokens per request: 5.23x",
    )
    joined = facts_of(
        CORE + "[kv_cache_utils.py:1148] GPU KV cache size: 188,640 tokens, Maximum concurrency for 131,072 "
        "tokens per "
        "request: 5.23x"
    )

    assert two == joined


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ("0.18.1", False),
        ("0.19.0", True),
        ("0.26.0rc1", True),
        ("v0.32.0", True),
        ("0.33.0", True),
        ("0.34.0", False),
        ("1.0.0", False),
        (None, False),
        ("dev", False),
    ],
)
def test_only_checked_versions_are_known(version: str | None, known: bool) -> None:
    assert version_known(version) is known


@pytest.mark.parametrize(
    ("line", "body", "level"),
    [
        (
            "(EngineCore_DP0 pid=387) ERROR 03-08 16:44:28 [core.py:1584] ValueError: x",
            "ValueError: x",
            "ERROR",
        ),
        ("(VllmWorker-0 pid=3) WARNING 11-29 23:50:17 [vllm.py:725] text", "text", "WARNING"),
        ("(Worker_TP1_EP1 pid=27) INFO 09-29 09:51:29 [backends.py:559] text", "text", "INFO"),
        ("[pod-a] (APIServer pid=3) INFO 09-29 09:51:29 [backends.py:559] text", "text", "INFO"),
        ("(EngineCore pid=3) [Stage-0] INFO 02-02 18:25:03 [x.py:1] text", "text", "INFO"),
        (
            'INFO:     127.0.0.1:40910 - "GET /health HTTP/1.1" 200 OK',
            '127.0.0.1:40910 - "GET /health HTTP/1.1" 200 OK',
            "INFO",
        ),
        ("ERROR:    [Errno 98] address already in use", "[Errno 98] address already in use", "ERROR"),
        ("INFO 09-29 09:51:29 [backends.py:559] text", "text", "INFO"),
        ("(APIServer pid=30) RuntimeError: text", "RuntimeError: text", None),
        ("no prefix (at all)", "no prefix (at all)", None),
    ],
)
def test_the_prefix_comes_off(line: str, body: str, level: str | None) -> None:
    found = split_prefix(line)

    assert (found.body, found.level) == (body, level)

"""One line of an engine's log → what it says, as data. Pure and table driven.

The texts are those of vLLM 0.19 to 0.33 (`v1/worker/gpu_worker.py`, `v1/worker/cpu_worker.py`,
`v1/worker/gpu/model_runner.py`, `v1/worker/gpu_model_runner.py`, `v1/core/kv_cache_utils.py`,
`v1/engine/core.py`, `compilation/monitor.py`). A line of another version that reads alike is read alike;
`version_known` says whether the version is one that the table was checked with.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Callable, Mapping

GIB = 1024**3
OLDEST_KNOWN = (0, 19)
NEWEST_KNOWN = (0, 33)

# "(EngineCore pid=12) INFO 11-29 23:00:00 [core.py:273] " and, for lines that another library printed,
# "(EngineCore pid=12) " alone; uvicorn's own lines begin "INFO:     ". VLLM_LOGGING_PREFIX may stand in front.
_PREFIX = re.compile(
    r"^(?:.{0,64}?\((?P<process>[A-Za-z_][\w -]*?) pid=\d+\)\s?)?"
    r"(?:(?:\[[^\]]{1,40}\] )?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) "
    r"\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[[^\]]*\] ?|(?P<uvicorn>INFO|WARNING|ERROR): {4,5})?"
)


@dataclass(frozen=True)
class LogLine:
    """A line without its prefix. `level` is None for lines that did not come through the engine's logger."""

    body: str
    level: str | None = None
    process: str | None = None


@dataclass(frozen=True)
class Observation:
    """What one line said: values by field name, and the startup step that begins with it.

    `ended` is a step that the line ends and the seconds that it took: some steps are told only when they are over.
    """

    values: Mapping[str, float | str] = field(default_factory=dict)
    step: str | None = None
    ended: tuple[str, float] | None = None
    serving_soon: bool = False


def split_prefix(line: str) -> LogLine:
    """Take the logger's prefix off `line`."""
    match = _PREFIX.match(line)
    if match is None:
        return LogLine(body=line)
    return LogLine(
        body=line[match.end() :],
        level=match.group("level") or match.group("uvicorn"),
        process=match.group("process"),
    )


def version_known(version: str | None) -> bool:
    """Whether the texts were checked with this version of the engine (0.19 to 0.33)."""
    match = re.match(r"v?(\d+)\.(\d+)", version or "")
    if match is None:
        return False
    return OLDEST_KNOWN <= (int(match.group(1)), int(match.group(2))) <= NEWEST_KNOWN


Extract = Callable[["re.Match[str]"], "dict[str, float | str]"]


@dataclass(frozen=True)
class Rule:
    """A text to look for. `hint` is a plain substring, so that most lines cost no regular expression.

    `ends` is the step whose seconds the pattern's group `took` gives.
    """

    hint: str
    pattern: re.Pattern[str]
    extract: Extract | None = None
    step: str | None = None
    ends: str | None = None
    serving_soon: bool = False


def _gib(*names: str) -> Extract:
    """Groups 1, 2 … are GiB, to be given as bytes under `names`; an empty name skips the group."""

    def extract(match: re.Match[str]) -> dict[str, float | str]:
        return {name: int(float(match.group(i)) * GIB) for i, name in enumerate(names, 1) if name}

    return extract


def _numbers(*names: str) -> Extract:
    """Groups 1, 2 … are numbers with thousands commas; an absent group is left out."""

    def extract(match: re.Match[str]) -> dict[str, float | str]:
        found: dict[str, float | str] = {}
        for index, name in enumerate(names, 1):
            text = match.group(index)
            if name and text is not None:
                value = float(text.replace(",", ""))
                found[name] = int(value) if value.is_integer() and "." not in text else value
        return found

    return extract


def _version(match: re.Match[str]) -> dict[str, float | str]:
    return {"version": match.group(1)}


def _shards(match: re.Match[str]) -> dict[str, float | str]:
    done, total = int(match.group(1)), int(match.group(2))
    return {"shard_fraction": done / total} if total else {}


def _summary_old(match: re.Match[str]) -> dict[str, float | str]:
    names = ("free", "total", "requested", "weights", "activation", "non_torch", "cuda_graph", "kv_cache")
    return {name: int(float(match.group(i)) * GIB) for i, name in enumerate(names, 1)}


def _summary_new(match: re.Match[str]) -> dict[str, float | str]:
    names = ("free", "total", "requested", "consumed", "peak_with_graph_estimate", "cuda_graph", "kv_cache")
    return {name: int(float(match.group(i)) * GIB) for i, name in enumerate(names, 1)}


def _rule(
    hint: str,
    pattern: str,
    extract: Extract | None = None,
    *,
    step: str | None = None,
    ends: str | None = None,
    serving: bool = False,
) -> Rule:
    return Rule(hint, re.compile(pattern), extract, step, ends, serving)


_N = r"(-?[\d.]+)"  # a decimal number
_TOOK = r"(?P<took>[\d.]+)"
_SUMMARY = (
    rf"Free memory on device(?: \S+)? \({_N}/{_N} GiB\) on startup\. Desired GPU memory utilization is "
    rf"\([\d.]+, {_N} GiB\)\. Actual usage is {_N} GiB for "
)
_SUMMARY_END = rf"{_N} GiB for CUDAGraph memory\..*Current kv cache memory in use is {_N} GiB"

RULES: tuple[Rule, ...] = (
    _rule("version", r"(?:API server version|█.*\bversion) v?(\d+\.\d+\S*)", _version),
    _rule("Initializing a V1", r"Initializing a V1 LLM engine \(v?(\d+\.\d+[^)]*)\)", _version),
    _rule("max model len", r"Using max model len ([\d,]+)", _numbers("max_model_len")),
    _rule(
        "Auto-fit max_model_len",
        r"Auto-fit max_model_len: reduced from [\d,]+ to ([\d,]+)",
        _numbers("max_model_len"),
    ),
    _rule(
        "Auto-fit max_model_len",
        r"Auto-fit max_model_len: full model context length ([\d,]+) fits",
        _numbers("max_model_len"),
    ),
    _rule("Starting to load model", r"Starting to load model ", step="load"),  # runner V1, and the CPU's
    _rule("Loading model from scratch", r"Loading model from scratch", step="load"),  # runner V2
    _rule(
        "oading",
        r"(?:Loading \S+ checkpoint shards|Multi-thread loading shards):.*\| (\d+)/(\d+) \[",
        _shards,
    ),
    _rule("Checkpoint size", rf"Checkpoint size: {_N} GiB", _gib("checkpoint")),
    _rule("Loading weights took", rf"Loading weights took {_N} seconds", _numbers("load_seconds")),
    _rule(
        "Model loading took",
        rf"Model loading took {_N} GiB(?: memory)? and {_TOOK} seconds",
        _gib("weights"),
        step="profile",
        ends="load",
    ),
    # The directory is told when Dynamo is done, just before its time.
    _rule("Dynamo bytecode", rf"Dynamo bytecode transform time: {_TOOK} s", step="compile", ends="compile"),
    _rule("Warming up model", r"Warming up model for the compilation", step="compile"),
    _rule(
        "torch.compile",
        rf"torch\.compile (?:takes|took) {_TOOK} s in total",
        step="profile",
        ends="compile",
    ),
    _rule("Warming up done", r"Warming up done", step="profile"),
    _rule("Estimated CUDA graph", rf"Estimated CUDA graph memory: {_N} GiB", _gib("cuda_graph_estimate")),
    _rule("requested memory", rf"worker requested memory: {_N} ?GiB", _gib("requested")),
    _rule("Available KV cache", rf"Available KV cache memory: {_N} GiB", _gib("kv_cache")),
    _rule(
        "reserved",
        rf"Initial free memory {_N} GiB, reserved {_N} GiB memory for KV Cache",
        _gib("free", "kv_cache"),
    ),
    _rule(
        "Explicitly set",
        rf"Explicitly set \({_N}/{_N}\) GiB for KV cache",
        _gib("kv_cache", "total"),
    ),
    _rule(
        "Auto set",
        rf"Auto set \({_N}/{_N}\) GiB for KV cache on node \d+, with {_N} GiB requested memory",
        _gib("kv_cache", "total", "requested"),
    ),
    _rule(
        "KV cache size",
        r"KV cache size: ([\d,]+) tokens"
        rf"(?:, Maximum concurrency for ([\d,]+) tokens per request: {_N}x)?",
        _numbers("kv_tokens", "max_model_len", "max_concurrency"),
        step="warmup",
    ),
    _rule(
        "Maximum concurrency",
        rf"^Maximum concurrency for ([\d,]+) tokens per request: {_N}x",
        _numbers("max_model_len", "max_concurrency"),
    ),
    _rule("Capturing", r"Capturing (?:\w+ )*CUDA graphs", step="capture"),
    _rule("Capturing", r"Capturing the model for CUDA graphs|Capturing cudagraphs for", step="capture"),
    _rule(
        "Graph capturing finished",
        rf"Graph capturing finished in [\d.]+ secs?, took {_N} GiB",
        _gib("cuda_graph"),
        step="warmup",
    ),
    _rule(
        "CUDA graph pool",
        rf"CUDA graph pool memory: {_N} GiB \(actual\), {_N} GiB \(estimated\)",
        _gib("cuda_graph", "cuda_graph_estimate"),
    ),
    _rule(
        "Free memory on device",
        _SUMMARY + rf"weight, {_N} GiB for peak activation, {_N} GiB for non-torch memory, "
        rf"and {_SUMMARY_END}",
        _summary_old,
    ),
    _rule(
        "Free memory on device",
        _SUMMARY + rf"consumed memory \(weights \+ non-torch\), {_N} GiB for peak "
        rf"activation, and {_SUMMARY_END}",
        _summary_new,
    ),
    _rule(
        "on startup is less than",
        rf"(?:Free memory on device|Available memory on node)(?: \S+)? \({_N}/{_N} GiB\) on startup is less than "
        rf"desired \w+ memory utilization \([\d.]+, {_N} GiB\)",
        _gib("free", "total", "requested"),
    ),
    _rule("total capacity", rf"GPU \d+ has a total capacity of {_N} GiB", _gib("total")),
    _rule("init engine", r"init engine \(.*\) took ", step="warmup"),
    _rule("Starting vLLM", r"Starting vLLM (?:API )?server(?: \d+)? on http", step="warmup", serving=True),
    _rule("Application startup complete", r"Application startup complete", step="warmup", serving=True),
)


def parse_line(line: LogLine) -> Observation | None:
    """What the line says, or None. The first rule that fits wins."""
    for rule in RULES:
        if rule.hint not in line.body:
            continue
        match = rule.pattern.search(line.body)
        if match is not None:
            return Observation(
                rule.extract(match) if rule.extract else {},
                rule.step,
                (rule.ends, float(match.group("took"))) if rule.ends else None,
                rule.serving_soon,
            )
    return None


def parse(line: str) -> Observation | None:
    """`parse_line` on a whole line, prefix included."""
    return parse_line(split_prefix(line))

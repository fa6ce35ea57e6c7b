"""vLLM's flags as data: what each is called, what it may be, and whether memory depends on it.

A flag is read as vLLM's own parser reads it (`vllm/utils/argparse_utils.py`): `-` for `_`, short names, any unique
beginning of a name, `no_` before a switch, numbers with k/M/G, and a dot before a key of a JSON flag. Every refusal
names the flag, its value, what is allowed and the mend.
"""

import difflib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from llmservice_operator.engines.flag_names import NAMES
from llmservice_operator.engines.versions import Version, parse_version
from llmservice_operator.errors import InvalidInputError

Kind = Literal["integer", "decimal", "switch", "text", "json", "sizes"]

ALIASES = {
    "tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size",
    "dcp": "decode_context_parallel_size", "pcp": "prefill_context_parallel_size", "ep": "enable_expert_parallel",
    "q": "quantization", "O": "optimization_level", "cc": "compilation_config", "sc": "speculative_config",
    "ac": "attention_config", "dc": "diffusion_config", "n": "nnodes", "r": "node_rank", "asc": "api_server_count",
    "dpn": "data_parallel_rank", "dpr": "data_parallel_start_rank", "dpl": "data_parallel_size_local",
    "dpa": "data_parallel_address", "dpp": "data_parallel_rpc_port", "dpb": "data_parallel_backend",
    "dph": "data_parallel_hybrid_lb", "dpe": "data_parallel_external_lb", "dpm": "data_parallel_multi_port_external_lb",
    "device_memory_utilization": "gpu_memory_utilization", "kv_cache_memory": "kv_cache_memory_bytes",
}  # fmt: skip
"""Short names of vLLM's parser, and the spelling that its own log uses."""

MOST_RANKS = 1024
MOST_SEQUENCES = 1 << 17
MOST_TOKENS = 1 << 24
LONGEST_CONTEXT = 1 << 30
LARGEST_BYTES = 1 << 50
LONGEST_NUMBER = 40
"""Beyond these no engine of today runs: more is a slip of the hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag that memory depends on."""

    name: str
    kind: Kind
    low: float = 1
    high: float = math.inf
    low_open: bool = False
    choices: tuple[str, ...] = ()
    counted: bool = True
    """Whether the account follows it; else it is said that it doesn't."""


def _integers(high: float, *names: str, low: float = 1) -> Iterable[Flag]:
    return (Flag(name=name, kind="integer", low=low, high=high) for name in names)


def _switches(*names: str) -> Iterable[Flag]:
    return (Flag(name=name, kind="switch") for name in names)


def _uncounted(*names: str) -> Iterable[Flag]:
    return (Flag(name=name, kind="text", counted=False) for name in names)


MEMORY_FLAGS: dict[str, Flag] = {
    flag.name: flag
    for flag in (
        *_integers(
            MOST_RANKS, "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size",
            "decode_context_parallel_size",
        ),
        *_integers(MOST_SEQUENCES, "max_num_seqs", "max_cudagraph_capture_size"),
        *_integers(MOST_TOKENS, "max_num_batched_tokens"),
        *_integers(1 << 20, "block_size"),
        *_integers(LARGEST_BYTES, "kv_cache_memory_bytes", "num_gpu_blocks_override"),
        *_integers(1024, "max_loras", "max_lora_rank", "spec_tokens"),
        Flag(name="max_model_len", kind="integer", low=-1, high=LONGEST_CONTEXT),
        Flag(name="gpu_memory_utilization", kind="decimal", low=0, high=1, low_open=True),
        Flag(name="cpu_offload_gb", kind="decimal", low=0, high=1 << 20),
        Flag(name="mm_ipc_gpu_memory_gb", kind="decimal", low=0, high=1 << 20),
        Flag(
            name="dtype", kind="text",
            choices=("auto", "half", "float16", "bfloat16", "float", "float32"),
        ),
        Flag(name="quantization", kind="text"),
        Flag(name="kv_cache_dtype", kind="text"),
        Flag(name="mamba_ssm_cache_dtype", kind="text", choices=("auto", "float32", "float16", "bfloat16")),
        Flag(name="optimization_level", kind="text", choices=("0", "1", "2", "3", "O0", "O1", "O2", "O3")),
        Flag(
            name="performance_mode", kind="text", choices=("balanced", "interactivity", "throughput"),
        ),
        Flag(name="spec_method", kind="text"),
        Flag(name="spec_model", kind="text"),
        Flag(name="cudagraph_capture_sizes", kind="sizes"),
        Flag(name="cuda_graph_sizes", kind="sizes"),
        Flag(name="compilation_config", kind="json"),
        Flag(name="speculative_config", kind="json"),
        Flag(name="limit_mm_per_prompt", kind="json"),
        Flag(name="hf_overrides", kind="json"),
        Flag(name="rope_scaling", kind="json"),
        *_switches(
            "enforce_eager", "enable_expert_parallel", "enable_prefix_caching", "enable_chunked_prefill",
            "disable_sliding_window", "disable_hybrid_kv_cache_manager", "async_scheduling", "enable_lora",
            "language_model_only", "skip_mm_profiling", "enable_dbo", "enable_elastic_ep",
            "enable_return_routed_experts", "enable_prompt_embeds", "kv_sharing_fast_prefill",
        ),
        *_uncounted(
            "attention_backend", "attention_config", "enable_eplb", "enable_prompt_adapter",
            "eplb_config", "fully_sharded_loras", "kv_cache_dtype_skip_layers", "kv_transfer_config", "lora_dtype",
            "mamba_block_size", "mamba_cache_dtype", "mm_encoder_tp_mode", "num_redundant_experts",
            "offload_group_size", "prefill_context_parallel_size", "use_v2_block_manager",
        ),
    )
}  # fmt: skip
"""Flags that move the accelerator's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Flags as read: values by name, and what is to be said of them."""

    values: Mapping[str, Any]
    notes: tuple[str, ...] = ()


@cache
def known_names() -> dict[str, tuple[str, str]]:
    """Every flag's name → (last release without it, first release without it again)."""
    return {name: span for span, names in NAMES.items() for name in names.split()}


def canonical_name(text: str) -> str:
    """The flag that is meant. Raises InvalidInputError with the close match for one that vLLM doesn't have."""
    name = text.strip().lstrip("-").replace("-", "_")
    name = ALIASES.get(name, name)
    if name in known_names():
        return name
    longer = [each for each in known_names() if name and each.startswith(name)]
    if len(longer) == 1:
        return longer[0]
    if len(longer) > 1:
        raise InvalidInputError(
            f"--set {text}: {', '.join(sorted(longer)[:6])} begin so; write the whole name of one"
        )
    close = difflib.get_close_matches(name, [*known_names(), *ALIASES], n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}?" if close else "`vllm serve --help` lists them"
    raise InvalidInputError(f"--set {text}: vLLM has no such flag; {hint}")


def read_flags(given: Iterable[tuple[str, str | None]], version: Version) -> Given:
    """Values of (name, text) pairs; None: a bare switch. The last word on a flag counts, as with argparse.

    Raises InvalidInputError for an unknown flag or a value that it can't have.
    """
    values: dict[str, Any] = {}
    notes: list[str] = []
    for text, value in given:
        head, dot, key = text.strip().partition(".")
        stripped = head.lstrip("-").replace("-", "_")
        negative = stripped.startswith("no_") and stripped not in known_names()
        name = canonical_name(stripped.removeprefix("no_") if negative else head)
        if (note := _version_note(name, version)) and note not in notes:
            notes.append(note)
        flag = MEMORY_FLAGS.get(name)
        if flag is None or not flag.counted:
            notes.append(_without_effect(name, counted=flag is None))
            continue
        if dot:
            _put(values, flag, key, _json_or_text(value or "true"))
        else:
            values[name] = _negated(flag, value) if negative else read_value(flag, value)
    return Given(values=values, notes=tuple(dict.fromkeys(notes)))


def _without_effect(name: str, *, counted: bool) -> str:
    if counted:
        return f"{name} is without effect on the accelerator's memory"
    return f"{name} may move memory in a way that isn't counted here"


def _version_note(name: str, version: Version) -> str:
    absent, gone = known_names()[name]
    told = ".".join(str(part) for part in version)
    if absent and version <= (parse_version(absent) or version):
        return f"vLLM {told} has no flag {name} yet and refuses it"
    if gone and version >= (parse_version(gone) or version):
        return f"vLLM {told} no longer has the flag {name} and refuses it"
    return ""


def _negated(flag: Flag, value: str | None) -> bool:
    if flag.kind != "switch":
        raise InvalidInputError(
            f"--set no_{flag.name}: only switches have a no_ form; {flag.name} takes a value"
        )
    return not (value is None or read_value(flag, value))


def read_value(flag: Flag, text: str | None) -> Any:
    """A flag's value from its text. Raises InvalidInputError."""
    if flag.kind == "switch":
        return _switch(flag, text)
    if text is None or not text.strip():
        raise InvalidInputError(f"--set {flag.name}: a value is missing; write {flag.name}=VALUE")
    text = text.strip()
    match flag.kind:
        case "integer":
            return _bounded(flag, text, _integer(flag, text))
        case "decimal":
            return _bounded(flag, text, _decimal(flag, text))
        case "json":
            return _object(flag, text)
        case "sizes":
            return _sizes(flag, text)
        case _:
            if flag.choices and text not in flag.choices:
                raise _wrong(flag, text, "one of " + ", ".join(flag.choices))
            return text


def _wrong(flag: Flag, text: str, expected: str) -> InvalidInputError:
    shown = text if len(text) <= 80 else text[:77] + "..."
    return InvalidInputError(f"--set {flag.name}={shown}: {expected} is expected")


def _switch(flag: Flag, text: str | None) -> bool:
    word = "true" if text is None else text.strip().lower()
    if word in {"true", "1", "yes", "on"}:
        return True
    if word in {"false", "0", "no", "off", "none"}:
        return False
    raise _wrong(flag, str(text), "true or false")


_HUMAN = re.compile(r"([+-]?\d[\d_]*(?:\.\d+)?)([kKmMgGtT]?)")
_SUFFIXES = {
    "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40,
}  # fmt: skip


def _integer(flag: Flag, text: str) -> int:
    """A whole number, with vLLM's suffixes: k, m, g, t are decimal, K, M, G, T binary."""
    if flag.name == "max_model_len" and text.lower() == "auto":
        return -1
    match = _HUMAN.fullmatch(text)
    if match is None or len(text) > LONGEST_NUMBER:
        raise _wrong(flag, text, "a whole number")
    number = float(match[1]) if "." in match[1] else int(match[1])
    value = number * _SUFFIXES.get(match[2], 1)
    if value != int(value):
        raise _wrong(flag, text, "a whole number")
    if flag.name == "max_model_len" and value == 0:
        raise _wrong(flag, text, f"auto, or 1 to {LONGEST_CONTEXT:,}")
    return int(value)


def _decimal(flag: Flag, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _wrong(flag, text, "a number") from None


def _bounded(flag: Flag, text: str, value: float) -> Any:
    within = (flag.low < value if flag.low_open else flag.low <= value) and value <= flag.high
    if not within:  # NaN is within nothing
        first = f"more than {flag.low:g}" if flag.low_open else f"at least {flag.low:g}"
        raise _wrong(flag, text, f"{first} and at most {flag.high:,.0f}")
    return value


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _object(flag: Flag, text: str) -> dict[str, Any]:
    """A JSON object. A bare word is a method of speculation, and a number a level of compilation."""
    value = _json_or_text(text)
    if isinstance(value, dict):
        return value
    if flag.name == "speculative_config" and isinstance(value, str) and re.fullmatch(r"[\w-]+", value):
        return {"method": value}
    if flag.name == "compilation_config" and isinstance(value, int):
        return {"mode": value}
    raise _wrong(flag, text, "a JSON object")


def _sizes(flag: Flag, text: str) -> tuple[int, ...]:
    """Sizes as a JSON list, or parted by commas or spaces."""
    value = _json_or_text(text)
    if isinstance(value, str):
        value = [_json_or_text(each) for each in re.split(r"[,\s]+", value) if each]
    sizes = value if isinstance(value, list) else [value]
    if not sizes or not all(isinstance(each, int) and 1 <= each <= MOST_TOKENS for each in sizes):
        raise _wrong(flag, text, f"whole numbers of 1 to {MOST_TOKENS:,}")
    return tuple(sorted(set(sizes)))


def _put(values: dict[str, Any], flag: Flag, path: str, value: Any) -> None:
    """Set a key of a JSON flag: `compilation_config.mode=0`."""
    if flag.kind != "json":
        raise InvalidInputError(f"--set {flag.name}.{path}: {flag.name} has no keys; write {flag.name}=VALUE")
    holder = values.setdefault(flag.name, {})
    *parents, last = path.split(".")
    for each in parents:
        holder = holder.setdefault(each, {})
        if not isinstance(holder, dict):
            raise InvalidInputError(f"--set {flag.name}.{path}: {each} is no object")
    holder[last] = value


def allows_no_items(limits: Mapping[str, Any]) -> bool:
    """Whether `--limit-mm-per-prompt` allows no item of any kind that it names: 0, or a count of 0."""
    counts = [each.get("count", 1) if isinstance(each, dict) else each for each in limits.values()]
    return bool(counts) and not any(counts)

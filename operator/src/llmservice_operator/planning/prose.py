"""A plan as a person would tell it: what runs, where the memory goes, what it holds, why, and what to mind."""

import textwrap
from collections.abc import Iterator, Sequence

from llmservice_operator.perfmodel.memory import GIB
from llmservice_operator.planning.bar import Segment, bar, legend
from llmservice_operator.planning.types import MemoryTerm, Plan, Refusal
from llmservice_operator.planning.words import gib, seconds, tokens

_TERMS = {
    "process": ("P", "the engine's processes", "the engine's own processes take {size}"),
    "weights": ("W", "weights", "the weights take {size}"),
    "packed": ("C", "packed copies", "kernels keep {size} of packed copies of them"),
    "activation": ("A", "activation", "one forward pass needs {size}"),
    "non_torch": ("N", "outside of torch", "libraries hold {size} outside of torch"),
    "cuda_graphs": ("G", "CUDA graphs", "CUDA graphs take {size}"),
    "extras": ("X", "LoRA and draft", "LoRA slots and a draft model take {size}"),
    "margin": ("m", "margin", "{size} stay as a margin for what the account may be wrong by"),
    "compiler": ("c", "compiler", "{size} are kept for a kernel that is compiled at the first request"),
    "kv_cache": ("K", "KV cache", "the KV cache gets {size}"),
    "outside_budget": (".", "outside the budget", ""),
}
"""Term of a plan → its letter in the bar, its name there, and the prose on it among what the engine asks for."""
_OTHER_LETTERS = "abdefghijklnopqrstuvwxyz"


def tell(name: str, plan: Plan, *, width: int) -> str:
    """The whole text for one service, wrapped to `width` columns."""
    paragraphs = [
        _opening(name, plan),
        _memory(plan),
        *_bar(plan, width),
        _cache(plan),
        *_expected(plan),
        _host(plan),
    ]
    lines = [line for each in paragraphs for line in (*_wrapped(each, width), "")]
    lines += _listed("Why:", plan.reasons, width)
    lines += _listed("Mind:", plan.warnings, width)
    return "\n".join(lines).rstrip() + "\n"


def tell_refusal(name: str, refusal: Refusal, *, width: int) -> str:
    """Why there is no plan."""
    begin = "can't run as it is asked for" if refusal.certain else "can't be planned yet"
    text = f"{name} {begin}, so no pod is made and no accelerator is taken. {refusal.message}"
    return "\n".join(_wrapped(f"{text} ({refusal.reason})", width)) + "\n"


def segments(plan: Plan) -> list[Segment]:
    """The plan's memory as stretches of a bar; a term that isn't known here keeps its own name."""
    letters = iter(_OTHER_LETTERS)
    found = []
    for term in plan.memory:
        letter, said, _ = _TERMS.get(term.name) or (next(letters), term.name.replace("_", " "), "")
        found.append(Segment(name=said, letter=letter, size_bytes=max(0, term.size_bytes)))
    return found


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of a paragraph; one that is laid out already begins with a space or a bracket, and is left alone."""
    if text.startswith(("[", "  ")):
        return text.split("\n")
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _opening(name: str, plan: Plan) -> str:
    version = f"vLLM {plan.engine_version}" if plan.engine_version else "vLLM of a version that isn't known"
    if not plan.resource_name:
        return f"{name} runs {version} on the CPU, one replica in a container of {gib(plan.total_bytes)}."
    count, row = plan.accelerators_per_replica, plan.accelerator
    spread = "" if count == 1 else ", its weights and KV cache spread over them"
    return f"{name} runs {version} on {count} x {row.name} a replica{spread}."


def _memory(plan: Plan) -> str:
    told = "; ".join(said for term in plan.memory if (said := _said(term)))
    if not plan.resource_name:
        return f"Of the container's {gib(plan.total_bytes)}, {told}."
    share = plan.knobs.gpu_memory_utilization
    asked = f" (gpu_memory_utilization {share:g})" if share is not None else ""
    whose = "the card's" if plan.accelerators_per_replica == 1 else "each card's"
    left = gib(plan.total_bytes - plan.requested_bytes)
    return (
        f"Of {whose} {gib(plan.total_bytes)} the engine asks for {gib(plan.requested_bytes)}{asked}: {told}. The other "
        f"{left} stay outside of its budget, for the driver's context and what grows while it serves."
    )


def _said(term: MemoryTerm) -> str:
    said = _TERMS.get(term.name, ("", "", ""))[2]
    return said.format(size=gib(term.size_bytes)) if term.size_bytes > 0 else ""


def _bar(plan: Plan, width: int) -> Iterator[str]:
    parts = segments(plan)
    yield bar(parts, width=width)
    yield "\n".join(f"  {line}" for line in legend(parts))


def _cache(plan: Plan) -> str:
    knobs = plan.knobs
    stored = "" if knobs.kv_cache_dtype == "auto" else f" in {knobs.kv_cache_dtype}"
    return (
        f"The KV cache holds {tokens(plan.kv_cache_tokens)}{stored}: {plan.max_concurrency:,.2f} requests of the whole "
        f"context of {knobs.max_model_len:,} at once, or more that are shorter. At most {knobs.max_num_seqs:,} run "
        f"together, and one step takes up to {tokens(knobs.max_num_batched_tokens)} of them."
    )


_BOUNDS = {
    "Compute": "its arithmetic",
    "MemoryBandwidth": "the bandwidth of its memory",
    "KVCapacity": "the room in its KV cache",
    "Host": "the host, which prepares each step",
}
"""What bounds a full replica, in words."""


def _expected(plan: Plan) -> Iterator[str]:
    """What is predicted of speed, where the plan says it."""
    speed = plan.speed
    if speed is None:
        return
    assumed = ", lengths that are assumed since the workload says none" if speed.assumed else ""
    full = f"{speed.batch:,} requests" if speed.batch > 1 else "one request"
    yield (
        f"Expected for prompts of {tokens(speed.input_tokens)} and answers of {speed.output_tokens:,}{assumed}, while "
        f"{full} run: the first token after {seconds(speed.ttft_seconds)} (95 of 100 within "
        f"{seconds(speed.ttft_p95_seconds)}), each further one after {seconds(speed.tpot_seconds)} "
        f"({seconds(speed.tpot_p95_seconds)}), {speed.tokens_per_second:,.0f} tokens a second in all. Above "
        f"{speed.requests_per_second:,.3g} requests a second a queue grows. What bounds a full replica is "
        f"{_BOUNDS.get(speed.bottleneck, speed.bottleneck)}."
    )


def _host(plan: Plan) -> str:
    cores = f"{plan.host_cpu_cores} core{'' if plan.host_cpu_cores == 1 else 's'}"
    limited = "which is its limit too" if plan.host_memory_limited else "without a limit"
    shared = f", and for {plan.shm_bytes / GIB:.0f} GiB of shared memory" if plan.shm_bytes else ""
    return f"The pod asks for {cores} and {gib(plan.host_memory_bytes)} of host memory, {limited}{shared}."


def _listed(title: str, items: Sequence[str], width: int) -> list[str]:
    if not items:
        return []
    lines = [title]
    for item in items:
        first, *rest = textwrap.wrap(item, width - 4, break_long_words=False, break_on_hyphens=False) or [""]
        lines += [f"  - {first}", *(f"    {line}" for line in rest)]
    return [*lines, ""]

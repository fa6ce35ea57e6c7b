"""A plan as text for people: knobs, the account of one accelerator, reasons."""

from collections.abc import Iterable, Iterator

from llmservice_operator.perfmodel.memory import GIB
from llmservice_operator.planning.slices import profile_of_resource
from llmservice_operator.planning.types import Plan, Refusal
from llmservice_operator.planning.words import seconds

_WIDTH = 110


def explain(name: str, plan: Plan) -> str:
    """The whole text for one service."""
    return "\n".join(line.rstrip() for line in _lines(name, plan)) + "\n"


def explain_refusal(name: str, refusal: Refusal) -> str:
    """A refusal in one paragraph."""
    word = "is refused" if refusal.certain else "can't be planned yet"
    return f"{name} {word}: {refusal.reason}\n" + "".join(
        f"  {line}\n" for line in _wrapped(refusal.message, _WIDTH - 2)
    )


def _lines(name: str, plan: Plan) -> Iterator[str]:
    knobs = plan.knobs
    profile = profile_of_resource(plan.resource_name)
    card = f"{plan.accelerator.name} ({profile})" if profile else plan.accelerator.name
    where = f"{plan.accelerators_per_replica} x {card}" if plan.resource_name else "the CPU"
    version = f"vLLM {plan.engine_version}" if plan.engine_version else "vLLM of unknown version"
    yield f"{name}: a replica on {where}, {version}"
    yield ""
    yield from _pairs(
        (
            ("max_model_len", f"{knobs.max_model_len:,}"),
            (
                "gpu_memory_utilization",
                "" if knobs.gpu_memory_utilization is None else f"{knobs.gpu_memory_utilization:g}",
            ),
            ("max_num_seqs", f"{knobs.max_num_seqs:,}"),
            ("max_num_batched_tokens", f"{knobs.max_num_batched_tokens:,}"),
            ("kv_cache_dtype", knobs.kv_cache_dtype),
            ("block_size", "" if knobs.block_size is None else str(knobs.block_size)),
            ("tensor_parallel_size", str(knobs.tensor_parallel_size)),
            *sorted(plan.env.items()),
            *plan.engine_args,
        )
    )
    yield ""
    yield "memory of one accelerator" if plan.resource_name else "memory of the container"
    yield from _account(plan)
    yield ""
    held = f"{plan.max_concurrency:.2f} requests of {knobs.max_model_len:,} tokens at once"
    yield f"KV cache: {plan.kv_cache_tokens:,} tokens, {held}"
    yield from _speed(plan)
    limited = "requested and limited" if plan.host_memory_limited else "requested"
    shared = f", {plan.shm_bytes / GIB:.0f} GiB of /dev/shm" if plan.shm_bytes else ""
    cores = f"{plan.host_cpu_cores} core{'' if plan.host_cpu_cores == 1 else 's'}"
    yield f"host: {cores}, {plan.host_memory_bytes / GIB:.2f} GiB {limited}{shared}"
    yield from _listed("why", plan.reasons)
    yield from _listed("mind", plan.warnings)


def _speed(plan: Plan) -> Iterator[str]:
    speed = plan.speed
    if speed is None:
        return
    ttft, tpot = (
        f"{seconds(speed.ttft_seconds)} (p95 {seconds(speed.ttft_p95_seconds)})",
        f"{seconds(speed.tpot_seconds)} (p95 {seconds(speed.tpot_p95_seconds)})",
    )
    yield f"speed, {speed.batch} at once: TTFT {ttft}, TPOT {tpot}, {speed.tokens_per_second:,.0f} tokens/s"


def _account(plan: Plan) -> Iterator[str]:
    for term in plan.memory:
        first, *rest = _wrapped(term.explanation, _WIDTH - 30)
        yield f"  {term.name:<15}{term.size_bytes / GIB:>9.2f} GiB  {first}"
        yield from (f"{'':<30}{line}" for line in rest)
    total = (
        f"{plan.accelerator.name} ({plan.accelerator.evidence})" if plan.resource_name else "the container"
    )
    yield f"  {'total':<15}{plan.total_bytes / GIB:>9.2f} GiB  of {total}"


def _pairs(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    shown = [(name, value) for name, value in pairs if value]
    width = max(len(name) for name, _ in shown)
    yield from (f"  {name:<{width}}  {value}" for name, value in shown)


def _listed(title: str, items: tuple[str, ...]) -> Iterator[str]:
    if not items:
        return
    yield ""
    yield title
    for item in items:
        first, *rest = _wrapped(item, _WIDTH - 4)
        yield f"  - {first}"
        yield from (f"    {line}" for line in rest)


def _wrapped(text: str, width: int) -> list[str]:
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]

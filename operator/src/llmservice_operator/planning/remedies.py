"""Changes that would make a case fit. Each is tried before it is offered: nothing is said that planning refuses."""

from collections.abc import Iterator
from dataclasses import replace

from llmservice_operator.perfmodel.accelerators import AcceleratorRow
from llmservice_operator.perfmodel.quantization import FP8, Format, Quantization, online_quantization
from llmservice_operator.perfmodel.shapes import DTYPE_BYTES, ceil_div
from llmservice_operator.planning.candidates import Candidate, candidates
from llmservice_operator.planning.case import Case
from llmservice_operator.planning.cpu import MEMORY_STEP, memory_limit, plan_cpu
from llmservice_operator.planning.fit import Fit, Misfit, fit, rank_weights
from llmservice_operator.planning.slices import visible
from llmservice_operator.planning.types import Plan

SHORTEST_OFFERED = 1024
"""A shorter context isn't offered as a mend: nobody serves that."""
CONTEXT_STEP = 256
MOST_OFFERED = 3
MOST_REQUESTS = 65_536
"""The most that spec.workload.concurrency.min takes."""
INT4 = Quantization(method="awq", default=Format(name="INT4", bits=4.0 + 20.0 / 128))
"""A 4-bit checkpoint as AWQ makes it: a 16-bit scale and a 4-bit zero point for 128 weights."""
FP8_CHECKPOINT = Quantization(method="fp8", default=FP8)


def remedies(case: Case, misfits: list[Misfit]) -> list[str]:
    """Up to three changes that would fit, cheapest first.

    What costs quality or length alone comes first; then more ranks and other cards, by their price; weights in fewer
    bits last, since another checkpoint is another model.
    """
    found: list[str] = []
    for each in _in_order(case, misfits):
        if each:
            found.append(each)
        if len(found) == MOST_OFFERED:
            break
    return found


def _in_order(case: Case, misfits: list[Misfit]) -> Iterator[str]:
    tried = [each for each in misfits if not each.why]
    yield _larger_limit(case, tried)
    yield _shorter(case, tried) or _fewer(case, tried)
    yield _fp8_cache(case)
    paid = [each for each in (_more_ranks(case), _other_accelerator(case, misfits)) if each is not None]
    yield from (text for _, text in sorted(paid))
    yield _fewer_bits(case)


def fits(case: Case, candidate: Candidate) -> bool:
    """Whether planning would take this candidate."""
    if candidate.row.is_cpu:
        return isinstance(plan_cpu(case, candidate), Plan)
    return isinstance(fit(case, candidate), Fit)


def _larger_limit(case: Case, misfits: list[Misfit]) -> str:
    limit, short = memory_limit(case), misfits[0].shortfall_bytes
    if limit is None or not misfits[0].candidate.row.is_cpu:
        return ""
    wanted = ceil_div(limit + short, MEMORY_STEP) * MEMORY_STEP
    text = f"{wanted >> 20}Mi"
    resources = {**(case.spec.pod_template.resources or {})}
    resources["limits"] = {**(resources.get("limits") or {}), "memory": text}
    pods = case.spec.pod_template.model_copy(update={"resources": resources})
    larger = case.with_spec(pod_template=pods)
    return f"spec.podTemplate.resources.limits.memory of {text}" if fits(larger, misfits[0].candidate) else ""


def _shorter(case: Case, misfits: list[Misfit]) -> str:
    longest = max(each.longest for each in misfits) // CONTEXT_STEP * CONTEXT_STEP
    if not SHORTEST_OFFERED <= longest < case.wish.floor:
        return ""
    pinned = case.spec.engine.pin.max_model_len is not None
    wish = replace(case.wish, floor=longest, context=longest if pinned else case.wish.context)
    if not any(fits(replace(case, wish=wish), each.candidate) for each in misfits if each.longest >= longest):
        return ""
    return f"spec.{'engine.pin.maxModelLen' if pinned else 'workload.context.min'} of {longest}"


def _fewer(case: Case, misfits: list[Misfit]) -> str:
    """The most requests at once that a candidate holds: of the one that holds most, as each try is a whole plan."""
    single = replace(case, wish=replace(case.wish, concurrency=1))
    able = [
        (room, each.candidate.cost, each.candidate)
        for each in misfits
        if (room := _room(single, each.candidate)) > 0
    ]
    if case.wish.concurrency <= 1 or not able:
        return ""
    _, _, candidate = max(able, key=lambda each: (each[0], -each[1]))
    low, high = 1, case.wish.concurrency - 1
    while low < high:
        middle = (low + high + 1) // 2
        if fits(replace(case, wish=replace(case.wish, concurrency=middle)), candidate):
            low = middle
        else:
            high = middle - 1
    return f"spec.workload.concurrency.min of {low}"


def _room(single: Case, candidate: Candidate) -> int:
    """Requests of the workload's length that a candidate holds where only one is asked for; 0: none."""
    if candidate.row.is_cpu:
        return MOST_REQUESTS if fits(single, candidate) else 0
    found = fit(single, candidate)
    return max(1, int(found.requests)) if isinstance(found, Fit) else 0


def _with_accelerator(case: Case, **changes: object) -> Case:
    free = case.spec.accelerator.parallelism.model_copy(update={"tensor": "auto"})
    changed = case.spec.accelerator.model_copy(update={"parallelism": free, **changes})
    return case.with_spec(accelerator=changed)


def _first_fit(case: Case) -> Candidate | None:
    tried = (each for each in sorted(candidates(case), key=lambda each: each.cost) if not each.row.is_cpu)
    return next((each for each in tried if _may_fit(case, each) and isinstance(fit(case, each), Fit)), None)


def _may_fit(case: Case, candidate: Candidate) -> bool:
    """Whether the weights alone leave anything: spares the rest of the arithmetic for most of a catalogue."""
    ranks = candidate.tensor_parallel_size
    return rank_weights(case, dtype=case.gpu_dtype, tensor_parallel_size=ranks) < candidate.row.memory_bytes


def _fp8_cache(case: Case) -> str:
    if case.kv_cache_dtype != "auto" or DTYPE_BYTES[case.gpu_dtype] != 2:
        return ""
    return "spec.engine.kvCacheDtype of fp8" if _first_fit(case.with_engine(kv_cache_dtype="fp8")) else ""


def _more_ranks(case: Case) -> tuple[float, str] | None:
    if case.spec.accelerator.parallelism.tensor == "auto":
        return None
    found = _first_fit(_with_accelerator(case))
    if found is None:
        return None
    return found.cost, f"spec.accelerator.parallelism.tensor of {found.tensor_parallel_size}"


def _other_accelerator(case: Case, misfits: list[Misfit]) -> tuple[float, str] | None:
    """The cheapest other card that fits: one that nodes show before others, and a larger one before more of smaller."""
    tried = {each.candidate.row.name for each in misfits}
    rows = [row for row in case.inputs.catalogue if row.name not in tried and not row.is_cpu]
    nodes = case.inputs.nodes or ()
    there = [row for row in rows if any(visible(row, node.labels) for node in nodes)]
    largest = max(each.candidate.row.memory_bytes for each in misfits)
    steps = (_larger(there, largest), there, _larger(rows, largest), rows)
    found = next((each for step in steps if (each := _first_of(case, step)) is not None), None)
    if found is None:
        return None
    return found.cost, f"spec.accelerator.types of [{found.row.name}], {found.tensor_parallel_size} a replica"


def _larger(rows: list[AcceleratorRow], memory_bytes: int) -> list[AcceleratorRow]:
    return [row for row in rows if row.memory_bytes > memory_bytes]


def _first_of(case: Case, rows: list[AcceleratorRow]) -> Candidate | None:
    if not rows:
        return None
    return _first_fit(_with_accelerator(case, types=tuple(row.name for row in rows), resource_name=""))


def _fewer_bits(case: Case) -> str:
    """Weights in 8 bits while loading, else a checkpoint in 8 or 4 bits."""
    if case.quantization.method:
        return ""
    online = online_quantization("fp8")
    offers = (
        (online, "spec.engine.quantization of fp8"),
        (FP8_CHECKPOINT, "a checkpoint with weights in FP8"),
        (INT4, "a checkpoint with weights in 4 bits, such as AWQ"),
    )
    for quantization, text in offers:
        if quantization is not None and _first_fit(replace(case, quantization=quantization)):
            return text
    return ""

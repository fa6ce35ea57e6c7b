"""How true a plan was: what the engine measured beside what was planned, term by term, and what is off. Pure.

An engine rounds what it prints to hundredths of a GiB, and no start is quite like another; a term is off where it
differs by more than a share of what was measured and by more than so many bytes. The KV cache is judged by what it
promises: less than was planned counts soon, more than was planned only beyond the plan's own margin.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from llmservice_operator.api.conditions import Reason
from llmservice_operator.api.status import EngineStatus, MemoryComparison
from llmservice_operator.perfmodel.memory import GIB
from llmservice_operator.planning.types import Plan
from llmservice_operator.planning.words import gib

REPORTED_TERMS: Mapping[str, str] = {
    "weights": "weightsBytes",
    "activation": "activationBytes",
    "non_torch": "nonTorchBytes",
    "cuda_graphs": "cudaGraphBytes",
    "kv_cache": "kvCacheBytes",
}
"""Terms of the plan and the keys of the supervisor's report that say the same."""
GRAPH_ESTIMATE = "cudaGraphEstimateBytes"
"""What the budget was charged for the graphs, where the engine prints it; what they took is another figure."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """By how much a term may be off: by a share of what was measured or by so many GiB, whichever is more."""

    share: float
    gib: float

    def bytes_of(self, actual_bytes: int) -> int:
        """The larger of the two."""
        return max(int(self.share * actual_bytes), int(self.gib * GIB))


TOLERANCES: Mapping[str, Tolerance] = {
    "weights": Tolerance(0.005, 0.1),
    "activation": Tolerance(0.1, 0.5),
    "non_torch": Tolerance(0.1, 0.3),
    "cuda_graphs": Tolerance(0.1, 0.5),
    "total": Tolerance(0.01, 0.2),
}
"""Weights by the sizing model's own target (operator/docs/sizing.md); the others by how far one start of an engine
differs from the next: activation and graphs move with kernels that are chosen at run time."""
KV_CACHE_LESS = Tolerance(0.005, 0.2)
KV_CACHE_MORE = Tolerance(0.02, 0.8)
"""The sizing model's targets: what may be promised too much, and what may be left unused beyond the margin."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Whether the plan was true."""

    reason: Reason
    accurate: bool | None
    """None: nothing can be said."""
    message: str


def comparisons(said: Mapping[str, float], plan: Plan) -> tuple[MemoryComparison, ...]:
    """The report's figures beside the plan's, those that the engine said. `said` by the supervisor's keys, in bytes."""
    planned = {term.name: term.size_bytes for term in plan.memory}
    if "weights" in planned:
        # LoRA slots and a draft model are made while the weights are loaded, and reported with them.
        planned["weights"] += planned.get("extras", 0)
    charged = planned.get("cuda_graphs", 0)
    rows = [
        (
            name,
            planned.get(name),
            said.get(GRAPH_ESTIMATE if charged and name == "cuda_graphs" else key, said.get(key)),
        )
        for name, key in REPORTED_TERMS.items()
    ]
    rows.append(("requested", plan.requested_bytes, said.get("requestedBytes")))
    rows.append(("total", plan.total_bytes, said.get("totalBytes")))
    return tuple(
        MemoryComparison(
            name=name,
            planned_bytes=wanted,
            actual_bytes=int(actual),
            error_percent=_error_percent(wanted, actual),
        )
        for name, wanted, actual in rows
        if actual is not None
    )


def _error_percent(planned: int | None, actual: float) -> float | None:
    if not planned or not actual:
        return None  # planned at 0: this version does not charge it to the budget, so there is nothing to be wrong by
    return round(100.0 * (planned - actual) / actual, 1)


def finding(engine: EngineStatus | None, plan: Plan, revision: str) -> Finding:
    """What the last report of this revision says of its plan."""
    if engine is None or engine.revision != revision:
        return Finding(
            reason=Reason.NOT_YET_REPORTED,
            accurate=None,
            message=f"no engine of revision {revision} has reported its memory yet",
        )
    rows = {row.name: row for row in engine.memory}
    kv_cache = rows.get("kv_cache")
    if kv_cache is None or kv_cache.actual_bytes is None:
        known = (
            ""
            if engine.version_known
            else f"; the log lines of version {engine.version or '?'} are not known"
        )
        return Finding(
            reason=Reason.REPORT_INCOMPLETE,
            accurate=None,
            message=f"the engine did not say how large its KV cache is{known}",
        )
    margin = next((term.size_bytes for term in plan.memory if term.name == "margin"), 0)
    off = [words for row in engine.memory if (words := _off(row, plan, max(0, margin))) is not None]
    if not off:
        return Finding(
            reason=Reason.WITHIN_TOLERANCE,
            accurate=True,
            message=f"KV cache {gib(kv_cache.actual_bytes)}, planned {gib(kv_cache.planned_bytes or 0)}; "
            "every term that the engine reports is as planned",
        )
    worst = min(off, key=lambda each: (each.order, -each.excess))
    others = ", ".join(each.short for each in sorted(off, key=lambda each: each.order) if each is not worst)
    return Finding(
        reason=worst.reason,
        accurate=False,
        message=worst.message + (f"; also off: {others}" if others else ""),
    )


@dataclass(frozen=True, kw_only=True)
class _Off:
    """One term that is off."""

    order: int
    """The card first, since it explains the rest; then what was promised and isn't there."""
    excess: float
    """Distance over tolerance."""
    reason: Reason
    short: str
    message: str


def _off(row: MemoryComparison, plan: Plan, margin: int) -> _Off | None:
    planned, actual = row.planned_bytes, row.actual_bytes
    if planned is None or actual is None:
        return None
    if row.name == "kv_cache":
        return _off_kv_cache(planned, actual, margin)
    tolerance = TOLERANCES.get(row.name)
    if tolerance is None or (row.name == "cuda_graphs" and planned == 0):
        return None
    if row.name == "total" and plan.accelerator.is_cpu:
        return None  # the engine speaks of the node's memory, the plan of the container's
    distance, allowed = abs(planned - actual), tolerance.bytes_of(actual)
    if distance <= allowed:
        return None
    words = f"planned {gib(planned)}, the engine has {gib(actual)} ({_signed(actual - planned, planned)})"
    if row.name == "total":
        message = (
            f"accelerator memory: {words}: this is not the card that the catalogue's row {plan.accelerator.name} "
            "describes; correct the row or the node's labels"
        )
        return _Off(
            order=0,
            excess=distance / allowed,
            reason=Reason.ACCELERATOR_DIFFERS,
            short=f"total {gib(actual - planned)}",
            message=message,
        )
    return _Off(
        order=2,
        excess=distance / allowed,
        reason=Reason.MEMORY_DIFFERS,
        short=f"{row.name} {'+' if actual > planned else ''}{gib(actual - planned)}",
        message=f"{row.name}: {words}",
    )


def _off_kv_cache(planned: int, actual: int, margin: int) -> _Off | None:
    words = f"KV cache: planned {gib(planned)}, the engine has {gib(actual)} ({_signed(actual - planned, planned)})"
    if planned > actual:
        distance, allowed = planned - actual, KV_CACHE_LESS.bytes_of(actual)
        reason, order = Reason.KV_CACHE_OVER_PROMISED, 1
    else:
        distance, allowed = actual - planned - margin, KV_CACHE_MORE.bytes_of(actual)
        reason, order = Reason.MEMORY_LEFT_UNUSED, 3
        words += f", of which the plan's margin is {gib(margin)}"
    if distance <= allowed:
        return None
    return _Off(
        order=order,
        excess=distance / allowed,
        reason=reason,
        short=f"KV cache {'+' if actual > planned else ''}{gib(actual - planned)}",
        message=words,
    )


def _signed(change: int, planned: int) -> str:
    share = f", {100 * change / planned:+.1f} %" if planned else ""
    return f"{change / GIB:+.2f} GiB{share}"

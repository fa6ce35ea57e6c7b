"""What the reports of ready engines measure, as the calibration keeps it. Pure."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from llmservice_operator.clients.engine import EngineReport
from llmservice_operator.controller.accuracy import GRAPH_ESTIMATE, REPORTED_TERMS
from llmservice_operator.controller.observed import Observed
from llmservice_operator.controller.podstate import PodState
from llmservice_operator.engines.versions import parse_version
from llmservice_operator.perfmodel.accelerators import AcceleratorRow, find_row
from llmservice_operator.perfmodel.calibration import SIZE_TOLERANCE, TERMS, Start
from llmservice_operator.perfmodel.memory import GIB, MIB
from llmservice_operator.planning.types import Plan

ID_LENGTH = 8
LARGEST_BYTES = 1 << 43
"""8 TiB: no accelerator has as much."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One start with the situation that it belongs to."""

    key: str
    start: Start
    what: str
    """The situation in words."""
    planned: Mapping[str, int]
    """The account's own terms, in bytes."""


def measurements(observed: Observed, catalogue: tuple[AcceleratorRow, ...]) -> Iterator[Measurement]:
    """What the ready engines that were asked have measured of their revisions' plans."""
    for pod in observed.pods:
        if pod.report is None or pod.report.phase != "Ready":
            continue
        stored = observed.revision(pod.revision)
        if stored is None or not stored.revision.plan.calibration_key:
            continue
        found = _measurement(observed, pod, pod.report, stored.revision.plan, catalogue)
        if found is not None:
            yield found


def _measurement(
    observed: Observed, pod: PodState, report: EngineReport, plan: Plan, catalogue: tuple[AcceleratorRow, ...]
) -> Measurement | None:
    version = parse_version(report.engine_version)
    requested, kv_cache = report.memory.get("requestedBytes"), report.memory.get("kvCacheBytes")
    ready_at = report.ready_at if report.ready_at is not None else pod.ready_since
    if version is None or version != parse_version(plan.engine_version):
        return None  # rules differ by the version
    if requested is None or kv_cache is None or ready_at is None or not 0 < kv_cache < requested:
        return None
    sizes = (report.memory.get(name) for name in (*REPORTED_TERMS.values(), GRAPH_ESTIMATE))
    if not requested <= LARGEST_BYTES or any(
        size is not None and not 0 <= size <= requested for size in sizes
    ):
        return None  # no engine's words
    total = _total(report)
    start = Start(
        start=_id(f"{observed.key} {pod.name} {pod.restarts} {report.started_at}"),
        service=_id(observed.identity.uid),
        ready_at=int(ready_at),
        catalogue_size=total is not None
        and total >= _catalogue_bytes(plan, catalogue) * (1 - SIZE_TOLERANCE),
        total=_rounded(total),
        taken=_rounded(requested - kv_cache) or 0,
        weights=_rounded(report.memory.get("weightsBytes")),
        activation=_rounded(report.memory.get("activationBytes")),
        non_torch=_rounded(report.memory.get("nonTorchBytes")),
        cuda_graphs=_charged_graphs(report, plan),
    )
    return Measurement(key=plan.calibration_key, start=start, what=_told(plan), planned=_own_terms(plan))


def _total(report: EngineReport) -> float | None:
    """The card's memory: as the runtime said it, else as the driver lists it."""
    said = report.memory.get("totalBytes")
    listed = [each.memory_bytes for each in report.devices if each.memory_bytes]
    return said if said is not None else min(listed, default=None)


def _catalogue_bytes(plan: Plan, catalogue: tuple[AcceleratorRow, ...]) -> int:
    """The row's memory; of a slice, and of a row that is gone, what the plan took it for."""
    row = find_row(catalogue, plan.accelerator.name)
    whole = row is not None and row.resource_name == plan.resource_name
    return row.memory_bytes if whole and row is not None else plan.accelerator.memory_bytes


def _charged_graphs(report: EngineReport, plan: Plan) -> int | None:
    charged = any(term.name == "cuda_graphs" and term.size_bytes for term in plan.memory)
    return _rounded(report.memory.get(GRAPH_ESTIMATE)) if charged else 0


def _own_terms(plan: Plan) -> dict[str, int]:
    """The account's terms without what earlier starts changed in them."""
    sizes = {term.name: term.size_bytes for term in plan.memory}
    sizes["weights"] = sizes.get("weights", 0) + sizes.get("extras", 0)
    changed = dict(plan.calibrated)
    return {name: _rounded(sizes.get(name, 0) - changed.get(name, 0)) or 0 for name in TERMS}


def _told(plan: Plan) -> str:
    knobs = plan.knobs
    return (
        f"vLLM {plan.engine_version} on {plan.accelerator.name} x {plan.accelerators_per_replica}, "
        f"{knobs.max_num_seqs} sequences, {knobs.max_num_batched_tokens} batched tokens, "
        f"{plan.weights_bytes / GIB:.2f} GiB of weights"
    )


def _rounded(size_bytes: float | None) -> int | None:
    """Whole MiB, as they are kept: what was read back is what was noted."""
    return None if size_bytes is None else max(0, round(size_bytes / MIB)) * MIB


def _id(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:ID_LENGTH]

"""What earlier starts teach a fit: the calibration of its very situation, told in words. Pure."""

from dataclasses import dataclass, replace

from llmservice_operator.engines.flags import MEMORY_FLAGS
from llmservice_operator.engines.versions import parse_version
from llmservice_operator.engines.vllm import canonical_args
from llmservice_operator.perfmodel.calibration import Correction, calibration_key
from llmservice_operator.perfmodel.memory import Account, Batch, EngineMemoryRules, account
from llmservice_operator.planning.candidates import Candidate
from llmservice_operator.planning.case import Case
from llmservice_operator.planning.words import gib


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """What is known of one candidate at one choice of batch knobs."""

    key: str
    """Of the situation; empty where it cannot be told, since the engine's version is not known."""
    correction: Correction | None = None

    def sized(self, candidate: Candidate) -> Candidate:
        """The candidate with the memory that its cards turned out to have."""
        if self.correction is None or self.correction.total is None:
            return candidate
        return replace(candidate, row=replace(candidate.row, memory_bytes=self.correction.total))


def learnt(
    case: Case, candidate: Candidate, batch: Batch, rules: EngineMemoryRules, weights_bytes: int
) -> Learnt:
    """What the calibration says of these knobs on this candidate, against this release's account of them."""
    version = parse_version(case.inputs.engine_version)
    key = calibration_key(
        engine_version="" if version is None else ".".join(str(part) for part in version),
        accelerator=f"{candidate.row.name} {candidate.resource_name}",
        model=case.model,
        quantization=case.quantization,
        kv_cache_dtype=case.kv_cache_dtype,
        batch=batch,
        flags=_flags(case),
    )
    if not key or case.inputs.calibration.entry(key) is None:
        return Learnt(key=key)
    # No term that is corrected depends on the utilisation.
    plain = account(
        total_bytes=candidate.row.memory_bytes,
        utilization=1.0,
        weights_bytes=weights_bytes,
        model=case.model,
        batch=batch,
        rules=rules,
    )
    return Learnt(key=key, correction=case.inputs.calibration.correction(key, plain))


def _flags(case: Case) -> dict[str, str]:
    """What the user says beside the spec's own fields, as far as memory may depend on it."""
    engine = case.spec.engine
    args = canonical_args(engine.args)
    flags = {
        name: value
        for name, value in args.items()
        if name.partition(".")[0].replace("-", "_").removeprefix("no_") in MEMORY_FLAGS
    }
    return flags | {each.name: each.value or "" for each in engine.env if each.name.startswith("VLLM_")}


def told(correction: Correction, account_: Account) -> str:
    """One line for the plan's reasons."""
    parts = [f"{name} {_signed(change)}" for name, change in correction.changes]
    if correction.total is not None:
        parts.append(f"the card has {gib(account_.total)}, less than the catalogue says")
    starts = f"{correction.starts} start{'' if correction.starts == 1 else 's'}"
    services = f"{correction.services} service{'' if correction.services == 1 else 's'}"
    return f"calibrated by {starts} of {services} with this engine, card, model and batch: {', '.join(parts)}"


def _signed(change: int) -> str:
    return f"{'+' if change >= 0 else '-'}{gib(abs(change))}"

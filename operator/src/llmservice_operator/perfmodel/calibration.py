"""What starts of engines have taught of the account: measured terms by the situation they belong to. Pure.

A start is kept as what the engine *measured*, not as its distance from the plan of its day: a release with a better
account compares the same figures with its own, and a plan that was calibrated itself teaches nothing false.

    difference = measured - what this release's account says     (a term, bytes of one rank)

Less KV cache than the account promises is believed at once: at worst a little memory stays unused. More is believed
only after `STARTS_FOR_MORE` starts of `SERVICES_FOR_MORE` services on cards of the catalogue's size, since a plan that
promises what isn't there does not start. Of several starts the median counts, the upper one of an even number.
"""

import hashlib
import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace

from llmservice_operator.perfmodel.memo import remembered
from llmservice_operator.perfmodel.memory import GIB, MIB, Account, Batch
from llmservice_operator.perfmodel.quantization import Quantization
from llmservice_operator.perfmodel.shapes import Architecture
from llmservice_operator.perfmodel.weights import parameter_count

TERMS = ("weights", "activation", "non_torch", "cuda_graphs")
"""Terms of the budget that engines tell by name. What they take without a name is `other`."""
OTHER = "other"

KEY_LENGTH = 16
STARTS_FOR_MORE, SERVICES_FOR_MORE = 3, 2
KEPT_STARTS = 9
"""The newest starts of one situation; three services of three replicas, and what a value of 1 KiB holds."""
KEPT_OF_SERVICE = 3
"""Of one service: what a pod reports is its user's word, and no one user is to outvote the others."""
TERM_CLAMP_BYTES = 2 * GIB
"""However far a start was off, a term moves by no more."""
NOISE_BYTES = 64 * MIB
"""In total. Engines print hundredths of a GiB, four of them at worst add up to 20 MiB, and one start is not quite like
the next; a plan's margin is larger, and a plan that changes with each start would offer a refresh with each."""
SMALLEST_CARD_BYTES = GIB
"""A card that is said to have less is nonsense that was written into the map."""
SIZE_TOLERANCE = 0.01
"""A card that has up to so much less than the row is of the catalogue's size: drivers differ by as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What one start of an engine measured. Bytes of one rank."""

    start: str
    """Stands for this very start: 8 hex of pod and restart."""
    service: str
    """Stands for its service: 8 hex of its uid."""
    ready_at: int
    """Seconds since the Unix epoch, by the pod's clock."""
    catalogue_size: bool
    """Whether the card has the memory that the catalogue says."""
    total: int | None = None
    """The card's memory as the runtime reports it."""
    taken: int
    """Budget less KV cache: all that the KV cache doesn't get."""
    weights: int | None = None
    activation: int | None = None
    non_torch: int | None = None
    cuda_graphs: int | None = None
    """What was charged for them. None: not told."""

    def term(self, name: str) -> int | None:
        """A measured term by its name."""
        value: int | None = getattr(self, name)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The starts of one situation."""

    starts: tuple[Start, ...]
    """Oldest first, at most `KEPT_STARTS`, no two of the same id."""
    what: str = ""
    """The situation in words, for people."""
    planned: tuple[tuple[str, int], ...] = ()
    """The account's own terms at the newest start, for people who want to see the difference."""

    @property
    def seen_at(self) -> int:
        """When the newest start became ready."""
        return max((each.ready_at for each in self.starts), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What starts say against an account: changes of its terms. Bytes; above 0: more is taken than was thought."""

    changes: tuple[tuple[str, int], ...]
    starts: int
    services: int
    total: int | None = None
    """The card's memory, where starts found less than the catalogue says."""

    @property
    def taken(self) -> int:
        """By how much the KV cache is smaller."""
        return sum(change for _, change in self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """All that is known, by situation."""

    entries: Mapping[str, Entry] = field(default_factory=dict)

    def correction(self, key: str, account: Account) -> Correction | None:
        """What the starts of this situation say against this account; None: nothing, or nothing new."""
        entry = self.entry(key)
        return None if entry is None else correction(entry.starts, account)

    def entry(self, key: str) -> Entry | None:
        """The starts of one situation."""
        return self.entries.get(key)


NOTHING_KNOWN = Calibration()


def calibration_key(
    *,
    engine_version: str,
    accelerator: str,
    model: Architecture,
    quantization: Quantization,
    kv_cache_dtype: str,
    batch: Batch,
    flags: Mapping[str, str] | None = None,
) -> str:
    """16 hex for (engine version, accelerator, model shape, parallelism, batch knobs).

    `accelerator` is the row with the resource that is asked for, which tells a slice from the whole card; `flags` are
    further ones of the engine's that memory depends on. Utilisation and context are not in it: no term depends on them.
    Empty where the version isn't known: rules differ by it.
    """
    if not engine_version:
        return ""
    situation = {
        "engine": engine_version,
        "accelerator": accelerator,
        "model": model_shape(model, quantization),
        "kv": kv_cache_dtype,
        "batch": asdict(batch),
        "flags": dict(flags or {}),
    }
    text = json.dumps(situation, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:KEY_LENGTH]


@remembered
def model_shape(model: Architecture, quantization: Quantization) -> tuple[object, ...]:
    """What tells one model's shapes and formats from another's: no name is in it."""
    mixture, vision, fmt = model.mixture, model.vision, quantization.default
    return (
        quantization.method,
        "" if fmt is None else fmt.name,
        parameter_count(model),
        model.hidden_size,
        model.intermediate_size,
        model.num_layers,
        model.num_attention_heads,
        model.num_kv_heads,
        model.head_size,
        model.vocab_size,
        model.dtype,
        [] if mixture is None else [mixture.experts, mixture.experts_per_token, mixture.intermediate_size],
        [] if vision is None else [vision.hidden_size, vision.intermediate_size],
        sorted({type(cache).__name__ for cache in model.caches}),
    )


def correction(starts: tuple[Start, ...], account: Account) -> Correction | None:
    """What these starts say against this account, by the rule of the module's first lines."""
    if not starts:
        return None
    total = _smaller_total(starts, account.total)
    changes = _changes(starts, account)
    if sum(change for _, change in changes) < 0:
        sized = tuple(each for each in starts if each.catalogue_size)
        enough = len(sized) >= STARTS_FOR_MORE and len({each.service for each in sized}) >= SERVICES_FOR_MORE
        changes = _changes(sized, account) if enough else ()
    if abs(sum(change for _, change in changes)) < NOISE_BYTES:
        changes = ()
    if not changes and total is None:
        return None
    return Correction(
        changes=changes, starts=len(starts), services=len({each.service for each in starts}), total=total
    )


def _smaller_total(starts: tuple[Start, ...], catalogue_total: int) -> int | None:
    """The card's memory where starts found less than the row has; a larger one is the catalogue's to say."""
    totals = [each.total for each in starts if each.total is not None and each.total >= SMALLEST_CARD_BYTES]
    if not totals:
        return None
    measured = statistics.median_low(totals)
    return measured if measured < catalogue_total * (1 - SIZE_TOLERANCE) else None


def _changes(starts: tuple[Start, ...], account: Account) -> tuple[tuple[str, int], ...]:
    """Median of each term less the account's; `other` is what no term explains."""
    planned = account_terms(account)
    changes: dict[str, int] = {}
    for name in TERMS:
        measured = [value for each in starts if (value := each.term(name)) is not None]
        if measured:
            changes[name] = _clamped(statistics.median_high(measured) - planned[name])
    rest = [
        each.taken - sum(planned[name] if (told := each.term(name)) is None else told for name in TERMS)
        for each in starts
    ]
    changes[OTHER] = _clamped(statistics.median_high(rest) - planned[OTHER])
    return tuple((name, change) for name, change in changes.items() if change)


def account_terms(account: Account) -> dict[str, int]:
    """The account's terms as engines tell them: LoRA slots and a draft model are made with the weights."""
    return {
        "weights": account.weights + account.extras,
        "activation": account.activation,
        "non_torch": account.non_torch,
        "cuda_graphs": account.graphs_charged,
        OTHER: 0,
    }


def _clamped(change: int) -> int:
    return max(-TERM_CLAMP_BYTES, min(TERM_CLAMP_BYTES, change))


def calibrated(account: Account, correction: Correction) -> Account:
    """The account with the changes in it; `other` is added to the non-torch memory. No term falls below 0."""
    changes = dict(correction.changes)
    return replace(
        account,
        weights=max(0, account.weights + changes.get("weights", 0)),
        activation=max(0, account.activation + changes.get("activation", 0)),
        non_torch=max(0, account.non_torch + changes.get("non_torch", 0) + changes.get(OTHER, 0)),
        graphs_charged=max(0, account.graphs_charged + changes.get("cuda_graphs", 0)),
    )


def with_start(entry: Entry | None, start: Start, *, what: str, planned: Mapping[str, int]) -> Entry:
    """The entry with one more start. The same start twice changes nothing, and so does one older than all kept."""
    before = () if entry is None else entry.starts
    if entry is not None and any(each.start == start.start for each in before):
        return entry
    starts = newest((*before, start))
    if entry is not None and starts == before:
        return entry
    return Entry(starts=starts, what=what, planned=tuple(sorted(planned.items())))


def merged(one: Entry, other: Entry) -> Entry:
    """Both entries' starts, whichever was first: what two writers know comes out the same."""
    later = one if one.seen_at >= other.seen_at else other
    starts = {each.start: each for each in (*other.starts, *one.starts)}
    return replace(later, starts=newest(starts.values()))


def newest(starts: Iterable[Start]) -> tuple[Start, ...]:
    """The newest `KEPT_STARTS`, at most `KEPT_OF_SERVICE` of each service; oldest first."""
    kept: list[Start] = []
    counts: Counter[str] = Counter()
    for each in sorted(starts, key=lambda each: (each.ready_at, each.start), reverse=True):
        if counts[each.service] < KEPT_OF_SERVICE:
            counts[each.service] += 1
            kept.append(each)
    return tuple(reversed(kept[:KEPT_STARTS]))

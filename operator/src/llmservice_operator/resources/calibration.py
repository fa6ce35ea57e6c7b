"""The ConfigMap that keeps the calibration: a key of 16 hex for each situation, a value of at most 1 KiB. Pure.

    {"v": 1, "what": "vLLM 0.26.0 on nvidia-h200 x 1, ...", "plannedMiB": {...}, "differenceMiB": {...},
     "starts": [["<start>", "<service>", <ready at>, <card as the catalogue says: 1 or 0>,
                 <total>, <taken>, <weights>, <activation>, <non_torch>, <cuda_graphs>], ...]}

Sizes are in MiB; null: not told.

Whatever in it cannot be read is named and left out; nothing in it is trusted to be ours, small or sane.
"""

import json
import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from llmservice_operator.perfmodel.calibration import (
    KEPT_STARTS,
    KEY_LENGTH,
    TERMS,
    Calibration,
    Entry,
    Start,
    newest,
)
from llmservice_operator.perfmodel.memory import MIB
from llmservice_operator.resources.types import Manifest

SCHEMA = 1
MAX_ENTRIES = 500
MAX_VALUE_BYTES = 1024
MAX_WHAT_LENGTH = 160
LARGEST_SIZE_MIB = 16 << 20
"""16 TiB: no accelerator has as much."""
LARGEST_TIME = 1 << 40
PART_OF_LABEL, PART_OF = "app.kubernetes.io/part-of", "llmservice-operator"
COMPONENT_LABEL, COMPONENT = "app.kubernetes.io/component", "calibration"

_KEY = re.compile(rf"[0-9a-f]{{{KEY_LENGTH}}}")
_ID = re.compile(r"[0-9a-f]{8}")
_SIZES = ("total", "taken", *TERMS)


@dataclass(frozen=True, kw_only=True)
class ReadCalibration:
    """What a ConfigMap holds."""

    calibration: Calibration
    problems: tuple[str, ...] = ()
    """What could not be read, one short sentence each."""
    foreign: bool = False
    """Whether the ConfigMap is somebody else's: it is never written then."""


def seen_last(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """At most `MAX_ENTRIES` of them: the least recently seen go."""
    if len(entries) <= MAX_ENTRIES:
        return dict(entries)
    return dict(sorted(entries.items(), key=lambda item: (item[1].seen_at, item[0]))[-MAX_ENTRIES:])


def calibration_manifest(namespace: str, name: str, entries: Mapping[str, Entry]) -> Manifest:
    """The ConfigMap of these entries: those seen last, at most `MAX_ENTRIES`."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {PART_OF_LABEL: PART_OF, COMPONENT_LABEL: COMPONENT},
        },
        "data": {key: entry_text(entry) for key, entry in sorted(seen_last(entries).items())},
    }


def entry_text(entry: Entry) -> str:
    """The entry as JSON of at most `MAX_VALUE_BYTES`: what does not fit is the oldest start."""
    starts = entry.starts
    while True:
        text = _text(entry, starts)
        if len(text.encode()) <= MAX_VALUE_BYTES or not starts:
            return text
        starts = starts[1:]


def _text(entry: Entry, starts: tuple[Start, ...]) -> str:
    planned = {name: _mib(size) for name, size in entry.planned}
    fields = {
        "v": SCHEMA,
        "what": entry.what[:MAX_WHAT_LENGTH],
        "plannedMiB": planned,
        "differenceMiB": _differences(dict(entry.planned), starts),
        "starts": [
            [each.start, each.service, each.ready_at, int(each.catalogue_size)]
            + [_mib(getattr(each, name)) for name in _SIZES]
            for each in starts
        ],
    }
    return json.dumps(fields, separators=(",", ":"))


def _differences(planned: Mapping[str, int], starts: Iterable[Start]) -> dict[str, int | None]:
    """For people: the median of each term less what the account said."""
    starts = tuple(starts)
    told = {name: [value for each in starts if (value := each.term(name)) is not None] for name in TERMS}
    return {
        name: _mib(statistics.median_high(values) - planned[name])
        for name, values in told.items()
        if values and name in planned
    }


def _mib(size_bytes: int | None) -> int | None:
    return None if size_bytes is None else round(size_bytes / MIB)


def read_calibration(found: Mapping[str, Any] | None) -> ReadCalibration:
    """The calibration of this ConfigMap; of none, nothing is known."""
    if found is None:
        return ReadCalibration(calibration=Calibration())
    metadata = found.get("metadata") or {}
    if (metadata.get("labels") or {}).get(PART_OF_LABEL) != PART_OF:
        where = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
        problem = (
            f"ConfigMap {where} is not the operator's (it lacks the label {PART_OF_LABEL}={PART_OF}): the "
            "calibration is kept in memory only; rename that ConfigMap, or delete it"
        )
        return ReadCalibration(calibration=Calibration(), problems=(problem,), foreign=True)
    entries: dict[str, Entry] = {}
    bad: dict[str, list[str]] = {}
    for key, text in sorted((found.get("data") or {}).items()):
        entry, why = _read_entry(key, text)
        if entry is not None:
            entries[key] = entry
        else:
            bad.setdefault(why, []).append(str(key)[:40])
    problems = [f"{_counted(keys)} {why}" for why, keys in bad.items()]
    if len(entries) > MAX_ENTRIES:
        problems.append(f"of {len(entries)} entries the {MAX_ENTRIES} seen last are used")
    return ReadCalibration(calibration=Calibration(entries=seen_last(entries)), problems=tuple(problems))


def _counted(keys: list[str]) -> str:
    more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
    return f"{', '.join(keys[:3])}{more}:"


def _read_entry(key: Any, text: Any) -> tuple[Entry | None, str]:
    """The entry, or why there is none."""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        return None, f"no key of {KEY_LENGTH} hex digits"
    if not isinstance(text, str) or len(text) > MAX_VALUE_BYTES:
        return None, f"longer than {MAX_VALUE_BYTES} characters"
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None, "no JSON"
    if not isinstance(fields, dict) or fields.get("v") != SCHEMA:
        return None, "not of this release's schema"
    rows = fields.get("starts")
    starts = [_read_start(row) for row in rows] if isinstance(rows, list) else []
    good = tuple(each for each in starts if each is not None)
    if not good or len(good) != len(starts) or len(good) > KEPT_STARTS:
        return None, "starts that cannot be read"
    what, planned = fields.get("what"), fields.get("plannedMiB")
    sizes = planned.items() if isinstance(planned, dict) else ()
    return Entry(
        starts=newest(good),
        what=what[:MAX_WHAT_LENGTH] if isinstance(what, str) else "",
        planned=tuple((name, size * MIB) for name, size in sizes if name in TERMS and _is_size(size)),
    ), ""


def _read_start(row: Any) -> Start | None:
    if not isinstance(row, list) or len(row) != 4 + len(_SIZES):
        return None
    start, service, ready_at, sized, *sizes = row
    texts = all(isinstance(each, str) and _ID.fullmatch(each) for each in (start, service))
    if not texts or not _is_whole(ready_at) or not 0 <= ready_at < LARGEST_TIME or sized not in (0, 1):
        return None
    if not all(each is None or _is_size(each) for each in sizes):
        return None
    named = {name: None if size is None else size * MIB for name, size in zip(_SIZES, sizes, strict=True)}
    taken = named.pop("taken")
    if taken is None:
        return None
    return Start(
        start=start, service=service, ready_at=ready_at, catalogue_size=bool(sized), taken=taken, **named
    )


def _is_size(value: Any) -> bool:
    return _is_whole(value) and 0 <= value <= LARGEST_SIZE_MIB


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)

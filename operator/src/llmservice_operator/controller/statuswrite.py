"""When a status is worth a write. Pure.

A change of state is written at once. Values that only move are written seldom: the progress of a load each
`PROGRESS_SECONDS`, other numbers once in `VALUES_SECONDS` and only if one moved by more than a fifth, what scaling
remembers once in `REMEMBER_SECONDS`.
"""

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from llmservice_operator.api.conditions import ConditionType, Reason
from llmservice_operator.api.status import LLMServiceStatus

MAX_STATUS_BYTES = 16 * 1024
PROGRESS_SECONDS = 10.0
VALUES_SECONDS = 60.0
REMEMBER_SECONDS = 600.0
"""What a scaling decision remembers is at most so old when a new process begins with it."""
MOVED_FRACTION = 0.2

_WORDS_LENGTHS = (256, 128, 64, 16)
_MEASURED = frozenset({ConditionType.METRICS_AVAILABLE, ConditionType.SCALING_ACTIVE, ConditionType.SLO_MET})
"""Conditions whose messages have numbers that only move."""


def status_json(status: LLMServiceStatus) -> dict[str, Any]:
    """The status as it goes to the API server: at most 16 KiB, its longest explanations cut first."""
    body: dict[str, Any] = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    if _size(body) <= MAX_STATUS_BYTES:
        return body
    for length in _WORDS_LENGTHS:
        body = _shortened(body, length)
        if _size(body) <= MAX_STATUS_BYTES:
            break
    return body


def _shortened(body: Mapping[str, Any], length: int) -> dict[str, Any]:
    """The status with explanations of at most so many characters; conditions keep four times as many."""
    short = deepcopy(dict(body))
    plan = short.get("plan") or {}
    for term in plan.get("memory") or []:
        term["explanation"] = term.get("explanation", "")[:length]
    for name in ("reasons", "warnings"):
        if name in plan:
            plan[name] = [each[:length] for each in plan[name]]
    for decision in ((short.get("scaling") or {}).get("decisions") or [])[1:]:
        decision.pop("steps", None)
        decision["reason"] = decision.get("reason", "")[:length]
    for each in short.get("conditions") or []:
        each["message"] = each.get("message", "")[: 4 * length]
    return short


def write_wait_seconds(
    old: Mapping[str, Any], new: Mapping[str, Any], since_write_seconds: float | None
) -> float | None:
    """In how many seconds `new` is to be written: 0.0 now, None never.

    `old` and `new` as from `status_json`; `since_write_seconds`: since our last write, None where it is not known.
    """
    if old == new:
        return None
    if _without_values(old) != _without_values(new):
        return 0.0
    if _progress(old) != _progress(new):
        return _left(PROGRESS_SECONDS, since_write_seconds)
    if _moved(old.get("engine"), new.get("engine")) or _moved(_load(old), _load(new)):
        return _left(VALUES_SECONDS, since_write_seconds)
    if abs(_remembered_at(new) - _remembered_at(old)) >= REMEMBER_SECONDS:
        return 0.0
    return None


def _left(period_seconds: float, since_write_seconds: float | None) -> float:
    return 0.0 if since_write_seconds is None else max(0.0, period_seconds - since_write_seconds)


def _without_values(status: Mapping[str, Any]) -> dict[str, Any]:
    """The status with every number that only moves left out."""
    bare = {name: value for name, value in status.items() if name not in ("engine", "start", "scaling")}
    engine, start = status.get("engine") or {}, status.get("start") or {}
    scaling = status.get("scaling") or {}
    bare["scaling"] = [scaling.get(name) for name in ("desiredReplicas", "decisions")]
    bare["engine"] = {name: engine.get(name) for name in ("version", "versionKnown", "revision")}
    bare["start"] = {name: value for name, value in start.items() if name != "weights"}
    bare["conditions"] = [
        {**each, "message": ""} if _tells_progress(each) or each.get("type") in _MEASURED else each
        for each in status.get("conditions") or []
    ]
    return bare


def _tells_progress(condition: Mapping[str, Any]) -> bool:
    return condition.get("reason") == Reason.LOADING_WEIGHTS


def _remembered_at(status: Mapping[str, Any]) -> float:
    """When the scaling loop remembered what is written, in seconds since the Unix epoch; 0: never."""
    text = (status.get("scaling") or {}).get("state") or "{}"
    try:
        at = json.loads(text).get("at")
    except (AttributeError, ValueError):
        return 0.0
    return float(at) if _is_number(at) else 0.0


def _load(status: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of scaling that are news when they move: the others jitter, and are told with these."""
    scaling = status.get("scaling") or {}
    signals = {each.get("name"): each.get("value") for each in scaling.get("signals") or []}
    load = {name: scaling.get(name) or 0.0 for name in ("capacityRequestsPerSecond", "startSeconds")}
    # Learnt slowly, and lost with the process unless it is written: a twentieth of it is as much as a fifth of a load.
    load["correction"] = (scaling.get("correction") or 1.0) ** 4
    return {**load, "arrivals": signals.get("sustained_arrivals_per_second") or 0.0}


def _progress(status: Mapping[str, Any]) -> Any:
    moving = [each for each in status.get("conditions") or [] if _tells_progress(each)]
    return (status.get("start") or {}).get("weights"), [each.get("message") for each in moving]


def _moved(old: Any, new: Any) -> bool:
    """Whether any number in it moved by more than a fifth, or anything else changed. Times are no news."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return any(_moved(old.get(name), new.get(name)) for name in {*old, *new} if name != "reportedAt")
    if isinstance(old, list) and isinstance(new, list):
        return len(old) != len(new) or any(_moved(*pair) for pair in zip(old, new, strict=True))
    if _is_number(old) and _is_number(new):
        return bool(abs(new - old) > MOVED_FRACTION * abs(old))
    return bool(old != new)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _size(body: Mapping[str, Any]) -> int:
    return len(json.dumps(body, separators=(",", ":")).encode())

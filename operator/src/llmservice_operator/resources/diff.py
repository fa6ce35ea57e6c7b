"""How a desired object differs from the observed one, and how two rendered ones differ from each other.

What the API server adds by default, and what others put beside our fields, is no difference: only fields that
we name are compared. What we once named and name no more is told by `managed_fields.unwanted`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from llmservice_operator.api.quantities import parse_quantity
from llmservice_operator.errors import InvalidInputError

LIST_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
"""Lists that the API server merges by key (`x-kubernetes-list-map-keys`); all others are replaced as a
whole."""
_PORT_KEYS = {"containerPort": ("containerPort", "protocol"), "port": ("port", "protocol")}

_QUANTITIES = frozenset({"limits", "requests", "sizeLimit"})
_INT_OR_STRING = frozenset({"maxSurge", "maxUnavailable", "minAvailable", "port", "targetPort"})
_TEXT_MAX_LENGTH = 120


def differs(desired: Mapping[str, Any], observed: Mapping[str, Any]) -> tuple[str, ...]:
    """Paths of the desired object whose observed value differs, such as
    `spec.template.spec.containers[engine].image`.

    Empty: a server-side apply of `desired` would change no field that it names.
    """
    return tuple(_differs(desired, observed, "", ""))


def changes(old: Any, new: Any, *, at: str = "") -> tuple[str, ...]:
    """What differs between two rendered values, both ways, as `path: old → new`; long values are cut."""
    return tuple(_changes(old, new, at, at.rpartition(".")[2]))


def list_keys(field: str, items: Sequence[Any]) -> tuple[str, ...] | None:
    """The fields by which items of this list are told apart; None for a list that is one value."""
    if field == "ports" and items and isinstance(items[0], Mapping):
        return next((keys for name, keys in _PORT_KEYS.items() if name in items[0]), None)
    return LIST_KEYS.get(field)


def _differs(desired: Any, observed: Any, path: str, field: str) -> list[str]:
    if desired == observed:
        return []
    if isinstance(desired, Mapping) and isinstance(observed, Mapping):
        found: list[str] = []
        for name, value in desired.items():
            below = f"{path}.{name}" if path else name
            # A quantity's field is its parent's: limits.memory, requests.cpu.
            found += _differs(value, observed.get(name), below, field if field in _QUANTITIES else name)
        return found
    if _is_list(desired) and _is_list(observed):
        return _list_differs(desired, observed, path, field)
    return [] if _equal(desired, observed, field) else [path]


def _list_differs(desired: Sequence[Any], observed: Sequence[Any], path: str, field: str) -> list[str]:
    keys = list_keys(field, desired)
    if keys is None:
        if len(desired) != len(observed):
            return [path]
        found: list[str] = []
        for index, (mine, theirs) in enumerate(zip(desired, observed, strict=True)):
            found += _differs(mine, theirs, f"{path}[{index}]", "")
        return found
    by_key = {_key(item, keys): item for item in observed}
    found = []
    for item in desired:
        key = _key(item, keys)
        found += _differs(item, by_key.get(key), f"{path}[{key[0]}]", "")
    return found


def _changes(old: Any, new: Any, path: str, field: str) -> list[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found: list[str] = []
        for name in sorted({*old, *new}):
            below = f"{path}.{name}" if path else name
            found += _changes(old.get(name), new.get(name), below, field if field in _QUANTITIES else name)
        return found
    keys = list_keys(field, [*old, *new]) if _is_list(old) and _is_list(new) else None
    if keys is not None:
        olds, news = ({_key(item, keys): item for item in items} for items in (old, new))
        return [
            text
            for key in dict.fromkeys((*olds, *news))
            for text in _changes(olds.get(key), news.get(key), f"{path}[{key[0]}]", "")
        ]
    if _equal(old, new, field):
        return []
    return [f"{path}: {_text(old)} → {_text(new)}"]


def _equal(desired: Any, observed: Any, field: str) -> bool:
    """Whether two values mean the same. The API server leaves out what is empty, and keeps quantities in its
    own form.
    """
    if desired == observed:
        return True
    if observed is None:
        return desired in (None, "", (), []) or desired == {}
    if field in _INT_OR_STRING:
        return str(desired) == str(observed)
    if field in _QUANTITIES:
        try:
            return parse_quantity(desired) == parse_quantity(observed)
        except InvalidInputError:
            return False
    return _is_list(desired) and _is_list(observed) and list(desired) == list(observed)


def _key(item: Any, keys: tuple[str, ...]) -> tuple[Any, ...]:
    # A port's protocol is part of its key, and the API server fills it in.
    return tuple(item.get(name, "TCP" if name == "protocol" else None) for name in keys)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _text(value: Any) -> str:
    if value is None:
        return "absent"
    text = str(value)
    return text if len(text) <= _TEXT_MAX_LENGTH else f"{text[: _TEXT_MAX_LENGTH - 1]}…"

"""Names, labels and paths as Kubernetes takes them, each with the words to say when one is not."""

from typing import Annotated

from pydantic import Field

from llmservice_operator.api.labels import GROUP
from llmservice_operator.api.markers import Matches, Rule, Satisfies, cel_string, says

NAME_MAX_LENGTH = 52
"""Of an LLMService: its revisions are `<name>-<10 hex digits>`, which must fit the 63 characters of a label value."""
NAME_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""DNS-1035, since the Service has the same name."""
NAME_MEND = (
    f"must begin with a letter, hold lower-case letters, digits and '-' only, and have at most {NAME_MAX_LENGTH} "
    "characters, since the Service and the pods' labels are named after it"
)

_SUBDOMAIN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"

_OBJECT_NAME_MAX_LENGTH = 253
_OBJECT_NAME = Matches(
    f"^{_SUBDOMAIN}$", "must be the name of an object: lower-case letters, digits, '-' and '.'"
)
ObjectName = Annotated[str, Field(min_length=1, max_length=_OBJECT_NAME_MAX_LENGTH), _OBJECT_NAME]


def object_name_fault(name: object) -> str | None:
    """Why no object can have this name; None: one can."""
    if isinstance(name, str) and len(name) <= _OBJECT_NAME_MAX_LENGTH:
        return _fault(_OBJECT_NAME, name)
    return _OBJECT_NAME.mend


_LABEL_KEY = f"^({_SUBDOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$"
_LABEL_VALUE = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"
_KEY_MEND = "is no name of a label or annotation: write name or domain/name, such as example.com/team"
_VALUE_MEND = (
    "is no label value: at most 63 letters, digits, '-', '_' and '.', beginning and ending with the first two"
)

OWN_LABELS = ("app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by")
_OWN_MEND = "is the operator's own; use another name"


def _is_own(key: str) -> bool:
    return key in OWN_LABELS or key.startswith(f"{GROUP}/")


_KEY_MATCHER = Matches(_LABEL_KEY, _KEY_MEND)
_VALUE_MATCHER = Matches(_LABEL_VALUE, _VALUE_MEND)


def _fault(matcher: Matches, text: str) -> str | None:
    try:
        matcher.check(text)
    except ValueError:
        return matcher.mend
    return None


def _key_fault(labels: dict[str, str]) -> str | None:
    return next((f"{key[:64]!r} {fault}" for key in labels if (fault := _fault(_KEY_MATCHER, key))), None)


def _value_fault(labels: dict[str, str]) -> str | None:
    return next(
        (
            f"{key}: {value[:64]!r} {fault}"
            for key, value in labels.items()
            if (fault := _fault(_VALUE_MATCHER, value))
        ),
        None,
    )


def _own_fault(labels: dict[str, str]) -> str | None:
    return next((f"{key} {_OWN_MEND}" for key in labels if _is_own(key)), None)


def _every(test: str, offender: str, mend: str) -> tuple[Rule, ...]:
    """A rule on every key `k` of a map, which names the offending ones as the CEL expression `offender`."""
    return (
        Rule(
            rule=f"self.all(k, {test})",
            message_expression=says(f"%s {mend}", f"self.filter(k, !({test})).map(k, {offender})"),
        ),
    )


_OWN_CEL = f"k in [{', '.join(map(cel_string, OWN_LABELS))}] || k.startsWith('{GROUP}/')"

_KEYS = Satisfies(_key_fault, _every(f"k.matches({cel_string(_LABEL_KEY)})", "k", _KEY_MEND))
_NOT_OWN = Satisfies(_own_fault, _every(f"!({_OWN_CEL})", "k", _OWN_MEND))
_VALUES = Satisfies(
    _value_fault,
    _every(f"self[k].matches({cel_string(_LABEL_VALUE)})", "'%s: %s'.format([k, self[k]])", _VALUE_MEND),
)

LabelMap = Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=32)]
"""Labels of others, to select by."""
Labels = Annotated[LabelMap, _KEYS, _VALUES, _NOT_OWN]
"""Labels to put on an object of ours."""
Annotations = Annotated[
    dict[str, Annotated[str, Field(max_length=4_096)]], Field(max_length=32), _KEYS, _NOT_OWN
]
"""Annotations to put on an object of ours."""

AbsolutePath = Annotated[
    str,
    Field(min_length=1, max_length=1_024),
    Matches("^/([^/:\\s]+/?)*$", "must be an absolute path without ':' and spaces, such as /data/models"),
    Satisfies(
        lambda path: "must not hold '..'" if ".." in path.split("/") else None,
        (Rule(rule="!self.split('/').exists(part, part == '..')", message="must not hold '..'"),),
    ),
]

"""The catalogue of accelerators: what a row says, and how rows are read."""

import difflib
import math
import pkgutil
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from llmservice_operator.errors import InvalidInputError

CPU = "cpu"
"""The row that is the processor itself."""

PCIE_BANDWIDTH_BYTES_PER_SECOND = 32e9
"""One direction of 16 lanes of PCIe 4: what is assumed of a card whose row says nothing of its neighbours."""

LARGEST_FIGURE = 1e21
"""Of a row: a million times the FLOP/s of a card of today, so a slip of the hand."""
LARGEST_CARD_GIB = 4096.0
"""More than any card has; a larger figure is a typing error."""

_FIELDS = (
    "name", "memoryGiB", "memoryBandwidthBytesPerSecond", "bf16FlopsPerSecond", "fp8FlopsPerSecond",
    "computeCapability", "resourceName", "costPerHour", "maxPerNode", "deviceNameContains", "nodeLabels",
    "evidence", "sources", "interconnectBandwidthBytesPerSecond",
)  # fmt: skip


_CAPABILITY = re.compile(r"(\d{1,3})\.(\d{1,3})")


@dataclass(frozen=True, kw_only=True)
class AcceleratorRow:
    """One kind of accelerator."""

    name: str
    """`nvidia-h200`, ...; `cpu` is the processor itself."""
    memory_bytes: int
    """Memory as the engine's runtime reports it (CUDA total), not the datasheet's; 0 on the CPU row (the container's
    limit rules)."""
    memory_bandwidth_bytes_per_second: float
    bf16_flops_per_second: float
    fp8_flops_per_second: float | None
    compute_capability: str | None
    resource_name: str
    """`nvidia.com/gpu`, `amd.com/gpu`; empty on the CPU row."""
    node_labels: tuple[tuple[str, tuple[str, ...]], ...]
    """(label key, values): a node with any of these labels at one of the values has this accelerator."""
    device_name_contains: tuple[str, ...]
    """Parts of the device's own name (nvidia-smi) that must all be in it."""
    cost_per_hour: float
    """Relative price, for choosing the cheapest that fits."""
    sources: Mapping[str, str]
    """Where each figure is from."""
    evidence: str
    """`measured` or `datasheet`."""
    max_per_node: int = 8
    """Cards of one node at most, where no node says otherwise."""
    interconnect_bandwidth_bytes_per_second: float = PCIE_BANDWIDTH_BYTES_PER_SECOND
    """One card's bandwidth to the others of its node, in one direction."""

    @property
    def capability(self) -> tuple[int, int] | None:
        """CUDA's compute capability as (major, minor); None for what isn't NVIDIA's."""
        match = _CAPABILITY.fullmatch(self.compute_capability or "")
        return (int(match[1]), int(match[2])) if match else None

    @property
    def is_cpu(self) -> bool:
        """Whether this is the processor itself."""
        return self.name == CPU

    def matches_node(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels has this accelerator."""
        return any(labels.get(key) in values for key, values in self.node_labels)


def builtin_catalogue_text() -> str:
    """The catalogue of this release, as it lies in the package. Read it once, at the edge."""
    # `importlib.resources` would bring zip files and temporary folders with it, a quarter of a command's start.
    data = pkgutil.get_data("llmservice_operator.perfmodel", "accelerators.yaml")
    if data is None:
        raise InvalidInputError("accelerators: the built-in catalogue is not in the package; install it anew")
    return data.decode("utf-8")


def load_catalogue(text: str) -> tuple[AcceleratorRow, ...]:
    """The rows of a catalogue's YAML (or JSON) text.

    Raises InvalidInputError that names row, field, value and mend.
    """
    return _rows(text, {})


def with_users_rows(builtin: tuple[AcceleratorRow, ...], text: str) -> tuple[AcceleratorRow, ...]:
    """The built-in rows with those of a user's catalogue, merged by name.

    A row of a known name takes what it doesn't say from the built-in one: `{name: nvidia-l4, costPerHour: 0.4}` is a
    price. Raises InvalidInputError as `load_catalogue` does.
    """
    return merge_catalogues(builtin, _rows(text, {row.name: _values(row) for row in builtin}))


def _rows(text: str, known: Mapping[str, Mapping[str, Any]]) -> tuple[AcceleratorRow, ...]:
    """The rows of a text, each over the known values of its name."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        document = yaml.load(text, Loader=loader)  # noqa: S506 - a safe loader, in C where it is built
    except yaml.YAMLError as error:
        raise InvalidInputError(f"accelerators: the catalogue is no YAML: {error}") from error
    rows = document.get("rows") if isinstance(document, Mapping) else None
    if not isinstance(rows, list):
        raise InvalidInputError("accelerators: `rows` is missing; a catalogue is `rows:` with a list of rows")
    parsed = tuple(_row(index, _over(known, each)) for index, each in enumerate(rows))
    names = [row.name for row in parsed]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInputError(f"accelerators: the row {twice!r} is there twice; keep one")
    return parsed


def _over(known: Mapping[str, Mapping[str, Any]], values: Any) -> Any:
    name = values.get("name") if isinstance(values, Mapping) else None
    return {**known[name], **values} if isinstance(name, str) and name in known else values


def _values(row: AcceleratorRow) -> dict[str, Any]:
    """A row as it stands in a catalogue."""
    values: dict[str, Any] = {
        "name": row.name,
        "memoryGiB": row.memory_bytes / (1 << 30),
        "memoryBandwidthBytesPerSecond": row.memory_bandwidth_bytes_per_second,
        "bf16FlopsPerSecond": row.bf16_flops_per_second,
        "resourceName": row.resource_name,
        "costPerHour": row.cost_per_hour,
        "maxPerNode": row.max_per_node,
        "interconnectBandwidthBytesPerSecond": row.interconnect_bandwidth_bytes_per_second,
        "deviceNameContains": list(row.device_name_contains),
        "nodeLabels": {key: list(each) for key, each in row.node_labels},
        "evidence": row.evidence,
        "sources": dict(row.sources),
    }
    if row.fp8_flops_per_second is not None:
        values["fp8FlopsPerSecond"] = row.fp8_flops_per_second
    if row.compute_capability is not None:
        values["computeCapability"] = row.compute_capability
    return values


def merge_catalogues(
    builtin: tuple[AcceleratorRow, ...], users: tuple[AcceleratorRow, ...]
) -> tuple[AcceleratorRow, ...]:
    """The built-in rows with the user's in place of those of the same name, and the user's others after them."""
    replaced = {row.name: row for row in users}
    known = {row.name for row in builtin}
    kept = tuple(replaced.get(row.name, row) for row in builtin)
    return kept + tuple(row for row in users if row.name not in known)


def find_row(catalogue: tuple[AcceleratorRow, ...], name: str) -> AcceleratorRow | None:
    """The row of this name."""
    return next((row for row in catalogue if row.name == name), None)


def with_memory(row: AcceleratorRow, total_gib: float) -> AcceleratorRow:
    """The row with the memory that a user says the card has: GiB of 2^30 bytes, as CUDA reports its total.

    Raises InvalidInputError for what is no size of a card.
    """
    if not 0.5 <= total_gib <= LARGEST_CARD_GIB:
        raise InvalidInputError(
            f"total_gib is {total_gib!r}; the card's memory in GiB, 0.5 to {LARGEST_CARD_GIB:g}, is expected"
        )
    return replace(row, memory_bytes=int(total_gib * (1 << 30)))


def similar_names(catalogue: tuple[AcceleratorRow, ...], name: str) -> tuple[str, ...]:
    """Up to three row names that a mistyped one may have meant: those that it is a part of, else those alike."""
    names, said = [row.name for row in catalogue], re.sub(r"[\s_]+", "-", name.strip().lower())
    parts = [each for each in names if said and said in each]
    return tuple(parts[:3] or difflib.get_close_matches(said, names, n=3, cutoff=0.5))


def _row(index: int, values: Any) -> AcceleratorRow:
    if not isinstance(values, Mapping):
        raise InvalidInputError(f"accelerators: row {index} is {values!r}; an object with a name is expected")
    name = values.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidInputError(
            f"accelerators: row {index} has the name {name!r}; a text such as nvidia-h200 is expected"
        )
    unknown = sorted(set(values) - set(_FIELDS))
    if unknown:
        close = difflib.get_close_matches(str(unknown[0]), _FIELDS, n=1)
        hint = f"; did you mean {close[0]}?" if close else f"; the fields are {', '.join(_FIELDS)}"
        raise InvalidInputError(f"accelerators: row {name} has an unknown field {unknown[0]!r}{hint}")
    evidence = values.get("evidence", "datasheet")
    if evidence not in {"measured", "datasheet"}:
        raise InvalidInputError(
            f"accelerators: row {name}: evidence is {evidence!r}; measured or datasheet is expected"
        )
    least_gib = 0.0 if name == CPU else 1.0
    memory_gib = _number(name, values, "memoryGiB", minimum=least_gib, maximum=LARGEST_CARD_GIB)
    return AcceleratorRow(
        name=name,
        memory_bytes=int(memory_gib * (1 << 30)),
        memory_bandwidth_bytes_per_second=_number(name, values, "memoryBandwidthBytesPerSecond", minimum=1.0),
        bf16_flops_per_second=_number(name, values, "bf16FlopsPerSecond", minimum=1.0),
        fp8_flops_per_second=_number(name, values, "fp8FlopsPerSecond", minimum=1.0)
        if "fp8FlopsPerSecond" in values
        else None,
        compute_capability=str(values["computeCapability"]) if "computeCapability" in values else None,
        resource_name=_resource_name(name, values),
        node_labels=_node_labels(name, values),
        device_name_contains=_texts(name, "deviceNameContains", values.get("deviceNameContains", [])),
        cost_per_hour=_number(name, values, "costPerHour", minimum=0.0),
        sources={str(key): str(value) for key, value in dict(values.get("sources") or {}).items()},
        evidence=evidence,
        max_per_node=int(_number(name, values, "maxPerNode", minimum=1.0, default=8.0)),
        interconnect_bandwidth_bytes_per_second=_number(
            name,
            values,
            "interconnectBandwidthBytesPerSecond",
            minimum=1.0,
            default=PCIE_BANDWIDTH_BYTES_PER_SECOND,
        ),
    )


def _number(
    row: str,
    values: Mapping[str, Any],
    field: str,
    *,
    minimum: float,
    maximum: float = LARGEST_FIGURE,
    default: float | None = None,
) -> float:
    value = values.get(field, default)
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not minimum <= number <= maximum:
        allowed = f"a number of at least {minimum:g}"
        if number > maximum:
            allowed += f" and at most {maximum:g}"
        raise InvalidInputError(f"accelerators: row {row}: {field} is {value!r}; {allowed} is expected")
    return number


def _resource_name(row: str, values: Mapping[str, Any]) -> str:
    value = values.get("resourceName", "nvidia.com/gpu")
    if not isinstance(value, str) or (row != CPU and "/" not in value):
        raise InvalidInputError(
            f"accelerators: row {row}: resourceName is {value!r}; one such as nvidia.com/gpu is expected"
        )
    return value


def _texts(row: str, field: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str | int) for each in value):
        raise InvalidInputError(f"accelerators: row {row}: {field} is {value!r}; a list of texts is expected")
    return tuple(str(each) for each in value)


def _node_labels(row: str, values: Mapping[str, Any]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    labels = values.get("nodeLabels", {})
    if not isinstance(labels, Mapping):
        raise InvalidInputError(
            f"accelerators: row {row}: nodeLabels is {labels!r}; label keys with lists of values are expected"
        )
    return tuple((str(key), _texts(row, f"nodeLabels.{key}", each)) for key, each in labels.items())

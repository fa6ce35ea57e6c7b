"""Plans as JSON and back: what a ControllerRevision keeps. The round trip is exact."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from llmservice_operator.perfmodel.accelerators import AcceleratorRow
from llmservice_operator.planning.types import Knobs, MemoryTerm, Plan, PlannedSpeed, SpeedFlags

SCHEMA = 1


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """The plan as an object of JSON values."""
    values = asdict(plan)
    values["schema"] = SCHEMA
    values["accelerator"]["node_labels"] = [[key, list(each)] for key, each in plan.accelerator.node_labels]
    return _lists(values)  # type: ignore[no-any-return]


def plan_from_json(values: Mapping[str, Any]) -> Plan:
    """The plan that `plan_to_json` wrote. Fields of a newer release are ignored.

    Raises KeyError or TypeError for what is no plan.
    """
    row = _known(AcceleratorRow, values["accelerator"])
    row["node_labels"] = tuple((key, tuple(each)) for key, each in row["node_labels"])
    row["device_name_contains"] = tuple(row["device_name_contains"])
    fields = _known(Plan, values)
    fields["accelerator"] = AcceleratorRow(**row)
    fields["knobs"] = Knobs(**_known(Knobs, values["knobs"]))
    fields["memory"] = tuple(MemoryTerm(**_known(MemoryTerm, each)) for each in values["memory"])
    fields["engine_args"] = tuple((name, value) for name, value in values["engine_args"])
    fields["calibrated"] = tuple((name, change) for name, change in values.get("calibrated", ()))
    for name in ("reasons", "warnings"):
        fields[name] = tuple(values[name])
    fields["missed"] = tuple(values.get("missed", ()))
    fields["speed_flags"] = SpeedFlags(**_known(SpeedFlags, values.get("speed_flags", {})))
    fields["speed"] = _speed(values.get("speed"))
    return Plan(**fields)


def _speed(values: Any) -> PlannedSpeed | None:
    """The prediction; None where it is of a release that says less, or nothing: it decides nothing any more."""
    if not isinstance(values, Mapping):
        return None
    known = _known(PlannedSpeed, values)
    return PlannedSpeed(**known) if len(known) == len(PlannedSpeed.__dataclass_fields__) else None


def _known(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    names = kind.__dataclass_fields__  # type: ignore[attr-defined]
    return {name: value for name, value in values.items() if name in names}


def _lists(value: Any) -> Any:
    """JSON has lists and objects only."""
    if isinstance(value, Mapping):
        return {key: _lists(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_lists(each) for each in value]
    return value

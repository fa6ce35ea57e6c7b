"""Real deployments, told as LLMServices: where each is from, and what becomes of it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parent / "cases"
ROWS = Path(__file__).resolve().parent / "rows"
SAMPLES = Path(__file__).resolve().parents[2] / "crds" / "samples"
PLANNED = "Planned"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One deployment. `expect` is Planned or the reason of a refusal."""

    path: Path
    source: str
    config: str
    expect: str
    rows: str
    not_said: str
    """What the object has no field for."""
    spec: dict[str, Any]


def read_cases() -> dict[str, Case]:
    """All of them by name."""
    return {path.stem: _read(path) for path in sorted(FOLDER.glob("*.yaml"))}


def _read(path: Path) -> Case:
    text = path.read_text()
    head = dict(re.findall(r"^# (source|config|expect|rows|not said): (.+)$", text, re.MULTILINE))
    return Case(
        path=path,
        source=head["source"],
        config=head["config"],
        expect=head["expect"],
        rows=head.get("rows", ""),
        not_said=head.get("not said", ""),
        spec=yaml.safe_load(text)["spec"],
    )

"""The chart's rule file, and promtool's tests made of the cases."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from observability.cases import Case

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "charts" / "llmservice-operator" / "alerts" / "rules.yaml"
RUNBOOK = ROOT / "operator" / "docs" / "runbook.md"


def groups() -> list[dict[str, Any]]:
    """The rule file's groups."""
    return list(yaml.safe_load(RULES.read_text())["groups"])


def alerts() -> dict[str, dict[str, Any]]:
    """Every alert by its name."""
    return {rule["alert"]: rule for group in groups() for rule in group["rules"] if "alert" in rule}


def promtool_test(case: Case) -> dict[str, Any]:
    """One case as `promtool test rules` reads it: what is firing then, of all alerts."""
    expected = []
    if case.fires is not None:
        severity = alerts()[case.alert]["labels"]["severity"]
        labels = {"alertname": case.alert, "alertstate": "firing", "severity": severity, **case.fires}
        inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
        expected.append({"labels": f"ALERTS{{{inside}}}", "value": 1})
    played = {**case.base, **case.series}
    return {
        "name": f"{case.alert}: {case.story}",
        "interval": case.interval,
        "input_series": [{"series": name, "values": values} for name, values in played.items()],
        "promql_expr_test": [
            {"expr": 'ALERTS{alertstate="firing"}', "eval_time": case.at, "exp_samples": expected}
        ],
    }


def promtool_files(cases: Iterable[Case]) -> dict[str, str]:
    """Test files by the interval of their cases."""
    by_interval: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        by_interval.setdefault(case.interval, []).append(promtool_test(case))
    shared = {"rule_files": [str(RULES)], "group_eval_order": [group["name"] for group in groups()]}
    return {
        interval: yaml.safe_dump({**shared, "evaluation_interval": interval, "tests": tests}, sort_keys=False)
        for interval, tests in by_interval.items()
    }

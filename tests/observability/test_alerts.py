"""Alerts fire when they should and only then; each has a place that says what to do."""

import re
import subprocess
from pathlib import Path

import pytest

from observability.cases import CASES
from observability.programs import binaries
from observability.rules import RULES, RUNBOOK, alerts, promtool_files


@pytest.fixture(scope="module")
def promtool() -> Path:
    programs = binaries()
    programs.ensure(("promtool",))
    return programs.path("promtool")


def test_rules_load(promtool: Path) -> None:
    done = subprocess.run(
        (promtool, "check", "rules", "--lint=all", "--lint-fatal", RULES),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_fire_and_keep_quiet(promtool: Path, tmp_path: Path) -> None:
    """Each case is a whole play: the alert it is about, and no other."""
    files = []
    for interval, text in promtool_files(CASES).items():
        files.append(tmp_path / f"{interval}.yaml")
        files[-1].write_text(text)

    done = subprocess.run((promtool, "test", "rules", *files), capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", alerts())
def test_an_alert_has_a_case_that_fires_and_one_that_does_not(name: str) -> None:
    verdicts = {case.fires is not None for case in CASES if case.alert == name}

    assert {True, False} == verdicts


def test_every_alert_has_its_section_in_the_runbook_and_no_section_is_left_over() -> None:
    sections = re.findall(r"^## (LLMService\w+)$", RUNBOOK.read_text(), re.MULTILINE)

    assert sorted(alerts()) == sorted(sections)


@pytest.mark.parametrize("name", alerts())
def test_an_alert_links_to_its_section(name: str) -> None:
    url = alerts()[name]["annotations"]["runbook_url"]

    assert url.endswith(f"operator/docs/runbook.md#{name.lower()}")


@pytest.mark.parametrize("name", alerts())
def test_a_section_says_what_it_means_what_to_look_at_and_what_to_do(name: str) -> None:
    section = RUNBOOK.read_text().split(f"\n## {name}\n")[1].split("\n## ")[0]

    assert re.findall(r"\*\*[\w ]+\.\*\*", section) == ["**Means.**", "**Look at.**", "**Do.**"]

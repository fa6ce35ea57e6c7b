"""The workflows of the forge, which nothing here can run: what can be told of them by reading."""

import re
from typing import Any

import pytest
import yaml

from docs.pages import ROOT

WORKFLOWS: dict[str, dict[Any, Any]] = {
    path.name: yaml.safe_load(path.read_text())
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_nothing_may_be_written_unless_a_job_says_so(name: str) -> None:
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_what_others_made_is_named_by_commit_and_version(name: str) -> None:
    """A tag can be moved to other code, and jobs of a release may write."""
    text = (ROOT / ".github" / "workflows" / name).read_text()
    used = re.findall(r"uses: (?!\./)(\S.*)$", text, re.MULTILINE)

    assert [each for each in used if not re.fullmatch(r"\S+@[0-9a-f]{40} # v[0-9.]+", each)] == []


def test_a_called_workflow_does_not_wait_for_its_caller() -> None:
    """`github.workflow` is the caller's in both: one group for the two would be a deadlock, which the forge cancels."""
    called = {
        (caller, job["uses"].rpartition("/")[2])
        for caller, workflow in WORKFLOWS.items()
        for job in workflow["jobs"].values()
        if job.get("uses", "").startswith("./")
    }
    groups = {name: workflow["concurrency"]["group"] for name, workflow in WORKFLOWS.items()}

    assert called == {("release.yaml", "test.yaml")}
    assert all(groups[caller] != groups[name] for caller, name in called)

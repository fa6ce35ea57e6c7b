"""The workflows of the forge, which nothing here can run: what can be told of them by reading."""

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

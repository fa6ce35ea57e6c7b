"""The supervisor as one file."""

import subprocess
import sys
import zipfile
from pathlib import Path

from llmservice_runtime.build import build


def test_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    build(tmp_path / "a.pyz")
    build(tmp_path / "b.pyz")

    assert (tmp_path / "a.pyz").read_bytes() == (tmp_path / "b.pyz").read_bytes()


def test_it_runs_by_itself(tmp_path: Path) -> None:
    build(tmp_path / "supervisor.pyz")

    done = subprocess.run(
        [sys.executable, "-I", tmp_path / "supervisor.pyz"],
        env={"LLMSERVICE_TERMINATION_LOG": str(tmp_path / "message")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "LLMSERVICE_SUPERVISOR is not set" in done.stderr
    assert "LLMSERVICE_SUPERVISOR is not set" in (tmp_path / "message").read_text()


def test_everybody_may_read_and_run_it(tmp_path: Path) -> None:
    """An init container copies it as one user and the engine runs it as another."""
    build(tmp_path / "supervisor.pyz")

    assert (tmp_path / "supervisor.pyz").stat().st_mode & 0o777 == 0o755


def test_it_holds_nothing_but_the_package(tmp_path: Path) -> None:
    build(tmp_path / "supervisor.pyz")

    names = zipfile.ZipFile(tmp_path / "supervisor.pyz").namelist()

    assert {name.split("/")[0] for name in names} == {"__main__.py", "llmservice_runtime"}
    assert all(name.endswith(".py") for name in names)


def test_the_sources_parse_as_python_3_9() -> None:
    """The engine's image decides which Python runs it."""
    import ast

    import llmservice_runtime

    sources = sorted(Path(llmservice_runtime.__file__).parent.glob("*.py"))

    assert sources
    for source in sources:
        ast.parse(source.read_text(encoding="utf-8"), feature_version=(3, 9))

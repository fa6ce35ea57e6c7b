"""Programs are built once, into a folder named by all that the build depends on, and never half."""

import os
from pathlib import Path

import pytest

from devcluster.binaries import (
    PROGRAMS,
    SOURCES,
    Binaries,
    Program,
    cache_root,
    module_hash,
    parse_go_version,
    read_sources,
    whole_programs,
)
from devcluster.errors import BuildError, PreflightError

TOOL = Program(name="tool", module="tool", package=".")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A module with one program."""
    folder = tmp_path / "go" / "tool"
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text("module example.org/tool\n")
    return folder.parent


def fake_go(tmp_path: Path, script: str) -> dict[str, str]:
    """An environment whose `go` is a shell script: $output is the path after -o."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    go = folder / "go"
    go.write_text(
        '#!/bin/sh\n[ "$1" = version ] && { echo go version go1.26.0 linux/amd64; exit; }\n'
        'while [ "$1" != -o ]; do shift; done; output=$2\n' + script
    )
    go.chmod(0o755)
    return {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }


def binaries(tmp_path: Path, sources: Path, script: str, said: list[str] | None = None) -> Binaries:
    say = (said if said is not None else []).append
    return Binaries(environ=fake_go(tmp_path, script), sources=sources, say=say, programs=(TOOL,))


def test_missing_program_is_built(tmp_path: Path, sources: Path) -> None:
    found = binaries(tmp_path, sources, 'echo built > "$output"')

    found.ensure()

    assert found.path("tool").read_text() == "built\n"


def test_built_program_is_not_built_again(tmp_path: Path, sources: Path) -> None:
    binaries(tmp_path, sources, 'echo first > "$output"').ensure()

    again = binaries(tmp_path, sources, 'echo second > "$output"')
    again.ensure()

    assert again.path("tool").read_text() == "first\n"


def test_killed_build_leaves_no_program(tmp_path: Path, sources: Path) -> None:
    """What it had written is not taken for the program."""
    found = binaries(tmp_path, sources, 'echo half > "$output"; kill -9 $$')

    with pytest.raises(BuildError):
        found.ensure()

    assert found.missing() == ["tool"]


def test_failed_build_tells_the_compilers_words(tmp_path: Path, sources: Path) -> None:
    found = binaries(tmp_path, sources, "echo 'main.go:3: undefined: x' >&2; exit 1")

    with pytest.raises(
        BuildError, match=r"building tool failed \(go build exited 1\):\nmain.go:3: undefined: x"
    ):
        found.ensure()


def test_what_is_built_on_demand_is_not_built_with_all(tmp_path: Path, sources: Path) -> None:
    on_demand = Program(name="tool", module="tool", package=".", on_demand=True)
    environ = fake_go(tmp_path, 'echo built > "$output"')
    found = Binaries(environ=environ, sources=sources, say=[].append, programs=(on_demand,))

    found.ensure()
    assert not found.path("tool").exists()

    found.ensure(("tool",))
    assert found.path("tool").exists()


def test_progress_is_said(tmp_path: Path, sources: Path) -> None:
    said: list[str] = []

    binaries(tmp_path, sources, 'echo x > "$output"', said).ensure()

    assert said[0] == "[1/1] building tool …"


def test_no_compiler_says_where_to_get_it(
    tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("devcluster.binaries.find_go", lambda _: None)
    found = Binaries(
        environ={"PATH": str(tmp_path), "HOME": str(tmp_path)}, sources=sources, programs=(TOOL,)
    )

    with pytest.raises(PreflightError, match=r"Go is not on PATH; install Go 1\.26 or newer"):
        found.ensure()


@pytest.mark.parametrize("change", ["source", "compiler", "flags"])
def test_any_change_to_a_build_gives_another_folder(change: str) -> None:
    before = module_hash({"go.mod": b"a"}, (TOOL,), "go1.26.0")
    source = {"go.mod": b"b"} if change == "source" else {"go.mod": b"a"}
    program = Program(name="tool", module="tool", package=".", tags="x") if change == "flags" else TOOL

    after = module_hash(source, (program,), "go1.26.1" if change == "compiler" else "go1.26.0")

    assert before != after


def test_cache_follows_the_base_directory_standard() -> None:
    assert cache_root({"HOME": "/home/ann"}) == Path("/home/ann/.cache/llmservice/devcluster")
    assert cache_root({"HOME": "/home/ann", "XDG_CACHE_HOME": "/c"}) == Path("/c/llmservice/devcluster")


def test_version_of_the_compiler_is_read() -> None:
    assert parse_go_version("go version go1.26.8 linux/amd64\n") == (1, 26)


@pytest.mark.parametrize("module", sorted({program.module for program in PROGRAMS} - {"static"}))
def test_every_module_is_pinned(module: str) -> None:
    """go.mod and go.sum stand in the tree, so each build is of the same sources."""
    assert {"go.mod", "go.sum"} <= set(read_sources(SOURCES / module))


def test_the_enforcer_of_policies_is_built_where_it_is_run() -> None:
    assert set(whole_programs(network_policies=True)) - set(whole_programs(network_policies=False)) == {
        "kube-router"
    }

"""What is asked of Docker; buildah is asked for real whenever an image is built."""

import json
from pathlib import Path

import pytest

from images.builders import Docker, Secrets, remove_work
from images.errors import BuildError
from images.recipes import Recipe

RECIPE = Recipe(name="thing", tag="1", dockerfile="runtime_image/Dockerfile.cpu", inputs=(), disk_bytes=1)
# Notes down each call; `save --output FILE NAME` writes the file, and a build fails if told to.
DOCKER = """#!/usr/bin/env python3
import json, os, sys
from pathlib import Path
with Path(os.environ["CALLS"]).open("a") as calls:
    calls.write(json.dumps([os.environ.get("DOCKER_BUILDKIT"), *sys.argv[1:]]) + "\\n")
if sys.argv[1] == "build":
    sys.exit(int(os.environ.get("FAILS", "0")))
Path(sys.argv[3]).write_text("archive")
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(DOCKER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def build(tmp_path: Path) -> Path:
    secrets = Secrets(build_env=tmp_path / "build-env", ca_bundle=tmp_path / "ca.crt")
    archive = tmp_path / "thing.tar"
    Docker().build(RECIPE, archive, work=tmp_path, secrets=secrets)
    return archive


def test_docker_builds_the_same_dockerfile_under_the_same_name(tmp_path: Path, calls: Path) -> None:
    archive = build(tmp_path)

    built, saved = (json.loads(line) for line in calls.read_text().splitlines())
    assert built[:2] == ["1", "build"]
    assert built[built.index("--tag") + 1] == "ghcr.io/llmservice/thing:1"
    assert built[built.index("--file") + 1].endswith("/runtime_image/Dockerfile.cpu")
    assert saved[1:] == ["save", "--output", str(archive), "ghcr.io/llmservice/thing:1"]
    assert archive.read_text() == "archive"


def test_index_settings_go_as_secrets_and_not_as_arguments(tmp_path: Path, calls: Path) -> None:
    build(tmp_path)

    built = json.loads(calls.read_text().splitlines()[0])
    assert f"id=build-env,src={tmp_path}/build-env" in built
    assert f"id=ca-bundle,src={tmp_path}/ca.crt" in built
    assert "--build-arg" not in built


def test_a_failed_build_names_the_command(
    tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILS", "7")

    with pytest.raises(BuildError, match="exit code 7 from: docker build"):
        build(tmp_path)

    assert len(calls.read_text().splitlines()) == 1


def test_a_folder_that_is_not_there_needs_no_removal(tmp_path: Path) -> None:
    remove_work(tmp_path / "work")

    assert list(tmp_path.iterdir()) == []

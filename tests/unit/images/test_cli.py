"""The command: results on standard output, reasons on standard error, and an exit code."""

from pathlib import Path

import pytest

from images import builders, cli
from images.builders import Secrets
from images.recipes import Recipe


class Writer:
    salt = "test"

    def build(self, recipe: Recipe, archive: Path, *, work: Path, secrets: Secrets) -> None:
        del work, secrets
        archive.write_text(recipe.reference)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(builders, "choose", lambda _folder: Writer())
    monkeypatch.setattr("images.preflight.RESERVE_BYTES", -(10**15))
    return tmp_path


def test_build_prints_the_archive_and_nothing_else(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = cli.main(["build", "fake-engine"])

    (line,) = capsys.readouterr().out.splitlines()
    assert status == 0
    assert Path(line).parent == cache / "llmservice" / "images"
    assert Path(line).read_text() == "ghcr.io/llmservice/fake-engine:0.32.0"


def test_build_all_makes_what_the_tests_load(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["build", "all"])

    lines = capsys.readouterr().out.splitlines()
    assert [Path(line).read_text().split("/")[-1].split(":")[0] for line in lines] == [
        "operator", "fake-engine", "vllm-cpu",
    ]  # fmt: skip
    assert cache.exists()


def test_a_cache_that_cannot_be_written_is_an_error_in_words(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (cache / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "file"))

    status = cli.main(["build", "fake-engine"])

    assert status == 1
    assert capsys.readouterr().err.startswith("error: ")


def test_an_unknown_image_is_refused_with_the_choices(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["build", "redis"])

    assert exit_info.value.code == 2
    assert "'operator', 'fake-engine', 'vllm-cpu'" in capsys.readouterr().err

"""What every image that ships is made on, and whom it runs as."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILES = [ROOT / "operator" / "Dockerfile", *sorted((ROOT / "runtime_image").glob("Dockerfile.*"))]
NAMED = pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: str(path.relative_to(ROOT)))


@NAMED
def test_the_base_is_pinned(path: Path) -> None:
    """By a digest; the engine's official image by its version, which vLLM doesn't move."""
    (base,) = re.findall(r"^ARG BASE=(\S+)$", path.read_text(), re.MULTILINE)

    assert re.search(r"@sha256:[0-9a-f]{64}$", base) or re.search(r"vllm-openai:v\d+\.\d+\.\d+$", base)


@NAMED
def test_it_does_not_run_as_root(path: Path) -> None:
    assert re.findall(r"^USER (\S+)$", path.read_text(), re.MULTILINE) == ["2000:2000"]

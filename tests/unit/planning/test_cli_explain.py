"""`llmservice explain`: the plan in prose and a bar, for a person."""

import argparse
from pathlib import Path

import pytest

from llmservice_operator.cli import main
from llmservice_operator.cli_plan import plan_file
from llmservice_operator.planning.prose import _OTHER_LETTERS, segments
from llmservice_operator.planning.types import Plan

SAMPLES = Path(__file__).resolve().parents[3] / "crds" / "samples"
TOO_LARGE = """
apiVersion: llmservice.dev/v1alpha1
kind: LLMService
metadata: {name: demo}
spec:
  model: {uri: "hf://org/model"}
  accelerator: {types: [nvidia-h2]}
"""


def ends(*arguments: str) -> int:
    return main(["explain", *arguments])


@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.glob("*.yaml")))
@pytest.mark.parametrize("width", [50, 110])
def test_every_sample_is_told_within_the_width(
    sample: str, width: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends("-f", str(SAMPLES / sample), "--width", str(width)) == 0

    lines = capsys.readouterr().out.splitlines()
    # A word without a space, such as a URI, is never broken.
    assert all(len(line) <= width or " " not in line.strip(" -") for line in lines)


def test_the_parts_of_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    ends("-f", str(SAMPLES / "qwen3-8b.yaml"))

    out = " ".join(capsys.readouterr().out.split())
    for part in (
        "the engine asks for",
        "stay outside of its budget",
        "W weights",
        "K KV cache",
        "The KV cache holds",
        "Expected for prompts of",
        "Why:",
    ):
        assert part in out


def test_the_bar_is_as_wide_as_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    ends("-f", str(SAMPLES / "qwen3-8b.yaml"))

    drawn = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("["))
    assert len(drawn) == 72


def test_the_containers_memory_on_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    ends("-f", str(SAMPLES / "smollm2.yaml"))

    assert "on the CPU, one replica in a container of 4.00 GiB" in capsys.readouterr().out


@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.glob("*.yaml")))
def test_every_term_of_the_account_has_words_of_its_own(sample: str) -> None:
    arguments = argparse.Namespace(
        filename=str(SAMPLES / sample), config=None, catalogue=None, engine_version=""
    )
    plans = [result for _, result in plan_file(arguments) if isinstance(result, Plan)]

    assert plans
    assert all(segment.letter not in _OTHER_LETTERS for plan in plans for segment in segments(plan))


def test_a_refusal_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(TOO_LARGE)

    assert ends("-f", str(file)) == 1
    assert "demo can't run as it is asked for, so no pod is made" in capsys.readouterr().out


def test_a_file_that_cannot_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends("-f", "/nowhere") == 2
    assert capsys.readouterr().err.startswith("llmservice explain: /nowhere")

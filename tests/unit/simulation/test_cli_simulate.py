"""`llmservice simulate` as a user calls it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from llmservice_operator.cli import COMMANDS, main
from unit.simulation.machines import LLAMA, TESTS

Call = Callable[..., int]
SERVICE = """
apiVersion: llmservice.dev/v1alpha1
kind: LLMService
metadata: {name: llama}
spec:
  model: {uri: "hf://meta-llama/Llama-3.1-8B"}
  accelerator: {types: [nvidia-h200]}
  engine: {pin: {maxNumSeqs: 64, maxNumBatchedTokens: 2048}}
  workload:
    context: {min: 4096, max: 8192}
    inputTokens: {p50: 500, p95: 1000}
    outputTokens: {p50: 50, p95: 100}
  slo: {ttft: {p95: 1s}, tpot: {p95: 50ms}}
  scaling: {minReplicas: 1, maxReplicas: 3}
"""


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """The command on that service, with these further arguments."""
    (tmp_path / "service.yaml").write_text(SERVICE)
    config = TESTS / "data" / "models" / LLAMA

    def run(*arguments: str) -> int:
        files = ["-f", str(tmp_path / "service.yaml"), "--config", str(config)]
        return main(["simulate", *files, *arguments])

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_tells_its_arguments(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A lone % in a help text is a format to argparse, and only --help finds it."""
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])

    assert f"usage: llmservice {command}" in capsys.readouterr().out


def test_it_tells_what_each_rule_attains_and_costs(call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--trace", "ramp:4x60", "--policy", "static", "--compare", "kubeai", "-o", "json") == 0

    static, kubeai = json.loads(capsys.readouterr().out)
    assert (static["policy"], kubeai["policy"]) == ("static", "kubeai")
    assert static["attainment"] == 1.0
    assert static["mean_replicas"] == pytest.approx(3.0, abs=0.01)
    assert kubeai["gpu_hours"] < static["gpu_hours"]


def test_the_table_has_a_line_and_the_chart_a_part_for_each_rule(
    call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--trace", "ramp:4x60", "--policy", "static", "--compare", "kubeai") == 0

    printed = capsys.readouterr().out
    assert printed.count("\nstatic") == printed.count("\nkubeai") == 2
    assert printed.count("  ready ") == printed.count("  missed ") == 2
    assert "1 x nvidia-h200" in printed


def test_a_png_is_drawn(call: Call, tmp_path: Path) -> None:
    chart = tmp_path / "chart.png"
    assert call("--trace", "ramp:4x60", "--policy", "static", "--chart", str(chart)) == 0

    assert chart.read_bytes().startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--trace", "ramp:no"), "is no stage"),
        (("--trace", "ramp:1x60", "--policy", "hope"), "is no policy"),
        (("--trace", "ramp:1x60", "--fault", "flood@1+2"), "is none of"),
        (("--trace", "ramp:1x60", "--fault", "nan@soon"), "KIND@SECONDS+SECONDS"),
        (("--trace", "ramp:1x60", "--max-replicas", "0"), "--max-replicas is expected"),
        (("--trace", "ramp:1x60", "--start-seconds", "-1"), "--start-seconds"),
        (("--trace", "nowhere.csv"), "nowhere.csv"),
        (("--trace", "azure2024-mail"), "is no trace in the package"),
        (("--trace", "azure2024-conv", "--share", "0"), "--share"),
    ],
)
def test_what_cannot_be_meant_is_named(
    call: Call,
    arguments: tuple[str, ...],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(*arguments) == 2

    assert words in capsys.readouterr().err

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
        (("--trace", "ramp:1x60", "--max-replicas", "0"), "--max-replicas <= 1000 is expected"),
        (("--trace", "ramp:1x60", "--start-seconds", "-1"), "--start-seconds"),
        (("--trace", "ramp:1x60", "--fault", "nan@nan+5"), "never is"),
        (("--trace", "ramp:1x60", "--fault", "nan@60+5"), "never is"),
        (("--trace", "ramp:1x60", "--fault", "nan@5+-5"), "never is"),
        (("--trace", "ramp:1x60", "--max-replicas", "1001"), "<= 1000"),
        (("--trace", "ramp:1x60", "--seed", "-1"), "--seed"),
        (("--trace", "ramp:1x60", "--chart", "nowhere/chart.png"), "--chart"),
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


def test_a_load_that_is_over_before_anything_is_decided_is_drawn(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "one.csv"
    trace.write_text("seconds,prompt_tokens,answer_tokens\n5,100,10\n")

    assert call("--trace", str(trace), "--policy", "static") == 0

    assert "max 3 of 3" in capsys.readouterr().out


def test_a_request_that_no_replica_holds_is_named(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "long.csv"
    trace.write_text("seconds,prompt_tokens,answer_tokens\n5,100,10\n6,99999990,10\n")

    assert call("--trace", str(trace), "--policy", "static") == 2

    assert "long.csv has a request of 100000000 tokens" in capsys.readouterr().err


def test_an_interrupted_run_ends_as_shells_expect(
    call: Call, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("llmservice_operator.cli_simulate._simulate", interrupt)

    assert call("--trace", "ramp:1x60") == 130

    assert "interrupted" in capsys.readouterr().err

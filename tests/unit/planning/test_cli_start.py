"""How a command starts: it imports what it needs, and no more."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from unit.perfmodel.samples import DATA

SAMPLE = Path(__file__).resolve().parents[3] / "crds" / "samples" / "qwen3-8b.yaml"
MODEL = DATA / "models" / "Qwen--Qwen3-8B"
ESTIMATE = ("estimate", "--config", str(MODEL), "--accelerator", "nvidia-h200", "-o", "json")
PLAN = ("plan", "-f", str(SAMPLE))
EXPLAIN = ("explain", "-f", str(SAMPLE))
SCRIPT = """
import contextlib, io, json, sys
from llmservice_operator.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    main(sys.argv[1:])
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def imported(*arguments: str) -> set[str]:
    """The packages that a command has imported when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("arguments", [ESTIMATE, PLAN, EXPLAIN], ids=lambda each: each[0])
def test_an_offline_command_waits_for_nothing_of_the_operator(arguments: tuple[str, ...]) -> None:
    assert not imported(*arguments) & {"kopf", "kubernetes", "httpx", "aiohttp", "prometheus_client", "numpy"}


def test_an_estimate_waits_for_no_types_of_the_api() -> None:
    assert "pydantic" not in imported(*ESTIMATE)


def test_garbage_is_collected_again_once_a_command_runs() -> None:
    script = "import gc; from llmservice_operator.cli import main; main(%r); print(gc.isenabled())" % [
        *ESTIMATE
    ]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "True"

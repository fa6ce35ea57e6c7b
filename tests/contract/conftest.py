"""One engine for the whole file: the fake, and the real one where the environment names it.

`REAL_ENGINE_PYTHON` is an interpreter that can import vLLM, `REAL_ENGINE_MODEL` a directory with a small model
(SmolLM2-135M-Instruct is what the figures are for).
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ports import free_port

ROOT = Path(__file__).parents[2]
API_KEY = "sk-contract"
SERVED = "smollm2"
ARGUMENTS = (
    "--served-model-name", SERVED, "--dtype", "float32", "--max-model-len", "2048", "--api-key", API_KEY,
    "--shutdown-timeout", "300", "--enable-server-load-tracking",
    "--disable-access-log-for-endpoints", "/health,/metrics,/load",
    "--enforce-eager",  # compiling takes a minute and changes no claim
)  # fmt: skip
SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "hidden_size": 576,
    "max_position_embeddings": 8192,
}
_START_SECONDS = {"fake": 60.0, "real": 600.0}


@dataclass
class Engine:
    """A running engine and how to talk to it."""

    kind: str
    process: subprocess.Popen[bytes]
    port: int
    log: Path
    refused_while_starting: bool = False
    headers: dict[str, str] = field(default_factory=lambda: {"Authorization": f"Bearer {API_KEY}"})

    def request(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            text = body if body is None or isinstance(body, str) else json.dumps(body)
            given = self.headers if headers is None else headers
            connection.request(method, path, body=text, headers={**given, "Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def json(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        status, answer = self.request(method, path, body)
        return status, json.loads(answer)

    def events(self, path: str, body: Any) -> list[str]:
        """The data of each server-sent event."""
        _, answer = self.request("POST", path, {**body, "stream": True})
        return [line[len("data: ") :] for line in answer.decode().splitlines() if line.startswith("data: ")]


def kinds() -> list[Any]:
    """The engines that this environment has; the real one takes minutes to start."""
    found: list[Any] = ["fake"]
    if os.environ.get("REAL_ENGINE_PYTHON") and os.environ.get("REAL_ENGINE_MODEL"):
        found.append(pytest.param("real", marks=pytest.mark.real_engine))
    return found


def command_of(kind: str, model: Path) -> tuple[list[str], dict[str, str]]:
    """Command (without a port) and environment of an engine of that kind."""
    python = sys.executable if kind == "fake" else os.environ["REAL_ENGINE_PYTHON"]
    environment = {
        **os.environ,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
        "FAKE_ENGINE_TPOT_SECONDS": "0.02",
    }
    if kind == "fake":
        environment["PYTHONPATH"] = str(ROOT / "tests" / "fakes" / "engine")
    return [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)], environment


def model_of(kind: str, folder: Path) -> Path:
    """The model's directory; the fake needs no more than its config.json."""
    if kind == "real":
        return Path(os.environ["REAL_ENGINE_MODEL"])
    (folder / "config.json").write_text(json.dumps(SMOLLM2))
    return folder


@pytest.fixture(scope="module", params=kinds())
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp(request.param)
    command, environment = command_of(request.param, model_of(request.param, folder))
    port, log = free_port(), folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--port", str(port), *ARGUMENTS],
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    running = Engine(request.param, process, port, log)
    try:
        _wait_ready(running, _START_SECONDS[request.param])
        yield running
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_ready(engine: Engine, patience_seconds: float) -> None:
    deadline = time.monotonic() + patience_seconds
    while True:
        assert engine.process.poll() is None, engine.log.read_text(errors="replace")
        assert time.monotonic() < deadline, engine.log.read_text(errors="replace")
        try:
            if engine.request("GET", "/health")[0] == http.client.OK:
                return
        except ConnectionRefusedError:
            engine.refused_while_starting = True
        time.sleep(0.02)

"""A supervisor around an engine, as real processes on loopback."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmservice_runtime.build import build
from ports import free_port

ROOT = Path(__file__).parents[3]
FAKE_ENGINE = ROOT / "tests" / "fakes" / "engine"
PATIENCE_SECONDS = 30.0
FAKE_COMMAND = ("python3", "-m", "vllm.entrypoints.openai.api_server")


def wait_until(
    condition: Callable[[], bool], what: str, *, patience_seconds: float = PATIENCE_SECONDS
) -> None:
    """Ask until it holds; conditions here are states of other processes, which send no event."""
    deadline = time.monotonic() + patience_seconds
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.01)


class Running:
    """One supervisor and what can be asked of it."""

    def __init__(self, process: subprocess.Popen[bytes], *, ports: tuple[int, int], folder: Path) -> None:
        self.process, self.folder = process, folder
        self.engine_port, self.supervisor_port = ports

    def get(self, path: str) -> tuple[int, str]:
        return self.request("GET", path)

    def request(
        self, method: str, path: str, *, port: int | None = None, body: str | None = None
    ) -> tuple[int, str]:
        connection = http.client.HTTPConnection(
            "127.0.0.1", port or self.supervisor_port, timeout=PATIENCE_SECONDS
        )
        try:
            connection.request(method, path, body=body)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def report(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.get("/report")[1])
        return loaded

    def wait_ready(self) -> Running:
        self.wait_listening()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.get("/startup")[0] != http.client.OK:
            assert time.monotonic() < deadline, self.log()
        return self

    def wait_listening(self) -> Running:
        wait_until(
            lambda: _listens(self.supervisor_port) or self.process.poll() is not None, "the supervisor's port"
        )
        assert self.process.poll() is None, self.log()
        return self

    def ask_to_stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        return self.process.wait(PATIENCE_SECONDS)

    def failure(self) -> dict[str, Any]:
        """The termination message."""
        loaded: dict[str, Any] = json.loads((self.folder / "termination").read_bytes())
        return loaded

    def output(self) -> tuple[bytes, bytes]:
        return (self.folder / "stdout").read_bytes(), (self.folder / "stderr").read_bytes()

    def log(self) -> str:
        return b"".join(self.output()).decode(errors="replace")

    def engine_pid(self) -> int:
        """The only child of the supervisor."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="session")
def supervisor_pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("supervisor") / "supervisor.pyz"
    build(path)
    return path


Start = Callable[..., Running]


@pytest.fixture
def start(supervisor_pyz: Path, tmp_path: Path) -> Iterator[Start]:
    """`start(engine_arguments, settings={…}, environment={…})`: the fake engine under the supervisor.

    `command` replaces the fake. Whatever is left at the end of the test is killed.
    """
    started: list[Running] = []

    def begin(
        *arguments: str,
        command: tuple[str, ...] | None = None,
        settings: dict[str, Any] | None = None,
        environment: dict[str, str] | None = None,
    ) -> Running:
        ports = (free_port(), free_port())
        folder = tmp_path / str(len(started))
        folder.mkdir()
        words = command or (*FAKE_COMMAND, "--port", str(ports[0]), *arguments)
        env = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "PYTHONPATH": str(FAKE_ENGINE),
            "LLMSERVICE_TERMINATION_LOG": str(folder / "termination"),
            "LLMSERVICE_SUPERVISOR": json.dumps(_settings(ports, settings or {})),
            **(environment or {}),
        }
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, str(supervisor_pyz), "--", *words], env=env, stdout=out, stderr=err
            )
        started.append(Running(process, ports=ports, folder=folder))
        return started[-1]

    yield begin
    for running in started:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()


def _settings(ports: tuple[int, int], given: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": 1,
        "service": "shop/chat",
        "revision": "chat-0123456789",
        "enginePort": ports[0],
        "supervisorPort": ports[1],
        "drainMinimumSeconds": 0.2,
        "drainTimeoutSeconds": 20,
        **given,
    }

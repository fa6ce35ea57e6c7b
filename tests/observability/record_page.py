"""Records the metrics page of the real CPU engine amid some requests, for tests/observability/pages.

REAL_ENGINE_PYTHON=... REAL_ENGINE_MODEL=... python -m observability.record_page
(`python -m images engine` and `python -m images model` print the two. REAL_ENGINE_PYTHON may be a command with words
before the interpreter, such as one that enters another root. The engine's own variables may be set around it, and
REAL_ENGINE_FLAGS adds flags.)
"""

import http.client
import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from ports import free_port

PAGES = Path(__file__).resolve().parent / "pages"
LOG = Path(tempfile.gettempdir()) / "record-page-engine.log"
START_SECONDS = 600.0
REQUESTS = 24
BATCH = 4
"""Requests that run at once."""
HELD = 6
"""Requests that are there when the page is read: some run, the others wait."""
BUSY_SECONDS = 60.0
_TEXT = "The number of the next line is the sum of those before it. "


def _ask(port: int, path: str, body: object = None) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        given = {"Content-Type": "application/json"}
        connection.request("GET" if body is None else "POST", path, json.dumps(body) if body else None, given)
        return connection.getresponse().read()
    finally:
        connection.close()


def _complete(port: int, place: int) -> None:
    words = _TEXT * (1 + place % 12)
    _ask(port, "/v1/completions", {"model": "smollm2", "prompt": words, "max_tokens": 4 + 3 * (place % 9)})


def _hold(port: int, place: int) -> None:
    """A request that is still there when the page is read; the engine's end ends it."""
    words = _TEXT * (8 + place)
    asked = {"model": "smollm2", "prompt": words, "max_tokens": 1500, "ignore_eos": True}
    with suppress(OSError, http.client.HTTPException):
        _ask(port, "/v1/completions", asked)


def _start(port: int) -> subprocess.Popen[bytes]:
    command = (
        *shlex.split(os.environ["REAL_ENGINE_PYTHON"]),
        *("-m", "vllm.entrypoints.openai.api_server"),
        *("--model", os.environ["REAL_ENGINE_MODEL"], "--served-model-name", "smollm2", "--dtype", "float32"),
        *("--max-model-len", "2048", "--enforce-eager", "--port", str(port), "--host", "127.0.0.1"),
        *("--max-num-seqs", str(BATCH), *shlex.split(os.environ.get("REAL_ENGINE_FLAGS", ""))),
    )
    environ = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1"}
    with LOG.open("wb") as log:
        engine = subprocess.Popen(
            command, env=environ | os.environ, stdout=log, stderr=log, start_new_session=True
        )
    deadline = time.monotonic() + START_SECONDS
    while not _answers(port):
        if engine.poll() is not None or time.monotonic() > deadline:
            _end(engine)
            raise RuntimeError(f"the engine does not answer; its output is in {LOG}")
        time.sleep(1)
    return engine


def _answers(port: int) -> bool:
    try:
        _ask(port, "/health")
    except OSError:
        return False
    return True


def _end(engine: subprocess.Popen[bytes]) -> None:
    """End the engine and the processes that it started."""
    engine.terminate()
    try:
        engine.wait(30)
    except subprocess.TimeoutExpired:
        engine.kill()
    with suppress(ProcessLookupError):
        os.killpg(engine.pid, signal.SIGKILL)


def _busy_page(port: int) -> str:
    """The page while requests run and wait."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        page = _ask(port, "/metrics").decode()
        waiting = re.search(r"^vllm:num_requests_waiting\{[^\n]*\} (.+)$", page, re.MULTILINE)
        if waiting and float(waiting[1]) == HELD - BATCH:
            return page
        if time.monotonic() > deadline:
            raise TimeoutError(f"{HELD} requests neither ran nor waited within {BUSY_SECONDS:.0f} s")
        time.sleep(0.2)


def main() -> None:
    """Start the engine, ask it, keep its page."""
    port = free_port()
    engine = _start(port)
    try:
        version = json.loads(_ask(port, "/version"))["version"]
        with ThreadPoolExecutor(HELD) as clients:
            list(clients.map(lambda place: _complete(port, place), range(REQUESTS)))
            for place in range(HELD):
                clients.submit(_hold, port, place)
            try:
                page = _busy_page(port)
            finally:
                _end(engine)
    finally:
        _end(engine)
    file = PAGES / f"vllm-{version.split('+')[0]}_cpu_smollm2.txt"
    file.write_text(page)
    print(f"{file.name}: {REQUESTS} requests ended, {HELD} are there")


if __name__ == "__main__":
    main()

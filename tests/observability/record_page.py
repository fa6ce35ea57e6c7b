"""Records the metrics page of the real CPU engine after some requests, for tests/observability/pages.

REAL_ENGINE_PYTHON=... REAL_ENGINE_MODEL=... python -m observability.record_page
(`python -m images engine` and `python -m images model` print the two.)
"""

import http.client
import json
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ports import free_port

PAGES = Path(__file__).resolve().parent / "pages"
START_SECONDS = 600.0
REQUESTS = 24
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


def main() -> None:
    """Start the engine, ask it, keep its page."""
    port = free_port()
    command = (
        *(os.environ["REAL_ENGINE_PYTHON"], "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", os.environ["REAL_ENGINE_MODEL"], "--served-model-name", "smollm2", "--dtype", "float32"),
        *("--max-model-len", "2048", "--enforce-eager", "--port", str(port), "--host", "127.0.0.1"),
    )
    environ = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1"}
    engine = subprocess.Popen(
        command, env=os.environ | environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                _ask(port, "/health")
                break
            except OSError:
                if engine.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(1)
        version = json.loads(_ask(port, "/version"))["version"]
        with ThreadPoolExecutor(4) as clients:
            list(clients.map(lambda place: _complete(port, place), range(REQUESTS)))
        page = _ask(port, "/metrics").decode()
    finally:
        engine.terminate()
        engine.wait(60)
    file = PAGES / f"vllm-{version.split('+')[0]}_cpu_smollm2.txt"
    file.write_text(page)
    print(f"{file.name}: {REQUESTS} requests")


if __name__ == "__main__":
    main()

"""Starts of the real engine on a real GPU under the real supervisor; one JSON line a case.

    PYTHONPATH=tests python3 -m gpu.starts CASES.json OUT_FOLDER [FIRST_PORT_OFFSET]

Needs a GPU, an interpreter that imports vLLM (this one), and `supervisor.pyz` beside CASES.json. A case is
{"name", "args": engine arguments, "config": supervisor settings, "hold_gib": memory that a neighbour takes first,
"prompt_tokens", "output_tokens": one request once ready, "speed": what speed.py measures then, "drain": true to stop
it while a stream runs}.
Weights are dummies (`--load-format dummy` in args): memory behaves as with real ones. Standard library only.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from gpu import speed

ENGINE = ["python3", "-m", "vllm.entrypoints.openai.api_server"]
HOLD = """
import torch, time
taken = torch.empty(int({gib} * 2**30), dtype=torch.int8, device="cuda")
print("held", flush=True)
time.sleep(600)
"""


def get(port: int, path: str, timeout_seconds: float = 6) -> tuple[int, str]:
    """Status and body; status 0 where nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=timeout_seconds) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def complete(
    port: int, model: str, prompt_tokens: int, output_tokens: int, *, stream: bool
) -> dict[str, Any]:
    """One completion of made-up tokens; what came of it."""
    prompt = [(7 * i) % 1000 + 5 for i in range(prompt_tokens)]
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": stream,
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    began = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            text = answer.read().decode()
    except (OSError, urllib.error.HTTPError) as error:
        return {"error": repr(error)}
    events = text.count("data: ")
    return {
        "seconds": round(time.monotonic() - began, 3),
        "events": events,
        "done": "[DONE]" in text if stream else True,
    }


def smi() -> str:
    """Name, memory used and total of the GPUs that the engine may use."""
    command = ["nvidia-smi", "--query-gpu=name,memory.used,memory.total", "--format=csv,noheader"]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    command += ["-i", visible] if visible else []
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def wait_ready(process: subprocess.Popen[bytes], port: int, seconds: float) -> str:
    """`ready`, `failed` (a report says so), `exited` or `timeout`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            return "exited"
        status, _ = get(port, "/startup")
        if status == 200:
            return "ready" if get(port, "/ready")[0] == 200 else "failed"
        time.sleep(0.2)
    return "timeout"


def drain(process: subprocess.Popen[bytes], engine_port: int) -> dict[str, Any]:
    """SIGTERM while a stream runs: the stream must end whole."""
    answer: dict[str, Any] = {}
    thread = threading.Thread(
        target=lambda: answer.update(complete(engine_port, "m", 128, 2000, stream=True))
    )
    thread.start()
    time.sleep(2)
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    code = process.wait(timeout=120)
    thread.join()
    return {"stream": answer, "exit_code": code, "seconds": round(time.monotonic() - began, 2)}


def hold(gib: float) -> "subprocess.Popen[bytes]":
    """A neighbour that has taken so much of the card."""
    holder = subprocess.Popen([sys.executable, "-c", HOLD.format(gib=gib)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    return holder


def start(
    case: dict[str, Any], supervisor: Path, out: Path, ports: tuple[int, int]
) -> "subprocess.Popen[bytes]":
    """The engine under the supervisor, its log in the out folder."""
    name, (port, engine_port) = case["name"], ports
    config = {"service": f"gpu/{name}", "revision": name, "enginePort": engine_port, "supervisorPort": port,
              "memoryFailureHoldSeconds": 3, **case.get("config", {})}  # fmt: skip
    environ = os.environ | {
        "LLMSERVICE_SUPERVISOR": json.dumps(config),
        "LLMSERVICE_TERMINATION_LOG": str(out / f"{name}.termination.json"),
    }
    arguments = ["--port", str(engine_port), "--served-model-name", "m", *case["args"]]
    with (out / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, str(supervisor), "--", *ENGINE, *arguments],
            stdout=log, stderr=subprocess.STDOUT, env=environ | case.get("env", {}),
        )  # fmt: skip


def use(
    case: dict[str, Any], process: "subprocess.Popen[bytes]", out: Path, engine_port: int
) -> dict[str, Any]:
    """What is asked of an engine that is ready, and what it took."""
    seen: dict[str, Any] = {
        "request": complete(
            engine_port, "m", case.get("prompt_tokens", 512), case.get("output_tokens", 64), stream=False
        )
    }
    if case.get("speed"):
        seen["speed"] = speed.measure(engine_port, case["speed"])
    seen["smi_after"] = smi()
    (out / f"{case['name']}.metrics.txt").write_text(get(engine_port, "/metrics")[1])
    if case.get("drain"):
        seen["drain"] = drain(process, engine_port)
    return seen


def end(process: "subprocess.Popen[bytes]") -> int:
    """Terminate, then kill; the exit code."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


def run(case: dict[str, Any], supervisor: Path, out: Path, ports: tuple[int, int]) -> dict[str, Any]:
    """One start from launch to end; everything that was seen."""
    holder = hold(case["hold_gib"]) if case.get("hold_gib") else None
    began = time.monotonic()
    process = start(case, supervisor, out, ports)
    record: dict[str, Any] = {"name": case["name"], "args": case["args"], "env": case.get("env", {})}
    try:
        state = wait_ready(process, ports[0], case.get("seconds", 400))
        record |= {"state": state, "seconds": round(time.monotonic() - began, 1), "smi": smi()}
        record["report"] = json.loads(get(ports[0], "/report")[1] or "null")
        if state == "ready":
            record |= use(case, process, out, ports[1])
    finally:
        record["exit_code"] = end(process)
        if holder is not None:
            holder.kill()
            holder.wait()
    termination = out / f"{case['name']}.termination.json"
    record["termination"] = json.loads(termination.read_text()) if termination.exists() else None
    return record


def main() -> int:
    cases_file, out = Path(sys.argv[1]), Path(sys.argv[2])
    first_port = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    supervisor = cases_file.with_name("supervisor.pyz")
    out.mkdir(parents=True, exist_ok=True)
    for index, case in enumerate(json.loads(cases_file.read_text()), start=first_port):
        record = run(case, supervisor, out, (9410 + index, 8000 + index))
        with (out / "records.jsonl").open("a") as lines:
            lines.write(json.dumps(record) + "\n")
        report = record.get("report") or {}
        failure = (report.get("failure") or record.get("termination") or {}).get("class")
        print(
            f"{record['name']}: {record['state']} after {record['seconds']} s, failure {failure}, {record['smi']}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

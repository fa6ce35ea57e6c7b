"""What the fake engine does on command, and the law of its steps: other tests believe it."""

from __future__ import annotations

import http.client
import math
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ports import free_port

from .conftest import ARGUMENTS, SERVED, Engine, _wait_ready, command_of, model_of

LAW = {
    "FAKE_ENGINE_STEP_SECONDS": "0.02",
    "FAKE_ENGINE_STEP_LEAST_TOKEN_SECONDS": "0.03",
    "FAKE_ENGINE_STEP_SECONDS_PER_TOKEN": "0.001",
    "FAKE_ENGINE_STEP_SECONDS_PER_SEQUENCE": "0.005",
    "FAKE_ENGINE_READ_BYTES_PER_STEP": "1000",
}
ASKED = {"model": SERVED, "prompt": "a b", "max_tokens": 4, "ignore_eos": True}


@contextmanager
def fake(folder: Path, *flags: str, **environment: str) -> Iterator[Engine]:
    """A fake engine of its own."""
    command, inherited = command_of("fake", model_of("fake", folder))
    port, log = free_port(), folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--port", str(port), *ARGUMENTS, *flags],
            env={**inherited, **environment}, stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        running = Engine("fake", process, port, log)
        _wait_ready(running, 10)
        yield running
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One that has served a request."""
    with fake(tmp_path_factory.mktemp("fake")) as engine:
        engine.json("POST", "/v1/completions", ASKED)
        yield engine


def set_fault(engine: Engine, text: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=5)
    with closing(connection):
        connection.request("POST", "/fake/fault", text)
        assert connection.getresponse().status == http.client.OK


def page_of(engine: Engine) -> str:
    return engine.request("GET", "/metrics")[1].decode()


def values(page: str, name: str) -> list[float]:
    """Of all samples of that name."""
    return [float(line.rpartition(" ")[2]) for line in page.splitlines() if re.match(rf"{name}[{{ ]", line)]


def test_empty_leaves_the_process_alone(served: Engine) -> None:
    set_fault(served, "metrics-empty")

    page = page_of(served)

    assert "vllm:" not in page
    assert len(values(page, "process_cpu_seconds_total")) == 1


def test_nan_takes_counters_too_if_asked(served: Engine) -> None:
    set_fault(served, "metrics-nan:counters=yes")

    page = page_of(served)

    found = [float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith("vllm:")]
    assert found
    assert all(math.isnan(value) for value in found)


def test_frozen_repeats_one_page_until_it_is_over(served: Engine) -> None:
    set_fault(served, "metrics-frozen")
    before = page_of(served)
    served.json("POST", "/v1/completions", ASKED)

    during = page_of(served)
    set_fault(served, "")

    assert during == before
    assert values(page_of(served), "vllm:generation_tokens_total") > values(
        before, "vllm:generation_tokens_total"
    )


def test_reset_begins_counters_and_histograms_anew(served: Engine) -> None:
    set_fault(served, "")
    before = page_of(served)

    set_fault(served, "metrics-reset")
    after = page_of(served)

    assert values(before, "vllm:generation_tokens_total")[0] >= 4
    assert values(after, "vllm:generation_tokens_total") == [0.0]
    assert values(after, "vllm:time_to_first_token_seconds_count") == [0.0]


def test_cut_closes_the_connection(served: Engine) -> None:
    set_fault(served, "metrics-cut")

    with pytest.raises(http.client.RemoteDisconnected):
        page_of(served)


def test_hang_answers_once_it_is_over(served: Engine) -> None:
    set_fault(served, "metrics-hang")
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n")
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)

        set_fault(served, "")
        connection.settimeout(5)

        assert connection.recv(12) == b"HTTP/1.1 200"


def test_steps_take_what_the_law_says(tmp_path: Path) -> None:
    """100 tokens with 60 a step: 20 + 60 ms, then 20 + 40 + 5; three more tokens take 20 + 30 + 5 ms each."""
    with fake(tmp_path, "--max-num-batched-tokens=60", "--enable-mfu-metrics", **LAW) as engine:
        status, _ = engine.json("POST", "/v1/completions", {**ASKED, "prompt": "a " * 100})
        page = page_of(engine)

    assert status == http.client.OK
    assert values(page, "vllm:time_to_first_token_seconds_sum")[0] == pytest.approx(0.145, abs=0.01)
    assert values(page, "vllm:request_time_per_output_token_seconds_sum")[0] == pytest.approx(0.055, abs=1e-6)
    assert values(page, "vllm:estimated_read_bytes_per_gpu_total") == [4 * 1000.0]


def test_prompts_share_a_step_with_what_decodes(tmp_path: Path) -> None:
    """Beside a long prompt's 59 tokens a step a decoding sequence waits 20 + 60 + 5 ms for each of its own."""
    with fake(tmp_path, "--max-num-batched-tokens=60", **LAW) as engine:
        first = threading.Thread(
            target=engine.json, args=("POST", "/v1/completions", {**ASKED, "max_tokens": 9})
        )
        first.start()
        while not values(page_of(engine), "vllm:generation_tokens_total")[0]:
            pass
        engine.json("POST", "/v1/completions", {**ASKED, "prompt": "a " * 590, "max_tokens": 1})
        first.join()
        page = page_of(engine)

    gaps = values(page, "vllm:inter_token_latency_seconds_sum")[0]
    count = values(page, "vllm:inter_token_latency_seconds_count")[0]
    assert count == 8
    assert 7 * 0.085 + 0.055 - 0.06 <= gaps <= 8 * 0.085 + 0.001

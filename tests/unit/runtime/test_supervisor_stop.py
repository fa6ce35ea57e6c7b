"""The supervisor from the outside: serving, stopping, dying, and what is left behind."""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .conftest import Running, Start, wait_until

OK, UNAVAILABLE = http.client.OK, http.client.SERVICE_UNAVAILABLE
SLOW = {"FAKE_ENGINE_TPOT_SECONDS": "0.05"}


class Stream:
    """A completion that streams, read in a thread."""

    def __init__(self, running: Running, tokens: int) -> None:
        self.text = b""
        self._connection = http.client.HTTPConnection("127.0.0.1", running.engine_port, timeout=30)
        self._connection.request("POST", "/v1/completions", body=_completion(tokens, stream=True))
        self._response = self._connection.getresponse()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        wait_until(lambda: b"data:" in self.text, "the first token")

    def _read(self) -> None:
        try:
            while chunk := self._response.read1(65536):
                self.text += chunk
        except (OSError, http.client.HTTPException):
            return

    def join(self) -> Stream:
        self._thread.join(30)
        self._connection.close()
        return self

    @property
    def tokens(self) -> int:
        return self.text.count(b'"text"')

    @property
    def complete(self) -> bool:
        return self.text.rstrip().endswith(b"data: [DONE]")


def _completion(tokens: int, *, stream: bool = False) -> str:
    return json.dumps({"prompt": "a b c", "max_tokens": tokens, "ignore_eos": True, "stream": stream})


@contextmanager
def keep_alive(running: Running) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", running.engine_port, timeout=30)
    try:
        yield connection
    finally:
        connection.close()


def complete(connection: http.client.HTTPConnection, tokens: int = 2) -> int:
    connection.request("POST", "/v1/completions", body=_completion(tokens))
    response = connection.getresponse()
    response.read()
    return response.status


def test_a_running_stream_is_served_to_its_end(start: Start) -> None:
    running = start(environment=SLOW).wait_ready()
    stream = Stream(running, 60)

    running.ask_to_stop()

    wait_until(lambda: running.get("/ready")[0] == UNAVAILABLE, "not ready", patience_seconds=0.5)
    assert running.wait() == 0
    assert stream.join().complete
    assert stream.tokens == 60
    assert running.failure()["class"] == "Stopped"


def test_a_keep_alive_client_is_served_while_the_cluster_still_sends(start: Start) -> None:
    running = start(settings={"drainMinimumSeconds": 2}).wait_ready()
    statuses = []
    with keep_alive(running) as connection:
        complete(connection)
        running.ask_to_stop()
        began = time.monotonic()
        while time.monotonic() < began + 1.8:
            statuses.append(complete(connection))

    assert running.wait() == 0
    assert set(statuses) == {OK}
    assert len(statuses) > 10


def test_new_connections_arrive_until_the_minimum_is_over(start: Start) -> None:
    """With the last replica gone from the endpoints, clients that resolved it before still come."""
    running = start(settings={"drainMinimumSeconds": 1.5}).wait_ready()
    running.ask_to_stop()
    began = time.monotonic()
    statuses = []
    while time.monotonic() < began + 1.3:
        with keep_alive(running) as connection:
            statuses.append(complete(connection))

    assert running.wait() == 0
    assert set(statuses) == {OK}


def test_idle_is_believed_on_two_readings_a_second_apart(start: Start) -> None:
    running = start(settings={"drainMinimumSeconds": 0}).wait_ready()
    began = time.monotonic()

    running.ask_to_stop()

    assert running.wait() == 0
    assert 1.0 <= time.monotonic() - began < 9.0  # the slow readings of serving are ten seconds apart


def test_after_the_drain_timeout_the_rest_is_cut_and_said(start: Start) -> None:
    running = start(settings={"drainTimeoutSeconds": 1.5}, environment=SLOW).wait_ready()
    stream = Stream(running, 10_000 - 2000)

    running.ask_to_stop()

    assert running.wait() == 1
    assert not stream.join().complete
    assert running.failure()["class"] == "Stopped"
    assert running.failure()["message"] == "drain timeout passed with 1 requests in flight"


def test_the_engines_own_drain_gets_the_grace_after_the_timeout(start: Start) -> None:
    running = start(
        "--shutdown-timeout", "10",
        settings={"drainTimeoutSeconds": 1, "stopGraceSeconds": 10},
        environment=SLOW,
    ).wait_ready()  # fmt: skip
    stream = Stream(running, 60)

    running.ask_to_stop()
    running.wait()

    assert stream.join().complete


def test_asked_twice_the_streams_still_run_to_their_end(start: Start) -> None:
    running = start(environment=SLOW).wait_ready()
    stream = Stream(running, 50)

    running.ask_to_stop()
    wait_until(lambda: running.report()["phase"] == "Draining", "the drain")
    running.ask_to_stop()

    assert running.wait() == 0
    assert stream.join().complete


@pytest.mark.parametrize(
    "fault", ["metrics-nan", "metrics-off", "metrics-missing:series=vllm:num_requests_waiting"]
)
def test_a_load_that_cannot_be_read_is_not_taken_for_none(start: Start, fault: str) -> None:
    running = start(
        settings={"drainTimeoutSeconds": 3}, environment={"FAKE_ENGINE_FAULT": fault}
    ).wait_ready()
    began = time.monotonic()

    running.ask_to_stop()
    running.wait()

    assert time.monotonic() - began >= 3
    assert running.failure()["message"] == "drain timeout passed with an unknown number of requests in flight"


def test_a_hung_engine_is_not_alive(start: Start) -> None:
    running = start(
        settings={"hangSeconds": 2}, environment={**SLOW, "FAKE_ENGINE_FAULT": "hang:tokens=5"}
    ).wait_ready()
    stream = Stream(running, 100)

    wait_until(lambda: running.get("/live")[0] == UNAVAILABLE, "not alive")

    assert running.request("GET", "/health", port=running.engine_port)[0] == OK
    assert "1 requests run and no token has come" in running.get("/live")[1]
    running.ask_to_stop()
    assert running.wait() == 1
    stream.join()
    assert running.failure()["class"] == "Hung"


def test_a_hang_in_the_first_step_is_seen_where_the_server_tracks_its_load(start: Start) -> None:
    """The core's gauges move when a step ends; this one never does."""
    running = start(
        "--enable-server-load-tracking",
        settings={"hangSeconds": 1.5},
        environment={"FAKE_ENGINE_FAULT": "hang:tokens=0"},
    ).wait_ready()
    with keep_alive(running) as connection:
        connection.request("POST", "/v1/completions", body=_completion(5))

        wait_until(lambda: running.get("/live")[0] == UNAVAILABLE, "not alive")

    assert "1 requests run and no token has come" in running.get("/live")[1]


def test_an_engine_that_hangs_while_it_drains_is_not_waited_for(start: Start) -> None:
    running = start(
        settings={"hangSeconds": 1.5, "drainTimeoutSeconds": 600},
        environment={**SLOW, "FAKE_ENGINE_FAULT": "hang:tokens=20"},
    ).wait_ready()
    stream = Stream(running, 100)

    running.ask_to_stop()

    assert running.wait() == 1
    stream.join()
    assert running.failure()["class"] == "Hung"


def test_a_hung_engine_is_not_waited_for(start: Start) -> None:
    running = start(
        settings={"hangSeconds": 1, "drainTimeoutSeconds": 600}, environment={"FAKE_ENGINE_FAULT": "hang"}
    ).wait_ready()
    with keep_alive(running) as connection:
        connection.request("POST", "/v1/completions", body=_completion(5))
        wait_until(lambda: running.get("/live")[0] == UNAVAILABLE, "not alive")

        running.ask_to_stop()

        assert running.wait() == 1


def test_a_busy_engine_is_alive(start: Start) -> None:
    running = start(
        settings={"hangSeconds": 1.5}, environment={"FAKE_ENGINE_TPOT_SECONDS": "0.3"}
    ).wait_ready()
    stream = Stream(running, 12)

    seen = set()
    while not stream.complete:
        seen.add(running.get("/live")[0])
        time.sleep(0.1)

    stream.join()
    assert seen == {OK}


def test_an_engine_that_dies_with_exit_code_0_has_failed(start: Start) -> None:
    running = start(environment={"FAKE_ENGINE_FAULT": "exit-zero:after=0.3"}).wait_ready()

    assert running.wait() == 1
    failure = running.failure()
    assert (failure["class"], failure["stage"], failure["exitCode"]) == ("EngineDied", "serving", 0)


def test_out_of_memory_while_serving_is_not_held(start: Start) -> None:
    running = start(environment={"FAKE_ENGINE_FAULT": "oom-serving:requests=1"}).wait_ready()
    with keep_alive(running) as connection:
        complete(connection)

    assert running.wait() == 1
    assert (running.failure()["class"], running.failure()["stage"]) == ("OutOfMemory", "serving")


def test_a_kill_is_told_from_an_exit(start: Start) -> None:
    running = start(environment={"FAKE_ENGINE_FAULT": "sigkill:after=0.2"}).wait_ready()

    assert running.wait() == 1
    failure = running.failure()
    assert (failure["signal"], failure["exitCode"]) == (signal.SIGKILL, None)
    assert failure["class"] in {
        "HostOutOfMemory",
        "Signal",
    }  # by whether this machine lets kernel kills be counted


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGQUIT])
def test_other_signals_reach_the_engine(start: Start, number: signal.Signals) -> None:
    script = f"""
        import signal, sys, time
        signal.signal({int(number)}, lambda *_: sys.exit(42))
        print("armed", flush=True)
        time.sleep(60)
    """
    running = start(command=(sys.executable, "-c", textwrap.dedent(script)))
    wait_until(lambda: b"armed" in running.output()[0], "the engine")

    running.process.send_signal(number)

    assert running.wait() == 42


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def test_a_worker_does_not_outlive_its_engine(start: Start) -> None:
    running = start(environment={"FAKE_ENGINE_WORKER_PROCESS": "true"}).wait_ready()
    engine = running.engine_pid()
    (worker,) = _children(engine)

    os.kill(engine, signal.SIGKILL)

    assert running.wait() == 1
    assert not _alive(worker)


def test_the_engine_does_not_outlive_a_killed_supervisor(start: Start) -> None:
    running = start().wait_ready()
    engine = running.engine_pid()

    running.process.kill()
    running.process.wait()

    wait_until(lambda: not _alive(engine), "the engine's end")


def test_what_the_engine_leaves_behind_is_reaped(start: Start) -> None:
    script = """
        import os, time
        for _ in range(20):
            if os.fork() == 0:
                if os.fork() == 0:
                    os._exit(0)   # an orphan, and soon a zombie of whoever inherits it
                os._exit(0)
            os.wait()
        print("forked", flush=True)
        time.sleep(60)
    """
    running = start(command=(sys.executable, "-c", textwrap.dedent(script)))
    wait_until(lambda: b"forked" in running.output()[0], "the forks")

    wait_until(lambda: len(_children(running.process.pid)) == 1, "only the engine is left")


def test_output_passes_through_byte_by_byte(start: Start, tmp_path: Path) -> None:
    out = (
        b"plain\n\xff\xfe not utf-8 \x00\n" + b"long " * 60_000 + b"\n\rbar 1%\rbar 2%\nno newline at the end"
    )
    err = b"\x80\n" * 1000 + b"\xe2\x82"
    (tmp_path / "out").write_bytes(out)
    (tmp_path / "err").write_bytes(err)
    running = start(command=("sh", "-c", f"cat {tmp_path}/out; cat {tmp_path}/err >&2"))
    running.wait()

    stdout, stderr = running.output()
    assert stdout == out
    assert err in stderr


def test_output_is_not_held_back(start: Start) -> None:
    script = "import os, time; os.write(1, b'begin without an end of line'); time.sleep(60)"
    running = start(command=(sys.executable, "-c", script))

    wait_until(lambda: running.output()[0] == b"begin without an end of line", "the text")


def test_a_flood_of_log_does_not_fill_memory(start: Start) -> None:
    script = """
        import os, time
        line = b"x" * 65536
        for _ in range(1600):          # 100 MiB in one line
            view = memoryview(line)
            while view:
                view = view[os.write(1, view):]
        os.write(1, b"\\nwritten")
        time.sleep(60)
    """
    running = start(command=(sys.executable, "-c", textwrap.dedent(script)))
    wait_until(lambda: (running.folder / "stdout").stat().st_size >= 1600 * 65536, "the flood")

    status = Path(f"/proc/{running.process.pid}/status").read_text()

    resident_kib = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
    assert resident_kib < 64 * 1024

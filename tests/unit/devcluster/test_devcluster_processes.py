"""Processes are found again, and no other is ever mistaken for one."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster import processes
from devcluster.processes import ProcessId


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Path]:
    """The record of a sleeping process that carries the marker of ``tmp_path``."""
    path = tmp_path / "record"
    environ = {"PATH": os.environ["PATH"], processes.MARKER: str(tmp_path), processes.COMPONENT: "sleeper"}
    process = processes.spawn(["sleep", "600"], record=path, log=tmp_path / "log", environ=environ)
    wait_for(lambda: processes.read_record(path) is not None)
    yield path
    assert processes.kill_all([process]) == []


def wait_for(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_record_leads_to_the_process_itself(record: Path) -> None:
    """Not to the shell that started it."""
    process = processes.read_record(record)

    assert process is not None
    wait_for(lambda: Path(f"/proc/{process.pid}/cmdline").read_bytes() == b"sleep\x00600\x00")


def test_recycled_pid_is_not_the_process(record: Path) -> None:
    """Same pid, other start time: another process."""
    pid, start, boot = record.read_text().split()
    record.write_text(f"{pid} {int(start) - 1} {boot}\n")

    assert processes.read_record(record) is None


def test_record_of_an_earlier_boot_is_no_process(record: Path) -> None:
    pid, start, _ = record.read_text().split()
    record.write_text(f"{pid} {start} 00000000-0000-0000-0000-000000000000\n")

    assert processes.read_record(record) is None


def test_signal_to_a_recycled_pid_is_not_sent(record: Path) -> None:
    process = processes.read_record(record)
    assert process is not None

    sent = ProcessId(process.pid, process.start_ticks + 1).signal(signal.SIGKILL)

    assert not sent
    assert process.alive()


def test_marked_process_is_found_with_its_component(record: Path) -> None:
    process = processes.read_record(record)

    assert processes.marked(str(record.parent)) == {process: "sleeper"}


def test_marker_of_another_cluster_finds_nothing(record: Path) -> None:
    assert processes.marked(f"{record.parent}x") == {}


def test_stopped_process_is_told(record: Path) -> None:
    process = processes.read_record(record)
    assert process is not None

    process.signal(signal.SIGSTOP)

    wait_for(process.stopped)


def test_zombie_is_not_alive() -> None:
    """It holds no port and no file any more."""
    child = subprocess.Popen(["true"])
    process = processes.identify(child.pid)
    assert process is not None

    wait_for(lambda: not process.alive())
    child.wait()

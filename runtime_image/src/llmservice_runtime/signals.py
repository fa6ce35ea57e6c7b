"""Signals as something to wait for: the main loop's one place to sleep."""

from __future__ import annotations

import os
import select
import signal
from types import FrameType

STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})
FORWARDED_SIGNALS = frozenset({signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2})
_WAKE = 0  # no signal has this number


class Wakeup:
    """A pipe that signals and other threads write to; `wait` sleeps on it."""

    def __init__(self) -> None:
        """Catch the signals; call it in the main thread before anything is started."""
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        for number in {*STOP_SIGNALS, *FORWARDED_SIGNALS, signal.SIGCHLD}:
            signal.signal(number, _noted)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def wake(self) -> None:
        """Let the main loop look again; from any thread."""
        try:
            os.write(self._write, bytes([_WAKE]))
        except BlockingIOError:
            return  # it has plenty to wake up for

    def wait(self, timeout_seconds: float) -> list[int]:
        """The signals that came; waits for one, or a `wake`, at most that long."""
        ready, _, _ = select.select([self._read], [], [], max(0.0, timeout_seconds))
        if not ready:
            return []
        try:
            received = os.read(self._read, 4096)
        except BlockingIOError:
            return []
        return [number for number in received if number != _WAKE]


def _noted(number: int, frame: FrameType | None) -> None:
    """The number is already in the pipe; this handler only keeps the default action away."""

"""Passes a stream of the engine through, byte by byte, and reads along."""

from __future__ import annotations

import os
import threading
from typing import Callable

from llmservice_runtime.log_lines import LineSplitter

_CHUNK_BYTES = 64 * 1024


class LogPump(threading.Thread):
    """Copies `source` to `target` as it comes and gives each line to `on_line` afterwards.

    The copy comes first, so reading along adds no delay. Writing blocks when the target does, as it would
    without us: nothing piles up here. When the target is gone the stream is read on, since an engine must
    not die of its log.
    """

    def __init__(self, source: int, target: int, on_line: Callable[[str], None]) -> None:
        super().__init__(daemon=True, name=f"log-pump-{target}")
        self._source, self._target, self._on_line = source, target, on_line
        self._target_open = True

    def run(self) -> None:
        splitter = LineSplitter()
        while True:
            try:
                chunk = os.read(self._source, _CHUNK_BYTES)
            except OSError:
                chunk = b""
            if not chunk:
                break
            self._write(chunk)
            for line in splitter.feed(chunk):
                self._on_line(line)
        for line in splitter.close():
            self._on_line(line)

    def _write(self, chunk: bytes) -> None:
        view = memoryview(chunk)
        while view and self._target_open:
            try:
                view = view[os.write(self._target, view) :]
            except OSError:
                self._target_open = False

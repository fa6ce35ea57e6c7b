"""Log lines in vLLM's form (vllm/logger.py): prefix of process, level, time, file and line; standard output."""

from __future__ import annotations

import os
import sys
import time


class Log:
    """Writes lines of one of vLLM's processes."""

    def __init__(self, process: str, pid: int | None = None) -> None:
        self._prefix = f"({process} pid={pid or os.getpid()}) "

    def info(self, where: str, text: str) -> None:
        self._write("INFO", where, text)

    def warning(self, where: str, text: str) -> None:
        self._write("WARNING", where, text)

    def error(self, where: str, text: str) -> None:
        for line in text.split("\n"):
            self._write("ERROR", where, line)

    def raw(self, text: str) -> None:
        """Lines that Python printed, with only the process in front."""
        for line in text.split("\n"):
            print(f"{self._prefix}{line}", file=sys.stderr, flush=True)

    def _write(self, level: str, where: str, text: str) -> None:
        stamp = time.strftime("%m-%d %H:%M:%S")
        print(f"{self._prefix}{level} {stamp} [{where}] {text}", flush=True)


def traceback(last: str) -> str:
    """A traceback's outline that ends in `last`."""
    return f'Traceback (most recent call last):\n  File "<fake>", line 1, in <module>\n{last}'

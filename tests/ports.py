"""Ports of the loopback for tests that run side by side.

A port that the kernel gives (`bind` to 0) and that is let go again may be given to another process before the server
under test takes it: as its own listener or as the near end of any connection. So these lie below the range that the
kernel gives from, each worker of pytest has a thousand of its own, and none is given twice in a row.
"""

import itertools
import os
import re
import socket

_FIRST, _PER_WORKER, _WORKERS = 12_000, 1_000, 8
_worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0) % _WORKERS
_next = itertools.cycle(
    range(_FIRST + _worker * _PER_WORKER + os.getpid() % 500, _FIRST + (_worker + 1) * _PER_WORKER)
)


def free_port() -> int:
    """A port that nobody listens on."""
    for port in itertools.islice(_next, _PER_WORKER):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no port is free from {_FIRST + _worker * _PER_WORKER} on")

"""Tells a hung engine from a busy one and from an idle one. Pure: readings and the time are passed in."""

from __future__ import annotations


class HangDetector:
    """Hung: requests run and for `hang_seconds` no token was made or read; or /health was silent for as long.

    A reading that could not be taken says nothing about progress, so it neither starts nor ends a hang.
    """

    def __init__(self, hang_seconds: float) -> None:
        self._limit = hang_seconds
        self._tokens: float | None = None
        self._stalled_since: float | None = None
        self._silent_since: float | None = None
        self._running = 0.0

    def read_metrics(self, now: float, *, running: float | None, tokens: float | None) -> None:
        """`running` requests and the engine's sum of token counters, as of `now`."""
        if running is None or tokens is None:
            return
        moved = self._tokens is None or tokens != self._tokens
        self._tokens, self._running = tokens, running
        if running <= 0 or moved:
            self._stalled_since = now if running > 0 else None
        elif self._stalled_since is None:
            self._stalled_since = now

    def read_health(self, now: float, *, answered: bool) -> None:
        """Whether /health gave any answer."""
        if answered:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = now

    def hung(self, now: float) -> str | None:
        """Why the engine counts as hung, or None."""
        if self._limit <= 0:
            return None
        if self._stalled_since is not None and now - self._stalled_since >= self._limit:
            return (
                f"{self._running:g} requests run and no token has come for "
                f"{now - self._stalled_since:.0f} s (limit {self._limit:g} s)"
            )
        if self._silent_since is not None and now - self._silent_since >= self._limit:
            return (
                f"/health has not answered for {now - self._silent_since:.0f} s (limit {self._limit:g} s) "
                "while the engine's process lives"
            )
        return None

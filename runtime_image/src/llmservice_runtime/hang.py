"""Tells a hung engine from a busy one and from an idle one. Pure: readings and the time are passed in."""

from __future__ import annotations

_HTTP_OK = 200


class HangDetector:
    """Hung: requests run and for `hang_seconds` no token was made or read; or /health was not well for as long.

    Requests that only the API server knows of count once they came after the last token: what was there before may
    be an answer that its client does not read, and such an engine is idle.

    A dead core behind a living API server answers 503 (vLLM with VLLM_KEEP_ALIVE_ON_ENGINE_DEATH=1).

    A reading that could not be taken says nothing about progress, so it neither starts nor ends a hang.
    """

    def __init__(self, hang_seconds: float) -> None:
        self._limit = hang_seconds
        self._tokens: float | None = None
        self._stalled_since: float | None = None
        self._unwell_since: float | None = None
        self._health: int | None = None
        self._running = 0.0
        self._accepted_before = 0.0

    def read_metrics(
        self, now: float, *, running: float | None, tokens: float | None, accepted: float = 0.0
    ) -> None:
        """`running` and `accepted` requests and the engine's sum of token counters, as of `now`."""
        if running is None or tokens is None:
            return
        first = self._tokens is None
        moved = first or tokens != self._tokens
        # Before the first reading no token can have come without being counted here: all of it is new.
        self._accepted_before = accepted if moved and not first else min(self._accepted_before, accepted)
        busy = max(running, accepted - self._accepted_before)
        self._tokens, self._running = tokens, busy
        if busy <= 0 or moved:
            self._stalled_since = now if busy > 0 else None
        elif self._stalled_since is None:
            self._stalled_since = now

    def read_health(self, now: float, code: int | None) -> None:
        """The status code of /health; None: no answer."""
        self._health = code
        if code == _HTTP_OK:
            self._unwell_since = None
        elif self._unwell_since is None:
            self._unwell_since = now

    def hung(self, now: float) -> str | None:
        """Why the engine counts as hung, or None."""
        if self._limit <= 0:
            return None
        if self._stalled_since is not None and now - self._stalled_since >= self._limit:
            return (
                f"{self._running:g} requests run and no token has come for "
                f"{now - self._stalled_since:.0f} s (limit {self._limit:g} s)"
            )
        if self._unwell_since is not None and now - self._unwell_since >= self._limit:
            how = "not answered" if self._health is None else f"answered {self._health}"
            return (
                f"/health has {how} for {now - self._unwell_since:.0f} s (limit {self._limit:g} s) "
                "while the engine's process lives"
            )
        return None

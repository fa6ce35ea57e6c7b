"""Bytes of a stream cut into lines for reading along. What is passed through is never touched by this."""

from __future__ import annotations

MAX_LINE_BYTES = 4 * 1024  # what matters stands at the beginning, and reading along must stay cheap


class LineSplitter:
    r"""Collects chunks into lines, ended by `\n` or by the `\r` of a progress bar.

    A line longer than `MAX_LINE_BYTES` is given once, cut there, and its rest is dropped, so that memory is
    bounded whatever the engine prints. Invalid UTF-8 becomes replacement characters.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._dropping = False

    def feed(self, chunk: bytes) -> list[str]:
        """The lines that `chunk` completes, without their ends; empty lines are left out."""
        lines: list[str] = []
        pieces = chunk.replace(b"\r", b"\n").split(b"\n")
        for index, piece in enumerate(pieces):
            self._hold(piece)
            if index < len(pieces) - 1:
                self._end(lines)
        if len(self._held) >= MAX_LINE_BYTES and not self._dropping:
            lines.append(_text(bytes(self._held[:MAX_LINE_BYTES])))
            self._held.clear()
            self._dropping = True
        if chunk[:1] == b"\r" and self._held:
            # A progress bar's text ends with the next one, which may be minutes away: it is given as it stands.
            lines.append(_text(bytes(self._held)))
        return lines

    def close(self) -> list[str]:
        """What is left when the stream ends without a line end."""
        lines: list[str] = []
        self._end(lines)
        return lines

    def _hold(self, piece: bytes) -> None:
        if not self._dropping:
            self._held += piece[: MAX_LINE_BYTES - len(self._held)]

    def _end(self, lines: list[str]) -> None:
        if self._held and not self._dropping:
            lines.append(_text(bytes(self._held)))
        self._held.clear()
        self._dropping = False


def _text(line: bytes) -> str:
    return line.decode("utf-8", errors="replace")

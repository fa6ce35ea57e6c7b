"""Logs as JSON, one object a line, with one canonical line per reconcile. Secrets are never written."""

import json
import logging
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

SECRETS = re.compile(
    r"(?:\bhf_[A-Za-z0-9]{8,}|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|(?<=[Bb]earer )\S+|(?<=[Bb]asic )\S{8,})"
)
"""Hub tokens, JSON web tokens (service accounts), and what follows `Bearer` or `Basic`."""
_OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_fields: ContextVar[dict[str, Any] | None] = ContextVar("reconcile_fields", default=None)


def start_line() -> dict[str, Any]:
    """Begin the canonical line of one reconcile; the fields are collected until it is written."""
    fields: dict[str, Any] = {}
    _fields.set(fields)
    return fields


def add_fields(**fields: Any) -> None:
    """Add to the canonical line of the reconcile that runs now, if one does."""
    current = _fields.get()
    if current is not None:
        current.update(fields)


def redact(text: str) -> str:
    """The text without anything that looks like a credential."""
    return SECRETS.sub("***", text)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, msg, and the record's extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line. What JSON cannot hold is written as its text."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        # `fields` may hold names that a log record has already taken for itself, such as `created`.
        extra = {k: v for k, v in vars(record).items() if k not in _OWN_FIELDS}
        line |= {**extra.pop("fields", {}), **extra}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return redact(json.dumps(line, default=str, ensure_ascii=False))


def set_up(level: str, stream: TextIO | None = None) -> None:
    """All logs to one stream (default: standard error), as JSON. kopf speaks only when something is wrong."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in ("kopf", "aiohttp", "httpx", "httpcore", "asyncio"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))

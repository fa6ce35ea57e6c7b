"""`llmservice run`: the operator as a process."""

import asyncio
import gc
import logging
import sys
from typing import Any

from llmservice_operator import app
from llmservice_operator.errors import InvalidInputError, LLMServiceError
from llmservice_operator.settings import Settings, read_settings
from llmservice_operator.telemetry.log import set_up
from llmservice_operator.version import __version__

logger = logging.getLogger(__name__)


def add_parser(subparsers: Any) -> None:
    """Add the subcommand: all its settings are environment variables."""
    parser = subparsers.add_parser("run", help="run the operator; settings are LLMSERVICE_* variables")
    parser.set_defaults(run=lambda _arguments: run())


def run() -> int:
    """Read the settings from the environment and run until SIGTERM. Returns the exit code."""
    try:
        settings = read_settings()
    except InvalidInputError as e:
        sys.stderr.write(f"{e}\n")
        return 2
    set_up(settings.log_level)
    return asyncio.run(_run(settings))


async def _run(settings: Settings) -> int:
    logger.info("starting", extra={"version": __version__, "namespaces": settings.watch_namespaces})
    # What was imported lives as long as the process; looking at it again and again costs a tenth of a core.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    try:
        return await app.Operator(settings).run()
    except (LLMServiceError, OSError) as e:
        logger.error("cannot run", extra={"error": str(e)})  # noqa: TRY400  the message says it all
        return 1

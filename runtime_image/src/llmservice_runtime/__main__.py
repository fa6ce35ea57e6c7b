"""`python3 supervisor.pyz -- <engine command>`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from llmservice_runtime.classifier import Failure
from llmservice_runtime.clock import SystemClock
from llmservice_runtime.config import CONFIG_VARIABLE, Config, ConfigError, parse_config, split_command
from llmservice_runtime.supervisor import EXIT_FAILED, Supervisor, write_termination

TERMINATION_VARIABLE = "LLMSERVICE_TERMINATION_LOG"


def main() -> int:
    """Read the environment once and run."""
    termination_log = Path(os.environ.get(TERMINATION_VARIABLE, "/dev/termination-log"))
    try:
        config = parse_config(os.environ.get(CONFIG_VARIABLE))
        command = split_command(sys.argv[1:])
    except ConfigError as error:
        print(f"(Supervisor) {error}", file=sys.stderr, flush=True)
        write_termination(
            termination_log, Config(service="", revision=""), Failure("Unknown", str(error), "import")
        )
        return EXIT_FAILED
    return Supervisor(config, command, dict(os.environ), SystemClock(), termination_log=termination_log).run()


if __name__ == "__main__":
    sys.exit(main())

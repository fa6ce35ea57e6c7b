"""The command `llmservice`.

Each subcommand's module is imported only when it is called: `plan` must not wait for the operator's own imports.
"""

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Sequence

from llmservice_operator.version import __version__

COMMANDS = {
    "estimate": (
        "llmservice_operator.cli_estimate",
        "memory and speed of the engine with given arguments, offline",
    ),
    "explain": ("llmservice_operator.cli_explain", "tell the plan of an LLMService in prose, offline"),
    "plan": ("llmservice_operator.cli_plan", "print the plan of an LLMService, offline"),
    "run": ("llmservice_operator.cli_run", "run the operator"),
    "simulate": (
        "llmservice_operator.cli_simulate",
        "play a load on a simulated fleet of an LLMService, offline",
    ),
}
"""Subcommand → (module, what it does). A module has `add_parser(subparsers)`, which sets the default `run`."""

INTERRUPTED = 130
"""As shells have it: 128 and the number of SIGINT."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the subcommand that the arguments name; return the exit code."""
    # Without plugins, pydantic needn't look through every installed package for them.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        prog="llmservice", description="Sizes, serves, scales and explains LLM inference on Kubernetes."
    )
    parser.add_argument("--version", action="version", version=f"llmservice {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    command = next((each for each in given if not each.startswith("-")), "")
    if command in COMMANDS:
        # What imports make lives as long as the process: looking for garbage in it is a tenth of a short command.
        gc.disable()
        importlib.import_module(COMMANDS[command][0]).add_parser(subparsers)
        gc.enable()
    else:
        for name, (_, text) in COMMANDS.items():
            subparsers.add_parser(name, help=text)
    parsed = parser.parse_args(given)
    try:
        return int(parsed.run(parsed))
    except KeyboardInterrupt:
        print("llmservice: interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())

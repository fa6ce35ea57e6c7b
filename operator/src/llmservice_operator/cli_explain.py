"""`llmservice explain`: the plan in prose, and a bar of the accelerator's memory, for a person."""

import argparse
import shutil
import sys
from typing import Any

from llmservice_operator.cli_documents import print_while_read
from llmservice_operator.cli_plan import REFUSED, UNUSABLE, add_inputs, plan_file
from llmservice_operator.errors import InvalidInputError
from llmservice_operator.planning.prose import tell, tell_refusal
from llmservice_operator.planning.types import Refusal

NARROWEST, WIDEST = 50, 110
"""Columns: below the first the legend breaks, beyond the second lines are hard to read."""


def add_parser(subparsers: Any) -> None:
    """Add `explain` to the command's subcommands."""
    parser = subparsers.add_parser(
        "explain",
        help="tell the plan of an LLMService in prose, offline",
        description="Tell the plan of each LLMService in a file as a person would, with a bar of the accelerator's "
        "memory as wide as the terminal. Exit code 1: refused, with the reason; 2: the file can't be used.",
    )
    add_inputs(parser)
    parser.add_argument("--width", type=_width, default=None, help="columns, in place of the terminal's")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Plan every LLMService of the file and tell it."""
    width = arguments.width or max(NARROWEST, min(WIDEST, shutil.get_terminal_size((100, 24)).columns))
    try:
        results = plan_file(arguments)
        texts = [
            tell_refusal(name, result, width=width)
            if isinstance(result, Refusal)
            else tell(name, result, width=width)
            for name, result in results
        ]
        print_while_read(lambda: print("\n".join(texts), end=""))
    except (InvalidInputError, OSError) as error:
        print(f"llmservice explain: {error}", file=sys.stderr)
        return UNUSABLE
    return REFUSED if any(isinstance(result, Refusal) for _, result in results) else 0


def _width(text: str) -> int:
    if not text.isdecimal() or not NARROWEST <= int(text[:9]) <= 1000:
        raise argparse.ArgumentTypeError(f"{text}: {NARROWEST} to 1000 columns are expected")
    return int(text)

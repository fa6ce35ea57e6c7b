"""`python -m images`: progress goes to standard error, results (one path a line) to standard output."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from images.engine import engine_python
from images.errors import ImagesError
from images.layout import ROOT
from images.model import default_folder, make
from images.recipes import recipes
from images.store import build


def parser(names: Sequence[str]) -> argparse.ArgumentParser:
    """The command's arguments; `names` are the images there are."""
    top = argparse.ArgumentParser(prog="python -m images", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    one = commands.add_parser(
        "build", help="build an image unless its archive is in the cache; prints the archive"
    )
    one.add_argument("image", choices=(*names, "all"))
    model = commands.add_parser("model", help="make the demo's model unless it is there; prints its folder")
    model.add_argument("out", type=Path, nargs="?", help="the folder to make (default: in the cache)")
    commands.add_parser("engine", help="install the real engine on this machine; prints its interpreter")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 1 if it failed, with the reason on standard error."""
    every = recipes(ROOT)
    arguments = parser(tuple(every)).parse_args(argv)
    try:
        if arguments.command == "build":
            all_of_them = [recipe for recipe in every.values() if not recipe.on_request]
            wanted = all_of_them if arguments.image == "all" else [every[arguments.image]]
            print(*build(wanted), sep="\n")
        elif arguments.command == "model":
            print(make((arguments.out or default_folder()).resolve()))
        else:
            print(engine_python())
    except (ImagesError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0

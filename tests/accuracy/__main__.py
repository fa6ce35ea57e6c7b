"""How far the model of the engine is from what engines did.

    python -m accuracy [memory|field|speed ...] [--write]     from tests/; without a name all of them

Exit code 1 if a target is missed.
"""

import sys

from accuracy import field, memory, speed

CHAPTERS = {"memory": memory.main, "field": field.main, "speed": speed.main}


def main() -> int:
    """Runs the chapters that are named, or all."""
    named = [each for each in sys.argv[1:] if not each.startswith("-")]
    unknown = sorted(set(named) - set(CHAPTERS))
    if unknown:
        print(f"{unknown[0]} is no chapter: {', '.join(CHAPTERS)}", file=sys.stderr)
        return 2
    codes = []
    for name in named or CHAPTERS:
        print(f"== {name}")
        codes.append(CHAPTERS[name]())
    return max(codes)


if __name__ == "__main__":
    raise SystemExit(main())

"""A bar of an accelerator's memory, in characters."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llmservice_operator.perfmodel.memory import GIB

LEAST_WIDTH = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One stretch of the bar."""

    name: str
    letter: str
    size_bytes: int


def bar(segments: Sequence[Segment], *, width: int) -> str:
    """The segments as letters, `width` of them in all between brackets.

    Each segment that is more than nothing has a letter at least; the rest goes by size, what is left by the largest
    remainders, so that the sum is the width whatever the sizes.
    """
    cells = max(LEAST_WIDTH, width - 2)
    shown = [each for each in segments if each.size_bytes > 0]
    total = sum(each.size_bytes for each in shown)
    if not total:
        return "[" + " " * cells + "]"
    spare = cells - len(shown)
    shares = [spare * each.size_bytes / total for each in shown]
    counts = [int(share) for share in shares]
    by_remainder = sorted(range(len(shown)), key=lambda index: counts[index] - shares[index])
    for index in by_remainder[: spare - sum(counts)]:
        counts[index] += 1
    return "[" + "".join(each.letter * (count + 1) for each, count in zip(shown, counts, strict=True)) + "]"


def legend(segments: Sequence[Segment]) -> Iterator[str]:
    """What each letter stands for, how much it is, and its share."""
    total = sum(each.size_bytes for each in segments)
    width = max((len(each.name) for each in segments), default=0)
    for each in segments:
        if each.size_bytes > 0:
            share = each.size_bytes / total
            yield f"{each.letter} {each.name:<{width}} {each.size_bytes / GIB:>9.2f} GiB {share:>6.1%}"

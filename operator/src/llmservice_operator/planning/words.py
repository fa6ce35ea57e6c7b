"""Numbers in messages: GiB with two decimals, tokens with thousands' commas."""

from llmservice_operator.perfmodel.memory import GIB


def gib(size_bytes: float) -> str:
    """`12.34 GiB`."""
    return f"{size_bytes / GIB:,.2f} GiB"


def tokens(count: int) -> str:
    """`32,768 tokens`."""
    return f"{count:,} tokens"


def seconds(time: float) -> str:
    """`1.25 s`, or in milliseconds below one second: `48.3 ms`."""
    return f"{time:.2f} s" if time >= 1 else f"{time * 1e3:.1f} ms"

"""Numbers in messages: GiB with two decimals, tokens with thousands' commas."""

from llmservice_operator.perfmodel.memory import GIB


def gib(size_bytes: float) -> str:
    """`12.34 GiB`."""
    return f"{size_bytes / GIB:,.2f} GiB"


def tokens(count: int) -> str:
    """`32,768 tokens`."""
    return f"{count:,} tokens"

"""Latency of a running engine, over HTTP, without streams: what a prompt takes, and what a step of a batch takes.

A stream's events cost the API server more than a step of a small model; so a prompt's time is that of a request for
one token, and a step's time is the difference between a long and a short answer of the same batch, in which prompts
and HTTP cancel. Every prompt is new, so no prefix is found in the cache. Standard library only.
"""

import json
import statistics
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

SHORT_TOKENS, LONG_TOKENS = 32, 160
VOCABULARY = 30_000
"""Token ids that every model's vocabulary has."""


def prompts(length: int, first: int) -> Iterator[list[int]]:
    """Prompts that share no prefix."""
    number = first
    while True:
        number += 1
        yield [(number * 7_919 + place * 104_729) % VOCABULARY + 100 for place in range(length)]


def ask(port: int, prompt: list[int], output_tokens: int) -> float:
    """Seconds of one request."""
    body = {"model": "m", "prompt": prompt, "max_tokens": output_tokens, "ignore_eos": True, "temperature": 0}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    began = time.monotonic()
    with urllib.request.urlopen(request, timeout=300) as answer:
        answer.read()
    return time.monotonic() - began


def prefill(port: int, lengths: list[int]) -> list[dict[str, Any]]:
    """Median of three after one that warms up."""
    rows = []
    for length in lengths:
        source = prompts(length, first=length * 1_000)
        times = [ask(port, next(source), 1) for _ in range(4)][1:]
        rows.append({"prompt_tokens": length, "ttft_seconds": round(statistics.median(times), 5)})
    return rows


def decode(port: int, points: list[list[int]]) -> list[dict[str, Any]]:
    """For each (batch, prompt length): seconds of a step, and the mean context of the steps that were timed."""
    rows = []
    for batch, length in points:
        source = prompts(length, first=batch * 1_000_003 + length)
        took = {}
        with ThreadPoolExecutor(batch) as pool:
            for tokens in (SHORT_TOKENS, LONG_TOKENS):
                group = [next(source) for _ in range(batch)]
                began = time.monotonic()
                list(pool.map(lambda each, tokens=tokens: ask(port, each, tokens), group))
                took[tokens] = time.monotonic() - began
        step = (took[LONG_TOKENS] - took[SHORT_TOKENS]) / (LONG_TOKENS - SHORT_TOKENS)
        context = length + (SHORT_TOKENS + LONG_TOKENS) / 2
        rows.append({"batch": batch, "mean_context_tokens": context, "itl_seconds": round(step, 6)})
    return rows


def measure(port: int, wanted: dict[str, Any]) -> dict[str, Any]:
    """`{"prefill": [lengths], "decode": [[batch, prompt length], ...]}` → the rows, or what went wrong."""
    try:
        ask(port, next(prompts(64, first=1)), 8)
        return {
            "prefill": prefill(port, wanted.get("prefill", [])),
            "decode": decode(port, wanted.get("decode", [])),
        }
    except OSError as error:
        return {"error": repr(error)}

"""Continuous batching with chunked prompts: what one step computes, and how long it takes.

Each step gives one token to every sequence that decodes, and what is left of the token budget to prompts in order of
arrival, the last one in part. It takes

    step + max(least_token, per_token x tokens) + per_sequence x sampled + per_context_token x context
         + per_attended_token x attended

`tokens`: all that are computed; `sampled`: sequences that get a token; `context`: cached tokens of all sequences that
decode; `attended`: pairs of a prompt's new token and one that it attends to. Reading the weights takes the least time,
whatever the batch. A simulator that is given tables of this law has the very engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from vllm.fake.parameters import Parameters

DEFAULT_TOKEN_BUDGET = 2048


class Sequence(Protocol):
    """What a step needs to know of a request, and sets."""

    prompt_tokens: int
    computed: int
    prefilled: bool

    @property
    def kv_tokens(self) -> int:
        """Of prompt and answer so far."""


def budget_left(running: Iterable[Sequence], token_budget: int) -> int:
    """Tokens that the next step has for requests that aren't let in yet; none below 1."""
    taken = sum(1 if each.prefilled else each.prompt_tokens - each.computed for each in running)
    return token_budget - taken


def compute_step(running: Iterable[Sequence], parameters: Parameters, token_budget: int) -> float:
    """Take the step's share of each prompt; the step's seconds."""
    batch = context = taken = sampled = 0
    attended = 0.0
    prompts = []
    for each in running:
        if each.prefilled:
            batch += 1
            context += each.kv_tokens
        else:
            prompts.append(each)
    for each in prompts:
        size = min(token_budget - batch - taken, each.prompt_tokens - each.computed)
        if size <= 0:
            break
        attended += size * (each.computed + size / 2.0)
        each.computed += size
        taken += size
        sampled += each.computed == each.prompt_tokens
    tokens = max(parameters.step_least_token_seconds, parameters.step_seconds_per_token * (batch + taken))
    return (
        parameters.step_seconds
        + tokens
        + parameters.step_seconds_per_sequence * (batch + sampled)
        + parameters.step_seconds_per_context_token * context
        + parameters.step_seconds_per_attended_token * attended
    )

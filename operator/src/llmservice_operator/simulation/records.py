"""The arrays that the compiled loop works on: one record for each request and each engine.

Records rather than an array for each field: a compiled function counts references of every array it is given, which
took most of the time when there were sixty of them.

Bounds of buckets are compiled into `kernel`, whose cache on disk sees changes of its own file only: change both.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

Records = np.ndarray[tuple[int, ...], np.dtype[Any]]
Integers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

NONE = -1
"""Ends a linked list; no slot, no request."""
NEVER = np.inf

TTFT_BOUNDS_SECONDS = np.array([
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560
])  # fmt: skip
"""Upper bounds of vLLM's own buckets (v1/metrics/buckets.py); one more without bound follows."""
TPOT_BOUNDS_SECONDS = np.array([
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80
])  # fmt: skip
LENGTH_BOUNDS_TOKENS = np.array([
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000
])  # fmt: skip

REQUEST = np.dtype(
    [
        ("ready", "f8"),  # when a scheduler could first see it; the array is in this order
        ("first", "f8"),  # when the client had its first token; NaN before
        ("end", "f8"),
        ("prompt", "i8"),
        ("answer", "i8"),
        ("cached", "i8"),  # of the prompt, found in the prefix cache
        ("slot", "i8"),
        (
            "want",
            "i8",
        ),  # to compute before the next is sampled; a pushed-out one's answer so far counts as prompt
        ("done", "i8"),  # of those
        ("left", "i8"),  # to be sampled after that
        ("ends", "i8"),  # the engine's step at which its answer is complete
        ("before", "i8"),  # neighbours in its engine's list of running sequences;
        ("after", "i8"),  # this one also in that of waiting ones
        ("same", "i8"),  # the next one that ends at the same step
    ],
    align=True,
)

SETTINGS = np.dtype(
    [
        ("context_grain", "f8"),  # tokens between entries of the tables of attention
        ("chunk_grain", "f8"),
        ("prepare_seconds", "f8"),  # of a step on the host, before the card can start
        ("prepare_sequence_seconds", "f8"),
        ("piece_launch_seconds", "f8"),  # more to launch a step with prompts that a graph holds
        ("eager_launch_seconds", "f8"),  # more to launch a step that no graph holds
        ("half_request_seconds", "f8"),  # of the front end, before scheduling and again after the first token
        ("token_seconds", "f8"),  # of the front end
        ("pool_tokens", "f8"),
        ("half_block", "f8"),  # expected waste of a sequence's last block, in tokens
        ("largest_graph", "i8"),
        ("max_num_seqs", "i8"),
        ("token_budget", "i8"),
        ("overlaps", "i8"),
        (
            "blocks_on_launch",
            "i8",
        ),  # one rank runs in the scheduler's own process, which waits for the launch
    ],
    align=True,
)

ENGINE = np.dtype(
    [
        ("next", "f8"),  # when its next step may be scheduled; never while it has nothing to do
        ("end", "f8"),  # of the last scheduled step,
        ("end_before", "f8"),  # and of the one before
        ("launched", "f8"),
        ("front_free", "f8"),
        ("told", "f8"),  # when clients had the last step's tokens
        ("takes", "i8"),  # 1: the router sends requests here
        ("runs", "i8"),  # 0: hung or not there; no step is scheduled
        ("stretch", "i8"),  # 1: the last step was one of a stretch that only decoded, with nothing waiting
        ("steps", "i8"),
        ("decoding", "i8"),
        ("context", "i8"),  # tokens in the cache of decoding sequences
        ("promised", "i8"),  # tokens of the prompt that is computed in part
        ("partial", "i8"),  # that prompt's request
        ("running", "i8"),
        ("waiting", "i8"),
        ("youngest", "i8"),
        ("wait_head", "i8"),
        ("wait_tail", "i8"),
        # what a metrics page shows, since the slot's last start
        ("arrived", "i8"),
        ("finished", "i8"),
        ("prompt_tokens", "i8"),  # of requests that got their first token
        ("cached_tokens", "i8"),
        ("generated_tokens", "i8"),
        ("pending_tokens", "i8"),  # a gauge: of prompts, not computed yet
        ("preemptions", "i8"),
        ("busy_seconds", "f8"),
        ("traffic_seconds", "f8"),  # bytes read and written over the card's peak bandwidth
        ("ttft_seconds", "f8"),
        ("tpot_seconds", "f8"),
        ("itl_seconds", "f8"),
        ("ttft", "i8", (TTFT_BOUNDS_SECONDS.size + 1,)),  # counts of each bucket alone
        ("tpot", "i8", (TPOT_BOUNDS_SECONDS.size + 1,)),
        ("itl", "i8", (TPOT_BOUNDS_SECONDS.size + 1,)),
        ("inputs", "i8", (LENGTH_BOUNDS_TOKENS.size + 1,)),  # of finished requests
        ("outputs", "i8", (LENGTH_BOUNDS_TOKENS.size + 1,)),
        ("finished_input_tokens", "i8"),
        ("finished_output_tokens", "i8"),
    ],
    align=True,
)


@dataclass(frozen=True, slots=True)
class Fleet:
    """All of a fleet's state."""

    requests: Records
    engines: Records
    """One for each slot."""
    pages: Records
    """[slot, step modulo 2]: the engine as it was after that step was scheduled. A metrics page is made of these."""
    endings: Integers
    """[slot, step modulo size]: head of the list of requests that end there."""
    router: Integers
    """[0]: the last slot chosen; [1]: state of the random choice."""


def new_fleet(requests: Records, *, slots: int, seed: int = 0) -> Fleet:
    """Empty slots, none of which takes requests."""
    longest = int(requests["answer"].max(initial=1))
    fleet = Fleet(
        requests=requests,
        engines=np.zeros(slots, ENGINE),
        pages=np.zeros((slots, 2), ENGINE),
        endings=np.full((slots, 1 << (longest + 1).bit_length()), NONE, np.int64),
        router=np.array([slots - 1, seed & 0x7FFFFFFF], np.int64),
    )
    for slot in range(slots):
        clear_slot(fleet, slot)
    return fleet


def clear_slot(fleet: Fleet, slot: int) -> None:
    """No engine, or one that has just started."""
    engine = np.zeros(1, ENGINE)
    engine["next"] = NEVER
    for name in ("partial", "youngest", "wait_head", "wait_tail"):
        engine[name] = NONE
    fleet.engines[slot : slot + 1] = engine
    fleet.pages[slot] = engine
    fleet.endings[slot] = NONE


def new_requests(
    ready: Floats, prompt: Integers, answer: Integers, cached: Integers | None = None
) -> Records:
    """Requests in order of `ready`; lengths in tokens, at least 1. At least one token of a prompt is computed."""
    requests = np.zeros(len(ready), REQUEST)
    requests["ready"], requests["prompt"], requests["answer"] = ready, prompt, answer
    if cached is not None:
        requests["cached"] = np.minimum(cached, prompt - 1)
    for name in ("first", "end"):
        requests[name] = np.nan
    for name in ("slot", "before", "after", "same"):
        requests[name] = NONE
    return requests

"""Made-up loads: seeded arrivals and lengths, without the interpreter's own generator (a plan is a pure function)."""

import math
from dataclasses import dataclass
from functools import lru_cache

_MASK = (1 << 64) - 1
_Z95 = 1.6448536269514722
"""The 95th percentile of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a load."""

    arrival_seconds: float
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Tokens of prompts and answers: log-normal through the median and p95; all alike where p95 isn't given."""

    input_p50: int
    output_p50: int
    input_p95: int | None = None
    output_p95: int | None = None


class Generator:
    """SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): 64 bits of state, the same numbers everywhere."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def uniform(self) -> float:
        """Of (0, 1)."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return (((mixed ^ (mixed >> 31)) >> 12) + 0.5) / (1 << 52)

    def normal(self) -> float:
        """Standard normal (Box and Muller, 1958)."""
        return math.sqrt(-2.0 * math.log(self.uniform())) * math.cos(2.0 * math.pi * self.uniform())


def poisson_load(
    *, rate_per_second: float, window_seconds: float, lengths: Lengths, longest: int, seed: int
) -> list[Request]:
    """A Poisson process over a window, given its number of arrivals: uniform times in order.

    Prompt and answer together are at most `longest` tokens.
    """
    count = max(1, round(rate_per_second * window_seconds))
    load = []
    for share, drawn_prompt, answer in _drawn(count, lengths, seed):
        prompt = min(drawn_prompt, max(1, longest - 1))
        load.append(Request(share * window_seconds, prompt, max(1, min(answer, longest - prompt))))
    return load


@lru_cache(maxsize=4)
def _drawn(count: int, lengths: Lengths, seed: int) -> tuple[tuple[float, int, int], ...]:
    """(when in its window, prompt, answer) of each request: tries of one load at several rates are alike in these."""
    generator = Generator(seed)
    shares = sorted(generator.uniform() for _ in range(count))
    return tuple(
        (
            share,
            _length(lengths.input_p50, lengths.input_p95, generator),
            _length(lengths.output_p50, lengths.output_p95, generator),
        )
        for share in shares
    )


def mean_length(median: int, p95: int | None) -> float:
    """The mean of that log-normal, exp(mu + sigma^2 / 2)."""
    if p95 is None or p95 <= median:
        return float(median)
    return median * math.exp((math.log(p95 / median) / _Z95) ** 2 / 2.0)


def _length(median: int, p95: int | None, generator: Generator) -> int:
    if p95 is None or p95 <= median:
        return max(1, median)
    sigma = math.log(p95 / median) / _Z95
    return max(1, round(median * math.exp(sigma * generator.normal())))

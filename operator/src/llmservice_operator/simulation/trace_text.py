"""Loads from what a user gives: stages in a word, recorded requests, counts per ten seconds. Text in, load out."""

import csv
import math
import pkgutil
import re
from collections.abc import Iterator, Sequence

import numpy as np

from llmservice_operator.errors import InvalidInputError
from llmservice_operator.perfmodel.arrivals import mean_length
from llmservice_operator.perfmodel.open_loop import Lengths
from llmservice_operator.simulation.loads import Load, Stage, counted_arrivals, make_load, staged_arrivals
from llmservice_operator.simulation.records import Floats, Integers

COUNT_SECONDS = 10.0
_PEAK_SECONDS = 300.0
MOST_REQUESTS = 50_000_000
"""Of one load: 10 GB of records."""
MOST_SECONDS = 1e7
"""Of one load: four months."""
_MOST_TOKENS = 100_000_000
"""Of one prompt or answer: more than any context."""
_MOST_DIGITS = 12
"""Of a count: more than any load."""
BUILTIN_TRACES = tuple(f"azure2024-{kind}-2024-05-{day}" for kind in ("conv", "code") for day in (15, 12, 14))
"""Days of counts that are in the package (traces/README.md): a Wednesday, a Sunday, a Tuesday of each kind."""
_Z95 = 1.6448536269514722
_STAGE = re.compile(r"^(\d+(?:\.\d+)?)x(\d+(?:\.\d+)?)$")
_TIMES = {"seconds": 1.0, "milliseconds": 1000.0}


def ramp_load(text: str, lengths: Lengths, *, longest: int, seed: int) -> Load:
    """Poisson stages such as `2x330,4x360`: requests a second, for so many seconds. Raises InvalidInputError."""
    stages = []
    for part in text.split(","):
        found = _STAGE.match(part.strip())
        if not found or not 0 < float(found[2]) <= MOST_SECONDS:
            raise InvalidInputError(f"ramp: {part!r} is no stage; RATExSECONDS is expected, such as 2x330")
        stages.append(Stage(float(found[1]), float(found[2])))
    _check_length("ramp", sum(stage.seconds for stage in stages))
    _check(sum(stage.rate_per_second * stage.seconds for stage in stages))
    arrivals = staged_arrivals(stages, seed=seed)
    return _drawn(
        "ramp", arrivals, lengths, longest=longest, seconds=sum(stage.seconds for stage in stages), seed=seed
    )


def builtin_trace(name: str) -> str:
    """The counts of a day; a name without a date means its first. Raises InvalidInputError for no such name."""
    found = next((each for each in BUILTIN_TRACES if each == name or each.startswith(f"{name}-2024")), None)
    text = found and pkgutil.get_data("llmservice_operator.simulation", f"traces/{found}.txt")
    if not text:
        raise InvalidInputError(f"{name} is no trace in the package: {', '.join(BUILTIN_TRACES)}")
    return text.decode("ascii")


def share_of_peak(text: str, requests_per_second: float) -> float:
    """Of counts per ten seconds: the share at which the busiest five minutes have that many requests a second."""
    counts = [int(word) for word in text.split()]
    width = round(_PEAK_SECONDS / COUNT_SECONDS)
    busiest = max(sum(counts[at : at + width]) for at in range(0, len(counts), width)) / _PEAK_SECONDS
    return requests_per_second / busiest


def counts_load(name: str, text: str, lengths: Lengths, *, share: float, longest: int, seed: int) -> Load:
    """Counts per ten seconds, in order. Raises InvalidInputError."""
    counts = []
    for word in text.split():
        if not word.isascii() or not word.isdigit() or len(word) > _MOST_DIGITS:
            raise InvalidInputError(f"{name}: {word[:40]!r} is no count of requests per {COUNT_SECONDS:g} s")
        counts.append(int(word))
    if not counts:
        raise InvalidInputError(f"{name} has no counts")
    _check_length(name, len(counts) * COUNT_SECONDS)
    _check(sum(counts) * share)
    arrivals = counted_arrivals(counts, COUNT_SECONDS, share=share, seed=seed)
    return _drawn(name, arrivals, lengths, longest=longest, seconds=len(counts) * COUNT_SECONDS, seed=seed)


def requests_load(name: str, lines: Sequence[str]) -> Load:
    """Recorded requests: a header with seconds or milliseconds, prompt_tokens, answer_tokens, perhaps cached_tokens.

    Raises InvalidInputError.
    """
    reader = csv.DictReader(lines)
    try:
        rows = sorted(_recorded(name, reader))
    except csv.Error as error:
        raise InvalidInputError(f"{name}: line {reader.line_num}: {error}") from error
    if not rows:
        raise InvalidInputError(f"{name} has no requests")
    table = np.array(rows)
    _check_length(name, float(table[-1, 0] - table[0, 0]))
    load = make_load(
        name,
        table[:, 0] - table[0, 0],
        np.maximum(1, table[:, 1].astype(np.int64)),
        table[:, 2].astype(np.int64),
        seconds=max(1.0, float(table[-1, 0] - table[0, 0])),
    )
    load.cached_tokens[:] = np.minimum(table[:, 3].astype(np.int64), load.prompt_tokens - 1)
    return load


def _recorded(name: str, reader: "csv.DictReader[str]") -> Iterator[tuple[float, int, int, int]]:
    """(seconds, prompt's, answer's and cached tokens) of each row. Raises InvalidInputError for one that has none."""
    header = reader.fieldnames or []
    unit = next((each for each in _TIMES if each in header), None)
    if unit is None or not {"prompt_tokens", "answer_tokens"} <= set(header):
        raise InvalidInputError(
            f"{name}: the columns seconds or milliseconds, prompt_tokens and answer_tokens are expected"
        )
    for row in reader:
        try:
            at = float(row[unit] or "") / _TIMES[unit]
            prompt, answer = (int(row[each] or "") for each in ("prompt_tokens", "answer_tokens"))
            cached = int(row.get("cached_tokens") or 0)
        except ValueError as error:
            raise InvalidInputError(
                f"{name}: line {reader.line_num}: {unit}, prompt_tokens or answer_tokens is no number: {error}"
            ) from error
        if not 0 <= at < math.inf or not all(0 <= each <= _MOST_TOKENS for each in (prompt, answer, cached)):
            raise InvalidInputError(
                f"{name}: line {reader.line_num}: {row[unit]} {unit}, {prompt} and {answer} tokens, {cached} of them "
                f"cached; a time of 0 or more and 0 to {_MOST_TOKENS} tokens are expected"
            )
        yield at, prompt, answer, cached


def _check_length(name: str, seconds: float) -> None:
    if seconds > MOST_SECONDS:
        raise InvalidInputError(f"{name} lasts {seconds:.3g} s; {MOST_SECONDS:.0f} at most are expected")


def _check(requests: float) -> None:
    if not 1 <= requests <= MOST_REQUESTS:
        raise InvalidInputError(f"a load of {requests:.0f} requests; 1 to {MOST_REQUESTS} are expected")


def _drawn(name: str, arrivals: Floats, lengths: Lengths, *, longest: int, seconds: float, seed: int) -> Load:
    """Lengths that are log-normal by the workload's quantiles, within the context."""
    count = len(arrivals)
    prompt = _log_normal(count, lengths.input_p50, lengths.input_p95, longest - 1, 2 * seed)
    answer = _log_normal(count, lengths.output_p50, lengths.output_p95, longest, 2 * seed + 1)
    return make_load(name, arrivals, prompt, np.minimum(answer, longest - prompt), seconds=seconds)


def _log_normal(count: int, median: int, p95: int | None, most: int, seed: int) -> Integers:
    spread = mean_length(median, p95) > median
    sigma = math.log((p95 or median) / median) / _Z95 if spread else 0.0
    drawn = median * np.exp(sigma * np.random.default_rng(seed).standard_normal(count))
    lengths: Integers = np.clip(np.rint(drawn), 1, most).astype(np.int64)
    return lengths

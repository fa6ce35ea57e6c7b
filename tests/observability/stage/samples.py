"""Samples of a page, and how they are written."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families


class Sample(NamedTuple):
    """One line of a page."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


def read(page: str) -> Iterator[Sample]:
    """The samples of a page, without the times of creation that nobody reads."""
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                yield Sample(sample.name, tuple(sample.labels.items()), sample.value)


def labelled(samples: Iterable[Sample], labels: Mapping[str, str]) -> Iterator[Sample]:
    """With a target's labels, which give way to the page's own, as honorLabels does."""
    for sample in samples:
        kept = dict(sample.labels)
        more = tuple((name, value) for name, value in labels.items() if name not in kept)
        yield sample._replace(labels=sample.labels + more)


def line(sample: Sample, at_seconds: float | None = None) -> str:
    """As a page has it, with a time where one is given."""
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels)
    value = "NaN" if math.isnan(sample.value) else repr(float(sample.value))
    time = "" if at_seconds is None else f" {at_seconds:.3f}"
    return f"{sample.name}{{{inside}}} {value}{time}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

"""Names by release: what the product says is what the source in the releases' wheels declares."""

import re
from pathlib import Path

import pytest

from llmservice_operator.engines.metric_names import NAMES, NOT_ON_V0, UNBOUNDED, MetricName
from llmservice_operator.engines.versions import Version, parse_version

TABLE = Path(__file__).resolve().parents[2] / "data" / "metrics" / "vllm-names.tsv"
LINES = TABLE.read_text().splitlines()


def version(text: str) -> Version:
    found = parse_version(text)
    assert found is not None
    return found


READ = [version(each) for each in LINES[0].removeprefix("# read: ").split()]
DECLARED = [line.split("\t") for line in LINES[2:]]
"""Engine, name, first and last release with it."""
OF_ENGINES = [each for each in NAMES if each.name.startswith("vllm:") and each.first <= READ[-1]]


def declared(metric: MetricName, engine: str) -> list[tuple[Version, Version]]:
    """The releases that declare it, by any of the names that the client library exposes as this one."""
    names = {metric.family or metric.name, metric.name.removesuffix("_total")}
    return [
        (version(first), version(last))
        for of, name, first, last in DECLARED
        if of == engine and name in names
    ]


def test_every_minor_release_was_read() -> None:
    assert sorted({minor for _, minor, _ in READ}) == list(range(8, 34))


@pytest.mark.parametrize("metric", OF_ENGINES, ids=lambda each: each.name)
def test_a_name_is_declared_from_its_first_to_its_last_release(metric: MetricName) -> None:
    spans = declared(metric, "V0") + declared(metric, "V1")

    first, last = min(first for first, _ in spans), max(last for _, last in spans)

    assert (first if first != READ[0] else (0, 0, 0)) == metric.first
    assert (last if last != READ[-1] else UNBOUNDED) == metric.last


def test_v0_lacks_what_it_is_said_to_lack() -> None:
    """Of what all releases of its time are said to export."""
    then = {each.series for each in OF_ENGINES if not each.optional and each.first <= version("0.9.2")}
    on_v0 = {each.series for each in OF_ENGINES if declared(each, "V0")}

    assert then - on_v0 == NOT_ON_V0


def test_what_no_release_has_yet_is_said_to_be_of_a_later_one() -> None:
    later = [each for each in NAMES if each.first > READ[-1]]

    assert [each.name for each in later if declared(each, "V0") or declared(each, "V1")] == []
    assert all(re.fullmatch(r"vllm:\w+", each.name) and each.optional for each in later)

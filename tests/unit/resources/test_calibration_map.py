"""The calibration's ConfigMap: what is written is read back, and whatever else is in it is named and left out."""

import json
from typing import Any

import pytest

from llmservice_operator.perfmodel.calibration import KEPT_STARTS, Entry, Start
from llmservice_operator.perfmodel.memory import MIB
from llmservice_operator.resources.calibration import (
    MAX_ENTRIES,
    MAX_VALUE_BYTES,
    calibration_manifest,
    read_calibration,
)

NAMESPACE, NAME = "llmservice-system", "llmservice-operator-calibration"
WIDE = (16 << 20) * MIB - MIB
"""The largest size that is believed, so that values are as long as they get."""


def start(number: int, **fields: Any) -> Start:
    return Start(
        **{
            "start": f"{number:08x}",
            "service": f"{number:08x}",
            "ready_at": 1_790_000_000 + number,
            "catalogue_size": True,
            "total": WIDE,
            "taken": WIDE,
            "weights": WIDE,
            "activation": WIDE,
            "non_torch": WIDE,
            "cuda_graphs": None,
            **fields,
        }
    )


def entry(first: int = 0, count: int = KEPT_STARTS, what: str = "vLLM 0.26.0 on nvidia-h200 x 1") -> Entry:
    planned = tuple((name, WIDE) for name in ("activation", "cuda_graphs", "non_torch", "weights"))
    return Entry(
        starts=tuple(start(number) for number in range(first, first + count)), what=what, planned=planned
    )


def manifest(**entries: Entry) -> dict[str, Any]:
    return calibration_manifest(NAMESPACE, NAME, entries)


def with_data(**data: Any) -> dict[str, Any]:
    return {**manifest(), "data": data}


KEY = "k0123456789abcdef"[1:]


def test_what_is_written_is_read_back() -> None:
    kept = entry(count=3)

    read = read_calibration(manifest(**{KEY: kept}))

    assert (dict(read.calibration.entries), read.problems) == ({KEY: kept}, ())


def test_value_is_never_longer_than_a_kibibyte() -> None:
    (text,) = manifest(**{KEY: entry(what="w" * 400)})["data"].values()

    assert len(text.encode()) <= MAX_VALUE_BYTES
    assert len(json.loads(text)["starts"]) >= 3


def test_usual_value_holds_all_starts() -> None:
    usual = [
        start(n, **dict.fromkeys(("total", "taken", "weights", "activation", "non_torch"), 143_155 * MIB))
        for n in range(KEPT_STARTS)
    ]
    (text,) = manifest(**{KEY: Entry(starts=tuple(usual), what="w" * 110)})["data"].values()

    assert len(json.loads(text)["starts"]) == KEPT_STARTS


def test_difference_is_told_to_people() -> None:
    kept = Entry(starts=(start(1, activation=3 * MIB),), planned=(("activation", MIB),))
    (text,) = manifest(**{KEY: kept})["data"].values()

    assert json.loads(text)["differenceMiB"] == {"activation": 2}


def test_least_recently_seen_goes_first() -> None:
    entries = {f"{number:016x}": entry(number, 1) for number in range(MAX_ENTRIES + 20)}

    written = calibration_manifest(NAMESPACE, NAME, entries)["data"]

    assert set(written) == {f"{number:016x}" for number in range(20, MAX_ENTRIES + 20)}


def test_whole_map_stays_below_what_etcd_takes() -> None:
    entries = {f"{number:016x}": entry(number, what="w" * 400) for number in range(MAX_ENTRIES)}

    assert len(json.dumps(calibration_manifest(NAMESPACE, NAME, entries))) < 1 << 20


def test_none_is_nothing_known() -> None:
    read = read_calibration(None)

    assert (read.calibration.entries, read.problems, read.foreign) == ({}, (), False)


def good_fields(**fields: Any) -> dict[str, Any]:
    (text,) = manifest(**{KEY: entry(count=1)})["data"].values()
    return {**json.loads(text), **fields}


ROW = ["0000000a", "0000000b", 1_790_000_000, 1, 10, 9, 8, 7, 6, 5]


def row(at: int, value: Any) -> str:
    return json.dumps(good_fields(starts=[[*ROW[:at], value, *ROW[at + 1 :]]]))


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("README", "hello", "no key of 16 hex"),
        ("../0123456789abcd", "{}", "no key of 16 hex"),
        (KEY, "{", "no JSON"),
        (KEY, "[" * 1000, "no JSON"),
        (KEY, "null", "schema"),
        (KEY, '{"v": 2}', "schema"),
        (KEY, "x" * (MAX_VALUE_BYTES + 1), "longer than"),
        (KEY, 7, "longer than"),
        (KEY, json.dumps(good_fields(starts=None)), "starts"),
        (KEY, json.dumps(good_fields(starts=[])), "starts"),
        (KEY, json.dumps(good_fields(starts=[[]])), "starts"),
        (KEY, json.dumps(good_fields(starts=[ROW[:-1]])), "starts"),
        (KEY, json.dumps(good_fields(starts=[ROW] * (KEPT_STARTS + 1))), "starts"),
        (KEY, row(0, "not hex!"), "starts"),
        (KEY, row(2, -1), "starts"),
        (KEY, row(2, 1e300), "starts"),
        (KEY, row(3, 2), "starts"),
        (KEY, row(5, None), "starts"),
        (KEY, row(6, -5), "starts"),
        (KEY, row(6, 1 << 70), "starts"),
        (KEY, row(6, float("nan")), "starts"),
        (KEY, row(6, "8"), "starts"),
    ],
)
def test_what_cannot_be_read_is_named_and_left_out(key: str, text: Any, words: str) -> None:
    good = manifest(**{"f" * 16: entry(count=1)})["data"]
    read = read_calibration(with_data(**good, **{key: text}))

    assert set(read.calibration.entries) == {"f" * 16}
    assert len(read.problems) == 1
    assert key[:40] in read.problems[0]
    assert words in read.problems[0]


def test_problem_of_a_thousand_keys_is_one_sentence() -> None:
    read = read_calibration(with_data(**{f"key-{number}": "" for number in range(1000)}))

    assert len(read.problems) == 1
    assert "and 997 more" in read.problems[0]
    assert len(read.problems[0]) < 200


def test_more_entries_than_are_kept_are_cut_to_those_seen_last() -> None:
    entries = {f"{number:016x}": entry(number, 1) for number in range(MAX_ENTRIES + 1)}
    data = {
        key: calibration_manifest(NAMESPACE, NAME, {key: each})["data"][key] for key, each in entries.items()
    }

    read = read_calibration(with_data(**data))

    assert len(read.calibration.entries) == MAX_ENTRIES
    assert f"{0:016x}" not in read.calibration.entries
    assert f"of {MAX_ENTRIES + 1} entries" in read.problems[0]


def test_map_of_somebody_else_is_not_read() -> None:
    read = read_calibration({"metadata": {"name": NAME}, "data": manifest(**{KEY: entry(count=1)})["data"]})

    assert (read.foreign, dict(read.calibration.entries)) == (True, {})

"""The catalogue: the built-in rows, and what is said of a user's bad ones."""

from dataclasses import replace

import pytest

from llmservice_operator.errors import InvalidInputError
from llmservice_operator.perfmodel.accelerators import (
    builtin_catalogue_text,
    find_row,
    load_catalogue,
    merge_catalogues,
    similar_names,
    with_users_rows,
)
from unit.perfmodel.samples import catalogue

ROW = """
rows:
  - name: acme-x1
    memoryGiB: 30
    memoryBandwidthBytesPerSecond: 1.0e+12
    bf16FlopsPerSecond: 2.0e+14
    resourceName: acme.com/x
    costPerHour: 1
    deviceNameContains: [X1]
    nodeLabels: {acme.com/product: [X1]}
    evidence: measured
"""


def test_the_built_in_rows() -> None:
    assert [row.name for row in catalogue()] == [
        "nvidia-h100-80gb",
        "nvidia-h200",
        "nvidia-a100-40gb",
        "nvidia-a100-80gb",
        "nvidia-l4",
        "nvidia-l40s",
        "nvidia-a10g",
        "nvidia-b200",
        "nvidia-h100-nvl",
        "nvidia-h20",
        "nvidia-gh200",
        "nvidia-gb10",
        "nvidia-rtx-pro-6000",
        "nvidia-rtx-5090",
        "nvidia-rtx-4090",
        "nvidia-rtx-3090",
        "nvidia-a30",
        "nvidia-t4",
        "amd-mi300x",
        "cpu",
    ]


@pytest.mark.parametrize("row", catalogue(), ids=lambda row: row.name)
def test_every_figure_has_a_source(row: object) -> None:
    assert set(getattr(row, "sources")) == {"memory", "speed", "cost"}  # noqa: B009 - the parameter is opaque


def test_no_node_label_value_stands_for_two_rows() -> None:
    pairs = [(key, value) for row in catalogue() for key, values in row.node_labels for value in values]

    assert len(pairs) == len(set(pairs))


def test_a_node_is_known_by_any_of_its_labels() -> None:
    row = find_row(catalogue(), "nvidia-a100-40gb")

    assert row is not None
    assert row.matches_node({"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"})
    assert not row.matches_node({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"})


def test_a_users_row_is_added() -> None:
    merged = merge_catalogues(catalogue(), load_catalogue(ROW))

    assert [row.name for row in merged[-2:]] == ["cpu", "acme-x1"]


def test_a_users_row_replaces_the_one_of_its_name() -> None:
    mine = load_catalogue(ROW.replace("acme-x1", "nvidia-l4"))

    merged = merge_catalogues(catalogue(), mine)

    assert find_row(merged, "nvidia-l4") == mine[0]
    assert len(merged) == len(catalogue())


def test_a_mistyped_name_finds_its_neighbours() -> None:
    assert similar_names(catalogue(), "nvidia-h2000")[0] == "nvidia-h200"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            ("memoryGiB: 30", "memoryGiB: -3"),
            r"row acme-x1: memoryGiB is -3; a number of at least 1 is expected",
        ),
        (("memoryGiB: 30", "memoryGiB: much"), "memoryGiB is 'much'"),
        (("memoryGiB: 30", "memoryGiB: .nan"), "memoryGiB is nan"),
        (("memoryGiB: 30", "memoryGb: 30"), "unknown field 'memoryGb'; did you mean memoryGiB"),
        (("evidence: measured", "evidence: hearsay"), "evidence is 'hearsay'; measured or datasheet"),
        (("resourceName: acme.com/x", "resourceName: x"), "resourceName is 'x'"),
        (("deviceNameContains: [X1]", "deviceNameContains: X1"), "deviceNameContains is 'X1'; a list"),
        (("nodeLabels: {acme.com/product: [X1]}", "nodeLabels: [X1]"), "nodeLabels is"),
        (("name: acme-x1", "name: ''"), "row 0 has the name ''"),
        (("rows:", "row:"), "`rows` is missing"),
        (("rows:", "rows: {"), "no YAML"),
    ],
)
def test_a_bad_row_is_named_with_field_value_and_mend(change: tuple[str, str], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        load_catalogue(ROW.replace(*change))


def test_a_row_that_is_there_twice_is_refused() -> None:
    twice = ROW + ROW.partition("rows:")[2]

    with pytest.raises(InvalidInputError, match="'acme-x1' is there twice"):
        load_catalogue(twice)


def test_a_price_of_the_users_changes_nothing_else() -> None:
    builtin = load_catalogue(builtin_catalogue_text())

    merged = with_users_rows(builtin, "rows: [{name: nvidia-l4, costPerHour: 0.35}]")

    before, after = (find_row(rows, "nvidia-l4") for rows in (builtin, merged))
    assert before is not None
    assert after == replace(before, cost_per_hour=0.35)


def test_every_built_in_row_comes_back_from_its_name_alone() -> None:
    builtin = load_catalogue(builtin_catalogue_text())
    text = "rows: [" + ", ".join(f"{{name: {row.name}}}" for row in builtin) + "]"

    assert with_users_rows(builtin, text) == builtin


def test_a_new_row_must_say_all() -> None:
    with pytest.raises(InvalidInputError, match="row acme-1: memoryGiB is None"):
        with_users_rows((), "rows: [{name: acme-1, costPerHour: 1}]")


@pytest.mark.parametrize("field", ["memoryGiB", "bf16FlopsPerSecond", "costPerHour"])
def test_a_figure_without_end_is_refused_with_what_is_allowed(field: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{field} is .*at most"):
        with_users_rows(catalogue(), f"rows: [{{name: nvidia-h200, {field}: 1.0e+308}}]")


@pytest.mark.parametrize("said", ["H200", "nvidia h200", "NVIDIA-H200", "nvidia-h2OO"])
def test_a_name_that_is_nearly_a_rows_is_understood(said: str) -> None:
    assert "nvidia-h200" in similar_names(catalogue(), said)

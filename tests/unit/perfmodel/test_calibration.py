"""What starts change in the account: less KV cache at once, more only on good evidence; a term by 2 GiB at most."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from llmservice_operator.perfmodel.architecture import read_architecture
from llmservice_operator.perfmodel.calibration import (
    KEPT_STARTS,
    Calibration,
    Correction,
    Entry,
    Start,
    calibrated,
    calibration_key,
    correction,
    merged,
    with_start,
)
from llmservice_operator.perfmodel.memory import GIB, MIB, Account, Batch
from llmservice_operator.perfmodel.quantization import UNQUANTIZED
from unit.perfmodel.samples import SMOLLM2

ACCOUNT = Account(
    total=140 * GIB,
    requested=130 * GIB,
    weights=16 * GIB,
    activation=2 * GIB,
    non_torch=GIB // 4,
    graphs=GIB,
    graphs_charged=0,
    extras=0,
    margin=GIB,
    outside=5 * GIB,
)
TAKEN = 16 * GIB + 2 * GIB + GIB // 4


def start(number: int, more: float = 0.0, **fields: Any) -> Start:
    """A start whose activation took so many GiB more than the account says."""
    return Start(
        **{
            "start": f"{number:08x}",
            "service": f"{number:08x}",
            "ready_at": 1_790_000_000 + number,
            "catalogue_size": True,
            "total": 140 * GIB,
            "taken": TAKEN + int(more * GIB),
            "weights": 16 * GIB,
            "activation": 2 * GIB + int(more * GIB),
            "non_torch": GIB // 4,
            "cuda_graphs": 0,
            **fields,
        }
    )


def found(*starts: Start) -> Correction | None:
    return correction(starts, ACCOUNT)


def test_start_as_accounted_changes_nothing() -> None:
    assert found(start(1)) is None


def test_hundredths_that_engines_round_by_change_nothing() -> None:
    assert found(start(1, 0.01)) is None


def test_less_kv_cache_is_believed_at_once() -> None:
    result = found(start(1, 0.5))

    assert result is not None
    assert result.changes == (("activation", GIB // 2),)


@pytest.mark.parametrize("starts", [1, 2])
def test_more_kv_cache_is_not_believed_of_few_starts(starts: int) -> None:
    assert found(*(start(number, -0.5) for number in range(starts))) is None


def test_more_kv_cache_is_believed_of_three_starts_of_two_services() -> None:
    result = found(start(1, -0.5), start(2, -0.5), start(3, -0.5, service=start(2).service))

    assert result is not None
    assert result.taken == -GIB // 2


def test_more_kv_cache_is_not_believed_of_one_service() -> None:
    assert found(*(start(number, -0.5, service="aaaaaaaa") for number in range(5))) is None


def test_more_kv_cache_is_not_believed_of_other_cards_than_the_catalogue_has() -> None:
    assert found(*(start(number, -0.5, catalogue_size=False) for number in range(5))) is None


def test_one_start_out_of_line_is_outvoted() -> None:
    result = found(start(1, 0.5), start(2, 0.5), start(3, 1.75))

    assert result is not None
    assert result.taken == GIB // 2


def test_of_two_starts_the_worse_one_counts() -> None:
    result = found(start(1, 0.5), start(2, 1.0))

    assert result is not None
    assert result.taken == GIB


@pytest.mark.parametrize(("more", "expected"), [(9.0, 2.0), (-1.9, -1.9), (2.0, 2.0)])
def test_no_term_moves_by_more_than_two_gib(more: float, expected: float) -> None:
    result = found(*(start(number, more) for number in range(3)))

    assert result is not None
    assert result.taken == int(expected * GIB)


def test_what_no_term_explains_is_taken_all_the_same() -> None:
    """An engine that tells only its budget and its KV cache, 0.75 GiB less than was planned."""
    silent = dict.fromkeys(("weights", "activation", "non_torch", "cuda_graphs"))
    result = found(start(1, 0.75, **silent))

    assert result is not None
    assert result.changes == (("other", 3 * GIB // 4),)


def test_smaller_card_is_told_at_once() -> None:
    result = found(start(1, total=94 * GIB, catalogue_size=False))

    assert result is not None
    assert (result.total, result.changes) == (94 * GIB, ())


def test_larger_card_is_the_catalogues_to_say() -> None:
    assert found(start(1, total=190 * GIB)) is None


def test_calibrated_account_leaves_so_much_less() -> None:
    result = found(start(1, 0.5))
    assert result is not None

    assert ACCOUNT.available - calibrated(ACCOUNT, result).available == GIB // 2


def test_calibration_of_a_better_account_finds_itself_superfluous() -> None:
    """A release that accounts for what was learnt has nothing to correct: no start is held against it."""
    better = replace(ACCOUNT, activation=ACCOUNT.activation + GIB // 2)

    assert correction((start(1, 0.5), start(2, 0.5), start(3, 0.5)), better) is None


# ── keeping starts ───────────────────────────────────────────────────────────────────────────────────────────


def entry(*starts: Start) -> Entry:
    result: Entry | None = None
    for each in starts:
        result = with_start(result, each, what="", planned={})
    assert result is not None
    return result


def test_same_start_twice_is_one() -> None:
    assert entry(start(1), start(1)) == entry(start(1))


def test_newest_starts_are_kept_in_whatever_order_they_come() -> None:
    starts = [start(number) for number in range(KEPT_STARTS + 3)]

    assert entry(*reversed(starts)).starts == entry(*starts).starts == tuple(starts[3:])


def test_one_service_has_no_more_than_three_starts_among_them() -> None:
    often = [start(number, service="aaaaaaaa") for number in range(10, 20)]

    assert entry(start(1), *often).starts == (start(1), *often[-3:])


def test_what_two_writers_know_comes_out_the_same() -> None:
    parts = [entry(start(1), start(2)), entry(start(2), start(3)), entry(start(4))]
    results = {merged(merged(a, b), c).starts for a, b, c in permutations(parts)}

    assert results == {(start(1), start(2), start(3), start(4))}


def test_nothing_is_known_of_another_situation() -> None:
    calibration = Calibration(entries={"a" * 16: entry(start(1, 1.0))})

    assert calibration.correction("b" * 16, ACCOUNT) is None


# ── the situation ────────────────────────────────────────────────────────────────────────────────────────────

BATCH = Batch(max_num_seqs=256, max_num_batched_tokens=8192, tensor_parallel_size=1, dtype="bfloat16")


def key(**fields: Any) -> str:
    batch = replace(BATCH, **fields.pop("batch", {}))
    config = {**SMOLLM2, **fields.pop("config", {})}
    said = {"engine_version": "0.26.0", "accelerator": "nvidia-h200 nvidia.com/gpu", "kv_cache_dtype": "auto"}
    return calibration_key(
        **{**said, **fields}, model=read_architecture(config), quantization=UNQUANTIZED, batch=batch
    )


def test_key_is_sixteen_hex_and_the_same_each_time() -> None:
    assert key() == key()
    assert len(key()) == 16
    int(key(), 16)


@pytest.mark.parametrize(
    "fields",
    [
        {"engine_version": "0.27.0"},
        {"accelerator": "nvidia-h200 nvidia.com/mig-3g.71gb"},
        {"config": {"num_hidden_layers": 31}},
        {"config": {"vocab_size": 50000}},
        {"kv_cache_dtype": "fp8"},
        {"batch": {"max_num_seqs": 128}},
        {"batch": {"max_num_batched_tokens": 2048}},
        {"batch": {"tensor_parallel_size": 3}},
    ],
)
def test_another_situation_has_another_key(fields: dict[str, Any]) -> None:
    assert key(**fields) != key()


def test_model_by_another_name_is_the_same_model() -> None:
    assert key(config={"_name_or_path": "somebody/else"}) == key()


def test_unknown_engine_has_no_key() -> None:
    assert key(engine_version="") == ""


def test_sizes_are_in_whole_mebibytes_where_they_are_kept() -> None:
    assert start(1).taken % MIB == 0


def activations(*gib: float) -> Correction | None:
    """Starts of two services whose activation took so much."""
    return found(*(start(number, each - 2.0, service=f"{number % 2:08x}") for number, each in enumerate(gib)))


@pytest.mark.parametrize(
    ("measured", "less_cache"),
    [((2.30, 2.26, 2.31), 0.30), ((1.70, 1.74, 1.69), -0.30), ((1.70, 1.74), 0.0)],
)
def test_worked_example_of_the_sizing_page(measured: tuple[float, ...], less_cache: float) -> None:
    result = activations(*measured)

    assert (0 if result is None else result.taken) == pytest.approx(less_cache * GIB, abs=1)


@pytest.mark.parametrize("total", [0, MIB])
def test_a_card_of_nothing_is_not_believed(total: int) -> None:
    assert found(start(1, total=total, catalogue_size=False)) is None

"""vLLM's flags: read as its own parser reads them, and refused by name."""

from typing import Any

import pytest

from llmservice_operator.engines.flags import ALIASES, MEMORY_FLAGS, canonical_name, known_names, read_flags
from llmservice_operator.errors import InvalidInputError

VERSION = (0, 26, 0)


def value_of(name: str, text: str | None) -> Any:
    (value,) = read_flags([(name, text)], VERSION).values.values()
    return value


@pytest.mark.parametrize("alias", sorted(ALIASES))
def test_every_alias_is_of_a_flag_that_exists(alias: str) -> None:
    assert canonical_name(alias) in known_names()


def test_every_flag_that_moves_memory_is_one_of_vllms() -> None:
    assert set(MEMORY_FLAGS) <= set(known_names())


@pytest.mark.parametrize(
    "spelling", ["max_model_len", "max-model-len", "--max-model-len", "max_model", "max-model"]
)
def test_spellings_of_one_flag(spelling: str) -> None:
    assert canonical_name(spelling) == "max_model_len"


def test_the_spelling_of_the_engines_own_log() -> None:
    assert value_of("kv-cache-memory", "1024") == 1024


# `1k` is 1,000 and `1K` 1,024 (vllm/utils/argparse_utils.py, human_readable_int).
@pytest.mark.parametrize(
    ("text", "expected"),
    [("8192", 8192), ("8k", 8000), ("8K", 8192), ("1.5k", 1500), ("auto", -1), ("-1", -1)],
)
def test_lengths(text: str, expected: int) -> None:
    assert value_of("max_model_len", text) == expected


@pytest.mark.parametrize("text", [None, "true", "True", "1"])
def test_a_switch_is_on(text: str | None) -> None:
    assert value_of("enforce_eager", text) is True


@pytest.mark.parametrize("given", [("no_enable_prefix_caching", None), ("enable_prefix_caching", "false")])
def test_a_switch_is_off(given: tuple[str, str | None]) -> None:
    assert value_of(*given) is False


def test_keys_of_a_json_flag() -> None:
    given = [("speculative_config.method", "ngram"), ("speculative-config.num_speculative_tokens", "3")]

    assert read_flags(given, VERSION).values == {
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 3}
    }


@pytest.mark.parametrize("text", ["[4, 1, 2]", "1,2,4", "1 2 4"])
def test_lists_of_sizes(text: str) -> None:
    assert value_of("cudagraph_capture_sizes", text) == (1, 2, 4)


def test_the_last_word_counts() -> None:
    assert read_flags([("tp", "2"), ("tensor_parallel_size", "4")], VERSION).values == {
        "tensor_parallel_size": 4
    }


def test_a_flag_that_moves_no_memory_is_taken_and_said_to_be_without_effect() -> None:
    given = read_flags([("seed", "1")], VERSION)

    assert given.notes == ("seed is without effect on the accelerator's memory",)


def test_a_flag_that_the_account_does_not_follow_is_said() -> None:
    given = read_flags([("attention_backend", "FLASHINFER")], VERSION)

    assert given.notes == ("attention_backend may move memory in a way that isn't counted here",)


# Absent in 0.9.2, present in 0.10.2; swap space went between 0.14 and 0.19.
@pytest.mark.parametrize(
    ("name", "version", "said"),
    [
        (
            "kv_cache_memory_bytes",
            (0, 8, 5),
            "vLLM 0.8.5 has no flag kv_cache_memory_bytes yet and refuses it",
        ),
        ("swap_space", (0, 26, 0), "vLLM 0.26.0 no longer has the flag swap_space and refuses it"),
    ],
)
def test_a_flag_of_other_versions_is_said(name: str, version: tuple[int, int, int], said: str) -> None:
    assert said in read_flags([(name, "4")], version).notes


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("max_model_length", "1", "did you mean max_model_len?"),
        ("flux_capacitor", "1", "vLLM has no such flag"),
        ("max_num", "1", "write the whole name of one"),
        ("gpu_memory_utilization", "nan", "gpu_memory_utilization=nan: more than 0 and at most 1"),
        ("gpu_memory_utilization", "95", "gpu_memory_utilization=95: more than 0 and at most 1"),
        ("gpu_memory_utilization", "0", "more than 0 and at most 1"),
        ("tp", "-1", "tensor_parallel_size=-1: at least 1"),
        ("tp", "two", "tensor_parallel_size=two: a whole number"),
        ("max_num_seqs", "1e3", "max_num_seqs=1e3: a whole number"),
        ("max_num_seqs", "9" * 30, "at most 131,072"),
        ("max_num_seqs", "9" * 5000, "a whole number"),
        ("max_model_len", "0", "auto, or 1 to"),
        ("block_size", "", "a value is missing"),
        ("max_num_seqs", None, "a value is missing"),
        ("dtype", "float8", "dtype=float8: one of auto, half"),
        ("enforce_eager", "maybe", "enforce_eager=maybe: true or false"),
        ("hf_overrides", "[1]", "hf_overrides=[1]: a JSON object"),
        ("hf_overrides", '{"a": NaN}', "a JSON object"),
        ("hf_overrides", "[" * 100_000, "a JSON object"),
        ("cudagraph_capture_sizes", "[0]", "whole numbers of 1 to"),
        ("max_num_seqs.x", "1", "max_num_seqs has no keys"),
        ("no_max_num_seqs", "1", "only switches have a no_ form"),
        ("cpu_offload_gb", "inf", "cpu_offload_gb=inf: at least 0"),
    ],
)
def test_refusals_name_flag_value_and_mend(name: str, text: str | None, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_flags([(name, text)], VERSION)

    assert message in str(caught.value)
    assert len(str(caught.value)) < 300

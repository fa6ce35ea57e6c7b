"""Reserved flags: no spelling that vLLM takes for one gets through, and no other flag is refused.

`vllm_0_33_flags.txt` has every long flag of vLLM 0.33.0 (`vllm serve --help=all`).
"""

from pathlib import Path

import pytest

from llmservice_operator.api.reserved import (
    FLAG_ALIASES,
    RESERVED_ARGS,
    RESERVED_ENV,
    argument_mend,
    environment_mend,
    flag_of_key,
)

FLAGS = (Path(__file__).parent / "vllm_0_33_flags.txt").read_text(encoding="utf-8").split()
LONG = {*FLAGS, "device-memory-utilization"}

EARLIER = {"task", "device"}
"""Reserved flags that earlier releases had."""
PARSERS_OWN = {"help", "version"}


def taken_for(text: str) -> str | None:
    """The flag that Python's argparse takes `--text` for: itself, or the only one that it begins."""
    if text in LONG:
        return text
    begun = [flag for flag in LONG if flag.startswith(text)]
    return begun[0] if len(begun) == 1 else None


def test_every_reserved_flag_is_one_of_the_engine() -> None:
    assert RESERVED_ARGS.keys() - set(FLAGS) == EARLIER | PARSERS_OWN


@pytest.mark.parametrize("flag", sorted(RESERVED_ARGS.keys() & set(FLAGS)))
def test_every_beginning_that_the_engine_takes_for_a_reserved_flag_is_refused(flag: str) -> None:
    beginnings = [flag[:length] for length in range(1, len(flag) + 1)]

    through = [each for each in beginnings if taken_for(each) == flag and argument_mend(each) is None]
    assert through == []


@pytest.mark.parametrize("flag", sorted(set(FLAGS) - RESERVED_ARGS.keys()))
def test_no_other_flag_is_refused(flag: str) -> None:
    assert argument_mend(flag) is None


@pytest.mark.parametrize("alias", sorted(FLAG_ALIASES))
def test_no_second_spelling_is_taken(alias: str) -> None:
    assert argument_mend(alias) is not None


def test_underscores_hide_nothing() -> None:
    assert argument_mend("tensor_parallel_size") == argument_mend("tensor-parallel-size")


def test_a_dotted_name_is_judged_by_its_flag() -> None:
    assert flag_of_key("compilation_config.pass_config") == "compilation-config"
    assert argument_mend("compilation-config.mode") is None
    assert argument_mend("max-model-len.x") is not None


def test_the_negated_form_names_the_form_to_use() -> None:
    assert argument_mend("no-enable-prefix-caching") == 'write enable-prefix-caching: "false"'


@pytest.mark.parametrize("name", sorted(RESERVED_ENV))
def test_a_reserved_variable_has_a_mend(name: str) -> None:
    assert environment_mend(name) == RESERVED_ENV[name]


def test_the_operators_own_variables_are_refused_by_their_prefix() -> None:
    assert environment_mend("LLMSERVICE_ANYTHING") is not None


@pytest.mark.parametrize("name", ["NCCL_DEBUG", "VLLM_LOGGING_LEVEL", "HF_HUB_OFFLINE", "OMP_NUM_THREADS"])
def test_other_variables_are_the_users(name: str) -> None:
    assert environment_mend(name) is None

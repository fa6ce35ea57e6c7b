"""The command line of vLLM."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from llmservice_operator.api.reserved import argument_mend
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.engines.vllm import VllmEngine, resolve_model_path, supervised_args
from llmservice_operator.errors import InvalidInputError
from llmservice_operator.planning.types import Plan
from unit.perfmodel.samples import SMOLLM2, on, planned


@dataclass(frozen=True)
class Identity:
    name: str = "svc"


GPU = on("nvidia-h200")


def arguments(spec: dict[str, Any], plan: Plan | None = None) -> tuple[str, ...]:
    whole = {"model": {"uri": "hf://org/model"}, **spec}
    return VllmEngine().arguments(
        LLMServiceSpec.model_validate(whole), plan or planned(SMOLLM2, spec), Identity()
    )


def value_of(flag: str, given: tuple[str, ...]) -> str | None:
    return given[given.index(flag) + 1] if flag in given else None


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("hf://Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("pvc://models/smollm2", "/models/models/smollm2"),
        ("pvc://models", "/models/models"),
        ("file:///opt/models/a/", "/opt/models/a"),
    ],
)
def test_what_the_engine_is_told_to_load(uri: str, path: str) -> None:
    assert resolve_model_path(uri) == path


@pytest.mark.parametrize("uri", ["s3://bucket/model", "Qwen/Qwen3-8B", "hf://", ""])
def test_another_address_is_refused_with_the_mend(uri: str) -> None:
    with pytest.raises(InvalidInputError, match="write hf://org/name"):
        resolve_model_path(uri)


def test_the_default_command_is_the_module() -> None:
    assert VllmEngine().default_command() == ("python3", "-m", "vllm.entrypoints.openai.api_server")


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--model", "org/model"),
        ("--served-model-name", "svc"),
        ("--host", "0.0.0.0"),
        ("--port", "8000"),
        ("--revision", "main"),
        ("--max-model-len", "8192"),
        ("--gpu-memory-utilization", "0.95"),
        ("--max-num-seqs", "256"),
        ("--max-num-batched-tokens", "8192"),
        ("--tensor-parallel-size", None),
        ("--kv-cache-dtype", None),
        ("--block-size", None),
        ("--quantization", None),
        ("--shutdown-timeout", "5"),
    ],
)
def test_a_plain_service(flag: str, value: str | None) -> None:
    assert value_of(flag, arguments(GPU)) == value


@pytest.mark.parametrize(
    ("engine", "flag", "value"),
    [
        ({"kvCacheDtype": "fp8"}, "--kv-cache-dtype", "fp8"),
        ({"quantization": "fp8"}, "--quantization", "fp8"),
        ({"pin": {"blockSize": 32}}, "--block-size", "32"),
        ({"pin": {"gpuMemoryUtilization": 0.5}}, "--gpu-memory-utilization", "0.5"),
        ({"args": {"tool_call_parser": "hermes"}}, "--tool-call-parser", "hermes"),
        ({"args": {"compilation-config.mode": "3"}}, "--compilation-config.mode", "3"),
        (
            {"args": {"default-chat-template-kwargs.enable_thinking": "false"}},
            "--default-chat-template-kwargs.enable_thinking",
            "false",
        ),
    ],
)
def test_what_the_user_says(engine: dict[str, Any], flag: str, value: str) -> None:
    assert value_of(flag, arguments({**GPU, "engine": engine})) == value


@pytest.mark.parametrize(
    ("engine", "word"),
    [
        ({"args": {"enable-auto-tool-choice": "true"}}, "--enable-auto-tool-choice"),
        ({"args": {"async-scheduling": "false"}}, "--no-async-scheduling"),
        ({"args": {"seed": "-1"}}, "--seed=-1"),
        ({"prefixCaching": False}, "--no-enable-prefix-caching"),
    ],
)
def test_switches(engine: dict[str, Any], word: str) -> None:
    assert word in arguments({**GPU, "engine": engine})


def test_a_switch_takes_no_value() -> None:
    given = arguments({**GPU, "engine": {"args": {"enable-auto-tool-choice": "true"}}})

    assert "true" not in given


def test_the_served_name_is_the_users() -> None:
    spec = {**GPU, "model": {"uri": "hf://org/model", "servedName": "mine"}}

    assert value_of("--served-model-name", arguments(spec, planned(SMOLLM2, GPU))) == "mine"


def test_a_local_model_has_no_revision() -> None:
    spec = {**GPU, "model": {"uri": "pvc://models/a"}}

    assert "--revision" not in arguments(spec, planned(SMOLLM2, GPU))


def test_the_cpu_row_passes_its_dtype() -> None:
    assert value_of("--dtype", arguments(on("cpu"))) == "float32"


def test_a_dtype_of_the_users_is_passed_once() -> None:
    given = arguments({**on("cpu"), "engine": {"args": {"dtype": "bfloat16"}}})

    assert (given.count("--dtype"), value_of("--dtype", given)) == (1, "bfloat16")


def test_an_old_version_has_no_shutdown_timeout() -> None:
    old = planned(SMOLLM2, GPU, engine_version="0.16.0")

    assert "--shutdown-timeout" not in arguments(GPU, old)


TRACKING, ACCESS_LOG = "--enable-server-load-tracking", "--disable-access-log-for-endpoints"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("", set()),
        ("nightly", set()),
        ("0.8.5", set()),
        ("0.10.2", {TRACKING}),
        ("0.15.1", {TRACKING}),
        ("0.16.0", {TRACKING, ACCESS_LOG}),
        ("0.26.0", {TRACKING, ACCESS_LOG}),
        ("0.33.0", {TRACKING, ACCESS_LOG}),
    ],
)
def test_the_supervisors_flags_are_passed_to_versions_that_have_them(
    version: str, expected: set[str]
) -> None:
    given = arguments(GPU, planned(SMOLLM2, GPU, engine_version=version))

    assert {TRACKING, ACCESS_LOG} & set(given) == expected


def test_what_the_supervisor_reads_is_not_logged() -> None:
    given = arguments(GPU, planned(SMOLLM2, GPU, engine_version="0.26.0"))

    assert value_of(ACCESS_LOG, given) == "/health,/metrics,/load"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("enable_server_load_tracking", "false", ("--no-enable-server-load-tracking",)),
        ("disable-access-log-for-endpoints", "/health", (ACCESS_LOG, "/health")),
    ],
)
def test_the_users_own_word_on_them_is_the_only_one(name: str, value: str, words: tuple[str, ...]) -> None:
    spec = {**GPU, "engine": {"args": {name: value}}}

    given = arguments(spec, planned(SMOLLM2, GPU, engine_version="0.26.0"))

    said = name.replace("_", "-")
    assert given[-len(words) :] == words
    assert sum(word.removeprefix("--").removeprefix("no-") == said for word in given) == 1


def test_no_secret_stands_on_the_command_line() -> None:
    spec = {**GPU, "engine": {"apiKeySecret": {"name": "keys", "key": "api"}}}

    assert not any("key" in word for word in arguments(spec, planned(SMOLLM2, GPU)))


def test_every_flag_of_the_plan_is_reserved_for_it() -> None:
    """What the operator sets, a user can't set again: the API's table holds each flag (dtype is the user's)."""
    plan = replace(planned(SMOLLM2, GPU), engine_args=())
    flags = {word.removeprefix("--") for word in arguments(GPU, plan) if word.startswith("--")}
    flags -= supervised_args(plan.engine_version).keys()

    assert [flag for flag in flags if argument_mend(flag) is None] == []


def test_the_same_inputs_give_the_same_words() -> None:
    spec = {**GPU, "engine": {"args": {"seed": "1", "max-logprobs": "2"}}}

    assert arguments(spec) == arguments({**GPU, "engine": {"args": {"max-logprobs": "2", "seed": "1"}}})


@pytest.mark.parametrize(
    ("version", "row", "is_on"),
    [
        ("0.33.0", "nvidia-h200", True),
        ("0.17.0", "nvidia-h200", True),
        ("0.16.0", "nvidia-h200", False),
        ("", "nvidia-h200", False),
        ("0.32.0", "cpu", False),
    ],
)
def test_a_gpu_s_engine_counts_the_bytes_it_moves_where_its_version_can(
    version: str, row: str, is_on: bool
) -> None:
    spec = {**on(row), "engine": {"version": version}}

    assert (
        "--enable-mfu-metrics" in arguments(spec, planned(SMOLLM2, spec, engine_version=version))
    ) == is_on


def test_the_user_s_own_word_on_counting_bytes_goes_first() -> None:
    spec = {**GPU, "engine": {"args": {"enable_mfu_metrics": "false"}}}

    given = arguments(spec, planned(SMOLLM2, spec))

    assert "--no-enable-mfu-metrics" in given
    assert "--enable-mfu-metrics" not in given

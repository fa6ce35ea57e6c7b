"""Environment variables that an account follows, and what is said of others."""

import pytest

from llmservice_operator.engines.environment import COUNTED, environment_notes


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("VLLM_KV_CACHE_LAYOUT", "VLLM_KV_CACHE_LAYOUT may move memory in a way that isn't counted here"),
        (
            "VLLM_USE_FLASHINFER_SAMPLR",
            "VLLM_USE_FLASHINFER_SAMPLR isn't counted; did you mean VLLM_USE_FLASHINFER_SAMPLER?",
        ),
        ("VLLM_LOGGING_LEVEL", "VLLM_LOGGING_LEVEL isn't counted"),
    ],
)
def test_what_is_not_followed_is_said(name: str, said: str) -> None:
    assert list(environment_notes([name])) == [said]


def test_nothing_is_said_of_what_counts_and_of_what_is_not_vllms() -> None:
    assert list(environment_notes([*COUNTED, "HF_HOME", "PATH"])) == []

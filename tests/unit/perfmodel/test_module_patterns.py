"""Ignore lists are other people's text: what they name, and that none of them can hold the planner up."""

import time

import pytest

from llmservice_operator.perfmodel.config_reader import ConfigError
from llmservice_operator.perfmodel.module_patterns import ModulePatterns, PatternError
from llmservice_operator.perfmodel.quantization import read_quantization

MODULE = "layers.11.self_attn.q_proj"


@pytest.mark.parametrize(
    "entry",
    [
        "model.layers.11.self_attn",
        "self_attn",
        "language_model.layers.11.*",
        "model.layers.1?.self*",
        "*self_attn*",
        "*.1[0-2].*",
        "*.1[!3].*",
        "re:self_attn",
        r"re:(?i)layers\.\d+\.SELF_attn",
        r"re:.*layers\.(?P<n>11)\..*",
    ],
)
def test_an_entry_names_a_module(entry: str) -> None:
    assert ModulePatterns([entry]).matches(MODULE)


@pytest.mark.parametrize(
    "entry", ["model.layers.1", "*.1[!1].*", "model.layers.2*", "re:^self_attn", "re:mlp"]
)
def test_an_entry_names_no_other(entry: str) -> None:
    assert not ModulePatterns([entry]).matches(MODULE)


def test_patterns_that_use_one_name_for_their_groups_stand_side_by_side() -> None:
    assert ModulePatterns([r"re:(?P<n>x)", r"re:(?P<n>self)"]).matches(MODULE)


@pytest.mark.parametrize(
    "pattern", ["re:((.*)*)*!", "re:(.*.*.*.*.*.*.*.*.*)*!", "re:(l|a|y|e|r|s|.)*.*.*.*!"]
)
def test_a_pattern_takes_time_proportional_to_the_name(pattern: str) -> None:
    """A matcher that goes back and tries again needs years for each of these."""
    patterns = ModulePatterns([pattern])
    started = time.process_time()

    assert not patterns.matches(f"{MODULE}." * 20)
    assert time.process_time() - started < 1


@pytest.mark.parametrize("pattern", ["re:((", r"re:(a)\1", "re:^(?!.*experts).*", "re:((a{999}){999}){999}"])
def test_a_pattern_that_cannot_be_matched_is_named(pattern: str) -> None:
    with pytest.raises(PatternError, match=r"the pattern .* ConfigMap"):
        ModulePatterns([pattern])


def test_too_many_patterns_are_refused_with_their_limit() -> None:
    with pytest.raises(PatternError, match="at most 262,144 characters"):
        ModulePatterns([f"re:layers.{n}.x" for n in range(20_000)])


def test_a_config_is_refused_for_its_pattern() -> None:
    with pytest.raises(ConfigError, match=r"quantization_config\.ignore .* the pattern '\(\('"):
        read_quantization({"quantization_config": {"quant_method": "fp8", "ignored_layers": ["re:(("]}})

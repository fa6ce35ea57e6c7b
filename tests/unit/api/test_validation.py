"""The check without an API server: the same objects are refused and accepted as by the API server."""

from pathlib import Path

import pytest
import yaml

from integration.api.bad_objects import BadObject, read_bad_objects
from llmservice_operator.api.validation import check_object, check_spec

BAD = read_bad_objects()
GOOD = sorted((Path(__file__).parents[2] / "integration" / "api" / "good").glob("*.yaml"))


@pytest.mark.parametrize("name", BAD)
def test_a_bad_object_is_refused_in_these_words(name: str) -> None:
    bad: BadObject = BAD[name]
    problems = [str(problem) for problem in check_object(bad.manifest)]

    assert bad.offline, "the file does not say which words"
    for words in bad.offline:
        assert any(words in problem for problem in problems), problems


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_good_object_is_accepted(path: Path) -> None:
    assert check_object(yaml.safe_load(path.read_text(encoding="utf-8"))) == ()


def test_all_problems_are_told_at_once() -> None:
    fields = {
        problem.field for problem in check_spec({"model": {"uri": "s3://a/b"}, "replicas": -1, "extra": 1})
    }

    assert fields == {"spec.model.uri", "spec.replicas", "spec.extra"}


def test_another_kind_is_told() -> None:
    (problem,) = check_object(
        {
            "apiVersion": "llmservice.dev/v1alpha1",
            "kind": "Pod",
            "metadata": {"name": "a"},
            "spec": {"model": {"uri": "hf://a/b"}},
        }
    )

    assert str(problem) == "kind: is 'Pod', and must be LLMService"

"""Whose an object is."""

import pytest

from llmservice_operator.resources.metadata import owner_reference
from llmservice_operator.resources.ownership import is_ours, not_ours_message
from llmservice_operator.resources.types import Manifest
from unit.resources.samples import IDENTITY

OURS = owner_reference(IDENTITY)


def test_what_the_service_controls_is_ours() -> None:
    assert is_ours({"metadata": {"ownerReferences": [OURS]}}, IDENTITY)


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"labels": {"llmservice.dev/service": "qwen3-8b"}},
        {"ownerReferences": [{**OURS, "uid": "of an earlier service of this name"}]},
        {"ownerReferences": [{**OURS, "controller": False}]},
    ],
)
def test_all_else_is_not(metadata: Manifest) -> None:
    assert not is_ours({"metadata": metadata}, IDENTITY)


def test_what_is_not_ours_is_named_with_the_mend() -> None:
    owner = {"kind": "Rollout", "name": "web", "uid": "1", "controller": True}
    message = not_ours_message(
        "Deployment", {"metadata": {"name": "a", "ownerReferences": [owner]}}, IDENTITY
    )

    assert message == (
        "Deployment team-a/a is not this service's (it belongs to Rollout web) and is left alone: delete it "
        "(kubectl -n team-a delete deployment a), or give the LLMService another name"
    )

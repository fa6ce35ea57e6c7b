"""Revisions: what makes pods restart, and what does not."""

import json
from dataclasses import replace
from typing import Any

import pytest

from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.errors import InvalidInputError
from llmservice_operator.planning.types import Plan
from llmservice_operator.resources.inputs import inputs_hash, spec_from_inputs, user_inputs
from llmservice_operator.resources.pod import render_pod_template
from llmservice_operator.resources.revision import (
    Revision,
    choose,
    newest,
    pack,
    revision_name,
    superfluous,
    unpack,
)
from llmservice_operator.resources.types import Manifest, RenderSettings
from unit.resources.samples import H200_PLAN, IDENTITY, SETTINGS, RecordedEngine, spec

NEXT_RELEASE = replace(SETTINGS, supervisor_image="ghcr.io/llmservice/operator:0.2.0")
SHORTER = replace(H200_PLAN, knobs=replace(H200_PLAN.knobs, max_model_len=16384))


def revision(
    said: LLMServiceSpec | None = None,
    *,
    settings: RenderSettings = SETTINGS,
    plan: Plan = H200_PLAN,
    annotations: dict[str, str] | None = None,
    config_digest: str = "c0ffee",
) -> Revision:
    """What a release with these settings makes of these words."""
    said = said or spec()
    words = annotations or {}
    restart = words.get("llmservice.dev/restart", "")
    template = render_pod_template(
        IDENTITY, said, plan, settings, None, engine=RecordedEngine(), restart=restart
    )
    inputs = user_inputs(said, words, config_digest)
    return Revision(
        name=revision_name(IDENTITY.name, template, plan),
        template=template,
        plan=plan,
        inputs=inputs,
        inputs_hash=inputs_hash(inputs),
        engine_image="vllm/vllm-openai:v0.33.0",
        supervisor_image=settings.supervisor_image,
        model_revision=None,
    )


def test_the_first_revision() -> None:
    choice = choose(None, None, revision(), "now")

    assert choice.verdict == "first"
    assert choice.revision.refresh == "now"


def test_an_upgrade_restarts_nothing() -> None:
    """Same words, another init image: the stored template stays, and the difference is told."""
    stored, candidate = revision(), revision(settings=NEXT_RELEASE)
    choice = choose(stored, candidate, candidate, "")

    assert (choice.verdict, choice.revision) == ("keep", stored)
    assert choice.differences == (
        (
            "template.spec.initContainers[supervisor].image: ghcr.io/llmservice/operator:0.1.0 → "
            "ghcr.io/llmservice/operator:0.2.0"
        ),
    )


def test_another_catalogue_restarts_nothing() -> None:
    stored, candidate = revision(), revision(plan=SHORTER)
    choice = choose(stored, candidate, candidate, "")

    assert (choice.verdict, choice.revision) == ("keep", stored)
    assert "knobs.max_model_len: 32768 → 16384" in choice.differences


def test_nothing_new_is_no_difference() -> None:
    assert choose(revision(), revision(), revision(), "").differences == ()


def test_an_edit_that_changes_no_knob_restarts_nothing() -> None:
    stored = revision()
    said = spec(workload={"inputTokens": {"p50": 900}})
    choice = choose(stored, revision(), revision(said), "")

    assert (choice.verdict, choice.revision.name) == ("keep", stored.name)


def test_an_edit_that_changes_no_knob_is_remembered() -> None:
    """Otherwise each reconcile would plan twice, and later edits would be compared with words long gone."""
    said = spec(workload={"inputTokens": {"p50": 900}})
    kept = choose(revision(), revision(), revision(said), "").revision

    assert kept.inputs["workload"] == {"inputTokens": {"p50": 900}}
    assert choose(kept, None, revision(said), "").revision == kept


def test_an_upgrade_does_not_ride_on_an_edit_that_changes_nothing() -> None:
    said = spec(workload={"inputTokens": {"p50": 900}})
    stored = revision()
    choice = choose(stored, revision(settings=NEXT_RELEASE), revision(said, settings=NEXT_RELEASE), "")

    assert (choice.verdict, choice.revision.template) == ("keep", stored.template)
    assert choice.differences


def test_an_edit_that_changes_a_knob_rolls() -> None:
    candidate = revision(spec(workload={"context": {"max": 16384}}), plan=SHORTER)
    choice = choose(revision(), revision(), candidate, "")

    assert (choice.verdict, choice.revision.name) == ("roll", candidate.name)
    assert choice.revision.number == 2


def test_an_edit_that_changes_the_pod_rolls() -> None:
    candidate = revision(spec(podTemplate={"nodeSelector": {"pool": "b"}}))

    assert choose(revision(), revision(), candidate, "").verdict == "roll"


def test_an_edit_towards_what_runs_restarts_nothing() -> None:
    """The old release's words give another plan now, and the user asks for just what runs."""
    stored = revision(plan=SHORTER)
    candidate = revision(spec(engine={"pin": {"maxModelLen": 16384}}), plan=SHORTER)
    choice = choose(stored, revision(), candidate, "")

    assert (choice.verdict, choice.revision.name) == ("keep", stored.name)


def test_another_config_with_the_same_outcome_restarts_nothing() -> None:
    stored, candidate = revision(), revision(config_digest="d00d")
    choice = choose(stored, None, candidate, "")

    assert (choice.verdict, choice.revision.inputs_hash) == ("keep", candidate.inputs_hash)


def test_another_config_with_another_outcome_rolls() -> None:
    assert choose(revision(), None, revision(config_digest="d00d", plan=SHORTER), "").verdict == "roll"


def test_the_restart_annotation_rolls() -> None:
    candidate = revision(annotations={"llmservice.dev/restart": "1"})

    assert choose(revision(), revision(), candidate, "").verdict == "roll"


def test_the_refresh_annotation_takes_the_upgrade() -> None:
    choice = choose(revision(), None, revision(settings=NEXT_RELEASE), "take it")

    assert (choice.verdict, choice.revision.refresh) == ("refreshed", "take it")
    assert choice.revision.supervisor_image == "ghcr.io/llmservice/operator:0.2.0"


def test_the_refresh_annotation_is_obeyed_once() -> None:
    taken = choose(revision(), None, revision(settings=NEXT_RELEASE), "take it").revision
    later = revision(settings=replace(SETTINGS, supervisor_image="ghcr.io/llmservice/operator:0.3.0"))

    assert choose(taken, None, later, "take it").verdict == "keep"


def test_a_refresh_without_news_restarts_nothing() -> None:
    stored = revision()
    choice = choose(stored, None, revision(), "again")

    assert (choice.verdict, choice.revision.name, choice.revision.refresh) == ("keep", stored.name, "again")


def test_taking_the_refresh_annotation_off_restarts_nothing() -> None:
    stored = replace(revision(), refresh="take it")

    assert choose(stored, None, revision(settings=NEXT_RELEASE), "").verdict == "keep"


@pytest.mark.parametrize(
    "fields",
    [
        {"replicas": 5},
        {"scaling": {"minReplicas": 1, "maxReplicas": 4}},
        {"service": {"port": 80}},
        {"engine": {"name": "vllm", "prefixCaching": True}},
        {"drain": {"timeout": "5m"}},
    ],
    ids=["replicas", "scaling", "service", "defaults written down", "the default drain"],
)
def test_what_is_no_input(fields: dict[str, Any]) -> None:
    assert user_inputs(spec(**fields), {}, "") == user_inputs(spec(), {}, "")


@pytest.mark.parametrize(
    "fields",
    [
        {"model": {"uri": "hf://Qwen/Qwen3-4B"}},
        {"engine": {"args": {"seed": "1"}}},
        {"accelerator": {"types": ["nvidia-h200"]}},
        {"workload": {"concurrency": {"min": 4}}},
        {"podTemplate": {"labels": {"a": "b"}}},
        {"drain": {"timeout": "1m"}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_is_an_input(fields: dict[str, Any]) -> None:
    assert inputs_hash(user_inputs(spec(**fields), {}, "")) != inputs_hash(user_inputs(spec(), {}, ""))


def test_other_annotations_are_no_input() -> None:
    annotations = {"llmservice.dev/refresh": "x", "llmservice.dev/paused": "true", "kubectl": "y"}

    assert user_inputs(spec(), annotations, "") == user_inputs(spec(), {}, "")


def test_the_old_words_can_be_read_back() -> None:
    old = spec(engine={"args": {"seed": "1"}}, drain={"timeout": "1m"})
    read = spec_from_inputs(user_inputs(old, {}, "c0ffee"), spec(replicas=3))

    assert read is not None
    assert (read.engine, read.drain, read.replicas) == (old.engine, old.drain, 3)


def test_words_that_this_release_cannot_read_give_no_baseline() -> None:
    assert spec_from_inputs({"model": {"uri": "hf://a/b", "gone": 1}}, spec()) is None


def test_the_name_is_the_contents() -> None:
    assert revision().name == revision(spec(replicas=3)).name
    assert revision().name != revision(plan=SHORTER).name


def test_the_name_fits_a_label() -> None:
    assert len(revision_name("a" * 63, {}, H200_PLAN)) <= 63


def test_packing_loses_nothing() -> None:
    stored = replace(
        revision(spec(engine={"args": {"seed": "1"}})), refresh="r", number=7, model_revision="b968826d9c46"
    )
    manifest = json.loads(json.dumps(pack(IDENTITY, stored)))

    assert unpack(manifest) == stored


def test_data_do_not_change_when_words_are_remembered() -> None:
    """The API server refuses a change of a ControllerRevision's data."""
    stored = revision()
    said = spec(workload={"inputTokens": {"p50": 900}})
    before = pack(IDENTITY, stored)
    read = unpack(before)
    kept = choose(read, revision(), revision(said), "").revision

    assert pack(IDENTITY, kept)["data"] == before["data"]
    assert unpack(pack(IDENTITY, kept)).inputs == kept.inputs


@pytest.mark.parametrize("data", [None, {}, {"template": {}, "plan": {}}])
def test_a_broken_revision_is_named(data: Manifest | None) -> None:
    manifest = {"metadata": {"name": "qwen3-8b-1"}, "revision": 1, "data": data}

    with pytest.raises(
        InvalidInputError, match=r"ControllerRevision qwen3-8b-1 cannot be read .*: delete it"
    ):
        unpack(manifest)


def test_words_taken_off_by_hand_restart_nothing() -> None:
    manifest = pack(IDENTITY, revision())
    del manifest["metadata"]["annotations"]

    assert choose(unpack(manifest), None, revision(), "").verdict == "keep"


def manifests(*numbers: int) -> list[Manifest]:
    return [{"metadata": {"name": f"r-{number}"}, "revision": number} for number in numbers]


def test_the_newest_has_the_highest_number() -> None:
    assert newest(manifests(2, 10, 9)) == manifests(10)[0]


def test_no_revision_is_the_newest_of_none() -> None:
    assert newest([]) is None


def test_three_revisions_are_kept() -> None:
    assert superfluous(manifests(1, 2, 3, 4, 5), ()) == ("r-2", "r-1")


def test_a_revision_that_a_pod_runs_is_kept() -> None:
    assert superfluous(manifests(1, 2, 3, 4, 5), {"r-1"}) == ("r-2",)

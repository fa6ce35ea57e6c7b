"""Warnings from what happened to others, and the score over what people reported."""

from accuracy.field import read_records, score, verdicts
from llmservice_operator.perfmodel.accelerators import find_row
from llmservice_operator.planning.estimate import EstimateInputs, estimate
from unit.perfmodel.samples import catalogue, load_config


def warnings(name: str, version: str, *flags: tuple[str, str]) -> str:
    row = find_row(catalogue(), "nvidia-h100-80gb")
    found = estimate(EstimateInputs(config=load_config(name), card=row, engine_version=version, flags=flags))
    return "; ".join(found.warnings)


def test_a_bold_utilization_is_warned_of() -> None:
    said = warnings("meta-llama--Meta-Llama-3.1-8B", "0.14.1", ("gpu_memory_utilization", "0.97"))

    assert "0.97 leaves 2.38 GiB for all that the engine doesn't count" in said


def test_the_same_is_not_said_of_versions_that_count_more() -> None:
    said = warnings("meta-llama--Meta-Llama-3.1-8B", "0.11.2", ("gpu_memory_utilization", "0.97"))

    assert "doesn't count" not in said


def test_images_on_an_engine_that_may_fall_back_are_warned_of() -> None:
    assert "engine V0" in warnings("Qwen--Qwen2.5-VL-7B-Instruct", "0.8.3")


def test_the_score_over_what_people_reported_holds_every_target() -> None:
    assert score(list(verdicts(read_records()))).misses == []

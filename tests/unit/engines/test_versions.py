"""Which version an image is, and which memory rules hold for it."""

import pytest

from llmservice_operator.engines.versions import known_version, memory_rules, runs_on_v2, version_from_image
from llmservice_operator.perfmodel.architecture import read_architecture
from unit.perfmodel.samples import load_config, read_starts, start_model

STARTS = read_starts("starts.json")


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.26.0", "0.26.0"),
        ("vllm/vllm-openai:v0.19.0-cu128", "0.19.0"),
        ("vllm/vllm-openai:v0.8.5.post1", "0.8.5"),
        ("docker.io/vllm/vllm-openai-rocm:v0.27.1", "0.27.1"),
        ("registry:5000/mirror/vllm-openai:v0.27.1@sha256:abc", "0.27.1"),
        ("ghcr.io/llmservice/vllm-cpu:0.32.0", "0.32.0"),
        ("ghcr.io/llmservice/fake-engine:0.32.0", "0.32.0"),
        ("vllm/vllm-openai:latest", ""),
        ("vllm/vllm-openai:nightly", ""),
        ("vllm/vllm-openai@sha256:abc", ""),
        ("vllm/vllm-openai", ""),
        ("registry:5000/vllm-openai", ""),
        ("lmcache/vllm-openai:v0.3.13", "0.3.13"),
        ("rayproject/ray-llm:2.52.0", ""),
        ("ghcr.io/llm-d/llm-d-cuda:v0.9.0", ""),
        ("nvcr.io/nvidia/vllm:25.09-py3", ""),
    ],
)
def test_the_version_that_an_images_tag_tells(image: str, version: str) -> None:
    assert version_from_image(image) == version


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("", "neither spec.engine.version nor the image's tag"),
        ("latest", "'latest', which is no version"),
        ("0.40.0", "newer than 0.33.0"),
        ("0.6.6", "older than 0.8"),
    ],
)
def test_a_version_that_is_not_known_is_planned_and_said(version: str, words: str) -> None:
    assert words in known_version(version).warning


def test_a_known_version_is_not_talked_about() -> None:
    assert known_version("v0.26.0").warning == ""


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS.keys())
def test_the_runner_is_the_one_that_was_seen(start: dict[str, str]) -> None:
    version = known_version(start["engine_version"]).version

    assert runs_on_v2(version, start_model(start)) == (start["runner"] == "V2")


@pytest.mark.parametrize(
    ("version", "model", "charged"),
    [
        ("0.19.0", "meta-llama--Meta-Llama-3.1-8B", False),
        ("0.20.2", "Qwen--Qwen3-30B-A3B", True),
        ("0.26.0", "meta-llama--Meta-Llama-3.1-8B", False),
        ("0.26.0", "Qwen--Qwen3-30B-A3B", True),
        ("0.33.0", "meta-llama--Meta-Llama-3.1-8B", True),
    ],
)
def test_whether_graphs_are_charged(version: str, model: str, charged: bool) -> None:
    rules = memory_rules(known_version(version).version, read_architecture(load_config(model)))

    assert rules.graphs_charged is charged

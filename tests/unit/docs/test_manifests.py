"""Every LLMService in the documentation can be planned, on the accelerators that it names."""

from typing import Any

import pytest
import yaml

from docs.pages import read_pages
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.engines.versions import version_from_image
from llmservice_operator.planning.plan import make_plan
from llmservice_operator.planning.types import ModelFacts, NodeAccelerators, Plan, PlanInputs
from unit.perfmodel.samples import catalogue, load_config

CONFIGS = {
    "hf://Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8": "Qwen--Qwen3-30B-A3B-FP8",
    "hf://meta-llama/Llama-3.1-8B-Instruct": "meta-llama--Meta-Llama-3.1-8B",
}
"""Models whose config.json is told by another one of the same shape; of others the folder has the model's name."""
NODE = NodeAccelerators(
    node_name="gpu-1",
    labels={"nvidia.com/gpu.product": "NVIDIA-L40S"},
    allocatable={"nvidia.com/gpu": 8, "cpu": 128, "memory": 2**40},
)
"""For services that name no accelerator."""


def services() -> dict[str, dict[str, Any]]:
    """The spec of each by page and line."""
    return {
        block.place: document["spec"]
        for page in read_pages().values()
        for block in page.blocks
        if block.language == "yaml"
        for document in yaml.safe_load_all(block.text)
        if isinstance(document, dict) and document.get("kind") == "LLMService"
    }


@pytest.mark.parametrize("spec", services().values(), ids=services().keys())
def test_a_service_of_the_documentation_is_planned(spec: dict[str, Any]) -> None:
    read = LLMServiceSpec.model_validate(spec)
    uri = read.model.uri
    config = CONFIGS.get(uri, uri.removeprefix("hf://").replace("/", "--"))

    result = make_plan(
        PlanInputs(
            service_name="documented",
            spec=read,
            model=ModelFacts(config=load_config(config)),
            catalogue=catalogue(),
            nodes=(NODE,),
            engine_version=read.engine.version or version_from_image(read.engine.image),
        )
    )

    assert isinstance(result, Plan), result

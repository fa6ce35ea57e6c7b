"""Stages of pipeline parallelism."""

import pytest

from llmservice_operator.perfmodel.architecture import read_architecture
from llmservice_operator.perfmodel.pipeline import layer_ranges, stage
from unit.perfmodel.samples import load_config


# vllm/distributed/utils.py: what is left goes to the stages before the last.
@pytest.mark.parametrize(
    ("layers", "stages", "sizes"),
    [
        (32, 2, [16, 16]),
        (48, 1, [48]),
        (61, 4, [15, 15, 16, 15]),
        (62, 4, [15, 16, 16, 15]),
        (63, 4, [16, 16, 16, 15]),
    ],
)
def test_layers_of_each_stage(layers: int, stages: int, sizes: list[int]) -> None:
    assert [end - begin for begin, end in layer_ranges(layers, stages)] == sizes


def test_a_partition_that_is_given() -> None:
    assert layer_ranges(48, 2, (16, 32)) == ((0, 16), (16, 48))


@pytest.mark.parametrize(
    ("stages", "partition"), [(49, ()), (0, ()), (2, (16, 16)), (2, (48,)), (2, (0, 48))]
)
def test_what_does_not_split_is_refused(stages: int, partition: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected"):
        layer_ranges(48, stages, partition)


@pytest.mark.parametrize("name", ["Qwen--Qwen3-30B-A3B", "openai--gpt-oss-20b", "Qwen--Qwen3.5-27B"])
def test_stages_share_all_layers_and_caches(name: str) -> None:
    model = read_architecture(load_config(name))
    ranges = layer_ranges(model.num_layers, 3)
    stages = [stage(model, ranges, index) for index in range(3)]

    assert sum((each.caches for each in stages), start=()) == model.caches
    in_layers = [w.module for each in stages for w in each.weights if w.module.startswith("layers.")]
    assert in_layers == [w.module for w in model.weights if w.module.startswith("layers.")]


def test_embedding_first_and_head_last() -> None:
    model = read_architecture(load_config("meta-llama--Meta-Llama-3.1-8B"))
    ranges = layer_ranges(model.num_layers, 2)
    first, last = ({w.module for w in stage(model, ranges, index).weights} for index in (0, 1))

    assert ("embed_tokens" in first, "lm_head" in first) == (True, False)
    assert ("embed_tokens" in last, "lm_head" in last) == (False, True)


def test_a_tied_embedding_is_on_both_ends() -> None:
    model = read_architecture(load_config("Qwen--Qwen3-0.6B"))
    ranges = layer_ranges(model.num_layers, 3)
    has = ["embed_tokens" in {w.module for w in stage(model, ranges, index).weights} for index in range(3)]

    assert has == [True, False, True]

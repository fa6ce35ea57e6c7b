"""Pipeline parallelism: which layers a stage has, and a stage as a model of its own."""

from collections.abc import Sequence
from dataclasses import replace

from llmservice_operator.perfmodel.shapes import VOCAB_PADDING, Architecture

Range = tuple[int, int]
"""First layer, and the one after the last."""


def layer_ranges(num_layers: int, stages: int, partition: Sequence[int] = ()) -> tuple[Range, ...]:
    """Layers of each stage (`get_pp_indices`, distributed/utils.py).

    An equal share each; what is left adds a layer to the last stages but the very last, which has the head. `partition`
    (VLLM_PP_LAYER_PARTITION) gives the numbers instead. Raises ValueError for more stages than layers, and for numbers
    that don't add up.
    """
    if not 1 <= stages <= num_layers:
        raise ValueError(f"{stages} stages for {num_layers} layers; at most one for each layer is expected")
    sizes = [num_layers // stages] * stages
    for place in range(2, num_layers % stages + 2):
        sizes[-place] += 1
    if partition:
        if len(partition) != stages or sum(partition) != num_layers or min(partition) < 1:
            raise ValueError(
                f"{','.join(map(str, partition))} layers; {stages} numbers of at least 1 are expected that add up to "
                f"{num_layers}"
            )
        sizes = list(partition)
    ends = [sum(sizes[: index + 1]) for index in range(stages)]
    return tuple((end - size, end) for end, size in zip(ends, sizes, strict=True))


def stage(model: Architecture, ranges: Sequence[Range], index: int) -> Architecture:
    """One stage as a model: its layers' weights and caches.

    The first has the embedding and the encoder, the last the head; a tied embedding is on both. A stage without a head
    makes no logits. Where not every layer keeps a cache, a stage's share of them goes by its share of layers.
    """
    first, last = index == 0, index == len(ranges) - 1
    begin, end = ranges[index]
    tied = not any(each.module == "lm_head" for each in model.weights)

    def belongs(module: str) -> bool:
        head, _, rest = module.partition(".")
        if head == "layers" and (number := rest.partition(".")[0]).isdigit():
            return begin <= int(number) < end
        if module == "embed_tokens":
            return first or (last and tied)
        return module != "lm_head" or last

    kept = len(model.caches)
    return replace(
        model,
        num_layers=end - begin,
        weights=tuple(each for each in model.weights if belongs(each.module)),
        caches=model.caches[kept * begin // model.num_layers : kept * end // model.num_layers],
        vision=model.vision if first else None,
        vocab_size=model.vocab_size if last else VOCAB_PADDING,
    )

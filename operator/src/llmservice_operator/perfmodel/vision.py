"""The encoder of a multimodal model: its weights, and what one token of it costs while it runs.

The blocks of a tower that vLLM has written itself are cut over the ranks (`--mm-encoder-tp-mode weights`; a 27-layer
tower at TP 2 on 0.12), its projector is whole on each. Towers that it takes from transformers, which pool instead of
merging, are whole.
"""

from llmservice_operator.perfmodel.config_reader import MAX_LAYERS, ConfigReader
from llmservice_operator.perfmodel.feed_forward import dense_weights
from llmservice_operator.perfmodel.shapes import Shard, VisionTower, Weight


def read_vision(config: ConfigReader, *, hidden_size: int) -> VisionTower | None:
    """The vision tower of `vision_config`; None for a text model. `hidden_size` is the language model's."""
    tower = config.nested("vision_config")
    if tower is None or not tower.has("hidden_size", "embed_dim", "width"):
        return None
    width = tower.integer("hidden_size", "embed_dim", "width")
    layers = tower.integer("depth", "num_hidden_layers", "num_layers", "layers", default=24)
    if layers > MAX_LAYERS:
        raise tower.error("depth", f"at most {MAX_LAYERS} layers is expected")
    inner = tower.integer("intermediate_size", default=int(width * tower.number("mlp_ratio", 4.0)))
    # A tower with a gated feed-forward says so by its activation; the others are plain (two matrices).
    gated = tower.text("hidden_act", "hidden_activation", default="gelu") == "silu" or tower.has(
        "global_head_dim"
    )
    merge = tower.integer("spatial_merge_size", "pooling_kernel_size", default=2)
    shard = Shard.REPLICATED if tower.has("pooling_kernel_size") else Shard.TENSOR
    weights: list[Weight] = []
    for index in range(layers):
        prefix = f"visual.blocks.{index}"
        weights.append(Weight(module=f"{prefix}.attn.qkv", rows=3 * width, columns=width, shard=shard))
        weights.append(Weight(module=f"{prefix}.attn.proj", rows=width, columns=width, shard=shard))
        weights += dense_weights(f"{prefix}.mlp", inner, gated=gated, hidden_size=width, shard=shard)
    patch = tower.integer("patch_size", default=14)
    frames = tower.integer("temporal_patch_size", default=1)
    pixels = 3 * patch * patch * frames
    positions = tower.integer("num_position_embeddings", "position_embedding_size", default=1)
    weights += [
        Weight(
            module="visual.patch_embed",
            rows=width,
            columns=pixels + positions,
            shard=Shard.REPLICATED,
            linear=False,
        ),
        *_merger(config, tower, width, merge, hidden_size),
    ]
    return VisionTower(
        hidden_size=width,
        intermediate_size=inner,
        merged_patches=_patches_of_a_token(config, tower, patch) or merge * merge,
        weights=tuple(weights),
        patch_elements=pixels,
        output_levels=1 + len(tower.sequence("deepstack_visual_indexes")),
        takes_videos=frames > 1,
    )


def _patches_of_a_token(config: ConfigReader, tower: ConfigReader, patch: int) -> int:
    """Where a config says how many tokens an image of one size becomes (models/gemma3_mm.py); 0: it doesn't."""
    tokens = config.integer("mm_tokens_per_image", default=0, minimum=0)
    side = tower.integer("image_size", default=0, minimum=0) // patch
    return side * side // tokens if tokens else 0


def _merger(
    config: ConfigReader, tower: ConfigReader, width: int, merge: int, hidden_size: int
) -> list[Weight]:
    """The projector: two matrices over merged patches, one set more for each deep-stack level."""
    merge_outside = config.integer("spatial_merge_size", default=0, minimum=0)
    if merge_outside:
        # A patch merger and a projector of two matrices (models/mistral3.py).
        sides = ((width, width * merge_outside**2), (hidden_size, width), (hidden_size, hidden_size))
        return [
            Weight(module=f"visual.projector.{index}", rows=rows, columns=columns, shard=Shard.REPLICATED)
            for index, (rows, columns) in enumerate(sides)
        ]
    if not tower.has("spatial_merge_size"):
        return [
            Weight(
                module="visual.projector",
                rows=hidden_size,
                columns=width,
                shard=Shard.REPLICATED,
                linear=False,
            )
        ]
    merged = width * merge * merge
    out = tower.integer("out_hidden_size", default=hidden_size)
    levels = 1 + len(tower.sequence("deepstack_visual_indexes"))
    return [
        Weight(module="visual.merger.0", rows=merged, columns=merged, shard=Shard.REPLICATED, copies=levels),
        Weight(module="visual.merger.1", rows=out, columns=merged, shard=Shard.REPLICATED, copies=levels),
    ]

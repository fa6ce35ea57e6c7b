"""Tables of cosines and sines: each rank keeps one for all positions of each kind of rotary embedding.

vLLM layers/rotary_embedding: `cos_sin_cache` of positions x rotary size in the model's dtype, one for all layers whose
parameters are equal (`get_rope`).
"""

from llmservice_operator.perfmodel.config_reader import ConfigReader
from llmservice_operator.perfmodel.shapes import Shard, Weight

MROPE_POSITIONS = 4
"""M-RoPE enlarges the table for videos (layers/rotary_embedding/mrope.py)."""
_SECTIONS = ("full_attention", "sliding_attention")


def rotary_weights(
    text: ConfigReader, *, root: ConfigReader, positions: int, head_size: int, full_head_size: int
) -> list[Weight]:
    """The tables of this model; `full_head_size` is the head of full-attention layers where it is another one."""
    if text.boolean("mla_use_nope", default=False):
        return []
    sections = text.nested("rope_parameters") or text.nested("rope_scaling")
    by_kind = sections is not None and sections.has(*_SECTIONS)
    if text.has("rope_local_base_freq") or by_kind:
        sizes = {
            "sliding": _rotary_size(text, sections, "sliding_attention", head_size),
            "full": _rotary_size(text, sections, "full_attention", full_head_size),
        }
    else:
        sizes = {"all": _rotary_size(text, sections, "all", head_size)}
    if _several_axes(sections, root):
        positions *= MROPE_POSITIONS
    return [
        _table(f"rotary_{kind}", positions * (1 if kind == "sliding" else _stretch(sections)), size)
        for kind, size in sizes.items()
    ]


def _stretch(sections: ConfigReader | None) -> int:
    """Linear and dynamic scaling have a row for each stretched position (linear_scaling_rope.py); YaRN's positions
    come stretched.
    """
    if sections is None or sections.text("rope_type", "type") not in {"linear", "dynamic"}:
        return 1
    return max(1, int(sections.number("factor", 1.0)))


def _table(module: str, positions: int, size: int) -> Weight:
    return Weight(
        module=module,
        rows=positions,
        columns=size,
        shard=Shard.REPLICATED,
        linear=False,
        in_checkpoint=False,
    )


def _several_axes(sections: ConfigReader | None, root: ConfigReader) -> bool:
    """M-RoPE: said by its sections, or told by a tower that merges patches of several frames."""
    if sections is not None and sections.has("mrope_section"):
        return True
    vision = root.nested("vision_config")
    return vision is not None and vision.has("spatial_merge_size") and vision.has("temporal_patch_size")


def _rotary_size(text: ConfigReader, sections: ConfigReader | None, kind: str, head_size: int) -> int:
    """Elements of a head that are rotated."""
    latent = text.integer("qk_rope_head_dim", default=0, minimum=0)
    if latent:
        return latent
    section = sections.nested(kind) if sections is not None and sections.has(kind) else sections
    # Proportional scaling pads the angles of the rest with zeros: the whole head is in the table (gemma4_rope.py).
    if section is not None and section.text("rope_type", "type") == "proportional":
        return head_size
    share = section.number("partial_rotary_factor", 0.0) if section is not None else 0.0
    for key in ("partial_rotary_factor", "rotary_pct", "rotary_percent"):
        share = share or text.number(key, 0.0)
    if not 0.0 <= share <= 1.0:
        raise text.error("partial_rotary_factor", "a share of 0 to 1 is expected")
    return text.integer("rotary_dim", default=max(1, int(head_size * (share or 1.0))))

"""Speculative decoding: what drafting adds to a model's caches, and which methods bring weights."""

from dataclasses import replace

from llmservice_operator.perfmodel.shapes import Architecture, AttentionCache

DRAFTS_WITHOUT_WEIGHTS = frozenset({"ngram", "ngram_gpu", "suffix"})
"""Methods that load nothing (config/speculative.py)."""


def drafting_layers(model: Architecture, method: str) -> int:
    """Attention layers that draft: the checkpoint's own, or EAGLE's one; a draft model's own config isn't read."""
    if method.endswith("mtp"):
        return max(1, model.num_mtp_layers)
    return 1 if method.startswith("eagle") else 0


def with_drafting_layers(model: Architecture, count: int) -> Architecture:
    """The model with a cache more for each layer that drafts, like that of its last growing one (spec_decode/eagle)."""
    attention = [each for each in model.caches if isinstance(each, AttentionCache)]
    grown = next((each for each in reversed(attention) if each.kind in {"full", "latent"}), None)
    return replace(model, caches=model.caches + (grown,) * count) if grown and count else model

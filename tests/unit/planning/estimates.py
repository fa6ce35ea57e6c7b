"""Estimates of engines with exactly these arguments."""

from typing import Any

from llmservice_operator.perfmodel.accelerators import builtin_catalogue_text, find_row, load_catalogue
from llmservice_operator.planning.estimate import Estimate, EstimateInputs, estimate
from unit.perfmodel.samples import load_config

CATALOGUE = load_catalogue(builtin_catalogue_text())
GIB = 1 << 30
LLAMA_8B, GPT_OSS_20B = "meta-llama--Meta-Llama-3.1-8B", "openai--gpt-oss-20b"


def estimated(
    model: str = LLAMA_8B,
    *flags: str,
    accelerator: str = "nvidia-h200",
    version: str = "0.26.0",
    **changes: Any,
) -> Estimate:
    """Of this model and these flags, `name` or `name=value`; other inputs by their names."""
    pairs = tuple(
        (name, value if equals else None) for name, equals, value in (f.partition("=") for f in flags)
    )
    inputs = {
        "config": load_config(model),
        "card": find_row(CATALOGUE, accelerator),
        "engine_version": version,
        "flags": pairs,
    }
    return estimate(EstimateInputs(**(inputs | changes)))

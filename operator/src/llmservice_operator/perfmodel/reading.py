"""A config.json read once: the same text gives the same objects, with what was derived from them."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from llmservice_operator.perfmodel.architecture import read_architecture
from llmservice_operator.perfmodel.quantization import Quantization, read_quantization
from llmservice_operator.perfmodel.shapes import Architecture

MODELS_KEPT = 64
"""Of the last configs that were read; one takes a few hundred kilobytes at most."""


def read_model(config: Mapping[str, Any]) -> tuple[Architecture, Quantization]:
    """The shapes of a config.json and its quantisation.

    Raises ConfigError with the strange field, UnsupportedModelError for a model that isn't a text generator.
    """
    try:
        text = json.dumps(config, sort_keys=True)
    except (TypeError, ValueError, RecursionError):  # not what JSON has
        return read_architecture(config), read_quantization(config)
    return _read(text)


@lru_cache(maxsize=MODELS_KEPT)
def _read(text: str) -> tuple[Architecture, Quantization]:
    config = json.loads(text)
    return read_architecture(config), read_quantization(config)

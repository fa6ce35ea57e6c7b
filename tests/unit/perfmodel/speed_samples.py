"""Speed models for tests: the recorded runs' engine unless something else is asked for."""

from typing import Any

from llmservice_operator.perfmodel.accelerators import find_row
from llmservice_operator.perfmodel.architecture import read_architecture
from llmservice_operator.perfmodel.quantization import read_quantization
from llmservice_operator.perfmodel.speed import SpeedCase, SpeedModel
from llmservice_operator.perfmodel.work import Work, work_of
from unit.perfmodel.samples import catalogue, load_config

LLAMA = "meta-llama--Meta-Llama-3.1-8B"


def speed(
    name: str = LLAMA, *, accelerator: str = "nvidia-h200", tensor_parallel_size: int = 1, **changes: Any
) -> SpeedModel:
    """The recorded runs: vLLM 0.26.0 with 8,192 batched tokens and 256 sequences."""
    config = load_config(name)
    model = read_architecture(config)
    row = find_row(catalogue(), accelerator)
    assert row is not None
    case: dict[str, Any] = {
        "dtype": model.dtype,
        "kv_cache_dtype": "auto",
        "max_num_seqs": 256,
        "max_num_batched_tokens": 8192,
        "max_model_len": 33_280,
        "engine_version": (0, 26, 0),
        **changes,
    }
    return SpeedModel(
        SpeedCase(
            model=model,
            quantization=read_quantization(config),
            accelerator=row,
            tensor_parallel_size=tensor_parallel_size,
            **case,
        )
    )


def work(name: str = LLAMA, *, tensor_parallel_size: int = 1) -> Work:
    """Counts of one rank."""
    config = load_config(name)
    model = read_architecture(config)
    return work_of(
        model,
        read_quantization(config),
        dtype=model.dtype,
        kv_cache_dtype="auto",
        tensor_parallel_size=tensor_parallel_size,
    )

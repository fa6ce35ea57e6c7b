"""TTFT and ITL against a real engine, and what must hold for any model."""

import pytest

from llmservice_operator.perfmodel.accelerators import find_row
from llmservice_operator.perfmodel.architecture import read_architecture
from llmservice_operator.perfmodel.open_loop import Lengths, max_rate_within, open_loop
from llmservice_operator.perfmodel.quantization import read_quantization
from llmservice_operator.perfmodel.speed import SpeedCase, SpeedModel
from unit.perfmodel.samples import catalogue, generating_models, load_config

LLAMA = "meta-llama--Meta-Llama-3.1-8B"


def speed(
    name: str = LLAMA, *, accelerator: str = "nvidia-h200", tp: int = 1, **changes: object
) -> SpeedModel:
    """The recorded runs' engine: vLLM 0.26.0, 8,192 batched tokens, 256 sequences."""
    config = load_config(name)
    model = read_architecture(config)
    row = find_row(catalogue(), accelerator)
    assert row is not None
    case = {
        "model": model,
        "quantization": read_quantization(config),
        "accelerator": row,
        "tensor_parallel_size": tp,
        "dtype": model.dtype,
        "kv_cache_dtype": "auto",
        "max_num_seqs": 256,
        "max_num_batched_tokens": 8192,
        "max_model_len": 33_280,
        "engine_version": (0, 26, 0),
    }
    return SpeedModel(SpeedCase(**{**case, **changes}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tp", "batch", "context", "itl_seconds"),
    [
        (1, 1, 576, 0.00486),
        (1, 256, 560, 0.01372),
        (1, 16, 8224, 0.00896),
        (2, 1, 576, 0.00348),
        (2, 64, 4128, 0.00786),
    ],
)
def test_a_decode_step_is_as_measured(tp: int, batch: int, context: float, itl_seconds: float) -> None:
    assert speed(tp=tp).decode_seconds(batch, context) == pytest.approx(itl_seconds, rel=0.06)


@pytest.mark.parametrize(
    ("tp", "tokens", "ttft_seconds"),
    [
        (1, 128, 0.0181),
        (1, 2048, 0.0536),
        (1, 32_768, 1.2277),
        (2, 512, 0.016),
        (2, 1024, 0.0409),
        (2, 16_384, 0.2922),
    ],
)
def test_a_prompt_takes_as_long_as_measured(tp: int, tokens: int, ttft_seconds: float) -> None:
    assert speed(tp=tp).prefill_seconds(tokens) == pytest.approx(ttft_seconds, rel=0.15)


def test_a_prompt_longer_than_the_largest_graph_loses_it() -> None:
    model = speed(tp=2)

    assert model.prefill_seconds(520) > 2 * model.prefill_seconds(512)


@pytest.mark.parametrize("name", generating_models())
def test_a_larger_batch_never_makes_a_step_shorter(name: str) -> None:
    model = speed(name, accelerator="nvidia-b200", tp=1)
    steps = [model.decode_seconds(batch, 1024) for batch in (1, 8, 64, 256)]

    assert steps == sorted(steps)


def test_the_largest_batch_within_a_bound_is_the_last_that_meets_it() -> None:
    model = speed()
    batch = model.largest_batch_within(0.008, 1000)

    assert model.decode_seconds(batch, 1000) <= 0.008 < model.decode_seconds(batch + 1, 1000)


def test_an_open_load_answers_the_same_each_time() -> None:
    lengths = Lengths(input_p50=1024, output_p50=128)

    assert open_loop(speed(), rate_per_second=10, lengths=lengths) == open_loop(
        speed(), rate_per_second=10, lengths=lengths
    )


def test_the_largest_rate_keeps_the_objective() -> None:
    """The recorded run: 20 requests a second have a TTFT p95 of 109 ms, 26 of 150 ms."""
    lengths = Lengths(input_p50=1024, output_p50=128)

    rate = max_rate_within(speed(), ttft_p95_seconds=0.13, tpot_p95_seconds=1.0, lengths=lengths)

    assert rate == pytest.approx(22, rel=0.2)

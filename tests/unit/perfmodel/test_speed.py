"""TTFT and ITL against a real engine, and what must hold for any model."""

import pytest

from unit.perfmodel.samples import generating_models
from unit.perfmodel.speed_samples import speed


@pytest.mark.parametrize(
    ("ranks", "batch", "context", "itl_seconds"),
    [
        (1, 1, 576, 0.00486),
        (1, 256, 560, 0.01372),
        (1, 16, 8224, 0.00896),
        (2, 1, 576, 0.00348),
        (2, 64, 4128, 0.00786),
    ],
)
def test_a_decode_step_is_as_measured(ranks: int, batch: int, context: float, itl_seconds: float) -> None:
    """Llama-3.1-8B, vLLM 0.26.0 on H200."""
    found = speed(tensor_parallel_size=ranks).decode_seconds(batch, context)

    assert found == pytest.approx(itl_seconds, rel=0.05)


@pytest.mark.parametrize(
    ("ranks", "tokens", "ttft_seconds"),
    [
        (1, 128, 0.0181),
        (1, 2048, 0.0536),
        (1, 32_768, 1.2277),
        (2, 512, 0.016),
        (2, 1024, 0.0409),
        (2, 16_384, 0.2922),
    ],
)
def test_a_prompt_takes_as_long_as_measured(ranks: int, tokens: int, ttft_seconds: float) -> None:
    """Llama-3.1-8B, vLLM 0.26.0 on H200."""
    found = speed(tensor_parallel_size=ranks).prefill_seconds(tokens)

    assert found == pytest.approx(ttft_seconds, rel=0.12)


def test_a_prompt_longer_than_the_largest_graph_is_bound_by_launches() -> None:
    """Measured on two H200: 16 ms for 512 tokens, 41 ms for 1,024."""
    model = speed(tensor_parallel_size=2)

    assert model.prefill_seconds(513) > 2 * model.prefill_seconds(512)


def test_without_graphs_each_decode_step_waits_for_launches() -> None:
    eager, captured = speed(enforce_eager=True), speed()

    assert eager.decode_seconds(1, 1000) > 4 * captured.decode_seconds(1, 1000)


def test_without_asynchronous_scheduling_the_host_is_paid_in_each_step() -> None:
    """The default from 0.14 on."""
    before, after = speed(engine_version=(0, 13, 0)), speed(engine_version=(0, 14, 0))

    assert before.decode_seconds(1, 1000) > after.decode_seconds(1, 1000) + 0.001


def test_a_cached_prefix_is_not_computed_again() -> None:
    model = speed()

    assert model.prefill_seconds(1000, cached=31_000) < 0.2 * model.prefill_seconds(32_000)


@pytest.mark.parametrize("name", generating_models())
def test_a_larger_batch_never_makes_a_step_shorter(name: str) -> None:
    model = speed(name, accelerator="nvidia-b200")
    steps = [model.decode_seconds(batch, 1024) for batch in (1, 8, 64, 256)]

    assert steps == sorted(steps)


@pytest.mark.parametrize("name", generating_models())
def test_a_longer_prompt_never_takes_less(name: str) -> None:
    model = speed(name)
    times = [model.prefill_seconds(tokens) for tokens in (1, 128, 1024, 8192, 8193, 32_768)]

    assert times == sorted(times)


@pytest.mark.parametrize("name", ["meta-llama--Meta-Llama-3.1-70B", "Qwen--Qwen3-30B-A3B"])
def test_more_ranks_make_long_prompts_shorter(name: str) -> None:
    times = [speed(name, tensor_parallel_size=ranks).prefill_seconds(8192) for ranks in (1, 2, 4, 8)]

    assert times == sorted(times, reverse=True)


def test_decoding_one_sequence_of_a_small_model_is_bound_by_overhead() -> None:
    assert speed("Qwen--Qwen3-0.6B").regime(batch=1, context=100) == "overhead-bound"


def test_decoding_is_bound_by_memory_and_long_prompts_by_compute() -> None:
    model = speed("meta-llama--Meta-Llama-3.1-70B", tensor_parallel_size=2)

    assert (model.regime(batch=16, context=1000), model.regime(tokens=8192)) == (
        "memory-bound",
        "compute-bound",
    )


def test_the_ridge_point_is_the_datasheets() -> None:
    """989.4 TFLOP/s over 4.8 TB/s."""
    assert speed().ridge_point_flops_per_byte() == pytest.approx(206.1, abs=0.1)


def test_the_largest_batch_within_a_bound_is_the_last_that_meets_it() -> None:
    model = speed()
    batch = model.largest_batch_within(0.008, 1000)

    assert model.decode_seconds(batch, 1000) <= 0.008 < model.decode_seconds(batch + 1, 1000)


def test_a_bound_below_one_sequences_step_leaves_no_batch() -> None:
    assert speed().largest_batch_within(0.001, 1000) == 0


def test_the_cache_bounds_the_largest_batch() -> None:
    assert speed(kv_cache_tokens=10_000).largest_batch_within(1.0, 1000) == 10


def test_a_saturated_engine_takes_what_the_recorded_one_took() -> None:
    """At 36.4 requests of 1,024 and 128 tokens a second the recorded engine answered 31 a second (655 in 21 s)."""
    assert speed().saturated_tokens_per_second(1024, 128) / 128 == pytest.approx(31, rel=0.06)

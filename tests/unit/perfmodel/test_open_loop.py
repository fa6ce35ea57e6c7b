"""Continuous batching under a load, and the quantiles that come of it."""

import time

import pytest

from llmservice_operator.perfmodel.arrivals import Generator, Request, poisson_load
from llmservice_operator.perfmodel.batching import Engine
from llmservice_operator.perfmodel.open_loop import Lengths, max_rate_within, open_loop
from unit.perfmodel.speed_samples import speed

FIXED = Lengths(input_p50=1024, output_p50=128)


@pytest.mark.parametrize(
    ("ranks", "rate", "ttft_p95_seconds"), [(1, 19.61, 0.1086), (1, 25.67, 0.1495), (2, 39.22, 0.1463)]
)
def test_a_load_waits_as_long_as_the_recorded_one(ranks: int, rate: float, ttft_p95_seconds: float) -> None:
    """One run of 18 s a rate on H200, whose p95 is itself uncertain by about a tenth."""
    found = open_loop(speed(tensor_parallel_size=ranks), rate_per_second=rate, lengths=FIXED)

    assert found.ttft_p95_seconds == pytest.approx(ttft_p95_seconds, rel=0.2)


def test_a_load_answers_the_same_each_time() -> None:
    first, second = (open_loop(speed(), rate_per_second=10, lengths=FIXED, seed=3) for _ in range(2))

    assert first == second


def test_a_load_above_what_the_engine_takes_saturates_it() -> None:
    assert open_loop(speed(), rate_per_second=40, lengths=FIXED).saturated


def test_a_small_load_does_not() -> None:
    assert open_loop(speed(), rate_per_second=5, lengths=FIXED).utilization == pytest.approx(5 / 31, rel=0.1)


def test_lengths_beyond_the_cache_are_cut_to_it() -> None:
    long = Lengths(input_p50=1000, output_p50=100, input_p95=20_000, output_p95=1000)
    found = open_loop(speed(kv_cache_tokens=8192), rate_per_second=1, lengths=long)

    assert found.ttft_p50_seconds > 0


def test_no_rate_is_no_load() -> None:
    with pytest.raises(ValueError, match="positive"):
        open_loop(speed(), rate_per_second=0, lengths=FIXED)


def test_the_largest_rate_keeps_the_objective() -> None:
    """Recorded: 20 requests a second have a TTFT p95 of 109 ms, 26 of 150 ms."""
    rate = max_rate_within(speed(), ttft_p95_seconds=0.13, tpot_p95_seconds=1.0, lengths=FIXED)

    assert rate == pytest.approx(22, rel=0.2)


def test_an_objective_below_an_idle_engine_allows_no_rate() -> None:
    assert max_rate_within(speed(), ttft_p95_seconds=0.001, tpot_p95_seconds=1.0, lengths=FIXED) == 0


def test_a_request_on_an_idle_engine_waits_for_its_own_prompt_only() -> None:
    model = speed()
    outcome = Engine(model, [Request(0.0, 2048, 1)]).run()[0]

    assert outcome.ttft_seconds == pytest.approx(model.prefill_seconds(2048), rel=0.01)


def test_tokens_of_a_lone_request_come_at_the_steps_pace() -> None:
    model = speed()
    outcome = Engine(model, [Request(0.0, 512, 129)]).run()[0]

    assert outcome.tpot_seconds == pytest.approx(model.decode_seconds(1, 576), rel=0.03)


def test_the_last_chunk_of_a_long_prompt_lets_the_next_prompt_in() -> None:
    """8,192 tokens a step: the second prompt fills the third step, and both get their first token there."""
    outcomes = Engine(speed(), [Request(0.0, 20_000, 1), Request(0.0, 2_000, 1)]).run()

    assert outcomes[0].ttft_seconds == outcomes[1].ttft_seconds


def test_no_more_sequences_run_than_allowed() -> None:
    """Four of eight wait for the first four's 100 steps."""
    load = [Request(0.0, 128, 100)] * 8
    outcomes = Engine(speed(max_num_seqs=4), load).run()

    assert outcomes[7].ttft_seconds > outcomes[3].end_seconds


def test_a_full_cache_pushes_out_the_youngest() -> None:
    """Two of 100 + 900 tokens don't fit into 1,500 at once; the first is served through."""
    engine = Engine(speed(kv_cache_tokens=1500), [Request(0.0, 100, 900), Request(0.0, 100, 900)])
    first, second = engine.run()

    assert (engine.preemptions, first.end_seconds < second.end_seconds) == (1, True)


def test_a_request_that_the_cache_cannot_hold_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="cache of 500"):
        Engine(speed(kv_cache_tokens=500), [Request(0.0, 400, 200)])


def test_arrivals_fill_the_window_at_their_rate() -> None:
    load = poisson_load(rate_per_second=50, window_seconds=20, lengths=FIXED, longest=4096, seed=1)

    assert (len(load), load[0].arrival_seconds > 0, load[-1].arrival_seconds < 20) == (1000, True, True)


def test_lengths_have_the_median_and_p95_that_are_asked_for() -> None:
    lengths = Lengths(input_p50=1000, output_p50=100, input_p95=4000)
    load = poisson_load(rate_per_second=100, window_seconds=100, lengths=lengths, longest=10**6, seed=1)
    prompts = sorted(each.input_tokens for each in load)

    assert (prompts[5000], prompts[9500]) == (pytest.approx(1000, rel=0.05), pytest.approx(4000, rel=0.1))


def test_the_generator_gives_the_published_numbers() -> None:
    """SplitMix64 with seed 0 begins with 0xE220A8397B1DCDAF."""
    assert int(Generator(0).uniform() * 2**52) == 0xE220A8397B1DCDAF >> 12


def test_prompts_in_thousands_of_pieces_are_played_within_seconds() -> None:
    """Three thousand prompts of 1,000 tokens, one token of each in a step: three million steps if all were played."""
    before = time.process_time()
    found = open_loop(
        speed(max_num_batched_tokens=16, max_num_seqs=16),
        rate_per_second=100,
        lengths=Lengths(input_p50=1000, output_p50=9000),
    )

    assert found.saturated
    assert found.ttft_p95_seconds > found.ttft_p50_seconds > 0
    assert time.process_time() - before < 10


def test_a_lone_prompt_in_too_many_pieces_takes_what_the_idle_engine_takes() -> None:
    model = speed(max_num_batched_tokens=1, max_num_seqs=1, max_model_len=200_000)
    found = open_loop(model, rate_per_second=1e-6, lengths=Lengths(input_p50=100_000, output_p50=1))

    assert found.ttft_p50_seconds == model.prefill_seconds(100_000)


def test_a_prompt_in_thousands_of_chunks_takes_what_its_chunks_take() -> None:
    """The first of them is timed with neighbours standing in, the second chunk by chunk."""
    model = speed(max_num_batched_tokens=16, max_model_len=200_000)

    assert model.prefill_seconds(16_001) == pytest.approx(model.prefill_seconds(16_000), rel=0.01)

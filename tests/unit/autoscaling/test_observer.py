"""From pages to signals: what a service does, and replicas that come and go."""

from llmservice_operator.autoscaling.observer import Context, ServiceObserver
from llmservice_operator.autoscaling.signals import Signal, SignalState
from llmservice_operator.engines.metric_names import Series
from unit.autoscaling.engines import FakeEngine
from unit.autoscaling.scraped import PERIOD, START, Act, Service, is_close, load


def test_rates_are_what_the_counters_say() -> None:
    signals = Service(2).run(150, load(4.0, inputs=1000, outputs=200))

    assert is_close(signals.arrivals_per_second, 4.0)
    assert is_close(signals.sustained_arrivals_per_second, 4.0)
    assert is_close(signals.completions_per_second, 4.0)
    assert is_close(signals.input_tokens_per_second, 4000.0)
    assert is_close(signals.generated_tokens_per_second, 800.0)


def test_lengths_are_the_means_of_finished_requests() -> None:
    signals = Service(2).run(150, load(4.0, inputs=1000, outputs=200))

    assert (signals.input_tokens_mean.value, signals.output_tokens_mean.value) == (1000.0, 200.0)


def test_every_signal_of_a_busy_service_is_trusted_but_those_nobody_exports() -> None:
    signals = Service(2).run(150, load(4.0))

    untrusted = {name for name, signal in signals.items() if not signal.is_trusted}
    assert untrusted == {
        "uncached_tokens_waiting", "dram_active", "sm_active", "bandwidth_use", "step_bytes"
    }  # fmt: skip


def test_who_came_and_still_waits_has_arrived() -> None:
    def pile_up(engines: dict[str, FakeEngine], seconds: float) -> None:
        for engine in engines.values():
            engine.waiting += 3.0 * seconds
            engine.counters[Series.STEPS] += 1  # the engine works on others

    signals = Service(2).run(60, pile_up)

    assert is_close(signals.arrivals_per_second, 6.0)
    assert signals.completions_per_second.value == 0.0


def test_refused_requests_have_arrived() -> None:
    def refuse(engines: dict[str, FakeEngine], seconds: float) -> None:
        for engine in engines.values():
            engine.counters[Series.REJECTED] += 2.0 * seconds

    assert is_close(Service(1).run(60, refuse).arrivals_per_second, 2.0)


def test_requests_from_before_the_first_look_do_not_count() -> None:
    service = Service(1)
    service.engines["r0"].running = 50.0
    service.engines["r0"].serve(1000.0)

    assert is_close(service.run(60, load(1.0)).arrivals_per_second, 1.0)


def test_without_traffic_quantiles_are_idle_and_rates_are_zero() -> None:
    signals = Service(2).run(150)

    assert signals.arrivals_per_second == Signal(0.0, SignalState.OK, START + 150)
    assert signals.ttft_p95_seconds == Signal(None, SignalState.IDLE, START + 150)
    assert signals.input_tokens_mean.state is SignalState.IDLE


def test_quantiles_are_of_the_window_not_of_all_time() -> None:
    service = Service(1)
    service.run(300, load(10.0, ttft=30.0))

    signals = service.run(75, load(10.0, ttft=0.2))

    assert signals.ttft_p95_seconds.value is not None
    assert 0.1 <= signals.ttft_p95_seconds.value <= 0.25  # the bucket of 0.2 s


def test_attainment_is_the_share_within_the_objective() -> None:
    service = Service(1)

    def mixed(engines: dict[str, FakeEngine], seconds: float) -> None:
        engines["r0"].serve(9.0, ttft=0.5)
        engines["r0"].serve(1.0, ttft=5.0)

    assert is_close(service.run(75, mixed).ttft_attainment, 0.9)


def test_a_bucket_that_fell_is_a_reset_though_each_count_up_to_a_bound_rose() -> None:
    """Ten answers within a bucket of which there were twenty: the share within an objective would be above 1."""
    observer, engine = ServiceObserver(), FakeEngine()
    engine.serve(20.0, ttft=0.2)
    for seconds in range(0, 60, 5):
        if seconds == 50:
            engine.histograms[Series.TTFT].counts[0] += 15.0  # no count up to a later bound rises with it
        observer.record("r0", engine.page(), at=START + seconds)
    attained = observer.signals({"r0": START}, START + 55, Context(ttft_p95_seconds=0.5)).ttft_attainment

    assert attained == Signal(None, SignalState.RESET, START + 55)


def test_other_buckets_than_before_are_a_reset_and_nothing_is_subtracted_over_it() -> None:
    observer, engine = ServiceObserver(), FakeEngine()
    for seconds in range(0, 60, 5):
        engine.serve(20.0, ttft=0.2)
        if seconds == 50:
            known = engine.histograms[Series.TTFT]
            known.bounds = tuple(2.0 * bound for bound in known.bounds)
        observer.record("r0", engine.page(), at=START + seconds)
    attained = observer.signals({"r0": START}, START + 55, Context(ttft_p95_seconds=0.5)).ttft_attainment

    assert attained.state is SignalState.RESET
    assert attained.value is None


def test_before_two_looks_nothing_is_known_of_rates() -> None:
    signals = Service(2).run(5, load(4.0))

    assert signals.arrivals_per_second.state is SignalState.MISSING
    assert signals.running.state is SignalState.OK


# ── replicas come and go ──


def test_a_replica_that_joins_does_not_raise_the_rate() -> None:
    service = Service(2)
    service.run(150, load(6.0))
    service.engines["new"] = FakeEngine()
    service.ready["new"] = service.now

    for _ in range(12):
        signals = service.run(5, load(6.0))

        assert signals.arrivals_per_second.value is not None
        assert 5.6 <= signals.arrivals_per_second.value <= 6.1  # what came before its first look isn't seen
        assert signals.arrivals_per_second.state is SignalState.OK


def test_a_replica_that_leaves_does_not_lower_the_rate() -> None:
    """Reading two of three as all the load is how a scale-in feeds the next one."""
    service = Service(3)
    service.run(150, load(6.0))
    del service.engines["r2"], service.ready["r2"]

    for _ in range(12):
        signals = service.run(5, load(6.0))

        assert signals.arrivals_per_second.value is not None
        assert signals.arrivals_per_second.value >= 0.97 * 6.0  # between looks a rate is taken as even
        assert signals.sustained_arrivals_per_second.value is not None
        assert signals.sustained_arrivals_per_second.value >= 0.97 * 6.0


def test_an_unseen_replica_has_the_share_of_the_others_and_is_not_trusted() -> None:
    service = Service(4)
    service.run(150, load(8.0))

    signals = service.run(20, load(8.0), scraped=frozenset({"r0", "r1"}))

    assert is_close(signals.arrivals_per_second, 8.0)
    assert signals.arrivals_per_second.state is SignalState.STALE


def test_a_replica_that_has_just_become_ready_does_not_count_again_what_the_others_have() -> None:
    """On two H200s it made of a queue of 46 requests 92, and of the two replicas that were enough six."""
    service = Service(1)
    service.run(150, load(4.0))
    service.engines["r0"].waiting = 46.0
    service.run(PERIOD, load(4.0))
    service.ready["new"] = service.now - 1.0

    signals = service.signals()

    assert (signals.waiting.value, signals.waiting.state) == (46.0, SignalState.MISSING)
    assert is_close(signals.sustained_arrivals_per_second, 4.0 + 46.0 / 120.0)


def test_what_is_silent_for_longer_is_missing() -> None:
    service = Service(1)
    service.run(150, load(8.0))

    signals = service.run(65, scraped=frozenset())

    assert {signal.state for name, signal in signals.items() if name != "held_requests"} == {
        SignalState.MISSING
    }


def test_no_replica_at_all_is_missing_and_not_zero() -> None:
    service = Service(0)

    assert service.run(60).arrivals_per_second == Signal(None, SignalState.MISSING)


# ── bandwidth ──


def moving(share_of_peak: float, rate: float = 4.0) -> Act:
    def act(engines: dict[str, FakeEngine], seconds: float) -> None:
        for engine in engines.values():
            engine.serve(rate * seconds / len(engines))
            engine.counters[Series.READ_BYTES] += 0.9 * share_of_peak * 1e12 * seconds
            engine.counters[Series.WRITE_BYTES] += 0.1 * share_of_peak * 1e12 * seconds

    return act


def test_bandwidth_use_is_read_and_written_bytes_over_the_peak() -> None:
    assert is_close(Service(3).run(150, moving(0.6)).bandwidth_use, 0.6)


def test_step_bytes_are_bytes_over_steps() -> None:
    """4 requests of 200 tokens a second in steps of 8 sequences: 100 steps."""
    assert is_close(Service(1).run(150, moving(0.6)).step_bytes, 0.6e12 / 100)


def test_counters_that_are_off_are_missing_and_not_zero() -> None:
    """Registered always, moved only with --enable-mfu-metrics."""
    signals = Service(1).run(150, load(4.0))

    assert (signals.bandwidth_use.value, signals.bandwidth_use.state) == (None, SignalState.MISSING)


def test_kv_use_is_summed_in_replicas() -> None:
    service = Service(3)
    for engine, use in zip(service.engines.values(), (0.2, 0.5, 0.9), strict=True):
        engine.kv_use = use

    signals = service.run(20)

    assert is_close(signals.kv_use_total, 1.6)
    assert signals.kv_use_highest.value == 0.9


def test_memory_is_bounded() -> None:
    service = Service(1)
    service.run(3600, load(4.0))
    looks = service.observer._tracks["r0"]._looks

    assert len(looks) <= 16


def test_replicas_that_left_are_forgotten() -> None:
    service = Service(2)
    service.run(60, load(4.0))
    del service.engines["r1"], service.ready["r1"]
    service.run(300, load(4.0))

    assert set(service.observer._tracks) == {"r0"}

"""Other autoscalers' formulas, with numbers worked by hand."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from llmservice_operator.simulation.answers import Answers
from llmservice_operator.simulation.observation import Observation
from llmservice_operator.simulation.peers.aibrix import Aibrix, apa_replicas, kpa_replicas
from llmservice_operator.simulation.peers.dynamo import Dynamo, load_change, throughput_replicas
from llmservice_operator.simulation.peers.hpa import Static
from llmservice_operator.simulation.peers.in_flight import KubeAi, RayServe, ray_replicas
from llmservice_operator.simulation.peers.knative import Knative
from llmservice_operator.simulation.peers.llmd import (
    EppQueue,
    SloAware,
    TokenAware,
    guarded,
    routed_p90,
    saturation_demand,
)
from llmservice_operator.simulation.peers.registry import PEERS, Profile
from llmservice_operator.simulation.peers.wva import (
    WvaSlo,
    WvaV1,
    WvaV2,
    credited_demand,
    v1_change,
    v2_replicas,
)
from llmservice_operator.simulation.records import new_requests
from unit.simulation.views import history, page, pods, scrape, seen


def test_static_stays() -> None:
    assert Static(5).step(seen(pods(2, waiting=900.0))) == 5


@pytest.mark.parametrize(
    ("saturation", "provisioned", "ready", "wanted"),
    [
        (0.50, 4, 4, 4),  # within the band
        (0.60, 4, 4, 5),  # 4 + ceil(4 (0.60 / 0.55 - 1))
        (1.10, 4, 4, 8),  # twice the upper threshold
        (1.10, 8, 4, 8),  # the credit of 4 / 8: the pods on their way will do
        (2.00, 3, 3, 11),  # the clamp: 3 + ceil(3 (2 / 0.55 - 1))
        (0.30, 4, 4, 3),  # 4 - floor(4 (1 - 0.30 / 0.40))
        (0.00, 4, 4, 0),  # no traffic
    ],
)
def test_llmd_slo_demand(saturation: float, provisioned: int, ready: int, wanted: int) -> None:
    assert saturation_demand(saturation, provisioned, ready) == wanted


def test_llmd_slo_reads_no_traffic_as_headroom() -> None:
    rule = SloAware(3.0, 0.1)
    steps = [rule.step(seen(pods(4), now=15.0 * step)) for step in range(14)]

    assert steps[0] == 4  # the window of 180 s
    assert min(steps) == 3


def answered(ttft: Sequence[float], tpot: Sequence[float]) -> Observation:
    """Seen at 60 s: answers of 101 tokens that all ended at 50 s."""
    end = np.full(len(ttft), 50.0)
    first = end - 100.0 * np.asarray(tpot)
    requests = new_requests(first - np.asarray(ttft), np.full(len(ttft), 10), np.full(len(ttft), 101))
    requests["first"], requests["end"] = first, end
    past = history(scrape(0.0, pods(4)), scrape(60.0, pods(4), {"finished": float(len(ttft))}))
    return replace(seen(pods(4), now=60.0, past=past), answers=Answers(requests, 0.0))


def test_llmd_reads_the_routers_own_buckets() -> None:
    """All between 20 and 40 ms: the p90 reads 0.02 + 0.9 x 0.02 s, wherever in there they are."""
    _, tpot = routed_p90(answered([0.3] * 10, [0.021] * 10), 60.0)

    assert tpot == pytest.approx(0.038)


def test_llmd_slo_takes_the_p90_of_the_last_minute_over_the_bound() -> None:
    """All TTFT between 4 s and 5 s: the p90 is 4.9 s, over 3 s."""
    rule = SloAware(3.0, 0.1)

    rule.step(answered([4.2] * 10, [0.021] * 10))

    assert rule._raw[-1][1] == pytest.approx(4.9 / 3.0)


def test_llmd_hears_of_an_answer_when_it_has_ended() -> None:
    told = answered([4.2] * 10, [0.021] * 10)
    assert told.answers is not None
    told.answers.requests["end"] = 61.0

    assert all(math.isnan(each) for each in routed_p90(told, 60.0))


def test_llmd_sees_nothing_in_scrapes_that_stand_still() -> None:
    told = answered([4.2] * 10, [0.021] * 10)
    past = history(scrape(0.0, pods(4)), scrape(60.0, pods(4)))

    assert all(math.isnan(each) for each in routed_p90(replace(told, history=past), 60.0))


@pytest.mark.parametrize(
    ("saturation", "provisioned", "ready", "wanted"),
    [
        (1.32, 4, 4, 10),  # 4 + ceil(4 (1.32 / 0.55 - 1))
        (1.00, 8, 4, 8),  # 1.00 x 4 / 8 is below 0.55
        (1.20, 8, 4, 9),  # 8 + ceil(8 (0.60 / 0.55 - 1))
        (0.38, 4, 4, 4),  # 4 - floor(4 (1 - 0.38 / 0.40))
        (0.19, 4, 4, 2),
    ],
)
def test_wva_slo_demand(saturation: float, provisioned: int, ready: int, wanted: int) -> None:
    assert credited_demand(saturation, provisioned, ready) == wanted


def test_wva_slo_analyses_once_a_minute() -> None:
    """0.6 x 4.9 / 3 = 0.98: 4 + ceil(4 (0.98 / 0.55 - 1)) = 8, after the window of 30 s."""
    told = answered([4.2] * 10, [0.021] * 10)
    rule = WvaSlo(3.0, 0.1)
    steps = [rule.step(replace(told, now_seconds=at)) for at in (0.0, 15.0, 30.0)]

    assert rule._smooth == pytest.approx(0.98)
    assert steps == [4, 4, 8]


def test_llmd_predicts_ttft_from_what_waits_over_what_is_finished() -> None:
    """Nine wait on each of two pods, three a second are finished: 0.3 s + 18 / 3 s."""
    old = scrape(0.0, pods(2, waiting=9.0))
    new = scrape(60.0, pods(2, waiting=9.0), {"finished": 180.0})
    rule = SloAware(10.0, 0.1, idle_ttft_seconds=0.3)

    rule.step(seen(pods(2), now=60.0, past=history(old, new)))

    assert rule._raw[-1][1] == pytest.approx(0.63)


@pytest.mark.parametrize(("tokens", "kv", "wanted"), [(60_000.0, 0.1, 2), (30_000.0, 0.9, 5), (0.0, 0.0, 0)])
def test_llmd_token_aware(tokens: float, kv: float, wanted: int) -> None:
    """With 20,000 tokens/s a replica clears 30,000 tokens in 1.5 s."""
    pages = [page(pod, pending_prompt_tokens=tokens / 4.0, kv_usage=kv) for pod in range(4)]

    assert TokenAware(20_000.0).demand(seen(pages)) == wanted


@pytest.mark.parametrize(
    ("demand", "provisioned", "ready", "wanted"), [(3, 4, 4, 3), (9, 4, 4, 9), (9, 6, 4, 7), (7, 6, 4, 6)]
)
def test_llmd_guard_counts_pods_on_their_way(demand: int, provisioned: int, ready: int, wanted: int) -> None:
    assert guarded(demand, provisioned, ready) == wanted


def test_llmd_queue_waits_its_window_before_it_scales_up() -> None:
    rule = EppQueue()
    first = rule.step(seen(pods(2, running=40.0), now=0.0))
    later = rule.step(seen(pods(2, running=40.0), now=301.0))

    assert (first, later) == (2, 5)


@pytest.mark.parametrize(
    ("pages", "change"),
    [
        (pods(3, kv_usage=0.75), 1),  # spare 0.05 < 0.1
        (pods(3, kv_usage=0.2, waiting=3.0), 1),  # spare 2 < 3
        (pods(3, kv_usage=0.9), 1),  # all saturated: nothing to spare
        (pods(3, kv_usage=0.6), 0),  # two would be at 0.9
        (pods(3, kv_usage=0.4), -1),  # two would be at 0.6, spare 0.2
        (pods(1, kv_usage=0.1), 0),  # the last one stays
    ],
)
def test_wva_v1(pages: list, change: int) -> None:  # type: ignore[type-arg]
    assert v1_change(pages) == change


def test_wva_v1_holds_while_pods_start() -> None:
    assert WvaV1().step(seen(pods(3, kv_usage=0.9), provisioned=4)) == 4


@pytest.mark.parametrize(
    ("demand", "ready", "pending", "wanted"),
    [
        (425.0, 4, 0, 5),  # 425 / 0.85 = 500
        (425.0, 4, 1, 5),
        (140.0, 4, 0, 2),  # 400 - 140 / 0.70 = 200 to spare
        (330.0, 4, 0, 4),
    ],
)
def test_wva_v2(demand: float, ready: int, pending: int, wanted: int) -> None:
    """A replica holds 100 tokens."""
    assert v2_replicas(demand, 100.0, ready=ready, pending=pending) == wanted


def test_wva_v2_reckons_a_replica_from_lengths_before_it_has_seen_one_saturated() -> None:
    """min(8192 x 200 / 1200, 256) sequences of 1,000 + 100 tokens, within 0.8 of the cache."""
    rule = WvaV2(pool_tokens=1e6, token_budget=8192.0, max_num_seqs=256.0)

    assert rule.capacity(pods(2), 1000.0, 200.0) == pytest.approx(256.0 * 1100.0)
    assert rule.capacity(pods(2, kv_usage=0.1, waiting=6.0), 1000.0, 200.0) == pytest.approx(1e5)
    assert rule.capacity(pods(2), 1000.0, 200.0) == pytest.approx(1e5)


def test_knative_divides_concurrency_by_70() -> None:
    rule = Knative()
    rule._started = True

    assert rule.step(seen(pods(3, running=100.0))) == math.ceil(300 / 70)


def test_knative_halves_at_most() -> None:
    rule = Knative()
    rule._started = True

    assert rule.step(seen(pods(8, running=1.0))) == 4


def test_knative_panics_at_twice_what_is_ready_and_holds() -> None:
    rule = Knative()
    rule._started = True

    assert rule.step(seen(pods(1, running=150.0), now=0.0)) == 3
    assert rule.step(seen(pods(3, running=1.0), now=40.0)) == 3


def test_knative_starts_in_panic_after_a_restart() -> None:
    assert Knative().step(seen(pods(4, running=1.0))) == 4


def test_aibrix_kpa_forgets_the_pods() -> None:
    assert kpa_replicas(0.9, 0.5) == 2


@pytest.mark.parametrize(("mean", "wanted"), [(0.52, 4), (0.75, 6), (0.20, 2)])
def test_aibrix_apa(mean: float, wanted: int) -> None:
    assert apa_replicas(4, mean, 0.5) == wanted


def test_aibrix_cools_down_for_300_s() -> None:
    rule = Aibrix(multiplies=True, name="apa")
    steps = [rule.step(seen(pods(4, kv_usage=0.2), now=10.0 * step)) for step in range(32)]

    assert steps[:30] == [4] * 30
    assert min(steps) == 2


def test_dynamo_throughput() -> None:
    assert throughput_replicas(7.1, 2.0) == 4


@pytest.mark.parametrize(
    ("waits", "itl", "change"),
    [
        ([0.6, 0.7], 0.02, 1),
        ([0.6, 0.1], 0.02, 0),  # one engine is well
        ([0.1, 0.1], 0.06, 1),
        ([0.1, 0.1], 0.015, -1),  # 0.2 and 0.03, within 0.8 of 0.5 and 0.05
        ([0.1, 0.3], 0.015, 0),
        ([0.1], 0.001, 0),
    ],
)
def test_dynamo_load_loop(waits: list[float], itl: float, change: int) -> None:
    assert load_change(waits, itl, ttft_bound=0.5, itl_bound=0.05) == change


def test_dynamo_stands_still_while_pods_start() -> None:
    rule = Dynamo(engine_requests_per_second=2.0, prefill_tokens_per_second=20_000.0)

    assert rule.step(seen(pods(2, pending_prompt_tokens=90_000.0), provisioned=3)) == 3


def test_kubeai_divides_ten_minutes_by_100() -> None:
    assert KubeAi().step(seen(pods(2, running=150.0))) == 3


def test_kubeai_takes_away_after_three_equal_decisions() -> None:
    rule = KubeAi()

    assert [rule.step(seen(pods(4, running=10.0))) for _ in range(3)] == [4, 4, 1]


def test_ray_serve_wants_two_requests_a_replica() -> None:
    assert ray_replicas(9.0, 3, target=2.0, factor=1.0) == 5


def test_ray_serve_waits_30_s_up_and_600_s_down() -> None:
    up, down = RayServe(), RayServe()

    ups = [up.step(seen(pods(2, running=3.0))) for _ in range(4)]
    downs = [down.step(seen(pods(4, running=0.5))) for _ in range(61)]

    assert ups == [2, 2, 2, 3]
    assert downs == [4] * 60 + [1]


PROFILE = Profile(
    ttft_seconds=3.0,
    tpot_seconds=0.1,
    static_replicas=4,
    idle_ttft_seconds=0.3,
    prefill_tokens_per_second=16_000.0,
    engine_requests_per_second=1.2,
    pool_tokens=300_000.0,
    token_budget=8192,
    max_num_seqs=256,
)


@pytest.mark.parametrize("name", sorted(PEERS))
def test_a_peer_is_called_by_its_name_and_survives_an_empty_fleet(name: str) -> None:
    rule = PEERS[name](PROFILE)

    rule.step(seen([], provisioned=3))

    assert rule.name == name


@pytest.mark.parametrize("name", sorted(PEERS))
def test_a_peer_has_no_memory_of_another_run(name: str) -> None:
    steps = []
    for _ in range(2):
        rule = PEERS[name](PROFILE)
        steps.append(
            [
                rule.step(seen(pods(3, running=90.0, waiting=4.0, kv_usage=0.7), now=15.0 * step))
                for step in range(5)
            ]
        )

    assert steps[0] == steps[1]

"""What a latency below its objective tells of the capacity: where it should be at this load, the model knows."""

from dataclasses import dataclass

import pytest

from llmservice_operator.autoscaling.capacity import Capacity, LengthMix
from llmservice_operator.autoscaling.decide import decide
from unit.autoscaling.samples import NOW, inputs, ok, signals, watched

STEEP = (0.3, 0.5, 0.8, 1.0)
FLAT = (0.30, 0.31, 0.32, 1.0)


@dataclass(frozen=True)
class Curved:
    """Two requests a second, and these ratios at 60, 75, 90 and 100 % of them."""

    ratios: tuple[float, ...]

    def capacity(self, mix: LengthMix) -> Capacity:
        return Capacity(requests_per_second=2.0, ratios=self.ratios)

    def itl_seconds(self, batch: float, mix: LengthMix) -> float | None:
        return None

    def prompt_seconds(self, mix: LengthMix) -> float | None:
        return None


def correction(ratio: float, ratios: tuple[float, ...], load: float = 5.4) -> float:
    """After one look at a p95 of this much of its objective of 1 s, with a load that is 90 % of three replicas."""
    seen = signals(load, ttft_p95_seconds=ok(ratio), tpot_p95_seconds=ok(0.01))
    return decide(inputs(signals=seen, capacity=Curved(ratios)), watched(), NOW).correction


def test_a_latency_that_the_model_has_at_this_load_teaches_nothing() -> None:
    assert correction(0.8, STEEP) == 1.0


def test_a_lower_one_is_that_of_a_higher_capacity() -> None:
    """0.5 belongs to 75 % of the capacity, and 90 % are served: a fifth of the way to 1.2."""
    assert correction(0.5, STEEP) == pytest.approx(1.04)


def test_a_higher_one_is_that_of_a_lower_capacity() -> None:
    """0.8 belongs to 90 %, and 80 % are served: a fifth of the way to 0.9, which is as low as this goes."""
    assert correction(0.8, STEEP, load=4.8) == pytest.approx(0.98)


def test_where_the_curve_is_flat_it_tells_nothing() -> None:
    assert correction(0.305, FLAT) == 1.0


def test_below_the_curve_nothing_is_known() -> None:
    assert correction(0.2, STEEP) == 1.0


def test_a_curve_is_read_between_its_points() -> None:
    """Half-way between the logarithms of 0.5 and 0.8 the load is half-way between those of 0.75 and 0.9."""
    told = Capacity(requests_per_second=1.0, ratios=STEEP).share_at((0.5 * 0.8) ** 0.5)

    assert told == pytest.approx((0.75 * 0.9) ** 0.5)

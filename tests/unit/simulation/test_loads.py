"""Arrivals as load generators make them."""

import numpy as np
import pytest

from llmservice_operator.simulation.loads import Stage, llmd_ramp, stretched_arrivals


def test_a_constant_load_has_its_count_and_ends_with_its_stage() -> None:
    arrivals = stretched_arrivals([Stage(2.0, 330.0), Stage(4.0, 360.0)], seed=1)

    assert len(arrivals) == 660 + 1440
    assert arrivals[659] == pytest.approx(330.0)
    assert arrivals[-1] == pytest.approx(690.0)


def test_a_constant_load_isn_t_even() -> None:
    """Gaps are exponential: as wide as their mean."""
    gaps = np.diff(stretched_arrivals([Stage(10.0, 1000.0)], seed=1))

    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.05)


def test_llm_d_s_ramp_waits_before_each_stage_but_the_first() -> None:
    """2, 4, 6, 8, 10, 4 and 1 a second, for 330, five times 360 and 300 seconds."""
    load = llmd_ramp(seed=0)

    assert [wait.request for wait in load.waits] == [660, 2100, 4260, 7140, 10740, 12180]
    assert [wait.begin_seconds for wait in load.waits] == [330, 690, 1050, 1410, 1770, 2130]
    assert len(load) == 12480

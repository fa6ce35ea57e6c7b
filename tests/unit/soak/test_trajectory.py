"""How far two courses of replicas are apart."""

import pytest

from soak.trajectory import Course, best_shift, course_of, distance, judge


def course(*changes: tuple[float, int], seconds: float = 100.0, attainment: float = 1.0) -> Course:
    return course_of(changes, seconds=seconds, attainment=attainment)


def test_what_was_wanted_before_the_begin_counts_at_the_begin() -> None:
    assert course((-30.0, 1), (-5.0, 2), (20.0, 3)).changes == ((0.0, 2), (20.0, 3))


def test_a_repeated_number_is_no_change() -> None:
    assert course((0.0, 1), (10.0, 1), (20.0, 2)).changes == ((0.0, 1), (20.0, 2))


def test_what_comes_after_the_end_is_left_out() -> None:
    assert course((0.0, 1), (100.0, 2)).changes == ((0.0, 1),)


def test_outs_and_ins_are_counted() -> None:
    found = course((0.0, 1), (10.0, 4), (50.0, 3), (60.0, 2))

    assert (found.outs, found.ins) == (1, 2)


def test_mean_is_over_time() -> None:
    assert course((0.0, 1), (50.0, 3)).mean == pytest.approx(2.0)


def test_distance_is_the_mean_difference() -> None:
    """Two replicas apart for a quarter of the time."""
    assert distance(course((0.0, 1), (50.0, 3)), course((0.0, 1), (75.0, 3))) == pytest.approx(0.5)


def test_the_shift_that_fits_is_found() -> None:
    assert best_shift(course((0.0, 1), (60.0, 3)), course((0.0, 1), (50.0, 3))) == 10.0


def test_a_course_within_the_simulated_ones_is_within() -> None:
    simulated = [course((0.0, 1), (40.0, 2)), course((0.0, 1), (60.0, 2)), course((0.0, 1), (50.0, 2))]

    assert judge(course((0.0, 1), (55.0, 2)), simulated).is_within
    assert not judge(course((0.0, 1), (95.0, 2)), simulated).is_within

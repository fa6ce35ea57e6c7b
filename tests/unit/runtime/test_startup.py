"""Steps and weights of a start, on a clock that the test moves."""

import pytest

from llmservice_runtime.startup import StartupTimer, WeightsTracker, next_step


def test_each_step_has_its_time() -> None:
    timer = StartupTimer(100.0)
    timer.enter("load", 112.0)
    timer.enter("compile", 142.0)

    assert timer.steps(150.0) == [("import", 12.0), ("load", 30.0), ("compile", 8.0)]


def test_a_step_entered_again_goes_on_adding() -> None:
    timer = StartupTimer(0.0)
    for step, at in (("warmup", 10.0), ("capture", 20.0), ("warmup", 25.0)):
        timer.enter(step, at)

    assert timer.steps(30.0) == [("import", 10.0), ("capture", 5.0), ("warmup", 15.0)]


def test_a_step_told_at_its_end_takes_its_time_from_what_was_under_way() -> None:
    timer = StartupTimer(0.0)
    timer.enter("profile", 40.0)
    timer.ended("compile", 8.0, 50.0)
    timer.enter("profile", 50.0)

    assert timer.steps(53.0) == [("import", 40.0), ("compile", 8.0), ("profile", 5.0)]


def test_a_step_cannot_have_begun_before_the_one_under_way() -> None:
    timer = StartupTimer(0.0)
    timer.enter("profile", 40.0)
    timer.ended("compile", 25.0, 50.0)

    assert timer.steps(50.0) == [("import", 40.0), ("compile", 10.0), ("profile", 0.0)]


def test_serving_stops_the_watch() -> None:
    timer = StartupTimer(0.0)
    timer.enter("serving", 5.0)
    timer.enter("load", 6.0)

    assert timer.step == "serving"
    assert timer.steps(1000.0) == [("import", 5.0)]


@pytest.mark.parametrize(
    ("announced", "kv_sized", "step"),
    [
        ("capture", False, "profile"),
        ("warmup", False, "profile"),
        ("capture", True, "capture"),
        ("compile", True, "warmup"),
        ("compile", False, "compile"),
        ("load", False, "load"),
    ],
)
def test_graphs_before_the_kv_cache_is_sized_belong_to_the_profile(
    announced: str, kv_sized: bool, step: str
) -> None:
    assert next_step(announced, kv_sized=kv_sized) == step


def test_progress_by_shards() -> None:
    tracker = WeightsTracker(1000)
    tracker.begin(0.0, 0)
    tracker.sample(10.0, read_bytes=0, shard_fraction=0.25)

    progress = tracker.progress()

    assert (progress.loaded_bytes, progress.bytes_per_second, progress.seconds_left) == (250, 25.0, 30.0)


def test_progress_by_what_was_read_from_storage() -> None:
    tracker = WeightsTracker(1000)
    tracker.begin(0.0, 5000)
    tracker.sample(10.0, read_bytes=5400, shard_fraction=0.25)

    assert tracker.progress().loaded_bytes == 400


def test_progress_never_goes_back_nor_beyond_the_total() -> None:
    tracker = WeightsTracker(1000)
    tracker.begin(0.0, 0)
    tracker.sample(1.0, read_bytes=9000, shard_fraction=None)
    tracker.sample(2.0, read_bytes=100, shard_fraction=0.1)

    assert tracker.progress().loaded_bytes == 1000


def test_without_a_total_there_is_no_time_left() -> None:
    tracker = WeightsTracker(None)
    tracker.begin(0.0, 0)
    tracker.sample(1.0, read_bytes=300, shard_fraction=0.5)

    progress = tracker.progress()

    assert (progress.loaded_bytes, progress.bytes_per_second, progress.seconds_left) == (300, 300.0, None)


def test_before_the_load_nothing_counts() -> None:
    tracker = WeightsTracker(1000)
    tracker.sample(1.0, read_bytes=500, shard_fraction=None)

    assert tracker.progress().loaded_bytes == 0


def test_loaded_is_all_of_it() -> None:
    tracker = WeightsTracker(1000)
    tracker.begin(0.0, 0)
    tracker.finish(4.0)

    progress = tracker.progress()

    assert (progress.loaded_bytes, progress.bytes_per_second, progress.seconds_left) == (1000, 250.0, 0.0)


@pytest.mark.parametrize(
    ("total", "exact", "expected"), [(None, False, 2000), (1000, False, 2000), (1000, True, 1000)]
)
def test_the_engines_own_size_beats_an_estimate_but_not_the_files(
    total: int | None, exact: bool, expected: int
) -> None:
    tracker = WeightsTracker(total, exact=exact)
    tracker.total_known(2000)

    assert tracker.progress().total_bytes == expected

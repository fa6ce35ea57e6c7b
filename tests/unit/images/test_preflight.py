"""What a build says of a machine that cannot build."""

from dataclasses import replace
from pathlib import Path

from images.preflight import GIB, Machine, missing_packages, problems

FOLDER = Path("/cache/images")
READY = Machine(is_root=True, missing_packages=(), free_bytes=20 * GIB)


def test_a_machine_that_has_everything_has_no_problem() -> None:
    assert problems(READY, needed_bytes=12 * GIB, folder=FOLDER) == []


def test_without_root_docker_is_the_way_out() -> None:
    (problem,) = problems(replace(READY, is_root=False), needed_bytes=0, folder=FOLDER)

    assert "root is needed" in problem
    assert "IMAGE_BUILDER=docker" in problem


def test_missing_packages_come_with_the_command_that_installs_them() -> None:
    machine = replace(READY, missing_packages=("buildah", "mmdebstrap"))

    (problem,) = problems(machine, needed_bytes=0, folder=FOLDER)

    assert "sudo apt-get install buildah mmdebstrap" in problem


def test_short_disk_names_folder_need_and_what_is_free() -> None:
    machine = replace(READY, free_bytes=13 * GIB)

    (problem,) = problems(machine, needed_bytes=12 * GIB, folder=FOLDER)

    assert problem.startswith(
        "/cache/images needs 14 GiB of free disk, 2 GiB of reserve included; 13.0 GiB are free"
    )


def test_exactly_enough_disk_is_enough() -> None:
    assert problems(replace(READY, free_bytes=14 * GIB), needed_bytes=12 * GIB, folder=FOLDER) == []


def test_packages_are_looked_for_by_their_commands() -> None:
    assert missing_packages(lambda command: None if command == "mmdebstrap" else f"/usr/bin/{command}") == (
        "mmdebstrap",
    )

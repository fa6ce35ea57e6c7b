"""What a machine lacks is said before anything is started, each with its mend."""

from dataclasses import replace

import pytest

from devcluster.preflight import GIB, Machine, packages, problems

GOOD = Machine(
    is_root=True,
    has_apt=True,
    has_go=True,
    missing_packages=(),
    free_build_bytes=50 * GIB,
    free_state_bytes=50 * GIB,
    memory_bytes=16 * GIB,
)


def test_good_machine_has_no_problems() -> None:
    assert problems(GOOD, light=False, must_build=True) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"is_root": False}, "sudo"),
        ({"has_go": False}, "install Go 1.26 or newer"),
        ({"missing_packages": ("runc", "nftables")}, "sudo apt-get install runc nftables"),
        ({"free_build_bytes": 3 * GIB}, "8 GiB of disk for Go's caches, 3.0 GiB are free"),
        ({"free_state_bytes": GIB}, "set DEVCLUSTER_STATE to a folder on a larger disk"),
        ({"memory_bytes": 2 * GIB}, "use --light"),
    ],
)
def test_each_lack_is_named_with_its_mend(change: dict[str, object], words: str) -> None:
    found = problems(replace(GOOD, **change), light=False, must_build=True)  # type: ignore[arg-type]

    assert len(found) == 1
    assert words in found[0]


def test_all_lacks_are_said_at_once() -> None:
    machine = replace(GOOD, is_root=False, has_go=False, missing_packages=("runc",))

    assert len(problems(machine, light=False, must_build=True)) == 3


def test_light_form_needs_no_root() -> None:
    assert problems(replace(GOOD, is_root=False, memory_bytes=GIB), light=True, must_build=False) == []


def test_only_who_enforces_policies_needs_what_enforces_them() -> None:
    plain, enforcing = (packages(light=False, network_policies=each) for each in (False, True))

    assert set(enforcing) - set(plain) == {"iptables", "ipset"}


def test_built_programs_need_no_compiler() -> None:
    assert problems(replace(GOOD, has_go=False, free_build_bytes=0), light=False, must_build=False) == []

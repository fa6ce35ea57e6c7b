"""What is written down of clusters, and what an existing cluster can become."""

import multiprocessing
import stat
from pathlib import Path

import pytest

from devcluster.cleanup import remove_files
from devcluster.errors import DevclusterError
from devcluster.layout import SPEC_FILE, Layout, Spec
from devcluster.slots import Slots
from devcluster.state import Registry, merge, tokens, write_atomic


def spec(**values: object) -> Spec:
    return Spec(**({"name": "dev", "slot": 0} | values))  # type: ignore[arg-type]


def registry_in(root: Path) -> Registry:
    return Registry(root, slots=Slots(root.parent / f"{root.name}-slots"))


def first_free(taken: set[int]) -> int:
    return next(slot for slot in range(9) if slot not in taken)


def test_claimed_cluster_is_found_again(tmp_path: Path) -> None:
    registry = registry_in(tmp_path)
    claimed = registry.claim(spec(nodes=2, gpus=8), choose=first_free)

    assert registry.find("dev") == claimed


def test_two_clusters_get_two_slots(tmp_path: Path) -> None:
    registry = registry_in(tmp_path)

    slots = [registry.claim(spec(name=name), choose=first_free).slot for name in ("a", "b", "a")]

    assert slots == [0, 1, 0]


def test_cluster_keeps_the_nodes_it_has() -> None:
    assert merge(spec(nodes=3), spec(nodes=1)).nodes == 3


def test_cluster_gets_the_nodes_it_lacks() -> None:
    assert merge(spec(nodes=1), spec(nodes=3)).nodes == 3


@pytest.mark.parametrize(("found", "wanted"), [(True, False), (False, True)])
def test_policies_once_enforced_stay_so(*, found: bool, wanted: bool) -> None:
    assert merge(spec(network_policies=found), spec(network_policies=wanted)).network_policies


def test_other_accelerators_are_refused() -> None:
    wanted = spec(gpus=8, gpu_type="nvidia-l4")

    with pytest.raises(
        DevclusterError, match="has 8 nvidia-h200 a node, 8 nvidia-l4 wanted; run `devcluster down"
    ):
        merge(spec(gpus=8), wanted)


def test_unreadable_record_is_named(tmp_path: Path) -> None:
    write_atomic(tmp_path / "dev" / "cluster.json", "{}")

    with pytest.raises(
        DevclusterError, match=r"dev/cluster.json cannot be read .*devcluster down --name dev"
    ):
        registry_in(tmp_path).find("dev")


def test_cluster_of_a_dead_process_is_an_orphan(tmp_path: Path) -> None:
    registry = registry_in(tmp_path)
    registry.claim(spec(name="left", owner=[2**22 + 1, 1]), choose=first_free)
    registry.claim(spec(name="mine"), choose=first_free)

    assert [found.name for found in registry.orphans()] == ["left"]


def test_tokens_stay_the_same_and_are_private(tmp_path: Path) -> None:
    layout = Layout(root=tmp_path, spec=spec())
    first = tokens(layout, ["admin"])

    second = tokens(layout, ["admin", "other"])

    assert second["admin"] == first["admin"] != second["other"]
    assert stat.S_IMODE((layout.folder / "tokens.json").stat().st_mode) == 0o600


def _append(root: Path, path: Path) -> None:
    for _ in range(20):
        with registry_in(root).locked("x"):
            path.write_text(str(int(path.read_text()) + 1))


def test_lock_admits_one_at_a_time(tmp_path: Path) -> None:
    """Though each holder removes the lock's file at its end."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_append, args=(tmp_path, counter)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert counter.read_text() == "60"
    assert [path.name for path in tmp_path.iterdir()] == ["counter"]


def test_slot_of_another_state_folder_is_not_taken_again(tmp_path: Path) -> None:
    slots = Slots(tmp_path / "slots")
    first, second = (Registry(tmp_path / name, slots=slots) for name in ("a", "b"))

    found = [registry.claim(spec(), choose=first_free).slot for registry in (first, second)]

    assert found == [0, 1]


def test_slot_of_a_removed_cluster_is_free_again(tmp_path: Path) -> None:
    """Also when its claim was left: the folder is gone."""
    slots = Slots(tmp_path / "slots")
    (tmp_path / "cluster").mkdir()
    assert slots.claim(0, tmp_path / "cluster")
    (tmp_path / "cluster").rmdir()
    (tmp_path / "next").mkdir()

    assert slots.taken() == set()
    assert slots.claim(0, tmp_path / "next")


def test_slot_is_given_back_by_its_cluster_only(tmp_path: Path) -> None:
    slots = Slots(tmp_path / "slots")
    slots.claim(0, tmp_path)

    slots.release(0, tmp_path / "other")

    assert slots.taken() == {0}


def test_cluster_that_lost_its_slot_says_how_to_mend(tmp_path: Path) -> None:
    """A restart of the machine forgets claims."""
    slots = Slots(tmp_path / "slots")
    registry = Registry(tmp_path / "a", slots=slots)
    registry.claim(spec(), choose=first_free)
    slots.release(0, tmp_path / "a" / "dev")
    slots.claim(0, tmp_path)

    with pytest.raises(
        DevclusterError, match="went to another cluster while it was down; run `devcluster down"
    ):
        registry.claim(spec(), choose=first_free)


def test_a_folder_whose_removal_was_interrupted_is_still_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed `down` can be run again: what names the cluster goes last."""
    for name in ("audit.log", SPEC_FILE, "node-1"):
        (tmp_path / name).write_text("")
    removals: list[list[str]] = []

    def interrupted(command: list[str]) -> str:
        removals.append(command)
        raise KeyboardInterrupt

    monkeypatch.setattr("devcluster.cleanup.run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        remove_files(tmp_path, last=SPEC_FILE)

    assert str(tmp_path / SPEC_FILE) not in removals[0]

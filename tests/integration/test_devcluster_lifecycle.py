"""Starting and ending: two clusters at once, a killed `up`, and nothing left by `down`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster import Cluster, DevclusterError, LightCluster, cleanup, images, processes
from devcluster.layout import Layout

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def name() -> Iterator[str]:
    """The name of a cluster that is removed after the test, whatever became of it."""
    chosen = f"life-{os.getpid()}"
    yield chosen
    LightCluster(chosen).down()


def up_command(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "devcluster", "up", *arguments]
    environ = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    return subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)


def run_echo(cluster: Cluster) -> None:
    """A pod on each node."""
    image = "llmservice.dev/devcluster/echo:1"
    archive = cluster.layout.folder / "echo.tar"
    images.write_archive(archive, name=image, program=cluster.program("echo"))
    cluster.load_image(archive)
    cluster.kubectl("create", "deployment", "echo", f"--image={image}", "--replicas=4")
    cluster.kubectl("rollout", "status", "deployment/echo", "--timeout=60s")


def traces(layout: Layout) -> list[str]:
    """All that a cluster has on the machine, each named."""
    found = [f"process {process.pid}" for process in processes.marked(layout.marker)]
    found += [f"mount {point}" for point in cleanup.mounts_below(layout.folder)]
    found += [f"interface {path.name}" for path in Path("/sys/class/net").glob(f"{layout.prefix}[bv]*")]
    found += [f"namespace {path.name}" for path in Path("/run/netns").glob(f"{layout.prefix}n*")]
    tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
    found += [line for line in tables.splitlines() if line.endswith(f"devcluster_{layout.prefix}")]
    return found + ([f"folder {layout.folder}"] if layout.folder.exists() else [])


def cgroups(containers: set[str]) -> list[Path]:
    """Control groups of these containers, in all hierarchies."""
    return [path for path in Path("/sys/fs/cgroup").glob("**/k8s.io/*") if path.name in containers]


@pytest.mark.light
def test_light_cluster_leaves_nothing(name: str) -> None:
    """After `down` there is no process and no file of it."""
    light = LightCluster(name)
    light.up()
    layout = light.layout
    assert light.api.ready()

    light.down()

    assert not processes.marked(layout.marker)
    assert not layout.folder.exists()


@pytest.mark.light
def test_up_changes_nothing_on_a_running_cluster(name: str) -> None:
    """A second `up` keeps every process."""
    light = LightCluster(name)
    light.up()
    before = {process.pid for process in processes.marked(light.layout.marker)}

    light.up()

    assert {process.pid for process in processes.marked(light.layout.marker)} == before


@pytest.mark.light
def test_light_cluster_does_not_become_a_whole_one(name: str) -> None:
    """The message says what the cluster is and how to mend it."""
    LightCluster(name).up()

    with pytest.raises(
        DevclusterError, match=f"exists as the light form; run `devcluster down --name {name}`"
    ):
        Cluster(name, nodes=1).up()


@pytest.mark.cluster
def test_two_clusters_at_once_do_not_meet(name: str) -> None:
    """Both have a node-1 and answer for themselves; ending one leaves the other."""
    other = f"{name}-b"
    first, second = Cluster(name, nodes=1), Cluster(other, nodes=1)
    try:
        first.up()
        second.up()
        first.kubectl("create", "configmap", "mine")

        assert "mine" not in second.kubectl("get", "configmap", "-o", "name")
        second.down()
        assert set(first.status().values()) == {"running"}
    finally:
        second.down()


@pytest.mark.cluster
def test_node_is_added_to_a_running_cluster(name: str) -> None:
    """`up` with more nodes keeps what runs and adds the rest."""
    Cluster(name, nodes=1).up()
    grown = Cluster(name, nodes=2)

    grown.up()

    assert grown.kubectl("get", "nodes", "-o", "name").split() == ["node/node-1", "node/node-2"]


@pytest.mark.cluster
@pytest.mark.parametrize("component", ["holder-1", "etcd", "containerd-1", "kubelet-1", "coredns"])
def test_up_goes_on_after_a_killed_up(name: str, component: str) -> None:
    """`up` killed once it has started ``component`` leaves what the next `up` completes."""
    cluster = Cluster(name, nodes=2, gpus=8)
    killed = up_command("--name", name, "--nodes", "2", "--gpus", "8")
    deadline = time.monotonic() + 60
    while cluster.supervisor.process(component) is None:
        assert time.monotonic() < deadline, f"{component} was not started"
        time.sleep(0.005)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL

    cluster.up()

    assert [name for name, state in cluster.status().items() if state != "running"] == []


@pytest.mark.cluster
def test_down_leaves_nothing_within_ten_seconds(name: str) -> None:
    """Processes, mounts, interfaces, namespaces, tables and files are gone, also with components killed before."""
    cluster = Cluster(name, nodes=2, gpus=8)
    cluster.up()
    layout = cluster.layout
    run_echo(cluster)
    for component in ("kube-apiserver", "containerd-1", "kubelet-2", "holder-2"):
        cluster.faults.kill(component)
    containers = {path.name for node in layout.nodes for path in node.runc_root.glob("k8s.io/*")}
    assert len(traces(layout)) > 10
    assert len(cgroups(containers)) >= len(containers) > 4
    started = time.monotonic()

    cluster.down()

    assert time.monotonic() - started < 10
    assert traces(layout) == []
    assert cgroups(containers) == []


@pytest.mark.light
def test_orphan_of_a_killed_test_run_is_removed(name: str) -> None:
    """A cluster whose owning process is gone is removed by the next test session."""
    code = f"from devcluster import LightCluster; LightCluster({name!r}, owned=True).up()"
    environ = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    subprocess.run([sys.executable, "-c", code], env=environ, check=True, stderr=subprocess.DEVNULL)
    assert LightCluster(name).exists()

    LightCluster(f"{name}-next").remove_orphans()

    assert not LightCluster(name).exists()

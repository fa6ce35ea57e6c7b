"""The operator is killed at random points of its work; what comes of it is the same as if it had not been."""

import random
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

import running
from devcluster.light import LightCluster

from . import script
from .world import World

pytestmark = [pytest.mark.chaos, pytest.mark.light]

CONVERGE_SECONDS = 120.0
EARLY = 0.2
"""The share of kills that come while the operator is still starting."""
EARLY_SECONDS = 3.0
LATE_SECONDS = 0.8
EXTRA_WRITES_PER_KILL = 4
"""A kill may lose the note of a write that was made; the next run then finds nothing to do, or does that one again,
and says once more what the services' states are."""


class Chaos:
    """One script of users' doings, with or without kills."""

    def __init__(self, world: World, operator: running.OperatorProcess, seed: int, kills: int) -> None:
        self.world = world
        self.operator = operator
        self.kills = kills
        self.steps = script.make_script(seed, changes=max(4, kills // 10))
        self.chance = random.Random(seed + 1)

    def undisturbed(self) -> None:
        self.operator.start_ready()
        for step in self.steps:
            step.do(self.world.api, self.world.namespace)
        self._wait_in_order()
        self.operator.terminate()

    def disturbed(self) -> None:
        steps = list(self.steps)
        for left in range(self.kills, 0, -1):
            share, steps = steps[: -(-len(steps) // left)], steps[-(-len(steps) // left) :]
            self.operator.start()
            if self.chance.random() >= EARLY:
                self.operator.wait_state("working")
                window = LATE_SECONDS
            else:
                window = EARLY_SECONDS
            until = time.monotonic() + self.chance.uniform(0, window)
            for step in share:
                step.do(self.world.api, self.world.namespace)
            time.sleep(max(0.0, until - time.monotonic()))
            self.operator.kill()
        self.operator.start_ready()
        self._wait_in_order()
        self.operator.terminate()

    def _wait_in_order(self) -> None:
        deadline = time.monotonic() + CONVERGE_SECONDS
        while faults := self.world.faults():
            if not self.operator.running:
                # As the kubelet would. On a machine that is busy enough the Lease may be lost.
                self.operator.start()
            assert time.monotonic() < deadline, "\n".join(faults) + "\n" + self.operator.tail()
            time.sleep(0.5)
        self.world.wait_quiet()
        assert self.world.faults() == []


@pytest.fixture
def world(light_cluster: LightCluster) -> World:
    running.install_crds(light_cluster.api)
    namespace = f"chaos-{uuid.uuid4().hex[:8]}"
    running.make_namespace(light_cluster.api, namespace)
    return World(light_cluster, namespace)


@pytest.fixture
def operator(world: World, tmp_path: Path) -> Any:
    operator = running.OperatorProcess(
        world.cluster.kubeconfig,
        tmp_path,
        LLMSERVICE_NAMESPACE=world.namespace,
        LLMSERVICE_WATCH_NAMESPACES=world.namespace,
    )
    yield operator
    operator.kill()


@pytest.mark.timeout(3600)
def test_a_killed_operator_ends_where_an_undisturbed_one_does(
    world: World, operator: running.OperatorProcess, kills: int, seed: int, tmp_path: Path
) -> None:
    print(f"\nchaos: {kills} kills, seed {seed} (repeat with --kills {kills} --seed {seed})")
    chaos = Chaos(world, operator, seed, kills)
    with running.Controllers(world.cluster, tmp_path):
        mark = world.cluster.audit.mark()
        chaos.undisturbed()
        expected, calm = world.end_state(), world.writes(mark)
        world.clear()

        mark = world.cluster.audit.mark()
        started = time.monotonic()
        chaos.disturbed()
        actual, wild = world.end_state(), world.writes(mark)
        took = time.monotonic() - started

    print(f"{len(chaos.steps)} steps, {took:.0f} s; writes undisturbed {dict(calm)}, killed {dict(wild)}")
    assert actual == expected
    assert _total(wild) <= _total(calm) + EXTRA_WRITES_PER_KILL * kills


def _total(writes: Any) -> int:
    """All writes but those of the Lease, which each start renews."""
    return sum(count for resource, count in writes.items() if resource != "coordination.k8s.io/leases")

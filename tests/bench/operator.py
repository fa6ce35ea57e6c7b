"""`make bench-operator`: what the operator costs, on a real API server without nodes, with what dominates.

Measured from outside: the operator is a process, requests are counted in the API server's audit log, CPU and memory
are the kernel's. A cluster of its own is made and removed.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

import running
from devcluster.light import LightCluster

NAMESPACE = "bench"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
LEASES = "coordination.k8s.io/leases"
EVENTS = "events.k8s.io/events"
READY = 'llmservice_services{ready="True",reason="ScaledToZero"}'
DEPTH = "llmservice_workqueue_depth"
RECONCILES = 'llmservice_reconciles_total{result="success"}'


@dataclass(frozen=True)
class Figure:
    """One line of the table: what, how much, the target in words, and whether it is met (None: no target)."""

    what: str
    value: str
    target: str = ""
    met: bool | None = None


@dataclass
class Bench:
    """A cluster, an operator, and the figures so far."""

    cluster: LightCluster
    folder: Path
    services: int
    idle_seconds: float
    latency_samples: int
    pods: int
    figures: list[Figure] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.api = self.cluster.api
        self.operator = running.OperatorProcess(self.cluster.kubeconfig, self.folder)

    def add(self, what: str, value: float, unit: str, limit: float | None = None, *, digits: int = 1) -> None:
        """Note a figure; a limit is the most that it may be."""
        met = None if limit is None else value <= limit
        self.figures.append(
            Figure(what, f"{value:,.1f} {unit}", "" if limit is None else f"≤ {limit:g}", met)
        )
        print(f"  {what}: {value:,.1f} {unit}", flush=True)

    def run(self) -> None:
        """All parts, one after the other; each leaves the operator stopped or working as the next needs it."""
        self.memory_at_one()
        self.cold_start()
        self.restart()
        self.latency()
        self.idle()
        self.operator.terminate()
        self.remove_all()
        if self.pods:
            self.first_pods()

    # ── parts ───────────────────────────────────────────────────────────────────────────────────────────────

    def memory_at_one(self) -> None:
        """RSS with one service."""
        self.create("only", replicas=0)
        self.operator.start_ready()
        self.wait_ready(1)
        time.sleep(3)
        self.add("memory at 1 service (RSS)", self.rss(), "MiB", 140)
        self.api.request("DELETE", running.services_path(NAMESPACE, "only"))
        self.operator.terminate()
        self.remove_all()

    def cold_start(self) -> None:
        """From the start of the process until every child and every status is written."""
        self.create_many(self.services)
        mark = self.cluster.audit.mark()
        with self.cpu("cold start"):
            started = time.monotonic()
            self.operator.start()
            self.operator.wait_state("working", seconds=120)
            listed = time.monotonic() - started
            self.wait_ready(self.services)
            took = time.monotonic() - started
        self.add(f"cold start, {self.services:,} services: all children and statuses", took, "s", 15)
        self.add("… of which process start and first list", listed, "s")
        writes = self.writes(mark)
        counted = {k: v for k, v in writes.items() if k not in (LEASES, EVENTS)}
        self.add("… writes (without Lease and Events)", sum(counted.values()), "")
        self.figures.append(
            Figure("… by resource", ", ".join(f"{k.split('/', 1)[-1]} {v}" for k, v in writes.most_common()))
        )
        self.request_times()
        self.check_children()
        self.add(f"memory at {self.services:,} services (RSS)", self.rss(), "MiB", 250)
        self.wait_events()

    def restart(self) -> None:
        """With all present: from the start of the process until every service was reconciled once."""
        self.operator.terminate()
        mark = self.cluster.audit.mark()
        with self.cpu("restart"):
            started = time.monotonic()
            self.operator.start()
            self.operator.wait_state("working", seconds=120)
            running.wait_for(self.is_steady, "the restarted operator to be steady", 120, every=0.25)
            took = time.monotonic() - started
        self.add(f"restart with {self.services:,} services, to steady", took, "s", 8)
        writes = sum(v for k, v in self.writes(mark).items() if k != LEASES)
        self.add("… writes (without the Lease)", writes, "", 0)
        self.add("… memory (RSS)", self.rss(), "MiB", 250)

    def latency(self) -> None:
        """From `apply` of a service until its Deployment exists, one at a time, beside all the others."""
        seen: dict[str, float] = {}
        asked: dict[str, float] = {}
        stop = threading.Event()
        watcher = threading.Thread(target=self._watch_deployments, args=(seen, stop), daemon=True)
        watcher.start()
        time.sleep(1)
        for number in range(self.latency_samples):
            name = f"late-{number:03d}"
            asked[name] = time.monotonic()
            self.create(name, replicas=0)
            running.wait_for(lambda name=name: name in seen, f"the Deployment {name}", 30)
        stop.set()
        waited = sorted(1000 * (seen[name] - at) for name, at in asked.items())
        self.add("apply → Deployment created, median", statistics.median(waited), "ms")
        self.add("… p95", waited[int(0.95 * (len(waited) - 1))], "ms", 300)
        for name in asked:
            self.api.request("DELETE", running.services_path(NAMESPACE, name))

    def idle(self) -> None:
        """Nothing happens: what is written, and what it costs."""
        self.remove_orphans("late-")
        self.wait_events()
        time.sleep(5)
        mark, before, started = (
            self.cluster.audit.mark(),
            run_seconds(self.operator.process.pid),
            time.monotonic(),
        )
        time.sleep(self.idle_seconds)
        took = time.monotonic() - started
        used = run_seconds(self.operator.process.pid) - before
        writes = self.writes(mark)
        self.add(f"idle {took:.0f} s: writes but the Lease's", sum(writes.values()) - writes[LEASES], "", 0)
        self.add("… Lease writes a minute", writes[LEASES] * 60 / took, "", 12)
        self.add("… CPU, percent of a core", 100 * used / took, "%", 0.5, digits=2)
        self.add("… memory (RSS)", self.rss(), "MiB", 250)

    def first_pods(self) -> None:
        """One replica for each of some services, with the cluster's own controllers: all pods created."""
        with running.Controllers(self.cluster, self.folder):
            self.operator.start_ready()
            mark = self.cluster.audit.mark()
            started = time.monotonic()
            with self.cpu("pods"):
                self.create_many(self.pods, replicas=1, prefix="pod")
                running.wait_for(lambda: self.count_pods() >= self.pods, f"{self.pods} pods", 120, every=0.25)
            took = time.monotonic() - started
            self.add(f"{self.pods} services of 1 replica: all pods created", took, "s", 20)
            self.add("… writes (without Lease and Events)", self.own_writes(mark), "")
            self.operator.terminate()

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────────

    def create(self, name: str, *, replicas: int) -> None:
        body = running.service_manifest(name, replicas=replicas)
        self.api.request("POST", running.services_path(NAMESPACE), body)

    def create_many(self, count: int, *, replicas: int = 0, prefix: str = "s") -> None:
        with ThreadPoolExecutor(8) as pool:
            names = [f"{prefix}-{number:04d}" for number in range(count)]
            list(pool.map(lambda name: self.create(name, replicas=replicas), names))

    def wait_ready(self, count: int) -> None:
        # A page costs the operator some milliseconds; asked for too often it would be what is measured.
        running.wait_for(
            lambda: self.operator.metrics().get(READY, 0) >= count, f"{count} services ready", 300, every=0.25
        )

    def wait_events(self) -> None:
        """Events are posted behind the rest, so many a second; wait until none is left."""
        mark = self.cluster.audit.mark()
        while True:
            time.sleep(3)
            if not self.writes(mark)[EVENTS]:
                return
            mark = self.cluster.audit.mark()

    def is_steady(self) -> bool:
        metrics = self.operator.metrics()
        return metrics.get(RECONCILES, 0) >= self.services and metrics.get(DEPTH, 1) == 0

    def check_children(self) -> None:
        """Every service has its Deployment, counted at the API server itself."""
        found = len(self.api.request("GET", DEPLOYMENTS)["items"])
        if found != self.services:
            raise AssertionError(f"{found} Deployments for {self.services} services")

    def count_pods(self) -> int:
        return len(self.api.request("GET", PODS)["items"])

    def rss(self) -> float:
        found: int = self.operator.process.memory_info().rss
        return found / 2**20

    def writes(self, since: int) -> Counter[str]:
        return Counter(
            request.resource
            for request in self.cluster.audit.requests(since=since)
            if request.mutating and request.user_agent.startswith("llmservice-operator")
        )

    def own_writes(self, since: int) -> int:
        return sum(v for k, v in self.writes(since).items() if k not in (LEASES, EVENTS))

    def request_times(self) -> None:
        """Where the operator waits: the mean time of a request by verb."""
        metrics = self.operator.metrics()
        stem = "llmservice_api_request_duration_seconds"
        means = []
        for verb in ("apply", "apply_status", "get", "create"):
            count = metrics.get(f'{stem}_count{{verb="{verb}"}}', 0)
            total = metrics.get(f'{stem}_sum{{verb="{verb}"}}', 0)
            if count:
                means.append(f"{verb} {1000 * total / count:.1f} ms")
        self.figures.append(Figure("… mean request", ", ".join(means)))

    def remove_all(self) -> None:
        """Everything of the namespace; there is no garbage collector here."""
        groups = {
            "/apis/apps/v1": ("deployments", "controllerrevisions", "replicasets"),
            "/apis/policy/v1": ("poddisruptionbudgets",),
            "/apis/events.k8s.io/v1": ("events",),
            "/apis/llmservice.dev/v1alpha1": ("llmservices",),
            "/api/v1": ("pods",),
        }
        for group, plurals in groups.items():
            for plural in plurals:
                self.api.request("DELETE", f"{group}/namespaces/{NAMESPACE}/{plural}")
        self.remove_services("")

    def remove_orphans(self, prefix: str) -> None:
        """What services that were deleted have left; there is no garbage collector here."""
        for path in (DEPLOYMENTS, f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"):
            for item in self.api.request("GET", path)["items"]:
                if item["metadata"]["name"].startswith(prefix):
                    self.api.request("DELETE", f"{path}/{item['metadata']['name']}")
        self.remove_services(prefix)

    def remove_services(self, prefix: str) -> None:
        path = f"/api/v1/namespaces/{NAMESPACE}/services"
        for item in self.api.request("GET", path)["items"]:
            if item["metadata"]["name"].startswith(prefix):
                self.api.request("DELETE", f"{path}/{item['metadata']['name']}")

    @contextmanager
    def cpu(self, what: str) -> Iterator[None]:
        """Note who used how much CPU: the operator, the API server, etcd."""
        before = self._cpu_seconds()
        started = time.monotonic()
        yield
        took = time.monotonic() - started
        after = self._cpu_seconds()
        shares = {name: after[name] - before.get(name, 0.0) for name in after}
        words = [f"{name} {seconds:.1f} s" for name, seconds in sorted(shares.items(), key=lambda s: -s[1])]
        load = f"; {sum(shares.values()) / took:.2f} of {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        self.figures.append(Figure(f"… CPU during {what}", ", ".join(words) + load))

    def _cpu_seconds(self) -> dict[str, float]:
        processes: dict[str, Any] = {}
        for name in ("etcd", "kube-apiserver"):
            found = self.cluster.supervisor.process(name)
            if found is not None:
                processes[name] = psutil.Process(found.pid)
        if self.operator.running:
            processes["operator"] = self.operator.process
        return {name: sum(process.cpu_times()[:2]) for name, process in processes.items()}

    def _watch_deployments(self, seen: dict[str, float], stop: threading.Event) -> None:
        for found in self.api.events(DEPLOYMENTS, deadline=time.monotonic() + 600):
            seen.setdefault(found["metadata"]["name"], time.monotonic())
            if stop.is_set():
                return


def run_seconds(pid: int) -> float:
    """Seconds that a process has run, to the nanosecond: ticks of 10 ms miss a process that wakes for less."""
    stats = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(stat.read_text().split()[0]) for stat in stats) / 1e9


def table(figures: list[Figure]) -> str:
    """The figures in columns."""
    width = max(len(figure.what) for figure in figures)
    marks = {None: "", True: "met", False: "NOT MET"}
    lines = [
        f"{figure.what:<{width}}  {figure.value:<24} {figure.target:<8} {marks[figure.met]}".rstrip()
        for figure in figures
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; 0 also where a target is missed: a benchmark tells, it does not judge."""
    parser = argparse.ArgumentParser(prog="bench.operator", description=__doc__)
    parser.add_argument("--services", type=int, default=int(os.environ.get("SERVICES", "1000")))
    parser.add_argument("--idle", type=float, default=float(os.environ.get("IDLE", "300")), help="seconds")
    parser.add_argument("--latency-samples", type=int, default=100)
    parser.add_argument("--pods", type=int, default=100, help="services with one replica; 0: leave it out")
    options = parser.parse_args(arguments)
    cluster = LightCluster(f"bench-{os.getpid()}", owned=True)
    cluster.remove_orphans()
    with tempfile.TemporaryDirectory(prefix="llmservice-bench-") as folder:
        try:
            cluster.up()
            running.install_crds(cluster.api)
            running.make_namespace(cluster.api, NAMESPACE)
            bench = Bench(
                cluster, Path(folder), options.services, options.idle, options.latency_samples, options.pods
            )
            try:
                bench.run()
            finally:
                bench.operator.kill()
                if bench.figures:
                    print(f"\n{machine()}\n{table(bench.figures)}")
        finally:
            cluster.down()
    return 0


def machine() -> str:
    """What it was measured on."""
    kernel = subprocess.run(["uname", "-sr"], capture_output=True, text=True, check=True).stdout.strip()
    memory = psutil.virtual_memory().total / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {kernel}, Python {sys.version.split()[0]}"


if __name__ == "__main__":
    sys.exit(main())

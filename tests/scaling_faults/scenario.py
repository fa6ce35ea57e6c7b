"""The scenario: services side by side, each with its fault; then the operator is killed, then there are two.

Everything is steady before, under a policy of long windows; the watch is under one of short windows, by which a
replica that isn't needed goes within half a minute: what goes nevertheless, goes for the fault.
"""

import json
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import deploy
from devcluster.fixtures import AnyCluster
from e2e.fleet import Object
from load.generator import Target
from load.pod import NAME as LOAD_POD
from load.pod import Replay, replay
from scaling_faults import liar, services
from scaling_faults.services import CASES, Case
from scaling_faults.watch import Watch
from soak.setting import MODEL, config_map, make_setting

READY_SECONDS = 300.0
SETTLE_SECONDS, FAULT_SECONDS, OPERATOR_SECONDS = 120.0, 95.0, 50.0
"""The first is the longest window that the operator looks back over."""
LOAD_SECONDS = SETTLE_SECONDS + FAULT_SECONDS + 2 * OPERATOR_SECONDS + 240.0
"""More than it takes: the load ends with the scenario."""
OPERATOR = f"deployment/{deploy.RELEASE}"
PROMETHEUS = "prometheus"

POST = """
import json, sys, urllib.request
for url, body in json.load(sys.stdin):
    urllib.request.urlopen(urllib.request.Request(url, body.encode(), method="POST"), timeout=10).read()
"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What came of one fault."""

    name: str
    what: str
    wrong: int
    """Scale-ins while the load was the same."""
    most: int
    """Replicas asked for at most."""
    told: tuple[str, ...]
    """Reasons of MetricsAvailable and ScalingActive, in their order."""
    late_seconds: float = 0.0
    """By how much the machine was late in sending the load: a scale-in for a load that stopped isn't wrong."""


@dataclass(frozen=True)
class Pod:
    """An engine."""

    name: str
    address: str


class Scenario:
    """See the module. The namespace has the claim `models`, and the operator asks `url` for DCGM's series."""

    def __init__(self, cluster: AnyCluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self._load: Replay | None = None
        self.watch = Watch(cluster, namespace)

    @staticmethod
    def url(namespace: str) -> str:
        """Of what stands in for Prometheus."""
        return f"http://{liar.SERVICE}.{namespace}.svc:{liar.PORT}"

    def play(self) -> list[Row]:
        """All of it."""
        self._prepare()
        targets = [
            Target(f"{case.name}.{self._namespace}.svc", 8000, case.name) for case in services.loaded_cases()
        ]
        requests = services.requests(LOAD_SECONDS)
        try:
            with replay(self._cluster, self._namespace, targets, requests, timeout_seconds=30.0) as load:
                self._load = load
                begin = time.time()
                pods = self._pods()
                self._post([self._rows_of(pods[PROMETHEUS], "0.3")])
                self._scale((case for case in CASES if case.loaded), services.FIRST_POLICY)
                self._wait(begin + SETTLE_SECONDS)
                return [*self._play_faults(pods, begin), *self._play_operators()]
        finally:
            self.watch.stop()

    # ── before ──

    def _prepare(self) -> None:
        """All services with two ready replicas, and whatever starts from now on broken where it is to be."""
        setting = make_setting()
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "qwen3-32b"
            model.mkdir()
            (model / "config.json").write_text(MODEL.read_text())
            deploy.provide_models(self._cluster, self._namespace, model)
        deploy.apply(
            self._cluster,
            config_map(self._namespace),
            self._broken(""),
            services.scaling_policy(),
            *liar.manifests(self._namespace),
            *(services.manifest(case, self._namespace, setting) for case in CASES),
        )
        self._kubectl("wait", "--for=condition=Ready", f"pod/{liar.NAME}", "--timeout=60s")
        deadline = time.monotonic() + READY_SECONDS
        for case in CASES:
            deploy.wait_until(
                self._cluster,
                deploy.llmservice_path(self._namespace, case.name),
                lambda each: each.get("status", {}).get("readyReplicas") == services.REPLICAS,
                timeout_seconds=deadline - time.monotonic(),
            )
        deploy.apply(self._cluster, self._broken(services.BROKEN_START))

    def _broken(self, fault: str) -> Object:
        """What new engines of the crash loop read at their start."""
        metadata = {"name": services.FAULT, "namespace": self._namespace}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"fault": fault}}

    def _scale(self, cases: Iterable[Case], policy: str) -> None:
        for case in cases:
            patch = json.dumps({"spec": {"scaling": services.scaling(case, policy)}})
            self._kubectl("patch", "llmservice", case.name, "--type=merge", "--patch", patch)

    # ── metrics, pods, another writer ──

    def _play_faults(self, pods: dict[str, list[Pod]], settled_from: float) -> list[Row]:
        begin = time.time()
        self._post(_faults(pods, [case for case in CASES if case.fault]))
        deploy.apply(self._cluster, services.other_writer(self._namespace))
        self._scale(CASES, services.POLICY)
        self._post([self._lie("slow")])
        self._wait(begin + 30.0)
        again = [case for case in CASES if case.name == "reset"]
        self._post([self._rows_of(pods[PROMETHEUS], "7.5"), *_faults(pods, again)])
        self._wait(begin + 60.0)
        over = [case for case in CASES if case.seconds is not None]
        self._post([self._lie("words"), *_faults(pods, over, clear=True)])
        self._wait(begin + 75.0)
        self._post([self._lie("down")])
        self._wait(begin + FAULT_SECONDS)
        end = time.time()
        self._post([self._rows_of(pods[PROMETHEUS], "0.3"), *_faults(pods, CASES, clear=True)])
        # Those that want more than they get have wanted it from the first.
        return [self._row(case, settled_from if case.wants_more else begin, end) for case in CASES]

    # ── the operator itself ──

    def _play_operators(self) -> list[Row]:
        killed = time.time()
        self._kill_leader()
        self._wait(killed + OPERATOR_SECONDS)
        self._operators("scale", OPERATOR, "--replicas=2")
        self._operators("rollout", "status", OPERATOR, "--timeout=60s")
        two = time.time()
        self._wait(two + OPERATOR_SECONDS / 2)
        self._kill_leader()
        self._wait(two + OPERATOR_SECONDS)
        self._operators("scale", OPERATOR, "--replicas=1")
        return [
            self._sum("operator-killed", "the operator killed under load", killed, two),
            self._sum("two-operators", "two operators, the leader killed", two, time.time()),
        ]

    def _kill_leader(self) -> None:
        """Without a chance to give up its Lease."""
        lease = ("get", "lease", deploy.RELEASE, "-o", "jsonpath={.spec.holderIdentity}")
        self._operators("delete", "pod", self._operators(*lease), "--grace-period=0", "--force")

    # ── small parts ──

    def _row(self, case: Case, begin: float, end: float) -> Row:
        seen = self.watch.seen[case.name]
        return Row(
            name=case.name,
            what=case.what,
            wrong=seen.scale_ins(begin, end),
            most=seen.most(begin, end),
            told=tuple(seen.told(begin, end)),
            late_seconds=self._late(begin, end) if case.loaded else 0.0,
        )

    def _late(self, begin: float, end: float) -> float:
        return 0.0 if self._load is None else self._load.lateness_seconds(begin, end)

    def _sum(self, name: str, what: str, begin: float, end: float) -> Row:
        """Over all services whose load goes on."""
        rows = [self._row(case, begin, end) for case in CASES if case.loaded]
        told = dict.fromkeys(reason for row in rows for reason in row.told)
        return Row(
            name=name,
            what=what,
            wrong=sum(row.wrong for row in rows),
            most=max(row.most for row in rows),
            told=tuple(told),
            late_seconds=self._late(begin, end),
        )

    def _pods(self) -> dict[str, list[Pod]]:
        """By service, the oldest first."""
        found: dict[str, list[Pod]] = {}
        text = self._kubectl("get", "pods", "-l", "app.kubernetes.io/name=llmservice", "-o", "json")
        for pod in sorted(json.loads(text)["items"], key=lambda each: str(each["metadata"]["name"])):
            service = pod["metadata"]["labels"]["llmservice.dev/service"]
            found.setdefault(service, []).append(Pod(pod["metadata"]["name"], pod["status"].get("podIP", "")))
        return found

    def _rows_of(self, pods: list[Pod], value: str) -> tuple[str, str]:
        names = [pod.name for pod in pods]
        return self.url(self._namespace), json.dumps(liar.rows(self._namespace, names, value))

    def _lie(self, mode: str) -> tuple[str, str]:
        return self.url(self._namespace), json.dumps({"mode": mode})

    def _post(self, bodies: Sequence[tuple[str, str]]) -> None:
        """POST each text to its address, from within the cluster."""
        self._cluster.kubectl(
            "-n", self._namespace, "exec", "-i", LOAD_POD, "--", "python3", "-c", POST,
            stdin=json.dumps(list(bodies)), timeout_seconds=120,
        )  # fmt: skip

    def _kubectl(self, *arguments: str) -> str:
        return self._cluster.kubectl("-n", self._namespace, *arguments, timeout_seconds=120)

    def _operators(self, *arguments: str) -> str:
        return self._cluster.kubectl("-n", deploy.OPERATOR_NAMESPACE, *arguments, timeout_seconds=120)

    @staticmethod
    def _wait(until: float) -> None:
        time.sleep(max(0.0, until - time.time()))


def _faults(
    pods: dict[str, list[Pod]], cases: Iterable[Case], *, clear: bool = False
) -> list[tuple[str, str]]:
    """Addresses of the engines' fault handles, and what is set there."""
    return [
        (f"http://{pod.address}:8000/fake/fault", "" if clear else case.fault)
        for case in cases
        if case.fault
        for pod in pods[case.name][: case.pods]
    ]


def table(rows: Sequence[Row]) -> str:
    """As text."""
    lines = [f"{'fault':46} {'scale-ins':>9} {'most':>4} {'load late':>9}  told of metrics and scaling"]
    lines += [
        f"{row.what:46} {row.wrong:9} {row.most:4} {row.late_seconds:7.1f} s  {', '.join(row.told)}"
        for row in rows
    ]
    return "\n".join(lines)

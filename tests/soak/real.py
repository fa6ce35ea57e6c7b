"""The setting on a real cluster: the operator in a pod, engines in pods, a load through the Service, all watched."""

import http.client
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import deploy
from devcluster import Cluster
from llmservice_operator.simulation.score import LEAST_ANSWER_TOKENS, Objective
from load.generator import DONE, Request, Result, Target
from load.pod import replay
from soak.setting import MODEL, NAME, NAMESPACE, Setting, config_map, manifest
from soak.trajectory import Course, course_of

Object = dict[str, Any]
SERVICE_PATH = f"/apis/llmservice.dev/v1alpha1/namespaces/{NAMESPACE}/llmservices"
DEPLOYMENT_PATH = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
PODS_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"
OPERATOR_PODS_PATH = f"/api/v1/namespaces/{deploy.OPERATOR_NAMESPACE}/pods"
PAGE_SECONDS = 5.0
READY_SECONDS = 180.0
METRICS = ("llmservice_scaling_", "llmservice_slo_", "llmservice_engine_scrape_")
KEPT = ("capacity_requests_per_second", "capacity_correction_ratio", "start_seconds")
_HTTP_PORT = 8080


@dataclass
class Record:
    """What was seen of a run, by Unix time."""

    replicas: list[tuple[float, int]] = field(default_factory=list)
    """`spec.replicas` of the Deployment, at each change."""
    decisions: dict[str, Object] = field(default_factory=dict)
    """Of status.scaling, by their time."""
    pages: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    """The operator's own series of scaling."""
    starts: dict[str, float] = field(default_factory=dict)
    """Seconds from each pod's creation to ready."""
    conditions: list[tuple[float, str, str, str]] = field(default_factory=list)
    """(time, type, status, reason), at each change."""


class Watch:
    """Fills a record until it is stopped."""

    def __init__(self, cluster: Cluster) -> None:
        self.record = Record()
        self._cluster, self._over = cluster, threading.Event()
        self._seen: dict[str, tuple[str, str]] = {}
        looks = ((DEPLOYMENT_PATH, self._deployment), (PODS_PATH, self._pod), (SERVICE_PATH, self._service))
        threads = [threading.Thread(target=self._follow, args=look, daemon=True) for look in looks]
        for thread in (*threads, threading.Thread(target=self._read_pages, daemon=True)):
            thread.start()

    def stop(self) -> Record:
        """No more is looked at."""
        self._over.set()
        return self.record

    def _follow(self, path: str, look: Any) -> None:
        while not self._over.is_set():
            for found in self._cluster.api.events(path, deadline=time.monotonic() + 600):
                if self._over.is_set():
                    return
                if "metadata" in found:
                    look(found)

    def _deployment(self, found: Object) -> None:
        replicas = int(found["spec"]["replicas"])
        if not self.record.replicas or self.record.replicas[-1][1] != replicas:
            self.record.replicas.append((time.time(), replicas))

    def _pod(self, pod: Object) -> None:
        ready = deploy.condition(pod, "Ready")
        name = pod["metadata"]["name"]
        if ready.get("status") == "True" and name not in self.record.starts and name.startswith(NAME):
            seconds = _unix(ready["lastTransitionTime"]) - _unix(pod["metadata"]["creationTimestamp"])
            self.record.starts[name] = seconds

    def _service(self, service: Object) -> None:
        status = service.get("status", {})
        for decision in status.get("scaling", {}).get("decisions") or ():
            self.record.decisions.setdefault(str(decision["at"]), decision)
        for each in status.get("conditions") or ():
            now = (each["status"], each["reason"])
            if self._seen.get(each["type"]) != now:
                self._seen[each["type"]] = now
                self.record.conditions.append((time.time(), each["type"], *now))

    def _read_pages(self) -> None:
        while not self._over.wait(PAGE_SECONDS):
            self.record.pages.append((time.time(), read_page(self._cluster)))


def read_page(cluster: Cluster) -> dict[str, float]:
    """The leader's series of scaling; empty while there is none."""
    for pod in cluster.api.request("GET", OPERATOR_PODS_PATH)["items"]:
        connection = http.client.HTTPConnection(
            pod["status"].get("podIP", "127.0.0.1"), _HTTP_PORT, timeout=3
        )
        try:
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        except OSError:
            continue
        finally:
            connection.close()
        if "llmservice_leader 1.0" in lines:
            rows = (line.rpartition(" ") for line in lines if line.startswith(METRICS))
            return {name: float(value) for name, _, value in rows}
    return {}


def serve(cluster: Cluster, setting: Setting) -> None:
    """The service, with its first replica ready."""
    folder = cluster.models_folder / "qwen3-32b"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(MODEL.read_text())
    deploy.apply(
        cluster,
        *deploy.models_manifests(NAMESPACE, cluster.models_folder),
        config_map(),
        manifest(setting.engine_environment),
    )
    path = deploy.llmservice_path(NAMESPACE, NAME)
    deploy.wait_until(
        cluster,
        path,
        lambda each: deploy.condition(each, "Ready").get("status") == "True",
        timeout_seconds=READY_SECONDS,
    )


def play(cluster: Cluster, setting: Setting) -> tuple[Course, Record, list[Result], float]:
    """The load at real speed, to the end of its last answer; the last is the Unix time of its begin."""
    load = setting.load
    requests = [
        Request(float(at), 0, int(prompt), int(answer))
        for at, prompt, answer in zip(
            load.arrival_seconds, load.prompt_tokens, load.answer_tokens, strict=True
        )
    ]
    target = Target(f"{NAME}.{NAMESPACE}.svc", 8000, NAME)
    watch = Watch(cluster)
    with replay(cluster, NAMESPACE, [target], requests, timeout_seconds=300.0) as replaying:
        results = replaying.wait(load.seconds + 400.0)
        began = replaying.began
    record = watch.stop()
    # What was wanted before the begin counts as wanted at the begin.
    points = [(at - began, replicas) for at, replicas in record.replicas]
    course = course_of(
        points,
        seconds=load.seconds,
        attainment=attainment(results, requests, setting.service.objective),
        starts=tuple(record.starts.values()),
    )
    return course, record, results, began


def attainment(results: list[Result], requests: list[Request], objective: Objective) -> float:
    """Share of all requests that met both bounds, as the simulator's score counts."""
    met = sum(is_met(each, requests[each.index], objective) for each in results)
    return met / len(requests)


def is_met(result: Result, request: Request, objective: Objective) -> bool:
    """Whether it was answered whole and in time."""
    if result.ended != DONE or result.first_seconds is None or result.end_seconds is None:
        return False
    gaps = max(1, request.answer_tokens - 1)
    tpot = (result.end_seconds - result.first_seconds) / gaps
    is_long = request.answer_tokens >= LEAST_ANSWER_TOKENS
    return result.first_seconds <= objective.ttft_seconds and (not is_long or tpot <= objective.tpot_seconds)


def _unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def as_json(record: Record, began: float) -> Object:
    """Decisions, conditions and what the operator thought of a replica, by seconds from the load's begin."""
    return {
        "replicas": [[round(at - began, 1), count] for at, count in record.replicas],
        "decisions": list(record.decisions.values()),
        "conditions": [[round(at - began, 1), *rest] for at, *rest in record.conditions],
        "starts": sorted(record.starts.values()),
        "series": {
            name: [[round(at - began, 1), value(page, name)] for at, page in record.pages] for name in KEPT
        },
    }


def value(page: dict[str, float], name: str) -> float | None:
    """Of the one series of this name; None where there is none."""
    return next((each for key, each in page.items() if key.startswith(f"llmservice_scaling_{name}{{")), None)

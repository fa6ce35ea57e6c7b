"""The stage's cast: which services there are, and every target's page at a moment."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from observability.stage import dcgm_page, supervisor_page
from observability.stage.engine_page import CPU, H200, OLD, EndToEnd, Engine, grown, played, template
from observability.stage.operator_page import OperatorPage
from observability.stage.samples import Sample
from observability.stage.world import LLAMA, START_SECONDS, Moment, Replica

NAMESPACE = "chat"
SERVICE = "llama-3-8b"
IMAGE_SECONDS = 12.0
"""From a pod's creation to its engine's start."""


@dataclass(frozen=True)
class Target:
    """What Prometheus scrapes: the labels that a monitor gives it, and its page."""

    labels: tuple[tuple[str, str], ...]
    samples: tuple[Sample, ...]


def _target(job: str, instance: str, samples: Iterator[Sample], **labels: str) -> Target:
    return Target(tuple(sorted({"job": job, "instance": instance, **labels}.items())), tuple(samples))


class Cluster:
    """Pages of all targets. `begin`: the Unix time of the world's second 0."""

    def __init__(self, moments: Sequence[Moment], *, begin: float) -> None:
        self.moments = moments
        self.begin = begin
        self._end_to_end: dict[int, EndToEnd] = defaultdict(EndToEnd)

    @cached_property
    def operator(self) -> OperatorPage:
        """The operator, which sees moments one after the other."""
        return OperatorPage(begin=self.begin)

    def targets(self, moment: Moment) -> Iterator[Target]:
        """Every target at this moment."""
        now = self.begin + moment.at_seconds
        yield _target(
            "llmservice-operator", "operator:8080", self.operator.page(moment), pod="llmservice-operator-0"
        )
        yield from self._standby(now)
        for replica in moment.replicas:
            yield from self._replica(replica, moment, now)
        yield from self._others(moment, now)

    def _standby(self, now: float) -> Iterator[Target]:
        page = (
            Sample("llmservice_leader", (), 0.0),
            Sample("process_resident_memory_bytes", (), 61e6),
            Sample("process_cpu_seconds_total", (), (now - self.begin) * 0.004),
        )
        yield _target("llmservice-operator", "standby:8080", iter(page), pod="llmservice-operator-1")

    def _replica(self, replica: Replica, moment: Moment, now: float) -> Iterator[Target]:
        pod = f"{SERVICE}-7c9f8d6b5-{replica.number:05d}"
        labels = {"namespace": NAMESPACE, "pod": pod, "llmservice": SERVICE}
        started = self.begin + replica.created_seconds
        is_ready = math.isfinite(replica.ready_seconds)
        if replica.number > 0:
            started += IMAGE_SECONDS
        else:
            started -= START_SECONDS
        ready_at = self.begin + replica.ready_seconds if is_ready else None
        if now > started:
            page = supervisor_page.page(
                started_at=started, ready_at=ready_at, now=now, expected_seconds=START_SECONDS
            )
            yield _target("llmservice-runtime", f"{pod}:9410", page, **labels)
        if not is_ready:
            return
        engine = Engine(
            record=replica.engine,
            kv_use=replica.kv_use,
            uptime_seconds=now - started,
            started_at=started,
            peak_bytes_per_second=LLAMA.row.memory_bandwidth_bytes_per_second,
            served_name=SERVICE,
            end_to_end=self._end_to_end[replica.number],
        )
        yield _target("llmservice-engine", f"{pod}:8000", played(template(H200), engine), **labels)
        use = moment.signals.bandwidth_use.or_zero()
        dcgm = dcgm_page.page(
            namespace=NAMESPACE,
            pod=pod,
            gpu=replica.number,
            bandwidth_use=use,
            prompt_share=min(1.0, use),
            busy=bool(replica.engine["running"]),
        )
        yield _target("dcgm-exporter", f"node-1:{replica.number}", dcgm)

    def _others(self, moment: Moment, now: float) -> Iterator[Target]:
        """A small service on the CPU with steady work, one on an old engine, and one that nobody asks."""
        passed = moment.at_seconds + 600.0
        quiet = {"vllm:num_requests_running": 0.0, "vllm:num_requests_waiting": 0.0}
        busy = quiet | {"vllm:num_requests_running": 2.0, "vllm:kv_cache_usage_perc": 0.11}
        busy_then = busy | {"vllm:gpu_cache_usage_perc": 0.3}
        cast: Mapping[str, tuple[str, Iterator[Sample]]] = {
            "smollm2": ("edge", grown(template(CPU), passed / 60.0, busy)),
            "mistral-7b": ("edge", grown(template(OLD), passed * 0.3, busy_then)),
            "qwen-3-32b": ("research", grown(template(H200), 1.0, quiet)),
        }
        for service, (namespace, page) in cast.items():
            pod = f"{service}-5d4c7b9f6-abcde"
            labels = {"namespace": namespace, "pod": pod, "llmservice": service}
            yield _target("llmservice-engine", f"{pod}:8000", page, **labels)
            began = self.begin - 86_400.0
            supervisor = supervisor_page.page(
                started_at=began, ready_at=began + 95.0, now=now, expected_seconds=95.0
            )
            yield _target("llmservice-runtime", f"{pod}:9410", supervisor, **labels)

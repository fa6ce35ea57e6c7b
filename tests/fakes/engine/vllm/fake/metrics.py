"""The engine's metrics page: names, labels and buckets of vLLM 0.32 (v1/metrics/loggers.py, v1/metrics/buckets.py).

In the text form of prometheus_client: counters with `_total` and a `_created` twin, values as floats.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping

REQUEST_LATENCY = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
TIME_TO_FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
INTER_TOKEN = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
ITERATION_TOKENS = (1.0, *(float(2**power) for power in range(3, 15)))
PARAMS_N = (1.0, 2.0, 5.0, 10.0, 20.0)
PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)

_COUNTERS = {
    "estimated_flops_per_gpu": "Estimated number of floating point operations per GPU.",
    "estimated_read_bytes_per_gpu": "Estimated number of bytes read from memory per GPU.",
    "estimated_write_bytes_per_gpu": "Estimated number of bytes written to memory per GPU.",
    "prefix_cache_queries": "Prefix cache queries, in tokens.",
    "prefix_cache_hits": "Prefix cache hits, in tokens.",
    "external_prefix_cache_queries": "External prefix cache queries, in tokens.",
    "external_prefix_cache_hits": "External prefix cache hits, in tokens.",
    "mm_cache_queries": "Multi-modal cache queries, in items.",
    "mm_cache_hits": "Multi-modal cache hits, in items.",
    "num_preemptions": "Preemptions.",
    "prompt_tokens": "Prompt tokens processed.",
    "prompt_tokens_cached": "Prompt tokens found in a cache.",
    "generation_tokens": "Generated tokens.",
}
_LABELLED_COUNTERS = {
    "prompt_tokens_by_source": ("source", ("local_compute", "local_cache_hit", "external_kv_transfer")),
    "prompt_tokens_cached_by_source": ("source", ("device", "host", "p2p", "disk", "external_unspecified")),
    "request_success": ("finished_reason", ("stop", "length", "abort", "error", "repetition")),
}
_STARTED = time.time()
FINISHED_REASONS = _LABELLED_COUNTERS["request_success"][1]


def one_two_five(limit: int) -> tuple[float, ...]:
    """1, 2, 5, 10 … up to `limit`."""
    found: list[float] = []
    power = 1
    while True:
        for step in (1, 2, 5):
            if step * power > limit:
                return tuple(found)
            found.append(float(step * power))
        power *= 10


class Histogram:
    """Cumulative buckets, sum and count."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self.bounds, value)] += times
        self._sum += value * times

    def lines(self, name: str, labels: str) -> Iterable[str]:
        total = 0
        for bound, count in zip((*self.bounds, math.inf), self._counts, strict=True):
            total += count
            edge = "+Inf" if math.isinf(bound) else str(bound)
            yield f'{name}_bucket{{engine="0",le="{edge}",{labels.split(",", 1)[1]} {float(total)}'
        yield f"{name}_count{labels} {float(total)}"
        yield f"{name}_sum{labels} {self._sum}"


class Metrics:
    """Every series of the page. `model` is the first served name."""

    def __init__(self, model: str, max_model_len: int) -> None:
        self._labels = f'{{engine="0",model_name="{model}"}}'
        self._model = model
        self._created = time.time()
        self.rejections = {"max_num_queued_reqs": 0.0, "max_num_queued_tokens": 0.0}
        self.counters: dict[str, float] = dict.fromkeys(_COUNTERS, 0.0)
        self.labelled: dict[str, dict[str, float]] = {
            name: dict.fromkeys(values, 0.0) for name, (_, values) in _LABELLED_COUNTERS.items()
        }
        tokens = one_two_five(max_model_len)
        self.histograms = {
            "request_prompt_tokens": Histogram(tokens),
            "request_generation_tokens": Histogram(tokens),
            "iteration_tokens_total": Histogram(ITERATION_TOKENS),
            "request_max_num_generation_tokens": Histogram(tokens),
            "request_params_n": Histogram(PARAMS_N),
            "request_params_max_tokens": Histogram(tokens),
            "time_to_first_token_seconds": Histogram(TIME_TO_FIRST_TOKEN),
            "inter_token_latency_seconds": Histogram(INTER_TOKEN),
            "request_time_per_output_token_seconds": Histogram(INTER_TOKEN),
            "e2e_request_latency_seconds": Histogram(REQUEST_LATENCY),
            "request_queue_time_seconds": Histogram(REQUEST_LATENCY),
            "request_inference_time_seconds": Histogram(REQUEST_LATENCY),
            "request_prefill_time_seconds": Histogram(REQUEST_LATENCY),
            "request_decode_time_seconds": Histogram(REQUEST_LATENCY),
            "request_prefill_kv_computed_tokens": Histogram(tokens),
            "request_num_preemptions": Histogram(PREEMPTIONS),
        }

    def observe(self, name: str, value: float, times: int = 1) -> None:
        self.histograms[name].observe(value, times)

    def reset(self) -> None:
        """All counters and histograms at zero: a fault."""
        for values in (self.counters, self.rejections, *self.labelled.values()):
            values.update(dict.fromkeys(values, 0.0))
        for name, histogram in self.histograms.items():
            self.histograms[name] = Histogram(histogram.bounds)

    def page(
        self,
        gauges: Mapping[str, float],
        cache_config: Mapping[str, object],
        *,
        engine_series: bool = True,
        missing: str = "",
        not_a_number: bool = False,
        no_numbers: bool = False,
    ) -> str:
        """The whole page.

        Faults: `missing` leaves one family out, `not_a_number` makes the gauges NaN, `no_numbers` all of the engine's.
        """
        families = [_process_series()]
        if engine_series:
            engine = self._engine_families(gauges, cache_config, not_a_number)
            families += (
                [[_without_number(line) for line in family] for family in engine] if no_numbers else engine
            )
        lines = [
            line for family in families for line in family if not (missing and f" {missing}" in f" {line}")
        ]
        return "\n".join(lines) + "\n"

    def _engine_families(
        self, gauges: Mapping[str, float], cache_config: Mapping[str, object], not_a_number: bool
    ) -> list[list[str]]:
        waiting = gauges["num_requests_waiting"]
        families = [
            _family(f"vllm:{name}", "gauge", name, [(self._labels, math.nan if not_a_number else value)])
            for name, value in gauges.items()
        ]
        families.append(
            _family("vllm:num_requests_waiting_by_reason", "gauge", "Waiting requests by reason.",
                    [(self._with("reason", "capacity"), waiting), (self._with("reason", "deferred"), 0.0)])
        )  # fmt: skip
        states = {"awake": 1.0, "weights_offloaded": 0.0, "discard_all": 0.0}
        families.append(
            _family("vllm:engine_sleep_state", "gauge", "Engine sleep state.",
                    [(self._with("sleep_state", state), value) for state, value in states.items()])
        )  # fmt: skip
        for name, value in self.counters.items():
            families += self._counter(name, _COUNTERS[name], [(self._labels, value)])
        for name, values in self.labelled.items():
            label = _LABELLED_COUNTERS[name][0]
            families += self._counter(
                name, name, [(self._with(label, key), value) for key, value in values.items()]
            )
        for name, histogram in self.histograms.items():
            full = f"vllm:{name}"
            families.append([*_head(full, "histogram", name), *histogram.lines(full, self._labels)])
            families.append(_family(f"{full}_created", "gauge", name, [(self._labels, self._created)]))
        rejections = [(self._model_with("reason", key), value) for key, value in self.rejections.items()]
        families += self._counter("admission_rejections", "Requests refused by a queue limit.", rejections)
        labels = ",".join(
            f'{key}="{value}"' for key, value in sorted({**cache_config, "engine": "0"}.items())
        )
        families.append(_family("vllm:cache_config_info", "gauge", "CacheConfig.", [(f"{{{labels}}}", 1.0)]))
        return families

    def _counter(self, name: str, text: str, samples: list[tuple[str, float]]) -> list[list[str]]:
        full = f"vllm:{name}"
        return [
            _family(f"{full}_total", "counter", text, samples),
            _family(f"{full}_created", "gauge", text, [(labels, self._created) for labels, _ in samples]),
        ]

    def _model_with(self, label: str, value: str) -> str:
        """Labels of a series that has no engine."""
        return f'{{model_name="{self._model}",{label}="{value}"}}'

    def _with(self, label: str, value: str) -> str:
        pairs = dict(pair.split("=", 1) for pair in self._labels.strip("{}").split(",", 1))
        pairs[label] = f'"{value}"'
        return "{" + ",".join(f"{key}={pairs[key]}" for key in sorted(pairs)) + "}"


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _family(name: str, kind: str, text: str, samples: list[tuple[str, float]]) -> list[str]:
    return [*_head(name, kind, text), *(f"{name}{labels} {_number(value)}" for labels, value in samples)]


def _without_number(line: str) -> str:
    return line if line.startswith("#") else f"{line.rpartition(' ')[0]} NaN"


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else str(float(value))


def _process_series() -> list[str]:
    return [
        *_family(
            "process_cpu_seconds_total", "counter", "CPU time spent in seconds.", [("", time.process_time())]
        ),
        *_family("process_start_time_seconds", "gauge", "Start time since the epoch.", [("", _STARTED)]),
    ]

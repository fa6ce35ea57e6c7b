"""vLLM's metrics page as a text, from a few numbers: the families that a scaling decision reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field

TTFT_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TPOT_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.5)
TOKEN_BOUNDS = (50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)


@dataclass(kw_only=True)
class EngineTotals:
    """What an engine has counted so far, and what it does now. Requests are all alike."""

    finished: float = 0.0
    running: float = 0.0
    waiting: float = 0.0
    kv_use: float = 0.1
    ttft_seconds: float = 0.2
    tpot_seconds: float = 0.02
    input_tokens: float = 400.0
    output_tokens: float = 150.0
    preemptions: float = 0.0
    process_seconds: float = 0.0
    """CPU time of the process: it moves with every page."""
    started_at: float = 1_789_999_000.0
    read_bytes: float = 0.0
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Sample name → another text for its value, such as `NaN`; empty: the family is left out."""

    def serve(self, requests: float, seconds: float) -> None:
        """So many requests more in so long."""
        self.finished += requests
        self.process_seconds += max(0.01, seconds / 10)


def page(totals: EngineTotals) -> str:
    """The page."""
    gauges = {
        "vllm:num_requests_running": totals.running,
        "vllm:num_requests_waiting": totals.waiting,
        "vllm:kv_cache_usage_perc": totals.kv_use,
        "process_start_time_seconds": totals.started_at,
    }
    counters = {
        "vllm:num_preemptions_total": totals.preemptions,
        "vllm:prompt_tokens_total": totals.finished * totals.input_tokens,
        "vllm:generation_tokens_total": totals.finished * totals.output_tokens,
        "vllm:request_success_total": totals.finished,
        "vllm:prefix_cache_queries_total": totals.finished * totals.input_tokens,
        "vllm:prefix_cache_hits_total": 0.0,
        "vllm:estimated_read_bytes_per_gpu_total": totals.read_bytes,
        "vllm:estimated_write_bytes_per_gpu_total": 0.0,
        "process_cpu_seconds_total": totals.process_seconds,
    }
    histograms = {
        "vllm:time_to_first_token_seconds": (TTFT_BOUNDS, totals.ttft_seconds, totals.finished),
        "vllm:inter_token_latency_seconds": (
            TPOT_BOUNDS,
            totals.tpot_seconds,
            totals.finished * totals.output_tokens,
        ),
        "vllm:request_time_per_output_token_seconds": (TPOT_BOUNDS, totals.tpot_seconds, totals.finished),
        "vllm:request_prompt_tokens": (TOKEN_BOUNDS, totals.input_tokens, totals.finished),
        "vllm:request_generation_tokens": (TOKEN_BOUNDS, totals.output_tokens, totals.finished),
    }
    lines: list[str] = []
    for kind, samples in (("gauge", gauges), ("counter", counters)):
        for name, value in samples.items():
            text = totals.overrides.get(name, repr(float(value)))
            if text:
                lines += [f"# TYPE {name} {kind}", f"{name}{_labels(name)} {text}"]
    for name, (bounds, value, count) in histograms.items():
        if totals.overrides.get(name, "kept"):
            lines += _histogram(name, bounds, value, count, totals.overrides.get(name))
    return "\n".join(lines) + "\n"


def _labels(name: str) -> str:
    if not name.startswith("vllm:"):
        return ""
    reason = ',finished_reason="stop"' if name == "vllm:request_success_total" else ""
    return f'{{engine="0",model_name="chat"{reason}}}'


def _histogram(
    name: str, bounds: tuple[float, ...], value: float, count: float, text: str | None
) -> list[str]:
    """All samples in the bucket of the one value; `text` stands for each count."""
    lines = [f"# TYPE {name} histogram"]
    for bound in (*bounds, float("inf")):
        le = "+Inf" if bound == float("inf") else repr(bound)
        told = text if text is not None else repr(count if value <= bound else 0.0)
        lines.append(f'{name}_bucket{{engine="0",le="{le}",model_name="chat"}} {told}')
    lines.append(f'{name}_sum{{engine="0",model_name="chat"}} {count * value}')
    lines.append(f'{name}_count{{engine="0",model_name="chat"}} {text if text is not None else count}')
    return lines

"""Measured loads: Poisson arrivals on H200, and public records of every request of two runs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accuracy.speed_points import TRUTH, read_runs, run_case, speed_case
from llmservice_operator.perfmodel.arrivals import Generator, Lengths, Request
from llmservice_operator.perfmodel.batching import Engine, Outcome
from llmservice_operator.perfmodel.open_loop import OpenLoop, open_loop, quantile, summarize
from llmservice_operator.perfmodel.speed import SpeedModel
from llmservice_operator.perfmodel.speed_constants import SpeedConstants

FIGURES = ("ttft_p50", "ttft_p95", "ttft_p99", "tpot_p50", "tpot_p95")
_AZURE_WINDOWS = 8
_AZURE_LENGTHS = Lengths(input_p50=1020, input_p95=4083, output_p50=129, output_p95=451)


@dataclass(frozen=True, slots=True)
class Load:
    """One recorded load and what is predicted of it; seconds by figure."""

    name: str
    ranks: int
    rate_per_second: float
    measured: Mapping[str, float]
    predicted: Mapping[str, float]
    utilization: float

    def error(self, figure: str) -> float:
        """Relative, signed."""
        return self.predicted[figure] / self.measured[figure] - 1.0


def loads(constants_by_ranks: Mapping[int, SpeedConstants | None]) -> Iterator[Load]:
    """The loads on H200, each run with its constants (None: the shipped ones)."""
    for run in read_runs():
        model = SpeedModel(run_case(run), constants=constants_by_ranks[run["tp"]])
        for row in run["open_loop"]:
            found = _play(model, row)
            yield Load(
                name=row["workload"].removeprefix("poisson_"),
                ranks=run["tp"],
                rate_per_second=row["rate_rps_sent"],
                measured={figure: row[f"{figure}_s"] for figure in FIGURES},
                predicted={figure: getattr(found, f"{figure}_seconds") for figure in FIGURES},
                utilization=found.utilization,
            )


def _play(model: SpeedModel, row: Mapping[str, Any]) -> OpenLoop:
    rate = row["rate_rps_sent"]
    if row["lengths"].startswith("fixed"):
        lengths = Lengths(input_p50=row["input_tokens_mean"], output_p50=row["output_tokens_mean"])
        return open_loop(model, rate_per_second=rate, lengths=lengths)
    pairs = json.loads((TRUTH / "speed" / "azureconv_pairs.json").read_text())
    windows = [
        Engine(model, _drawn(pairs, row["sent"], row["duration_s"], seed)).run()
        for seed in range(_AZURE_WINDOWS)
    ]
    return summarize(model, rate, _AZURE_LENGTHS, windows)


def _drawn(pairs: Sequence[Sequence[int]], count: int, window_seconds: float, seed: int) -> list[Request]:
    generator = Generator(seed)
    times = sorted(generator.uniform() * window_seconds for _ in range(count))
    return [Request(time, *pairs[int(generator.uniform() * len(pairs))]) for time in times]


PUBLIC_RUNS = (("RTX4090", "nvidia-rtx-4090"), ("RTXPRO6000", "nvidia-rtx-pro-6000"))


def public_loads() -> Iterator[Load]:
    """The public runs: the very requests at their very times."""
    for name, accelerator in PUBLIC_RUNS:
        base = TRUTH / "speed" / "vllm_groundtruth" / f"{name}_Llama-3.1-8B"
        meta = json.loads(base.with_name(base.name + ".meta.json").read_text())
        rows = [
            json.loads(line)
            for line in base.with_name(base.name + ".requests.jsonl").read_text().splitlines()
        ]
        rows.sort(key=lambda row: row["arrival_time"])
        knobs = meta["engine_kwargs"]
        model = SpeedModel(
            speed_case(
                "meta-llama--Meta-Llama-3.1-8B",
                accelerator,
                1,
                max_num_seqs=knobs["max_num_seqs"],
                max_num_batched_tokens=knobs["max_num_batched_tokens"],
                max_model_len=knobs["max_model_len"] or 131_072,
                engine_version=tuple(int(part) for part in meta["vllm_version"].split(".")),
                kv_cache_tokens=meta.get("kv_cache", {}).get("num_kv_tokens"),
            )
        )
        begin = rows[0]["arrival_time"]
        load = [Request(row["arrival_time"] - begin, row["input_toks"], row["output_toks"]) for row in rows]
        yield Load(
            name=f"{name}, ShareGPT",
            ranks=1,
            rate_per_second=len(rows) / load[-1].arrival_seconds,
            measured=_figures(
                [row["first_token_ts"] - row["queued_ts"] for row in rows],
                [
                    (row["last_token_ts"] - row["first_token_ts"]) / max(1, row["output_toks"] - 1)
                    for row in rows
                ],
            ),
            predicted=_outcome_figures(Engine(model, load).run()),
            utilization=0.0,
        )


def _outcome_figures(outcomes: Sequence[Outcome]) -> dict[str, float]:
    return _figures([each.ttft_seconds for each in outcomes], [each.tpot_seconds for each in outcomes])


def _figures(ttft: Sequence[float], tpot: Sequence[float]) -> dict[str, float]:
    ordered = {"ttft": sorted(ttft), "tpot": sorted(tpot)}
    return {figure: quantile(ordered[figure[:4]], int(figure.rpartition("p")[2]) / 100) for figure in FIGURES}

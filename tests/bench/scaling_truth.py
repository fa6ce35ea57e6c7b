"""The simulated fleet against the world: measured loads on one engine, and llm-d's published ramp on eight.

    python -m bench.scaling_truth       from tests/: each row, what was measured, what is simulated, the error

Exit code 1 if a target is missed. Nothing here is fitted: engines are as estimated, speed as the speed model says.
"""

import json
import statistics
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accuracy.speed_points import TRUTH, read_runs, run_case, speed_case
from bench import scaling_published as published
from bench.scaling_setup import QWEN, profile_of, speed_of
from llmservice_operator.perfmodel.accelerators import builtin_catalogue_text, find_row, load_catalogue
from llmservice_operator.perfmodel.architecture import read_architecture
from llmservice_operator.perfmodel.quantization import read_quantization
from llmservice_operator.perfmodel.speed import SpeedCase, SpeedModel
from llmservice_operator.simulation.fleet import FleetSettings, Run, simulate
from llmservice_operator.simulation.loads import Load, Pair, drawn_load, make_load
from llmservice_operator.simulation.peers.hpa import Static
from llmservice_operator.simulation.score import latencies, quantile
from llmservice_operator.simulation.tables import Tables, build_tables

TPOT_TARGET, TTFT_TARGET = 0.10, 0.25
PREFILL_TOKENS = 8192
"""What llm-d measured its engine's prefill with (guides/recipes/router/calibration)."""
SEEDS = 20
"""Windows that a median is taken over: a recorded one is a single draw of 18 s."""
ONE_POD = FleetSettings(min_replicas=1, max_replicas=1)
LLAMA_FOLDER = TRUTH.parent / "data" / "models" / "meta-llama--Meta-Llama-3.1-8B"
REAL_RAMPS = (("qwen3-8b", "Qwen--Qwen3-8B", 48), ("qwen3-32b", "Qwen--Qwen3-32B", 24))
"""Name, folder of tests/data/models, max_num_seqs."""
RECORDS = {"RTX4090": "nvidia-rtx-4090", "RTXPRO6000": "nvidia-rtx-pro-6000"}


@dataclass(frozen=True)
class Row:
    """One load's figures in seconds."""

    name: str
    measured: Mapping[str, float]
    simulated: Mapping[str, float]
    windows: tuple[Mapping[str, float], ...] = ()
    """Of each simulated window, where the load is drawn anew."""

    def error(self, figure: str) -> float:
        """Relative, signed."""
        return self.simulated[figure] / self.measured[figure] - 1.0

    @property
    def is_met(self) -> bool:
        """TPOT p50 and TTFT p95 within their targets."""
        return abs(self.error("tpot_p50")) <= TPOT_TARGET and abs(self.error("ttft_p95")) <= TTFT_TARGET

    def is_among(self, figure: str) -> bool:
        """Whether the measured window lies between the least and the largest of the simulated ones."""
        found = [each[figure] for each in self.windows]
        return min(found) <= self.measured[figure] <= max(found)


FIGURES = ("ttft_p50", "ttft_p95", "tpot_p50", "tpot_p95")


def figures(run: Run) -> dict[str, float]:
    """Of all requests of a run."""
    ttft, tpot = latencies(run)
    return _figures(ttft, tpot)


def _figures(ttft: Any, tpot: Any) -> dict[str, float]:
    return {
        "ttft_p50": quantile(ttft, 0.50),
        "ttft_p95": quantile(ttft, 0.95),
        "tpot_p50": quantile(tpot, 0.50),
        "tpot_p95": quantile(tpot, 0.95),
    }


def open_loads() -> Iterator[Row]:
    """The Poisson loads on H200: medians over windows like the recorded ones."""
    pairs = [Pair(*each) for each in json.loads((TRUTH / "speed" / "azureconv_pairs.json").read_text())]
    for run in read_runs():
        tables = build_tables(SpeedModel(run_case(run)))
        for row in run["open_loop"]:
            found = [figures(_window(tables, row, pairs, seed)) for seed in range(SEEDS)]
            yield Row(
                name=f"tp{run['tp']} {row['workload'].removeprefix('poisson_')} {row['rate_rps_sent']}/s",
                measured={figure: row[f"{figure}_s"] for figure in FIGURES},
                simulated={figure: statistics.median(each[figure] for each in found) for figure in FIGURES},
                windows=tuple(found),
            )


def _window(tables: Tables, row: Mapping[str, Any], pairs: Sequence[Pair], seed: int) -> Run:
    seconds, count = row["duration_s"], row["sent"]
    arrivals = np.sort(np.random.default_rng(seed).uniform(0.0, seconds, count))
    if row["lengths"].startswith("fixed"):
        load = make_load(
            "open",
            arrivals,
            np.full(count, row["input_tokens_mean"]),
            np.full(count, row["output_tokens_mean"]),
            seconds=seconds,
        )
    else:
        load = drawn_load("open", arrivals, pairs, seconds=seconds, seed=seed)
    return simulate(tables, load, Static(1), ONE_POD)


def recorded_runs() -> Iterator[Row]:
    """Every request of two public runs, at the recorded times and lengths: saturated, one by its cache."""
    for name, accelerator in RECORDS.items():
        folder = TRUTH / "speed" / "vllm_groundtruth"
        lines = (folder / f"{name}_Llama-3.1-8B.requests.jsonl").read_text().splitlines()
        meta = json.loads((folder / f"{name}_Llama-3.1-8B.meta.json").read_text())
        rows = sorted((json.loads(line) for line in lines), key=lambda row: row["arrival_time"])
        run = simulate(_recorded_tables(accelerator, meta), _recorded_load(rows), Static(1), ONE_POD)
        ttft = np.array([row["first_token_ts"] - row["queued_ts"] for row in rows])
        gaps = np.array([max(1, row["output_toks"] - 1) for row in rows])
        tpot = np.array([row["last_token_ts"] - row["first_token_ts"] for row in rows]) / gaps
        yield Row(name=name, measured=_figures(ttft, tpot), simulated=figures(run))


def _recorded_load(rows: Sequence[Mapping[str, Any]]) -> Load:
    arrivals = np.array([row["arrival_time"] - rows[0]["arrival_time"] for row in rows])
    return make_load(
        "recorded",
        arrivals,
        np.array([row["input_toks"] for row in rows]),
        np.array([row["output_toks"] for row in rows]),
        seconds=float(arrivals[-1]),
    )


def _recorded_tables(accelerator: str, meta: Mapping[str, Any]) -> Tables:
    config = json.loads((LLAMA_FOLDER / "config.json").read_text())
    model = read_architecture(config)
    row = find_row(load_catalogue(builtin_catalogue_text()), accelerator)
    if row is None:
        raise ValueError(f"{accelerator} is no row of the catalogue")
    given = meta["engine_kwargs"]
    major, minor, patch = (int(part) for part in meta["vllm_version"].split("."))
    case = SpeedCase(
        model=model,
        quantization=read_quantization(config),
        accelerator=row,
        tensor_parallel_size=given["tensor_parallel_size"],
        dtype=given["dtype"],
        kv_cache_dtype=given["kv_cache_dtype"],
        max_num_seqs=given["max_num_seqs"],
        max_num_batched_tokens=given["max_num_batched_tokens"],
        max_model_len=given["max_model_len"] or config["max_position_embeddings"],
        engine_version=(major, minor, patch),
        kv_cache_tokens=(meta.get("kv_cache") or {}).get("num_kv_tokens"),
    )
    return build_tables(SpeedModel(case))


def real_ramps() -> Iterator[Row]:
    """Two engines on an H200 that were loaded past their limit, each request at its time and with its lengths.

    By stages of a minute. What stands in `truth/h200/ramps` was recorded after everything here was written.
    """
    for name, folder, sequences in REAL_RAMPS:
        requests = _recorded_requests(name)
        case = speed_case(folder, "nvidia-h200", 1, max_num_seqs=sequences, max_model_len=32_768)
        load = make_load(
            name,
            np.array([each["at"] for each in requests]),
            np.array([each["prompt_tokens"] for each in requests]),
            np.array([each["output_tokens"] for each in requests]),
            seconds=requests[-1]["at"],
        )
        ttft, tpot = latencies(simulate(build_tables(SpeedModel(case)), load, Static(1), ONE_POD))
        first, last, at = (np.array([each[key] for each in requests]) for key in ("first", "last", "at"))
        gaps = np.maximum(1, load.answer_tokens - 1)
        stages = np.array([each["stage"] for each in requests])
        for stage in range(stages.max() + 1):
            inside = stages == stage
            yield Row(
                name=f"{name} stage {stage}, {inside.sum()} requests",
                measured=_figures((first - at)[inside], ((last - first) / gaps)[inside]),
                simulated=_figures(ttft[inside], tpot[inside]),
            )


def _recorded_requests(name: str) -> list[Mapping[str, Any]]:
    """Those that were answered, in order."""
    with tarfile.open(TRUTH / "h200" / "ramps" / f"{name}.tar.xz") as archive:
        lines = archive.extractfile(f"{name}/requests.jsonl")
        if lines is None:
            raise ValueError(f"{name} has no requests")
        rows = [json.loads(each) for each in lines]
    return sorted((row for row in rows if row["status"] == 200), key=lambda row: row["at"])


def verdicts(rows: Sequence[Row], replays: Sequence[Row]) -> list[tuple[str, bool]]:
    """Each target in words with its figure, and whether it is met."""
    static, slo = published.play(published.STATIC, seeds=2), published.play(published.THE_GUIDE)
    attainment, replicas = published.mean(slo, "attainment"), published.mean(slo, "replicas")
    eight = published.mean(static, "attainment")
    least, most = published.span()
    return [
        *_errors("loads drawn anew", rows),
        *_errors("stages replayed request by request", replays),
        (
            f"llm-d static: {eight:.1%} at {published.mean(static, 'replicas'):.2f} (100 % at 8)",
            eight > 0.9995,
        ),
        (
            f"llm-d SLO-aware: {replicas:.2f} replicas (5.93 ± 0.3)",
            published.is_near(replicas, published.REPLICAS),
        ),
        (
            f"llm-d SLO-aware: {attainment:.1%} (95.8 % ± 1.5); {least:.1%} to {most:.1%} by what is open",
            published.is_near(attainment, published.ATTAINMENT),
        ),
    ]


def _errors(what: str, rows: Sequence[Row]) -> list[tuple[str, bool]]:
    within = sum(row.is_met for row in rows)
    mean_tpot = statistics.mean(abs(row.error("tpot_p50")) for row in rows)
    mean_ttft = statistics.mean(abs(row.error("ttft_p95")) for row in rows)
    return [
        (f"{what}: TPOT p50 is off by {mean_tpot:.1%} on average (10 %)", mean_tpot <= TPOT_TARGET),
        (f"{what}: TTFT p95 is off by {mean_ttft:.1%} on average (25 %)", mean_ttft <= TTFT_TARGET),
        (f"{what}: {within} of {len(rows)} are within both", within == len(rows)),
    ]


def _windows(rows: Sequence[Row], figure: str, target: float) -> str:
    """How far single windows are apart: what a measured one, a single draw, can be held to."""
    drawn = [row for row in rows if row.windows]
    among = sum(row.is_among(figure) for row in drawn)
    shares = [
        sum(abs(each[figure] / row.simulated[figure] - 1.0) <= target for each in row.windows)
        / len(row.windows)
        for row in drawn
    ]
    return (
        f"{figure}: {among} of {len(drawn)} measured windows are among {SEEDS} simulated ones; of those "
        f"{statistics.mean(shares):.0%} are within {target:.0%} of their own median"
    )


def missed() -> list[str]:
    """Targets that aren't met, each with its figure."""
    found = verdicts([*open_loads(), *recorded_runs()], list(real_ramps()))
    return [words for words, met in found if not met]


def main() -> int:
    """Prints rows and targets."""
    rows, replays = [*open_loads(), *recorded_runs()], list(real_ramps())
    print(f"{'load':38}" + "".join(f"{figure:>26}" for figure in FIGURES))
    for row in [*rows, *replays]:
        cells = "".join(
            f"{row.measured[each] * 1e3:10.1f} {row.simulated[each] * 1e3:8.1f} {row.error(each):+6.1%}"
            for each in FIGURES
        )
        print(f"{row.name:38}{cells}")
    print("measured ms, simulated ms, error")
    print(
        f"a replica of {QWEN.name}: {profile_of(QWEN).engine_requests_per_second:.2f} requests/s within bounds "
        f"(llm-d: 1.4 to 1.5), a prompt of {PREFILL_TOKENS} tokens at "
        f"{PREFILL_TOKENS / speed_of(QWEN).prefill_seconds(PREFILL_TOKENS):.0f}/s (15,928)"
    )
    for figure, target in (("tpot_p50", TPOT_TARGET), ("ttft_p95", TTFT_TARGET)):
        print(_windows(rows, figure, target))
    print("llm-d's ramp; each row eight runs, between the least and the largest:")
    for told in published.table():
        print(told)
    found = verdicts(rows, replays)
    for words, met in found:
        print(f"{'ok  ' if met else 'MISS'} {words}")
    return 0 if all(met for _, met in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())

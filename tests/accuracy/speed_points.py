"""Measured prompts and steps, and the constants of speed fitted to them."""

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from accuracy.speed_fit import Prior, fit
from llmservice_operator.perfmodel.accelerators import builtin_catalogue_text, find_row, load_catalogue
from llmservice_operator.perfmodel.architecture import read_architecture
from llmservice_operator.perfmodel.quantization import read_quantization
from llmservice_operator.perfmodel.speed import SpeedCase, SpeedModel
from llmservice_operator.perfmodel.speed_constants import DeviceConstants, HostConstants, SpeedConstants
from llmservice_operator.perfmodel.step_time import Chunk

TESTS = Path(__file__).resolve().parents[1]
TRUTH = TESTS / "truth"
MODELS = TESTS / "data" / "models"

PREFILL, DECODE = "prefill", "decode"
_EXPECTED_ERROR = {PREFILL: 0.05, DECODE: 0.015}
"""How far a point may be off by chance and by what a roofline leaves out: weights of the fit."""
_PUBLIC_EXPECTED_ERROR = 0.04

_DEVICE = tuple(each.name for each in fields(DeviceConstants))
_HOST_OVERLAP_ONLY = {"step_sequence_seconds": 5e-6}

PRIORS: Mapping[str, Prior] = {
    # What kernels reach of a datasheet by public benchmarks: copies and decode attention 80 to 95 % of the bandwidth,
    # large products and FlashAttention-3 60 to 70 % of the dense rate, sums over NVLink 50 to 90 % of one direction.
    "weight_bandwidth_share": Prior(0.85, 0.1),
    "cache_bandwidth_share": Prior(0.85, 0.1),
    "product_flops_share": Prior(0.65, 0.15),
    "attention_flops_share": Prior(0.6, 0.25),
    "interconnect_share": Prior(0.7, 0.3),
    # A dependent kernel's start and tail; a sum of two ranks through peer memory is a kernel and a barrier.
    "kernel_seconds": Prior(3e-6, 0.3),
    "all_reduce_seconds": Prior(5e-6, 0.3),
    # Orders of magnitude.
    "sequence_seconds": Prior(2e-6, 0.7),
    "softness": Prior(2.0, 0.3),
    "piece_seconds": Prior(200e-6, 1.0),
    "host_kernel_seconds": Prior(50e-6, 1.0),
    "token_seconds": Prior(50e-6, 0.7),
    # Points of idle engines hardly tell this one from launches; loads of few requests do (TTFT's median at 5/s).
    "request_seconds": Prior(7e-3, 0.2),
    # No step was short enough to tell.
    "step_seconds": Prior(2e-3, 0.3),
}
"""Values and spreads before any point."""
_STARTS: Sequence[Mapping[str, float]] = ({}, {"host_kernel_seconds": 2.0, "piece_seconds": 2.0})
"""Launches that hide behind the card have no slope: begin with short and with long ones."""


@dataclass(frozen=True, slots=True)
class Point:
    """One measured time."""

    case: SpeedCase
    kind: str
    tokens: int
    """Of the prompt; of the batch for a decode step."""
    context: float
    seconds: float
    device_only: bool = False
    """The card's time without the host's."""

    @property
    def setting(self) -> tuple[str, int, float]:
        """What is left out together: this point at every number of ranks."""
        return self.kind, self.tokens, self.context

    def predict(self, model: SpeedModel) -> float:
        """The model's time for it."""
        if self.device_only:
            return self._device_seconds(model)
        if self.kind == PREFILL:
            return model.prefill_seconds(self.tokens)
        return model.decode_seconds(self.tokens, self.context)

    def _device_seconds(self, model: SpeedModel) -> float:
        if self.kind == DECODE:
            return model.timer.step(batch=self.tokens, context=self.context).device.seconds
        budget, done, total = self.case.max_num_batched_tokens, 0, 0.0
        while done < self.tokens:
            size = min(budget, self.tokens - done)
            chunk = Chunk(size, done, last=done + size == self.tokens)
            total += model.timer.step(batch=0, context=0.0, chunks=(chunk,)).device.seconds
            done += size
        return total


@cache
def speed_case(model: str, accelerator: str, ranks: int, **knobs: Any) -> SpeedCase:
    """A case with the recorded runs' knobs (vLLM 0.26.0's defaults on large cards), unless others are given."""
    config = json.loads((MODELS / model / "config.json").read_text())
    apart = MODELS / model / "hf_quant_config.json"
    if apart.is_file():
        config.setdefault("quantization_config", json.loads(apart.read_text()))
    quantization = read_quantization(config)
    architecture = read_architecture(config)
    row = find_row(load_catalogue(builtin_catalogue_text()), accelerator)
    if row is None:
        raise LookupError(accelerator)
    settings: dict[str, Any] = {
        "dtype": architecture.dtype,
        "kv_cache_dtype": quantization.kv_cache_dtype or "auto",
        "max_num_seqs": 256,
        "max_num_batched_tokens": 8192,
        "max_model_len": 33_280,
        "engine_version": (0, 26, 0),
        **knobs,
    }
    return SpeedCase(
        model=architecture,
        quantization=quantization,
        accelerator=row,
        tensor_parallel_size=ranks,
        **settings,
    )


def read_runs() -> list[dict[str, Any]]:
    """The recorded runs on H200."""
    runs: list[dict[str, Any]] = json.loads((TRUTH / "h200_speed.json").read_text())["runs"]
    return runs


def run_case(run: Mapping[str, Any]) -> SpeedCase:
    """The case of a recorded run."""
    return speed_case(Path(run["config_dir"]).name, "nvidia-h200", run["tp"])


def measured_points() -> list[Point]:
    """Prompts and decode steps of the recorded runs."""
    points = []
    for run in read_runs():
        case = run_case(run)
        points += [
            Point(case, PREFILL, each["prompt_tokens"], 0.0, each["ttft_s"]) for each in run["prefill"]
        ]
        points += [
            Point(case, DECODE, each["batch"], each["mean_context_tokens"], each["itl_mean_s"])
            for each in run["decode"]
            if each["valid"]
        ]
    return points


def served_points() -> list[Point]:
    """Other models on one H200, measured over HTTP; no constant but the experts' share was fitted to them."""
    points = []
    for record in json.loads((TRUTH / "h200" / "memory_plans.json").read_text())["records"]:
        found = record["speed"]
        if not found:
            continue
        knobs = {name: record["args"][name] for name in _KNOBS}
        case = speed_case(record["config"], "nvidia-h200", record["tp"], **knobs)
        points += [
            Point(case, PREFILL, each["prompt_tokens"], 0.0, each["ttft_seconds"])
            for each in found["prefill"]
        ]
        points += [
            Point(case, DECODE, each["batch"], each["mean_context_tokens"], each["itl_seconds"])
            for each in found["decode"]
        ]
    return points


_KNOBS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len")


def is_sure(point: Point) -> bool:
    """Whether a served step counts.

    Steps are a difference of two answers: from 64 sequences on its prompts vary by as much, and a batch's first run may
    compile kernels. With dummy weights sequences grow alike, and reach fewer experts than tokens of a text would.
    """
    if point.kind == PREFILL:
        return True
    return point.tokens == 1 if point.case.model.mixture else point.tokens < 64


_PUBLIC_ROWS = {
    "h100_sxm": "nvidia-h100-80gb", "h200_sxm": "nvidia-h200", "a100_sxm": "nvidia-a100-80gb", "l40s": "nvidia-l40s",
}  # fmt: skip


def public_points() -> list[Point]:
    """Times of the card by aiconfigurator; 16 tokens are decoded, so the context is 8 longer in the mean."""
    points = []
    with (TRUTH / "speed" / "aiconfigurator_0.12.0_vllm_estimates.csv").open() as file:
        for row in csv.DictReader(file):
            case = speed_case(row["model"].replace("/", "--"), _PUBLIC_ROWS[row["system"]], int(row["tp"]))
            length = int(row["isl_or_ctx"])
            if row["mode"] == "static_ctx":
                points.append(
                    Point(case, PREFILL, length, 0.0, float(row["ttft_ms"]) / 1e3, device_only=True)
                )
            else:
                seconds = float(row["tpot_ms"]) / 1e3
                points.append(Point(case, DECODE, int(row["batch"]), length + 8.0, seconds, device_only=True))
    return points


def constants_of(values: Mapping[str, float]) -> SpeedConstants:
    """Constants by their names in the fit."""
    return SpeedConstants(
        device=DeviceConstants(**{name: values[name] for name in _DEVICE}),
        host=HostConstants(
            step_seconds=values["step_seconds"],
            piece_seconds=values["piece_seconds"],
            kernel_seconds=values["host_kernel_seconds"],
            request_seconds=values["request_seconds"],
            token_seconds=values["token_seconds"],
            overlaps=True,
            **_HOST_OVERLAP_ONLY,
        ),
        softness=values["softness"],
    )


def values_of(constants: SpeedConstants) -> dict[str, float]:
    """The other way round."""
    host = constants.host
    return {
        **{name: getattr(constants.device, name) for name in _DEVICE},
        "softness": constants.softness,
        "step_seconds": host.step_seconds,
        "piece_seconds": host.piece_seconds,
        "host_kernel_seconds": host.kernel_seconds,
        "request_seconds": host.request_seconds,
        "token_seconds": host.token_seconds,
    }


def predictions(points: Sequence[Point], constants: SpeedConstants | None = None) -> list[float]:
    """Times of these points with these constants; None: the shipped ones."""
    models: dict[int, SpeedModel] = {}
    for point in points:
        if id(point.case) not in models:
            models[id(point.case)] = SpeedModel(point.case, constants=constants)
    return [point.predict(models[id(point.case)]) for point in points]


def fit_constants(points: Sequence[Point], priors: Mapping[str, Prior] = PRIORS) -> dict[str, float]:
    """The constants with the least squares at these points."""

    def residuals(values: Mapping[str, float]) -> list[float]:
        found = predictions(points, constants_of(values))
        return [
            math.log(time / point.seconds) / _expected_error(point)
            for time, point in zip(found, points, strict=True)
        ]

    return fit(priors, residuals, _STARTS)


def _expected_error(point: Point) -> float:
    return _PUBLIC_EXPECTED_ERROR if point.device_only else _EXPECTED_ERROR[point.kind]


def card_priors(values: Mapping[str, float]) -> dict[str, Prior]:
    """For another kind of card: its four shares are open, all else is close to Hopper's."""
    priors = {name: Prior(value, 0.02) for name, value in values.items()}
    return {
        **priors,
        "weight_bandwidth_share": Prior(0.85, 0.2),
        "cache_bandwidth_share": Prior(0.85, 0.2),
        "product_flops_share": Prior(0.65, 0.3),
        "attention_flops_share": Prior(0.5, 0.3),
        "kernel_seconds": Prior(4e-6, 0.3),
        "sequence_seconds": Prior(1.4e-6, 0.7),
    }


def mean_error(points: Iterable[Point], found: Iterable[float]) -> float:
    """Mean absolute relative error."""
    errors = [abs(time / point.seconds - 1.0) for time, point in zip(found, points, strict=True)]
    return sum(errors) / len(errors) if errors else 0.0

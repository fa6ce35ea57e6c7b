"""What one replica takes, as the loop may ask it: at once, and never worked out in between.

The speed model's answer for lengths that it wasn't asked for yet takes a second or two. Until it is there the plan's
own prediction stands in, scaled so that it goes on from the last good answer; points are worked out in a thread, one
at a time. Services that say the same share a model.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

from llmservice_operator.autoscaling.capacity import (
    Capacity,
    CapacityModel,
    GriddedCapacity,
    LengthMix,
    SimpleCapacity,
    speed_capacity,
)
from llmservice_operator.autoscaling.decision import Objectives
from llmservice_operator.perfmodel.accelerators import AcceleratorRow
from llmservice_operator.perfmodel.arrivals import Lengths, mean_length
from llmservice_operator.perfmodel.speed import SpeedModel
from llmservice_operator.planning.prediction import planned_speed_case
from llmservice_operator.planning.types import Knobs, Plan, PlannedSpeed, SpeedFlags

logger = logging.getLogger(__name__)

Point = tuple[int, int]
"""Of a grid of lengths."""

MOST_MODELS = 512
_SLOWEST_PER_SECOND = 1e-3
_UNKNOWN = SimpleCapacity(prefill_tokens_per_second=5_000.0, decode_tokens_per_second=500.0)
"""Of a plan of an earlier release, that predicts nothing: a small card's. What replicas really do corrects it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityCase:
    """What the capacity of a replica depends on. Two of the same key are the same."""

    key: str
    row: AcceleratorRow = field(compare=False)
    knobs: Knobs = field(compare=False)
    engine_version: str = field(compare=False)
    kv_cache_tokens: int = field(compare=False)
    flags: SpeedFlags = field(default=SpeedFlags(), compare=False)
    speed: PlannedSpeed | None = field(compare=False)
    config: Mapping[str, Any] | None = field(compare=False)
    """config.json; None where the operator can't read it."""
    objectives: Objectives = field(compare=False)


def capacity_case(
    plan: Plan,
    *,
    revision: str,
    config: Mapping[str, Any] | None,
    config_digest: str,
    objectives: Objectives,
) -> CapacityCase:
    """The case of a plan. `revision` tells plans apart whose model can't be read."""
    row, knobs = plan.accelerator, plan.knobs
    parts = (
        config_digest if config is not None else revision,
        row.name,
        row.memory_bandwidth_bytes_per_second,
        row.bf16_flops_per_second,
        row.fp8_flops_per_second,
        knobs,
        plan.engine_version,
        plan.kv_cache_tokens,
        plan.speed_flags,
        plan.speed,
        objectives,
    )
    return CapacityCase(
        key=repr(parts),
        row=row,
        knobs=knobs,
        engine_version=plan.engine_version,
        kv_cache_tokens=plan.kv_cache_tokens,
        flags=plan.speed_flags,
        speed=plan.speed,
        config=config,
        objectives=objectives,
    )


class ReadyCapacity:
    """CapacityModel that answers from what is known, and notes what it was asked and did not know."""

    def __init__(self, case: CapacityCase) -> None:
        self.case = case
        self._simple = simple_capacity(case.speed)
        self._scale = 1.0
        self._unreachable = ""
        self.grid: GriddedCapacity | None = None
        """The speed model's, once it is made."""
        self.weights_bytes_per_step: float | None = None
        self.missing: list[Point] = []
        """Points of the grid that were needed last and aren't known."""

    @property
    def is_rough(self) -> bool:
        """Whether no speed model will ever answer: of a processor, or without the model's config."""
        return self.case.config is None or self.case.row.is_cpu

    def capacity(self, mix: LengthMix) -> Capacity:
        """See CapacityModel.capacity."""
        mix = mix.within(self.case.knobs.max_model_len)
        simple = self._simple.capacity(mix).requests_per_second
        if self.grid is None:
            return Capacity(requests_per_second=simple)
        self.missing = self.grid.prepare(mix)
        if self.missing:
            return Capacity(requests_per_second=self._scale * simple, unreachable=self._unreachable)
        known = self.grid.capacity(mix)
        if known.requests_per_second > 0:
            self._scale, self._unreachable = known.requests_per_second / simple, known.unreachable
        return known

    def itl_seconds(self, batch: float, mix: LengthMix) -> float | None:
        """See CapacityModel.itl_seconds."""
        return None if self.grid is None else self.grid.itl_seconds(batch, mix)

    def prompt_seconds(self, mix: LengthMix) -> float | None:
        """See CapacityModel.prompt_seconds."""
        return None if self.grid is None else self.grid.prompt_seconds(mix)


@dataclass(frozen=True, slots=True)
class Scaled:
    """CapacityModel that is another one times a factor."""

    model: CapacityModel
    factor: float

    def capacity(self, mix: LengthMix) -> Capacity:
        """See CapacityModel.capacity."""
        found = self.model.capacity(mix)
        return replace(found, requests_per_second=found.requests_per_second * self.factor)

    def itl_seconds(self, batch: float, mix: LengthMix) -> float | None:
        """See CapacityModel.itl_seconds."""
        return self.model.itl_seconds(batch, mix)

    def prompt_seconds(self, mix: LengthMix) -> float | None:
        """See CapacityModel.prompt_seconds."""
        return self.model.prompt_seconds(mix)


class CapacityBook:
    """The models of all services."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._models: OrderedDict[str, ReadyCapacity] = OrderedDict()
        self._wanted: OrderedDict[tuple[str, Point | None], None] = OrderedDict()
        """By the case's key: points of its grid, or None for the grid itself."""
        self._wake = asyncio.Event()

    def model(self, case: CapacityCase) -> ReadyCapacity:
        """The model of this case, the same for all equal ones."""
        found = self._models.get(case.key)
        if found is None:
            found = self._models[case.key] = ReadyCapacity(case)
            if len(self._models) > MOST_MODELS:
                self._models.popitem(last=False)
            if not found.is_rough:
                self._want(case.key, None)
        self._models.move_to_end(case.key)
        return found

    def ask(self, model: ReadyCapacity) -> None:
        """Have worked out what the model was asked and did not know."""
        for point in model.missing if model.grid is not None else ():
            self._want(model.case.key, point)

    async def run(self) -> None:
        """Work out what is wanted, one after the other, until cancelled."""
        while True:
            while self._wanted:
                (key, point), _ = self._wanted.popitem(last=False)
                model = self._models.get(key)
                if model is None:
                    continue
                try:
                    await self._work_out(model, point)
                except Exception:
                    # The plan's own prediction goes on to stand in.
                    logger.exception("a capacity can't be worked out", extra={"row": model.case.row.name})
            self._wake.clear()
            await self._wake.wait()

    async def _work_out(self, model: ReadyCapacity, point: Point | None) -> None:
        loop = asyncio.get_running_loop()
        if model.grid is None:
            made = await loop.run_in_executor(self._executor, modelled_capacity, model.case)
            model.grid, model.weights_bytes_per_step = made
            for each in model.grid.prepare(expected_mix(model.case.speed)):
                self._want(model.case.key, each)
        elif point is not None:
            model.grid.learn(point, await loop.run_in_executor(self._executor, model.grid.evaluate, point))

    def _want(self, key: str, point: Point | None) -> None:
        self._wanted[key, point] = None
        self._wake.set()


def modelled_capacity(case: CapacityCase) -> tuple[GriddedCapacity, float]:
    """The speed model's capacity, with no point worked out yet; and the weights that each step reads on one card."""
    if case.config is None:
        raise ValueError("without a model's config its speed isn't known")
    model = SpeedModel(
        planned_speed_case(
            case.config,
            case.row,
            case.knobs,
            engine_version=case.engine_version,
            kv_cache_tokens=case.kv_cache_tokens,
            flags=case.flags,
        )
    )
    work, goal = model.timer.work, case.objectives
    grid = speed_capacity(
        model,
        ttft_p95_seconds=goal.ttft_p95_seconds,
        tpot_p95_seconds=goal.tpot_p95_seconds,
        like=None if case.speed is None else _planned_lengths(case.speed),
    )
    return grid, work.dense.bytes_read + work.head.bytes_read


def _planned_lengths(speed: PlannedSpeed) -> Lengths:
    """The workload's; a plan has no p95 of answers."""
    return Lengths(
        input_p50=speed.input_tokens, input_p95=speed.input_p95_tokens, output_p50=max(1, speed.output_tokens)
    )


def expected_mix(speed: PlannedSpeed | None) -> LengthMix:
    """Mean lengths that a plan was made for."""
    if speed is None:
        return LengthMix(input_tokens=1000.0, output_tokens=200.0)
    prompt = min(mean_length(speed.input_tokens, speed.input_p95_tokens), float(speed.input_p95_tokens))
    return LengthMix(input_tokens=max(1.0, prompt), output_tokens=max(1.0, float(speed.output_tokens)))


def simple_capacity(speed: PlannedSpeed | None) -> SimpleCapacity:
    """From the plan's prediction: exact at the workload's lengths, and by their parts at others.

    A saturated replica needs 1/requests_per_second for a request. What a full batch's steps without prompts take of
    that is the answer's part, nine tenths at most, and the rest the prompt's.
    """
    if speed is None or speed.requests_per_second <= 0 or speed.itl_seconds <= 0:
        return _UNKNOWN
    mix = expected_mix(speed)
    request_seconds = 1.0 / max(speed.requests_per_second, _SLOWEST_PER_SECOND)
    answer_seconds = mix.output_tokens * speed.itl_seconds / max(1, speed.batch)
    answer_seconds = min(answer_seconds, 0.9 * request_seconds)
    return SimpleCapacity(
        prefill_tokens_per_second=mix.input_tokens / (request_seconds - answer_seconds),
        decode_tokens_per_second=mix.output_tokens / answer_seconds,
    )

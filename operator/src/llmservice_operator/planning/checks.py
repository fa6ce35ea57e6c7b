"""The checks before anything is chosen: each is a small function that refuses, with reason and message, or passes.

They run in this order, so that the first word a user reads is about the first thing to mend.
"""

from collections.abc import Callable, Mapping
from typing import Any

from llmservice_operator.api.conditions import Reason
from llmservice_operator.engines.versions import known_version
from llmservice_operator.engines.vllm import canonical_args
from llmservice_operator.perfmodel.accelerators import CPU, find_row, similar_names
from llmservice_operator.perfmodel.architecture import UnsupportedModelError
from llmservice_operator.perfmodel.config_reader import ConfigError
from llmservice_operator.perfmodel.kv_cache import element_bytes
from llmservice_operator.perfmodel.quantization import Quantization, online_quantization
from llmservice_operator.perfmodel.reading import read_model
from llmservice_operator.perfmodel.shapes import DTYPE_BYTES, Architecture
from llmservice_operator.planning.case import (
    DEFAULT_CONTEXT_FLOOR,
    FP8_IF_NEEDED,
    Case,
    Switches,
    Wish,
    read_switches,
)
from llmservice_operator.planning.slices import visible
from llmservice_operator.planning.types import MemoryCorrection, PlanInputs, Refusal
from llmservice_operator.planning.words import tokens


def refuse(
    reason: Reason, message: str, *, certain: bool = True, shortfall_bytes: int | None = None
) -> Refusal:
    """A refusal with a condition's reason."""
    return Refusal(reason=reason.value, message=message, certain=certain, shortfall_bytes=shortfall_bytes)


def check_accelerator_names(inputs: PlanInputs) -> Refusal | None:
    """Every named accelerator is a row of the catalogue."""
    for name in inputs.spec.accelerator.types:
        if find_row(inputs.catalogue, name) is None:
            close = similar_names(inputs.catalogue, name)
            known = ", ".join(close or (row.name for row in inputs.catalogue))
            word = "did you mean" if close else "the catalogue has"
            return refuse(
                Reason.UNKNOWN_ACCELERATOR,
                f"spec.accelerator.types has {name!r}, which is no row of the catalogue; {word} {known}? "
                "Other cards are added as rows in a ConfigMap (see sizing.md).",
            )
    return None


def check_accelerator_visible(inputs: PlanInputs) -> Refusal | None:
    """Some accelerator is named or in use, or nodes may be looked at and have one."""
    if inputs.spec.accelerator.types:
        return None
    current = find_row(inputs.catalogue, inputs.current_accelerator)
    if current is not None and not current.is_cpu:
        return None
    if inputs.nodes is None:
        return refuse(
            Reason.ACCELERATOR_REQUIRED,
            "spec.accelerator.types is empty and this operator may not see nodes: name the accelerator, "
            "such as [nvidia-l4], or [cpu]",
        )
    if any(visible(row, node.labels) for row in inputs.catalogue for node in inputs.nodes):
        return None
    return refuse(
        Reason.NO_ACCELERATOR_SEEN,
        f"none of the {len(inputs.nodes)} nodes has labels of an accelerator of the catalogue, such as "
        "nvidia.com/gpu.product; name one in spec.accelerator.types if its pool starts at zero nodes",
        certain=False,
    )


def check_ranks(inputs: PlanInputs) -> Refusal | None:
    """The CPU row is one rank."""
    accelerator = inputs.spec.accelerator
    if CPU not in accelerator.types or accelerator.parallelism.tensor in {"auto", 1}:
        return None
    return refuse(
        Reason.INVALID_SPEC,
        f"spec.accelerator.parallelism.tensor is {accelerator.parallelism.tensor}, and the cpu row has "
        "one rank: leave it out",
    )


def check_config_present(inputs: PlanInputs) -> Refusal | None:
    """config.json is there."""
    if inputs.model is not None:
        return None
    return refuse(
        Reason.MODEL_CONFIG_UNAVAILABLE,
        f"the config.json of {inputs.spec.model.uri} could not be read: put it into a ConfigMap and name that in "
        "spec.model.configMap, or give the operator a hub token",
        certain=False,
    )


FIRST_CHECKS: tuple[Callable[[PlanInputs], Refusal | None], ...] = (
    check_accelerator_names,
    check_ranks,
    check_config_present,
    check_accelerator_visible,
)


def read_case(inputs: PlanInputs) -> Case | Refusal:
    """Read config.json, flags and wishes; refuse what cannot be read or contradicts itself."""
    for check in FIRST_CHECKS:
        if (refusal := check(inputs)) is not None:
            return refusal
    config: Mapping[str, Any] = inputs.model.config if inputs.model else {}
    source = f" ({inputs.model.source})" if inputs.model and inputs.model.source else ""
    try:
        model, quantization = read_model(config)
    except UnsupportedModelError as error:
        return refuse(Reason.UNSUPPORTED_MODEL, f"{error}{source}")
    except ConfigError as error:
        strange = "not known to the sizing model" in str(error)
        return refuse(
            Reason.UNSUPPORTED_MODEL if strange else Reason.INVALID_MODEL_CONFIG, f"{error}{source}"
        )
    args = canonical_args(inputs.spec.engine.args)
    env = {each.name: each.value or "" for each in inputs.spec.engine.env}
    switches = read_switches(args, env)
    chosen = _quantization(inputs, quantization)
    if isinstance(chosen, Refusal):
        return chosen
    dtype = args.get("dtype", "auto")
    if dtype != "auto" and dtype not in DTYPE_BYTES:
        names = ", ".join(["auto", *sorted(DTYPE_BYTES)])
        return refuse(Reason.INVALID_SPEC, f"spec.engine.args.dtype is {dtype!r}; one of {names} is expected")
    if (refusal := _check_kv_dtype(inputs)) is not None:
        return refusal
    wish = read_wish(inputs, model, switches)
    if isinstance(wish, Refusal):
        return wish
    note = known_version(inputs.engine_version)
    return Case(
        inputs=inputs,
        model=model,
        quantization=chosen,
        dtype=None if dtype == "auto" else dtype,
        version=note.version,
        wish=wish,
        switches=switches,
        warnings=tuple(each for each in (note.warning, _speculation(switches)) if each),
    )


def _speculation(switches: Switches) -> str:
    return (
        "speculative decoding: the draft's own config isn't read; its memory is an estimate"
        if switches.speculative
        else ""
    )


def _quantization(inputs: PlanInputs, found: Quantization) -> Quantization | Refusal:
    """What spec.engine.quantization makes of the checkpoint's own."""
    said = inputs.spec.engine.quantization
    if said == "auto" or found.method:
        return found
    online = online_quantization(said)
    if online is not None:
        return online
    return refuse(
        Reason.INVALID_SPEC,
        f"spec.engine.quantization is {said!r}, but config.json has no quantization_config: the "
        "checkpoint isn't quantised. "
        "Leave it at auto, or use fp8, which quantises while loading",
    )


def _check_kv_dtype(inputs: PlanInputs) -> Refusal | None:
    said = inputs.spec.engine.kv_cache_dtype
    if said == FP8_IF_NEEDED:
        return None
    try:
        element_bytes(said, "bfloat16")
    except KeyError:
        return refuse(
            Reason.INVALID_SPEC,
            f"spec.engine.kvCacheDtype is {said!r}, whose size isn't known; auto, {FP8_IF_NEEDED}, bfloat16, float16, "
            "fp8, fp8_e4m3, fp8_e5m2, int8_per_token_head, fp8_per_token_head or nvfp4 is expected",
        )
    return None


def read_wish(inputs: PlanInputs, model: Architecture, switches: Switches) -> Wish | Refusal:
    """Context and concurrency, or why they contradict the model or a pin."""
    workload, pin = inputs.spec.workload, inputs.spec.engine.pin.max_model_len
    longest = model.max_model_len
    lowest = workload.context.min
    mend = "lower it, or set VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 in spec.engine.env if the model bears it"
    if not switches.long_context_allowed:
        for field, value in (("workload.context.min", lowest), ("engine.pin.maxModelLen", pin)):
            if value is not None and value > longest:
                return refuse(
                    Reason.INVALID_SPEC,
                    f"spec.{field} is {value}, above the {longest} tokens that the model's config.json allows; {mend}",
                )
    wanted = workload.context.max or longest
    context = pin or (wanted if switches.long_context_allowed else min(wanted, longest))
    floor = pin or lowest or min(context, DEFAULT_CONTEXT_FLOOR)
    corrected = _corrected_context(inputs.correction, context, floor, user_floor=pin or lowest)
    if isinstance(corrected, Refusal):
        return corrected
    context, floor = corrected
    inputs_p95, outputs_p95 = workload.input_tokens.p95, workload.output_tokens.p95
    return Wish(
        context=context,
        floor=floor,
        concurrency=workload.concurrency.min or 1,
        request_tokens=inputs_p95 + outputs_p95 if inputs_p95 and outputs_p95 else None,
    )


def _corrected_context(
    correction: MemoryCorrection | None, context: int, floor: int, *, user_floor: int | None
) -> tuple[int, int] | Refusal:
    """Context and floor after the engine said what length fits."""
    estimate = correction.estimated_max_model_len if correction else None
    if estimate is None or not 0 < estimate < context:
        return context, floor
    if user_floor is not None and estimate < user_floor:
        return refuse(
            Reason.DOES_NOT_FIT,
            f"the engine's start showed room for {tokens(estimate)} only, and at least {user_floor:,} are asked for: "
            "lower spec.workload.context.min, or take a larger accelerator or more ranks",
        )
    return estimate, min(floor, estimate)

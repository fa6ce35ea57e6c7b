"""One law of a step's time for both worlds: as the fake engine's environment, and as the simulator's tables."""

import math
from dataclasses import asdict, dataclass

import numpy as np

from llmservice_operator.perfmodel.speed import SpeedModel
from llmservice_operator.perfmodel.step_time import Chunk
from llmservice_operator.simulation.records import SETTINGS
from llmservice_operator.simulation.tables import Tables

_INTERVALS = 64
_LONG_CONTEXT = 8192
_CONSTANT_SECONDS = 0.001
"""Of a step, whatever is in it; the rest of an empty step is the reading of weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLaw:
    """The coefficients of `vllm/fake/steps.py`, by their names there, in seconds."""

    step_seconds: float
    step_least_token_seconds: float
    step_seconds_per_token: float
    step_seconds_per_sequence: float
    step_seconds_per_context_token: float
    step_seconds_per_attended_token: float

    def environment(self, *, read_bytes_per_step: float) -> dict[str, str]:
        """Of a fake engine that steps by this law."""
        law = {f"FAKE_ENGINE_{name.upper()}": repr(value) for name, value in asdict(self).items()}
        return {**law, "FAKE_ENGINE_READ_BYTES_PER_STEP": repr(read_bytes_per_step)}


def fit(model: SpeedModel) -> StepLaw:
    """The law through a few points of the speed model: an empty and a full step, one long context, one long prompt."""
    budget = model.case.max_num_batched_tokens

    def device(*, batch: int = 0, context: float = 0.0, chunks: tuple[Chunk, ...] = ()) -> float:
        return model.timer.step(batch=batch, context=context, chunks=chunks).device.seconds

    one = device(batch=1, context=1.0)
    sequence = (device(batch=17, context=1.0) - one) / 16
    # Many short prompts attend to little: what is left is the products.
    short = 16
    full = device(chunks=(Chunk(short, 0, last=False),) * (budget // short))
    long = device(chunks=(Chunk(budget, 0, last=False),))
    decode = device(batch=8, context=_LONG_CONTEXT) - device(batch=8, context=1.0)
    return StepLaw(
        step_seconds=_CONSTANT_SECONDS,
        step_least_token_seconds=one - sequence - _CONSTANT_SECONDS,
        step_seconds_per_token=(full - _CONSTANT_SECONDS) / budget,
        step_seconds_per_sequence=sequence,
        step_seconds_per_context_token=decode / (8 * (_LONG_CONTEXT - 1)),
        step_seconds_per_attended_token=max(0.0, long - full) / (budget * budget / 2.0),
    )


def tables(
    law: StepLaw,
    *,
    token_budget: int,
    max_num_seqs: int,
    max_model_len: int,
    pool_tokens: float,
    traffic_seconds_per_step: float,
) -> Tables:
    """The simulator's engine that steps by this law: one step after the other, no host between them.

    `traffic_seconds_per_step`: bytes that a step reads, over the card's peak bandwidth.
    """
    tokens = np.zeros((token_budget + 1, 2))
    products = law.step_seconds_per_token * np.arange(token_budget + 1)
    tokens[:, 0] = law.step_seconds + np.maximum(law.step_least_token_seconds, products)
    tokens[:, 1] = traffic_seconds_per_step
    sampled = np.zeros((max_num_seqs + 1, 2))
    sampled[:, 0] = law.step_seconds_per_sequence * np.arange(max_num_seqs + 1)
    contexts = np.linspace(0.0, max_model_len, _INTERVALS + 1)
    sizes = np.linspace(0.0, token_budget, _INTERVALS + 1)
    decode = np.zeros((2, max_num_seqs + 1, _INTERVALS + 1, 2))
    decode[..., 0] = law.step_seconds_per_context_token * np.outer(np.arange(max_num_seqs + 1), contexts)
    prefill = np.zeros((_INTERVALS + 1, _INTERVALS + 1, 2))
    attended = sizes[:, None] * (contexts[None, :] + sizes[:, None] / 2.0)
    prefill[..., 0] = law.step_seconds_per_attended_token * attended
    settings = np.zeros(1, SETTINGS)
    for name, value in {
        "context_grain": contexts[1],
        "chunk_grain": sizes[1],
        "pool_tokens": pool_tokens,
        "largest_graph": 1 << 40,
        "max_num_seqs": max_num_seqs,
        "token_budget": token_budget,
    }.items():
        settings[name] = value
    return (settings[0], tokens, sampled, decode, prefill)


def relative_error(law: StepLaw, model: SpeedModel, *, batch: int, context: float, prompt: int) -> float:
    """Of the law against the speed model for one step of these sequences and one whole prompt."""
    chunks = (Chunk(prompt, 0, last=True),) if prompt else ()
    real = model.timer.step(batch=batch, context=context, chunks=chunks).device.seconds
    told = (
        law.step_seconds
        + max(law.step_least_token_seconds, law.step_seconds_per_token * (batch + prompt))
        + law.step_seconds_per_sequence * (batch + len(chunks))
        + law.step_seconds_per_context_token * batch * context
        + law.step_seconds_per_attended_token * prompt * prompt / 2.0
    )
    return told / real - 1.0 if real else math.nan

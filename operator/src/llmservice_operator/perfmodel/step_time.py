"""How long one engine step takes: the card's time and the host's time to launch it."""

from collections.abc import Sequence
from dataclasses import dataclass

from llmservice_operator.perfmodel.capture import Capture
from llmservice_operator.perfmodel.roofline import (
    Part,
    Rates,
    attention_decode_part,
    attention_prefill_part,
    collective_part,
    expert_part,
    product_part,
    state_part,
)
from llmservice_operator.perfmodel.speed_constants import SpeedConstants
from llmservice_operator.perfmodel.work import Work


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a prompt that one step computes."""

    tokens: int
    cached: int
    """Tokens of the same request that are in the cache already."""
    last: bool
    """Whether the prompt ends with it, so that a token is sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """One step. The card may start once the host has prepared; it ends no earlier than the last launch."""

    device: Part
    prepare_seconds: float
    launch_seconds: float
    """From the begin of the preparation to the last launch."""

    def end(self, begin: float, device_free: float) -> float:
        """When the step is done if the host begins it at `begin` and the card is busy until `device_free`."""
        started = max(device_free, begin + self.prepare_seconds)
        return max(started + self.device.seconds, begin + self.launch_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimer:
    """Times steps of one engine: its work, its card, its host."""

    work: Work
    rate: Rates
    constants: SpeedConstants
    capture: Capture
    ranks: int

    def step(self, *, batch: int, context: float, chunks: Sequence[Chunk] = ()) -> StepTime:
        """`batch` sequences of mean context `context` get one token each, and these chunks are computed."""
        prompt_tokens = sum(chunk.tokens for chunk in chunks)
        tokens = batch + prompt_tokens
        in_graph = self.capture.holds(tokens)
        whole_graph = in_graph and not chunks
        sampled = batch + sum(chunk.last for chunk in chunks)
        device = self._device(tokens, batch=batch, context=context, chunks=chunks, sampled=sampled)
        host = self.constants.host
        prepare = host.step_seconds + host.step_sequence_seconds * (batch + len(chunks))
        launch = prepare
        if in_graph and not whole_graph:
            launch += self.work.pieces * host.piece_seconds
        elif not in_graph:
            launch += self.work.pieces * host.piece_seconds + self.work.kernels * host.kernel_seconds
        return StepTime(device=device, prepare_seconds=prepare, launch_seconds=launch)

    def _device(
        self, tokens: int, *, batch: int, context: float, chunks: Sequence[Chunk], sampled: int
    ) -> Part:
        rate, work, device = self.rate, self.work, self.constants.device
        padded = self.capture.padded(tokens)
        total = product_part(work.dense, padded, rate) + expert_part(work, tokens, padded, rate)
        if sampled:
            total += product_part(work.head, sampled, rate)
        total += collective_part(work, padded, self.ranks, self.constants, rate)
        for attention in work.attention:
            for chunk in chunks:
                total += attention_prefill_part(attention, chunk.tokens, chunk.cached, rate)
            if batch:
                total += attention_decode_part(attention, batch, context, rate, beside_prompts=bool(chunks))
        total += state_part(work, batch + len(chunks), padded, rate)
        overhead = work.kernels * device.kernel_seconds + sampled * device.sequence_seconds
        return total + Part(overhead_seconds=overhead)

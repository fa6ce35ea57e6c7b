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
    together,
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


_PRODUCTS, _HEAD = "products", "head"
Known = dict[tuple[str, int], Part]
"""Parts that thousands of steps of one question share, by kind and by tokens or sequences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimer:
    """Times steps of one engine: its work, its card, its host."""

    work: Work
    rate: Rates
    constants: SpeedConstants
    capture: Capture
    ranks: int

    def step(
        self, *, batch: int, context: float, chunks: Sequence[Chunk] = (), known: Known | None = None
    ) -> StepTime:
        """`batch` sequences of mean context `context` get one token each, and these chunks are computed.

        `known` is filled with what is worked out, and used: one for each timer.
        """
        prompt_tokens = sum(chunk.tokens for chunk in chunks)
        tokens = batch + prompt_tokens
        in_graph = self.capture.holds(tokens)
        whole_graph = in_graph and not chunks
        sampled = batch + sum(chunk.last for chunk in chunks)
        device = self._device(
            tokens,
            batch=batch,
            context=context,
            chunks=chunks,
            sampled=sampled,
            known={} if known is None else known,
        )
        host = self.constants.host
        prepare = host.step_seconds + host.step_sequence_seconds * (batch + len(chunks))
        launch = prepare
        if in_graph and not whole_graph:
            launch += self.work.pieces * host.piece_seconds
        elif not in_graph:
            launch += self.work.pieces * host.piece_seconds + self.work.kernels * host.kernel_seconds
        return StepTime(device=device, prepare_seconds=prepare, launch_seconds=launch)

    def _device(
        self,
        tokens: int,
        *,
        batch: int,
        context: float,
        chunks: Sequence[Chunk],
        sampled: int,
        known: Known,
    ) -> Part:
        rate, work, device = self.rate, self.work, self.constants.device
        padded = self.capture.padded(tokens)
        parts = [self._products(tokens, padded, known)]
        if sampled:
            parts.append(self._head(sampled, known))
        if work.all_reduces:
            parts.append(collective_part(work, padded, self.ranks, self.constants, rate))
        for attention in work.attention:
            parts += [attention_prefill_part(attention, each.tokens, each.cached, rate) for each in chunks]
            if batch:
                parts.append(
                    attention_decode_part(attention, batch, context, rate, beside_prompts=bool(chunks))
                )
        if work.state_bytes:
            parts.append(state_part(work, batch + len(chunks), padded, rate))
        overhead = work.kernels * device.kernel_seconds + sampled * device.sequence_seconds
        return together(parts, overhead_seconds=overhead)

    def _products(self, tokens: int, padded: int, known: Known) -> Part:
        """Of all layers, experts among them."""
        found = known.get((_PRODUCTS, tokens))
        if found is None:
            dense = product_part(self.work.dense, padded, self.rate)
            found = dense + expert_part(self.work, tokens, padded, self.rate)
            known[_PRODUCTS, tokens] = found
        return found

    def _head(self, sampled: int, known: Known) -> Part:
        found = known.get((_HEAD, sampled))
        if found is None:
            found = known[_HEAD, sampled] = product_part(self.work.head, sampled, self.rate)
        return found

"""Tables against the law that they were made from."""

import pytest

from llmservice_operator.perfmodel.step_time import Chunk
from llmservice_operator.simulation.lookups import between, chunk_cost
from unit.simulation.machines import speed, tables

CASES = [
    (1, 900.0, ()),
    (40, 3000.0, ()),
    (64, 700.0, ()),
    (0, 0.0, (Chunk(2048, 0, last=False),)),
    (24, 1500.0, (Chunk(1000, 0, last=True), Chunk(300, 2048, last=False))),
]


@pytest.mark.parametrize(("batch", "context", "chunks"), CASES)
def test_a_step_takes_as_long_as_the_speed_model_says(
    batch: int, context: float, chunks: tuple[Chunk, ...]
) -> None:
    settings, tokens, sampled, decode, prefill = tables()
    taken = batch + sum(chunk.tokens for chunk in chunks)
    ended = batch + sum(chunk.last for chunk in chunks)
    attention = sum(
        chunk_cost(prefill, chunk.tokens / settings["chunk_grain"], chunk.cached / settings["context_grain"])[
            0
        ]
        for chunk in chunks
    )
    attention += between(decode[min(len(chunks), 1)], batch, context / settings["context_grain"])[0]

    seconds = tokens[taken, 0] + sampled[ended, 0] + attention

    law = speed().timer.step(batch=batch, context=context, chunks=chunks)
    assert seconds == pytest.approx(law.device.seconds, rel=0.01)

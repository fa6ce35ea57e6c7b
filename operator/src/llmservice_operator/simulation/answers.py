"""What a router that every request passes knows of the answers: when each began and ended."""

from dataclasses import dataclass

import numpy as np

from llmservice_operator.simulation.records import Floats, Records

LONGEST_SECONDS = 1200.0
"""From a request to the end of its answer; what takes longer is not seen. Clients give up after 900 s."""


def request_latencies(requests: Records, half_request_seconds: float) -> tuple[Floats, Floats]:
    """TTFT and mean time per further token of each request, in seconds; NaN where there was none."""
    ttft = requests["first"] - (requests["ready"] - half_request_seconds)
    gaps = np.maximum(requests["answer"] - 1, 1)
    return ttft, (requests["end"] - requests["first"]) / gaps


@dataclass(frozen=True, slots=True)
class Answers:
    """A view of a run in progress."""

    requests: Records
    """In order of `ready`."""
    half_request_seconds: float

    def ended(self, begin_seconds: float, end_seconds: float) -> tuple[Floats, Floats]:
        """`request_latencies` of those whose last token came after `begin_seconds`, until `end_seconds`."""
        bounds = (begin_seconds - LONGEST_SECONDS, end_seconds)
        first, last = np.searchsorted(self.requests["ready"], bounds)
        near = self.requests[first:last]
        return request_latencies(
            near[(near["end"] > begin_seconds) & (near["end"] <= end_seconds)], self.half_request_seconds
        )

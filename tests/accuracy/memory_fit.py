"""The constants of the memory account that are fitted rather than counted, and what they'd be without one start.

    python -m accuracy.memory_fit       from tests/: the constants from all starts

- Non-torch memory by runner at one rank, and by version among ranks: the mean (perfmodel.memory.non_torch_bytes,
  engines.versions.memory_rules).
- Runner V1's graph estimate: first graph and a full graph's share a layer, least squares (perfmodel.memory_graphs).

Everything else is counted from tensors, or is a figure of the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from llmservice_operator.perfmodel.memory import Batch, capture_counts

MIB_A_GIB = 1024.0


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What one start says of the constants."""

    name: str
    version: tuple[int, ...]
    runner_v2: bool
    ranks: int
    non_torch_gib: float | None
    graph_estimate_gib: float | None
    """None where none is charged."""
    layers: int
    max_num_seqs: int
    max_num_batched_tokens: int

    @property
    def group(self) -> tuple[bool, bool, bool]:
        """Among ranks; before 0.20 (only among ranks); runner."""
        ranks = self.ranks > 1
        return (ranks, ranks and self.version < (0, 20, 0), self.runner_v2)

    def counts(self) -> tuple[int, int]:
        """Piecewise and full graphs."""
        return capture_counts(
            Batch(
                max_num_seqs=self.max_num_seqs,
                max_num_batched_tokens=self.max_num_batched_tokens,
                tensor_parallel_size=self.ranks,
                dtype="bfloat16",
            )
        )


def fit_non_torch(samples: Sequence[Sample], like: Sample) -> float:
    """Mean non-torch GiB of the starts of this one's kind; of the nearest kind where there's none."""
    known = [each for each in samples if each.non_torch_gib is not None]
    same = [each for each in known if each.group == like.group]
    same = same or [each for each in known if each.group[:2] == like.group[:2]]
    return sum(each.non_torch_gib or 0.0 for each in same) / len(same)


def fit_graph_estimate(samples: Sequence[Sample]) -> tuple[float, float]:
    """MiB of the first graph, and of a full graph for each layer (least squares over the charged estimates)."""
    points = []
    for each in samples:
        if each.graph_estimate_gib is not None:
            piecewise, full = each.counts()
            points.append(((full - 1) * each.layers, each.graph_estimate_gib * MIB_A_GIB - (piecewise - 1)))
    count = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.2
    return mean_y - slope * mean_x, slope


def predicted_estimate_gib(sample: Sample, constants: tuple[float, float]) -> float:
    """The graph estimate of a start by these constants."""
    first, slope = constants
    piecewise, full = sample.counts()
    return (first + (piecewise - 1) + slope * (full - 1) * sample.layers) / MIB_A_GIB


def left_out_shift(sample: Sample, samples: Sequence[Sample]) -> float:
    """By how much the predicted pool changes when the constants are fitted without this start, GiB."""
    rest = [each for each in samples if each is not sample]
    shift = fit_non_torch(samples, sample) - fit_non_torch(rest, sample)
    if sample.graph_estimate_gib is not None:
        with_it, without = fit_graph_estimate(samples), fit_graph_estimate(rest)
        shift += predicted_estimate_gib(sample, with_it) - predicted_estimate_gib(sample, without)
    return shift


def main() -> int:
    """Prints the constants."""
    from accuracy.memory import compare, read_records

    samples = [compare(record).sample() for record in read_records()]
    for group in sorted({each.group for each in samples}):
        like = next(each for each in samples if each.group == group)
        print(f"non-torch {group}: {fit_non_torch(samples, like):.3f} GiB")
    first, slope = fit_graph_estimate(samples)
    print(f"graph estimate: first {first:.0f} MiB, {slope:.3f} MiB a layer of each full graph")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""The constants of the memory account that are fitted rather than counted, and what they'd be without one start.

    python -m accuracy.memory_fit       from tests/: the constants from all starts

- Non-torch memory by runner at one rank, and by version among ranks: the mean (perfmodel.memory.non_torch_bytes,
  engines.versions.memory_rules).
- Runner V1's graph estimate beside FlashAttention's splits: the first graph, a further full one, and what ranks add,
  least squares (perfmodel.memory_graphs).

Everything else is counted from tensors, or is a figure of the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from llmservice_operator.perfmodel.capture import CaptureRule
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
    splits_gib: float
    """What FlashAttention gathers its splits in."""
    max_num_seqs: int
    max_num_batched_tokens: int
    capture_rule: CaptureRule

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
                capture_rule=self.capture_rule,
            )
        )


def fit_non_torch(samples: Sequence[Sample], like: Sample) -> float:
    """Mean non-torch GiB of the starts of this one's kind; of the nearest kind where there's none."""
    known = [each for each in samples if each.non_torch_gib is not None]
    same = [each for each in known if each.group == like.group]
    same = same or [each for each in known if each.group[:2] == like.group[:2]]
    return sum(each.non_torch_gib or 0.0 for each in same) / len(same)


def fit_graph_estimate(samples: Sequence[Sample]) -> tuple[float, float, float]:
    """MiB of the first graph, of a further full graph, and of ranks (the charged estimates, beside the splits).

    Least squares over the starts at one rank; ranks are what is left at several, nothing where no start says.
    """
    charged = [each for each in samples if each.graph_estimate_gib is not None]
    points = [(each.counts()[1] - 1, _rest_mib(each)) for each in charged if each.ranks == 1]
    mean_x, mean_y = (sum(point[axis] for point in points) / len(points) for axis in (0, 1))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 1.0
    first = mean_y - slope * mean_x
    over = [_rest_mib(each) - first - slope * (each.counts()[1] - 1) for each in charged if each.ranks > 1]
    return first, slope, sum(over) / len(over) if over else 0.0


def _rest_mib(sample: Sample) -> float:
    """The estimate beside the splits and the further piecewise graphs."""
    return ((sample.graph_estimate_gib or 0.0) - sample.splits_gib) * MIB_A_GIB - (sample.counts()[0] - 1)


def predicted_estimate_gib(sample: Sample, constants: tuple[float, float, float]) -> float:
    """The graph estimate of a start by these constants."""
    first, slope, ranks = constants
    piecewise, full = sample.counts()
    counted = first + (piecewise - 1) + slope * (full - 1) + (ranks if sample.ranks > 1 else 0.0)
    return sample.splits_gib + counted / MIB_A_GIB


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
    first, slope, ranks = fit_graph_estimate(samples)
    print(f"graph estimate: first {first:.0f} MiB, further full {slope:.1f} MiB, ranks {ranks:.0f} MiB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""The comparison in words and as two lines of a chart."""

import statistics
from collections import Counter
from collections.abc import Sequence

from load.generator import Result
from soak.trajectory import Course, Verdict

_BLOCKS = " ▁▂▃▄▅▆▇█"
_WIDTH = 80


def report(
    real: Course, simulated: Sequence[Course], verdict: Verdict, results: Sequence[Result], *, where: str
) -> str:
    """A table: the real run beside the simulated ones, which differ by the chance of routing and of starts alone."""
    ended = Counter(each.ended for each in results)
    late = [each.sent_seconds for each in results]
    rows = [
        ("", "real", f"simulated, {len(simulated)} seeds"),
        ("scale-outs", f"{real.outs}", _span(verdict.outs)),
        ("scale-ins", f"{real.ins}", _span(verdict.ins)),
        ("replicas, mean", f"{real.mean:.2f}", _span(verdict.means, 2)),
        (
            "attainment",
            f"{real.attainment:.1%}",
            f"{verdict.attainment[0]:.1%} to {verdict.attainment[1]:.1%}",
        ),
        ("a start, mean", f"{statistics.fmean(real.starts or (0.0,)):.0f} s", "as measured"),
    ]
    lines = [f"{what:18}{one:>10}   {other}" for what, one, other in rows]
    within = "within" if verdict.is_within else "NOT within"
    return "\n".join(
        [
            f"{len(results)} requests in {real.seconds:.0f} s at real speed; {where}",
            f"requests: {', '.join(f'{count} {how}' for how, count in ended.most_common())}",
            f"last one sent at {max(late, default=0.0):.1f} s",
            "",
            *lines,
            "",
            f"replicas differ by {verdict.distance:.3f} on average (median over seeds),",
            f"{within} the {verdict.noise:.3f} that two seeds differ by at most",
            f"shift in time that fits best: {verdict.shift_seconds:+.0f} s",
            "",
            f"real      {_moves(real)}",
            *(f"seed {seed:<4} {_moves(each)}" for seed, each in enumerate(simulated)),
        ]
    )


def chart(real: Course, simulated: Course) -> str:
    """Replicas over time, a block a column."""
    most = max(*real.sampled, *simulated.sampled)
    return "\n".join(
        f"{name:10}{_blocks(course, most)} {most}" for name, course in (("real", real), ("seed 0", simulated))
    )


def _blocks(course: Course, most: int) -> str:
    times = (column * course.seconds / _WIDTH for column in range(_WIDTH))
    return "".join(_BLOCKS[round(course.at(at) / most * (len(_BLOCKS) - 1))] for at in times)


def _moves(course: Course) -> str:
    return " ".join(f"{at:.0f}s:{replicas}" for at, replicas in course.changes)


def _span(values: tuple[float, float], digits: int = 0) -> str:
    low, high = (f"{each:.{digits}f}" for each in values)
    return low if low == high else f"{low} to {high}"

"""Look-ups in tables of step times and in bounds of buckets.

They are compiled into `kernel`, whose cache on disk sees changes of its own file only: change both.
"""

from llmservice_operator.simulation.compiled import compiled
from llmservice_operator.simulation.records import Floats


@compiled
def between(costs: Floats, row: int, at: float) -> tuple[float, float]:
    """Of a table's row, linearly between its entries."""
    place = min(at, costs.shape[1] - 1.000001)
    low = int(place)
    share = place - low
    return (
        costs[row, low, 0] + share * (costs[row, low + 1, 0] - costs[row, low, 0]),
        costs[row, low, 1] + share * (costs[row, low + 1, 1] - costs[row, low, 1]),
    )


@compiled
def chunk_cost(costs: Floats, size: float, cached: float) -> tuple[float, float]:
    """Of a chunk, linearly between sizes and contexts, both in grains of the table."""
    place = min(size, costs.shape[0] - 1.000001)
    low = int(place)
    share = place - low
    one = between(costs, low, cached)
    two = between(costs, low + 1, cached)
    return one[0] + share * (two[0] - one[0]), one[1] + share * (two[1] - one[1])


@compiled
def bucket(bounds: Floats, value: float) -> int:
    """The first bucket whose upper bound holds the value; the last is unbounded."""
    for place in range(bounds.size):
        if value <= bounds[place]:
            return place
    return bounds.size

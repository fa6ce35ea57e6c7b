"""The router in front of a fleet.

It is compiled into `kernel`, whose cache on disk sees changes of its own file only, and which names this one's digest.
"""

from llmservice_operator.simulation.compiled import compiled
from llmservice_operator.simulation.records import NONE, Integers, Records

LEAST_LOADED, ROUND_ROBIN, RANDOM = 0, 1, 2


@compiled
def choose(engines: Records, router: Integers, routing: int) -> int:
    """The slot that the next request is sent to. Ties go round."""
    slots = engines.size
    if routing == RANDOM:
        return drawn(engines, router)
    last = min(router[0], slots - 1)
    best, best_load = NONE, 0
    for offset in range(1, slots + 1):
        slot = (last + offset) % slots
        if not engines[slot].takes:
            continue
        if routing == ROUND_ROBIN:
            best = slot
            break
        load = engines[slot].running + engines[slot].waiting
        if best == NONE or load < best_load:
            best, best_load = slot, load
    if best != NONE:
        router[0] = best
    return int(best)


@compiled
def drawn(engines: Records, router: Integers) -> int:
    """One of the slots that take requests: of all, the first one after a gap would have the gap's share."""
    router[1] = (router[1] * 1103515245 + 12345) & 0x7FFFFFFF  # the generator of ANSI C's example
    takers = 0
    for slot in range(engines.size):
        takers += engines[slot].takes
    if takers == 0:
        return int(NONE)
    left = (router[1] >> 8) % takers
    for slot in range(engines.size):
        if engines[slot].takes:
            if left == 0:
                return slot
            left -= 1
    return int(NONE)

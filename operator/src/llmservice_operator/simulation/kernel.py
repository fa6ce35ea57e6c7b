"""Continuous batching of a fleet's engines, step by step: the compiled inner loop.

The same rules as `perfmodel.batching`, which is the readable one: each step gives one token to every decoding sequence,
then what is left of the token budget to prompts in order of arrival, the last one in part; where the cache is full the
youngest sequence is pushed out and computed anew. At most one prompt is in part at any time, since the next is let in
only when the one before it was taken whole.

Times are seconds from the begin of the load. A request is its index into `requests`.
"""

from typing import Any

import numpy as np

from llmservice_operator.simulation.compiled import compiled
from llmservice_operator.simulation.lookups import between, bucket, chunk_cost
from llmservice_operator.simulation.records import (
    LENGTH_BOUNDS_TOKENS,
    NEVER,
    NONE,
    TPOT_BOUNDS_SECONDS,
    TTFT_BOUNDS_SECONDS,
    Floats,
    Integers,
    Records,
)
from llmservice_operator.simulation.router import LEAST_LOADED, choose
from llmservice_operator.simulation.tables import Tables

ROUTER = "0862ae7b"  # of router.py, compiled into this: the cache on disk sees changes of this file alone


@compiled
def advance(
    tables: Tables,
    requests: Records,
    engines: Records,
    pages: Records,
    endings: Integers,
    router: Integers,
    routing: int,
    begin: float,
    until: float,
    first: int,
) -> int:
    """Serve from `begin` until `until`; the first request that is not sent to an engine yet.

    Requests from `first` on are sent as they come; while no engine takes any they are held. `engines` may leave out
    slots at the end that have none.
    """
    index = first
    while index < requests.size:
        at = max(requests[index].ready, begin)
        if at > until:
            break
        if routing == LEAST_LOADED:
            for slot in range(engines.size):
                if engines[slot].next < at:
                    _run(tables, requests, engines[slot], pages, slot, endings[slot], at)
        slot = choose(engines, router, routing)
        if slot == NONE:
            break
        if routing != LEAST_LOADED:
            _run(tables, requests, engines[slot], pages, slot, endings[slot], at)
        requests[index].slot = slot
        _enqueue(tables[0], requests, engines[slot], index, at)
        index += 1
    for slot in range(engines.size):
        _run(tables, requests, engines[slot], pages, slot, endings[slot], until)
    return index


@compiled
def _enqueue(settings: Any, requests: Records, engine: Any, index: int, at: float) -> None:
    request = requests[index]
    request.want = request.prompt
    request.left = request.answer
    request.done = request.cached
    request.after = NONE
    if engine.wait_head == NONE:
        engine.wait_head = index
    else:
        requests[engine.wait_tail].after = index
    engine.wait_tail = index
    engine.waiting += 1
    engine.arrived += 1
    engine.pending_tokens += request.prompt - request.cached
    if engine.next == NEVER and engine.runs:
        engine.next = max(at, _free(settings, engine))


@compiled
def _free(settings: Any, engine: Any) -> float:
    """When the scheduler can turn to a next step."""
    if not settings.overlaps:
        return float(engine.end)
    if settings.blocks_on_launch:
        return float(max(engine.end_before, engine.launched))
    return float(engine.end_before)


@compiled
def _run(
    tables: Tables,
    requests: Records,
    engine: Any,
    pages: Records,
    slot: int,
    endings: Integers,
    until: float,
) -> None:
    """Schedule this engine's steps that begin before `until`."""
    while engine.next < until:
        if engine.decoding == engine.running and not engine.waiting:
            _decode(tables, engine, endings, until)
            if engine.next >= until:
                break
        if engine.stretch:
            _keep(engine, pages, slot)
            engine.stretch = 0
        _step(tables, requests, engine, endings, engine.next)
        pages[slot, engine.steps & 1] = engine
        if engine.waiting or engine.running:
            engine.next = _free(tables[0], engine)
        else:
            engine.next = NEVER


@compiled
def _keep(engine: Any, pages: Records, slot: int) -> None:
    """The engine as it was after the last step of a stretch: what has come since was waiting for the next."""
    place = engine.steps & 1
    pages[slot, place] = engine
    pages[slot, place].waiting = 0
    pages[slot, place].pending_tokens = 0


@compiled
def _decode(tables: Tables, engine: Any, endings: Integers, until: float) -> None:
    """`_step` after `_step` while none comes, ends or is pushed out: most steps, at a quarter of the cost."""
    settings, token_costs, sample_costs, decode_costs, _ = tables
    batch, context, steps, size = engine.decoding, engine.context, engine.steps, endings.size - 1
    at, end, before, launched = engine.next, engine.end, engine.end_before, engine.launched
    front_free, told = engine.front_free, engine.told
    busy, traffic, gaps = engine.busy_seconds, engine.traffic_seconds, engine.itl_seconds
    fixed = token_costs[batch, 0] + sample_costs[batch, 0]
    fixed_traffic = token_costs[batch, 1] + sample_costs[batch, 1]
    prepare = settings.prepare_seconds + settings.prepare_sequence_seconds * batch
    launch = prepare + (settings.eager_launch_seconds if batch > settings.largest_graph else 0.0)
    room = settings.pool_tokens - settings.half_block * batch - batch
    while at < until and context <= room and endings[(steps + 1) & size] == NONE:
        decode = between(decode_costs[0], batch, context / batch / settings.context_grain)
        traffic += fixed_traffic + decode[1]
        begin = max(at, launched)
        started = max(end, begin + prepare)
        launched, before = begin + launch, end
        end = max(started + (fixed + decode[0]), launched)
        busy += end - started
        steps, context = steps + 1, context + batch
        front_free = max(end, front_free) + batch * settings.token_seconds
        engine.itl[bucket(TPOT_BOUNDS_SECONDS, front_free - told)] += batch
        gaps += (front_free - told) * batch
        told = front_free
        at = before if settings.overlaps else end
        at = max(at, launched) if settings.overlaps and settings.blocks_on_launch else at
    if steps > engine.steps:
        engine.stretch = 1
    engine.generated_tokens += (steps - engine.steps) * batch
    engine.next, engine.end, engine.end_before, engine.launched = at, end, before, launched
    engine.front_free, engine.told, engine.steps, engine.context = front_free, told, steps, context
    engine.busy_seconds, engine.traffic_seconds, engine.itl_seconds = busy, traffic, gaps


@compiled
def _step(tables: Tables, requests: Records, engine: Any, endings: Integers, at: float) -> None:
    settings, token_costs, sample_costs, decode_costs, prefill_costs = tables
    _make_room(settings, requests, engine, endings)
    batch = engine.decoding
    chunks, taken, complete, ended, seconds, traffic = _take_prompts(
        settings, prefill_costs, requests, engine
    )
    tokens = batch + taken
    sampled = batch + ended
    seconds += token_costs[tokens, 0] + sample_costs[sampled, 0]
    traffic += token_costs[tokens, 1] + sample_costs[sampled, 1]
    if batch:
        mean = engine.context / batch / settings.context_grain
        decode = between(decode_costs[min(chunks, 1)], batch, mean)
        seconds += decode[0]
        traffic += decode[1]
    engine.pending_tokens -= taken
    engine.traffic_seconds += traffic
    _place(settings, engine, at, batch, tokens, chunks, seconds)
    engine.steps += 1
    engine.context += batch
    told = max(engine.end, engine.front_free) + sampled * settings.token_seconds
    engine.front_free = told
    if batch:
        gap = told - engine.told
        engine.itl[bucket(TPOT_BOUNDS_SECONDS, gap)] += batch
        engine.itl_seconds += gap * batch
    engine.told = told
    engine.generated_tokens += sampled
    _end_answers(settings, requests, engine, endings, told)
    while complete != NONE:
        following = requests[complete].same
        _begin_answer(settings, requests, engine, endings, complete, told)
        complete = following


@compiled
def _place(
    settings: Any, engine: Any, at: float, batch: int, tokens: int, chunks: int, device_seconds: float
) -> None:
    """Put the step after the one before it on the host and on the card."""
    prepare = settings.prepare_seconds + settings.prepare_sequence_seconds * (batch + chunks)
    launch = prepare
    if tokens > settings.largest_graph:
        launch += settings.eager_launch_seconds
    elif chunks:
        launch += settings.piece_launch_seconds
    begin = max(at, engine.launched)
    started = max(engine.end, begin + prepare)
    engine.launched = begin + launch
    engine.end_before = engine.end
    engine.end = max(started + device_seconds, begin + launch)
    engine.busy_seconds += engine.end - started


@compiled
def _held(settings: Any, engine: Any) -> float:
    """Tokens of the cache that are taken, or promised to the prompt in progress."""
    return float(engine.context + engine.promised + settings.half_block * engine.running)


@compiled
def _make_room(settings: Any, requests: Records, engine: Any, endings: Integers) -> None:
    """Push out the youngest until each decoding sequence finds room for one more token."""
    while engine.running > 1 and _held(settings, engine) + engine.decoding > settings.pool_tokens:
        index = engine.youngest
        victim = requests[index]
        engine.preemptions += 1
        engine.pending_tokens -= victim.want - victim.done
        _leave(requests, engine, index)
        if engine.partial == index:
            engine.partial = NONE
            engine.promised = 0
        else:
            _forget_ending(requests, endings, index)
            left = victim.ends - engine.steps
            given = victim.left - left
            engine.decoding -= 1
            engine.context -= victim.want + given
            victim.want += given + 1
            victim.left = left
        victim.done = 0
        engine.pending_tokens += victim.want
        victim.after = engine.wait_head
        engine.wait_head = index
        if engine.wait_tail == NONE:
            engine.wait_tail = index
        engine.waiting += 1


@compiled
def _forget_ending(requests: Records, endings: Integers, index: int) -> None:
    place = requests[index].ends & (endings.size - 1)
    current = endings[place]
    if current == index:
        endings[place] = requests[index].same
        return
    while requests[current].same != index:
        current = requests[current].same
    requests[current].same = requests[index].same


@compiled
def _leave(requests: Records, engine: Any, index: int) -> None:
    """Take it out of the list of running sequences."""
    before, after = requests[index].before, requests[index].after
    if before != NONE:
        requests[before].after = after
    if after == NONE:
        engine.youngest = before
    else:
        requests[after].before = before
    engine.running -= 1


@compiled
def _take_prompts(
    settings: Any, costs: Floats, requests: Records, engine: Any
) -> tuple[int, int, int, int, float, float]:
    """Chunks of this step, their tokens; head and length of the list of prompts that end with it; their cost."""
    budget = settings.token_budget - engine.decoding
    chunks, taken, complete, ended, seconds, traffic = 0, 0, NONE, 0, 0.0, 0.0
    reserved, last = 0, NONE
    while budget > 0:
        index = engine.partial
        if index == NONE:
            index = engine.wait_head
            if index == NONE or engine.running >= settings.max_num_seqs:
                break
            free = settings.pool_tokens - _held(settings, engine) - engine.decoding - reserved
            if requests[index].want + settings.half_block > free and engine.running:
                break
            _admit(requests, engine, index)
        request = requests[index]
        size = min(budget, request.want - request.done)
        cost = chunk_cost(costs, size / settings.chunk_grain, request.done / settings.context_grain)
        seconds += cost[0]
        traffic += cost[1]
        chunks += 1
        taken += size
        budget -= size
        request.done += size
        if request.done < request.want:
            engine.partial = index
            engine.promised = request.want
            continue
        engine.partial = NONE
        engine.promised = 0
        reserved += request.want
        request.same = NONE
        if last == NONE:
            complete = index
        else:
            requests[last].same = index
        last = index
        ended += 1
    return chunks, taken, complete, ended, seconds, traffic


@compiled
def _admit(requests: Records, engine: Any, index: int) -> None:
    """From the head of the waiting to the tail of the running."""
    request = requests[index]
    engine.wait_head = request.after
    if engine.wait_head == NONE:
        engine.wait_tail = NONE
    engine.waiting -= 1
    request.before = engine.youngest
    request.after = NONE
    if engine.youngest != NONE:
        requests[engine.youngest].after = index
    engine.youngest = index
    engine.running += 1


@compiled
def _begin_answer(
    settings: Any, requests: Records, engine: Any, endings: Integers, index: int, told: float
) -> None:
    request = requests[index]
    if np.isnan(request.first):
        request.first = told + settings.half_request_seconds
        ttft = request.first - (request.ready - settings.half_request_seconds)
        engine.ttft[bucket(TTFT_BOUNDS_SECONDS, ttft)] += 1
        engine.ttft_seconds += ttft
        engine.prompt_tokens += request.prompt
        engine.cached_tokens += request.cached
    request.left -= 1
    if not request.left:
        _finish(settings, requests, engine, index, told)
        return
    request.ends = engine.steps + request.left
    place = request.ends & (endings.size - 1)
    request.same = endings[place]
    endings[place] = index
    engine.decoding += 1
    engine.context += request.want


@compiled
def _end_answers(settings: Any, requests: Records, engine: Any, endings: Integers, told: float) -> None:
    place = engine.steps & (endings.size - 1)
    index = endings[place]
    endings[place] = NONE
    while index != NONE:
        engine.decoding -= 1
        engine.context -= requests[index].want + requests[index].left
        _finish(settings, requests, engine, index, told)
        index = requests[index].same


@compiled
def _finish(settings: Any, requests: Records, engine: Any, index: int, told: float) -> None:
    _leave(requests, engine, index)
    request = requests[index]
    request.end = told + settings.half_request_seconds
    engine.finished += 1
    engine.inputs[bucket(LENGTH_BOUNDS_TOKENS, request.prompt)] += 1
    engine.outputs[bucket(LENGTH_BOUNDS_TOKENS, request.answer)] += 1
    engine.finished_input_tokens += request.prompt
    engine.finished_output_tokens += request.answer
    gaps = request.answer - 1
    if gaps > 0:
        tpot = (request.end - request.first) / gaps
        engine.tpot[bucket(TPOT_BOUNDS_SECONDS, tpot)] += 1
        engine.tpot_seconds += tpot

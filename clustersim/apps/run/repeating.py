"""A plan of many micro-batches, replayed with few of them where the rest would only repeat what these do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

import numpy as np

from clustersim.engine.repetition import MicroBatchPaths, RepeatedWindow, carried_within, repeating, window_of
from clustersim.engine.simulate import Machine, PreparedJobs, prepare
from clustersim.parallel.lower import lower
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.schedules.order import Pass, StageOrder
from clustersim.parallel.stages import orders_of, places_of
from clustersim.parallel.training_plan import Plan, Strategy
from clustersim.progress import phase
from clustersim.topology.cluster import IntArray
from clustersim.trace.step_log import Repetition
from clustersim.trace.timeline import Timeline


def _repeated(jobs: PreparedJobs, ways: MicroBatchPaths, *, times: int, holds: Callable[[RepeatedWindow], bool]) -> Timeline | None:
    """Return the timeline with so many more of the micro-batches of one repetition; None where no stretch of time repeats so."""
    replay = jobs.first
    window = window_of(replay, ways)
    if window is None or not holds(window):
        return None
    again = Repetition(start_s=window.start_s, end_s=window.end_s, times=times, n_micro_batches=ways.n_micro_batches, ways=ways.first)
    added = carried_within(replay, window.start_s, window.end_s).times(times)
    timeline = repeating(jobs.timeline(replay.end_s(), added=added), again)
    alone = jobs.alone and _repeated(jobs.alone, ways, times=times, holds=holds)
    return replace(timeline, step_time_s=timeline.step_time_s + again.added_s, alone=alone)


LEAST_PASSES: Final = 800
"""Passes of all stages up to which a replay of all is as quick as one that looks for what repeats, and then may not find it."""
_TRIED: Final = (((1, 8, 2), (2, 8, 2), (3, 8, 3)), ((3, 12, 3),), ((5, 20, 3),), ((9, 36, 4),))
"""Numbers of micro-batches to try: multiples of the stages and offsets for each way, if the plan has so many times as many. Of several
the first whose order has two periods is tried."""


def replay_in_part(plan: Plan, machine: Machine) -> tuple[Timeline, tuple[str, ...]] | None:
    """Return the timeline of a plan, and the groups that lie unevenly, from fewer micro-batches; None where all must be replayed.

    The replay of few micro-batches is that of many where it comes to a stretch of time that is like the one before it, and all that the
    schedule does more in the step of many is to repeat the passes of this stretch: see ``docs/theory/engine.md``.
    """
    gradients, strategy = plan.strategy.data_parallel, plan.strategy
    if gradients.central or strategy.written is not None:
        return None
    n_ways = places_of(strategy).n_copies
    schedule = SCHEDULES[strategy.schedule]
    each = strategy.pp if schedule.whole_rounds else 1
    orders = orders_of(strategy, plan.n_micro_batches)
    # Where weights are gathered layer by layer a pass is many tasks.
    if strategy.pp > 1 and not strategy.gathers_weights and sum(map(len, orders)) < LEAST_PASSES:
        return None
    if not all(_is_regular(order, each * n_ways, plan.n_micro_batches) for order in orders):
        return None
    for some in _TRIED:
        for times, more, worth in some:
            n_least = max(times, schedule.least_rounds) * strategy.pp + more * n_ways
            repetitions = (plan.n_micro_batches - n_least) // (each * n_ways)
            n_few = plan.n_micro_batches - repetitions * each * n_ways
            if worth * n_few > plan.n_micro_batches:
                return None
            if all(_has_two_periods(order, each * n_ways, n_few) for order in orders_of(strategy, n_few)):
                ways = MicroBatchPaths(first=_firsts(strategy, n_few), n_micro_batches=each)
                found = _replayed(plan, machine, n_few, ways, repetitions)
                if found is not None:
                    return found
                break
    return None


def _replayed(plan: Plan, machine: Machine, n_few: int, ways: MicroBatchPaths, times: int) -> tuple[Timeline, tuple[str, ...]] | None:
    short, whole = orders_of(plan.strategy, n_few), orders_of(plan.strategy, plan.n_micro_batches)

    def holds(window: RepeatedWindow) -> bool:
        of_classes = dict.fromkeys(zip(window.stages, window.n_passes, strict=True))
        return all(order_repeats(short[stage], whole[stage], passes, ways=ways, times=times) for stage, passes in of_classes)

    with phase("lower"):
        program = lower(plan, n_micro_batches=n_few)
    jobs = prepare(program, machine, (), others=()).replayed()
    timeline = _repeated(jobs, ways, times=times, holds=holds)
    return timeline and (timeline, jobs.first.traffic.uneven())


def _is_regular(order: StageOrder, n_together: int, n_micro_batches: int) -> bool:
    """Return whether an order is periodic around its middle, in a number of micro-batches."""
    n_passes, middle = len(order) * n_together // n_micro_batches, len(order) // 2
    earlier, later = order[middle - n_passes : middle], order[middle : middle + n_passes]
    return all(
        (one.kind, one.chunk) == (other.kind, other.chunk) and other.micro_batch > one.micro_batch
        for one, other in zip(earlier, later, strict=False)
    )


def _has_two_periods(order: StageOrder, n_together: int, n_micro_batches: int) -> bool:
    """Return whether an order has a stretch of a number of micro-batches that is like the one before it, as a repetition must."""
    n_passes = len(order) * n_together // n_micro_batches
    alike = [
        (one.kind, one.chunk) == (other.kind, other.chunk) and other.micro_batch > one.micro_batch
        for one, other in zip(order, order[n_passes:], strict=False)
    ]
    return any(same and len(list(run)) >= n_passes for same, run in groupby(alike))


def _firsts(strategy: Strategy, n_micro_batches: int) -> tuple[int, ...]:
    places = places_of(strategy)
    return tuple(places.micro_batches(way, n_micro_batches).start for way in range(places.n_copies))


def order_repeats(few: StageOrder, all_of_them: StageOrder, passes: tuple[int, int], *, ways: MicroBatchPaths, times: int) -> bool:
    """Return whether an order is another one with some of its passes repeated, each time for the next micro-batches."""
    first, last = passes
    n_more, n_inside = times * (last - first), last - first
    if len(all_of_them) != len(few) + n_more:
        return False
    rows = np.concatenate((np.arange(last), np.tile(np.arange(first, last), times), np.arange(last, len(few))))
    number = np.concatenate((np.zeros(last), np.repeat(np.arange(1, times + 1), n_inside), np.full(len(few) - last, times)))
    done, micro_batches = _columns(few)
    way = np.searchsorted(np.array(ways.first), micro_batches, side="right") - 1
    shifted = micro_batches[rows] + (way[rows] * times + number) * ways.n_micro_batches
    wanted, numbers = _columns(all_of_them)
    return [done[row] for row in rows.tolist()] == wanted and bool((shifted == numbers).all())


def _columns(order: Sequence[Pass]) -> tuple[list[tuple[str, int, bool]], IntArray]:
    """Return what passes do, and for which micro-batches."""
    return [(step.kind, step.chunk, step.beside_next) for step in order], np.array([step.micro_batch for step in order], dtype=np.int64)

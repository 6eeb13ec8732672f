"""Flows that can meet on the links: the engine's order against a search, and its fast way against the slow one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.engine.passes import Passes, ReplaySettings
from clustersim.engine.precedence import Precedence, contended_passes
from clustersim.engine.program_graph import Graph
from clustersim.engine.simulate import replay
from clustersim.program.program import Program, ProgramBuilder
from clustersim.program.tasks import COMPUTE_STREAM, Action, Block, Compute, Item, Lane, RankGroups
from clustersim.trace.timeline import RankClass, Span
from tests.unit.engine.factories import (
    LATENT_NETWORK,
    collective,
    communicate,
    group_of,
    make_machine,
    overlapped,
    transfer,
    work,
)

N_CLASSES = 2
INLINE: tuple[RankGroups, ...] = (
    group_of((0, 1), (2, 3), name="left", dimension="tp"),
    group_of((4, 5), (6, 7), name="right", dimension="tp"),
    group_of((2, 4), (3, 5), name="middle", dimension="cp"),
)
BESIDE: tuple[Action, ...] = (
    communicate(group_of((0, 2), (1, 3), name="dp of left"), 3e7),
    communicate(INLINE[1], 2e7, name="right, beside"),
    transfer((1, 5), (2, 6), size_bytes=4e7, name="to the right"),
    transfer((7, 3), size_bytes=1e7, name="to the left"),
)


@dataclass(frozen=True)
class Draft:
    action: Action
    lanes: tuple[Lane, ...]


def lane(rank_class: int, stream: str = COMPUTE_STREAM) -> Lane:
    return Lane(rank_class=rank_class, stream=stream)


@st.composite
def passes(draw: st.DrawFn) -> Compute:
    items: list[Item] = []
    for _ in range(draw(st.integers(1, 3))):
        size_bytes, seconds = draw(st.sampled_from([0.0, 1e6, 5e7])), draw(st.sampled_from([1e-5, 2e-4, 1e-3]))
        group = draw(st.sampled_from(INLINE))
        shape = draw(st.sampled_from(["work", "collective", "overlapped"]))
        moved = replace(collective(group, size_bytes), algorithm=draw(st.sampled_from(["ring", "tree", "hierarchical"])))
        if shape == "work":
            items.append(work(seconds))
        elif shape == "collective":
            items.append(moved)
        else:
            items.append(overlapped(moved, seconds))
    block = Block(name="layer", body=tuple(items), repeat=draw(st.integers(1, 3)))
    return Compute(name=f"F{draw(st.integers(0, 9))}", phase="forward", blocks=(block,))


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    rank_class = draw(st.integers(0, N_CLASSES - 1))
    if draw(st.booleans()):
        return Draft(draw(passes()), (lane(rank_class),))
    streams = [lane(rank_class, "beside")] + ([lane(1 - rank_class, "beside")] if draw(st.booleans()) else [])
    return Draft(draw(st.sampled_from(BESIDE)), tuple(streams))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Return tasks in an order in which they can run, then written down in another that keeps every lane in order."""
    tasks = draw(st.lists(drafts(), min_size=1, max_size=9))
    waits = [draw(st.lists(st.integers(0, number - 1), max_size=2)) if number else [] for number in range(len(tasks))]
    written = list(range(len(tasks)))
    for place in draw(st.lists(st.integers(0, max(0, len(tasks) - 2)), max_size=12)):
        pair = written[place : place + 2]
        if len(pair) == 2 and not set(tasks[pair[0]].lanes) & set(tasks[pair[1]].lanes):
            written[place : place + 2] = pair[::-1]
    builder = ProgramBuilder()
    for number in written:
        builder.add((number,), tasks[number].action, tasks[number].lanes, after=[(other,) for other in waits[number]])
    classes = (
        RankClass(name=f"stage {stage}", stage=stage, representative_rank=4 * stage, ranks=4 * stage + np.arange(4))
        for stage in range(N_CLASSES)
    )
    return builder.build(classes)


def ancestors(program: Program) -> list[set[int]]:
    """Return all tasks that must have ended before each, by search."""
    found: list[set[int]] = []
    for index in range(len(program.tasks)):
        seen: set[int] = set()
        stack = list(program.tasks[index].after)
        while stack:
            task = stack.pop()
            if task not in seen:
                seen.add(task)
                stack.extend(program.tasks[task].after)
        found.append(seen)
    return found


def inline_kinds(action: Action) -> list[int]:
    if not isinstance(action, Compute):
        return []
    groups = [item for block in action.blocks for item in block.body]
    names = {group.name for item in groups if (group := getattr(getattr(item, "collective", item), "group", None)) is not None}
    return [number for number, group in enumerate(INLINE) if group.name in names]


@settings(deadline=None)
@given(programs())
def test_places_in_the_order_are_what_a_search_finds(program: Program) -> None:
    order, before = Precedence.of(Graph(program)).order(), ancestors(program)

    for index in range(len(program.tasks)):
        for rank_class in range(N_CLASSES):
            lane_tasks = [number for number, task in enumerate(program.tasks) if task.lanes == (lane(rank_class),)]
            earlier = [place for place, number in enumerate(lane_tasks) if number in before[index]]
            later = [place for place, number in enumerate(lane_tasks) if index in before[number]]
            assert order.before[index, rank_class] == max(earlier, default=-1)
            assert order.behind[index, rank_class] == min(later, default=len(program.tasks))


@settings(deadline=None)
@given(programs(), st.lists(st.sampled_from([[], [0], [1], [0, 1, 2]]), min_size=9, max_size=9))
def test_a_pass_is_contended_if_and_only_if_neither_waits_for_the_other(program: Program, shared: list[list[int]]) -> None:
    before = ancestors(program)
    inline = {index: kinds for index, task in enumerate(program.tasks) if (kinds := inline_kinds(task.action))}
    rivals = [(index, shared[index]) for index in range(len(program.tasks))]

    contended = contended_passes(Graph(program), rivals, inline)

    expected = {
        index
        for index, kinds in inline.items()
        for rival, common in rivals
        if rival != index and index not in before[rival] and rival not in before[index] and set(kinds) & set(common)
    }
    assert contended == expected


def replayed(program: Program, *, collapses: bool) -> tuple[float, list[Span]]:
    timeline, _ = replay(program, replace(make_machine(network=LATENT_NETWORK), settings=ReplaySettings(passes=Passes(collapse=collapses))))
    return timeline.step_time_s, list(timeline.spans)


@settings(deadline=None)
@given(programs())
def test_a_replay_is_the_same_with_and_without_the_collapse_pass(program: Program) -> None:
    fast_s, fast = replayed(program, collapses=True)
    slow_s, slow = replayed(program, collapses=False)

    assert fast_s == slow_s
    assert [span.end_s for span in fast] == [span.end_s for span in slow]
    assert [sum(seconds for _, seconds in span.exposed_s) for span in fast] == pytest.approx(
        [sum(seconds for _, seconds in span.exposed_s) for span in slow], rel=1e-9, abs=1e-13
    )

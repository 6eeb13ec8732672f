"""Background traffic: it never helps, it takes no more than it may, and flows that share no link with it do not change."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.engine.jobs import Repeated
from clustersim.engine.simulate import Machine, replay
from clustersim.program.placing import Placement, placed
from clustersim.program.program import Background, Program, ProgramBuilder
from clustersim.program.tasks import COMPUTE_STREAM, Action, Lane
from clustersim.trace.timeline import RankClass, Timeline
from tests.unit.engine.factories import compute, instant, make_machine, transfer, work
from tests.unit.topology.factories import NIC_BYTES_PER_S, make_fabric, make_node

N_RANKS = 8
ROUND_OFF = 1e-9


@cache
def machine() -> Machine:
    """Return four nodes, two below each leaf, whose uplinks are narrow."""
    return make_machine(instant(make_node(fabric=make_fabric("leaf_spine", nodes_per_leaf=2, oversubscription=4.0))), 4)


def link(name: str) -> int:
    return next(link_id for link_id, each in enumerate(machine().cluster.links) if each.name == name)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Return passes and sends, all from rank 0 to rank 16, so that one adapter after the other carries all of them alike."""
    builder = ProgramBuilder()
    for number in range(draw(st.integers(1, 8))):
        seconds = draw(st.sampled_from([0.1, 0.35, 1.0]))
        action: Action = compute(work(seconds))
        stream = COMPUTE_STREAM
        if draw(st.booleans()):
            action = transfer((0, 16), size_bytes=seconds * NIC_BYTES_PER_S, name=f"send {seconds}")
            stream = draw(st.sampled_from(["one", "two", "three"]))
        after = draw(st.lists(st.integers(0, number - 1), max_size=2)) if number else []
        builder.add((number,), action, [Lane(rank_class=0, stream=stream)], after=[(earlier,) for earlier in after])
    return builder.build([RankClass(name="all ranks", stage=0, representative_rank=0, ranks=np.arange(1))])


@st.composite
def loads(draw: st.DrawFn) -> Background:
    period_s = draw(st.sampled_from([0.0, 0.05, 0.3]))
    return Background(
        name="load",
        link_ids=(link("node0/nic0/tx"),),
        rate_bytes_per_s=draw(st.sampled_from([0.1, 0.5, 0.9, 1.0])) * NIC_BYTES_PER_S,
        n_flows=draw(st.sampled_from([1, 4])),
        start_s=draw(st.sampled_from([0.0, 0.2])),
        period_s=period_s,
        burst_s=draw(st.sampled_from([0.2, 0.7])) * period_s,
    )


def replayed(program: Program, *background: Background, others: tuple[Program, ...] = ()) -> Timeline:
    jobs = [Repeated(name=f"job {number}", program=each, kernels=machine().kernels) for number, each in enumerate(others)]
    return replay(program, machine(), background, others=jobs)[0]


@settings(max_examples=60, deadline=None)
@given(program=programs(), load=loads(), more=loads())
def test_a_load_on_the_one_link_that_is_shared_never_makes_a_step_shorter(program: Program, load: Background, more: Background) -> None:
    alone, some, much = (replayed(program, *background).step_time_s for background in ((), (load,), (load, more)))

    assert some >= alone * (1.0 - ROUND_OFF)
    assert much >= some * (1.0 - ROUND_OFF)


@settings(max_examples=40, deadline=None)
@given(program=programs(), load=loads())
def test_a_load_moves_no_more_than_its_rate_and_no_link_more_than_it_can(program: Program, load: Background) -> None:
    timeline = replayed(program, load)
    without = replayed(program)

    def carried(of: Timeline) -> float:
        return sum(use.bytes for use in of.links if use.name == "node0/nic0/tx")

    asked_bytes = load.rate_bytes_per_s * max(0.0, timeline.step_time_s - load.start_s)
    assert carried(timeline) - carried(without) <= asked_bytes * (1.0 + ROUND_OFF) + 1.0  # a byte of round-off in a difference
    assert all(use.peak_utilisation <= 1.0 + ROUND_OFF for use in timeline.links)
    assert all(use.busy_s <= timeline.step_time_s * (1.0 + ROUND_OFF) for use in timeline.links)


def on_node(program: Program, node: int) -> Program:
    """Return the program with its sends inside one half of the cluster, from a node to the one that is below the same leaf."""
    ranks = {0: node * N_RANKS, 16: (node ^ 1) * N_RANKS}
    return placed(program, Placement(ranks=np.array([ranks.get(rank, 0) for rank in range(17)]), hosts={}))


@settings(max_examples=40, deadline=None)
@given(first=programs(), second=programs())
def test_a_job_that_shares_no_link_changes_nothing(first: Program, second: Program) -> None:
    alone = replayed(on_node(first, 0))
    both = replayed(on_node(first, 0), others=(on_node(second, 2),))

    # The clock stops at other instants in between, which moves the last bit.
    assert both.step_time_s == pytest.approx(alone.step_time_s, rel=1e-12)
    assert [span.end_s for span in both.spans] == pytest.approx([span.end_s for span in alone.spans], rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(first=programs(), second=programs())
def test_another_job_does_as_many_steps_as_fit(first: Program, second: Program) -> None:
    both = replayed(on_node(first, 0), others=(on_node(second, 2),))
    step_s = replayed(on_node(second, 2)).step_time_s

    (job,) = both.jobs
    assert job.steps_s == pytest.approx(job.steps * step_s, rel=ROUND_OFF)
    assert job.steps * step_s <= both.step_time_s * (1.0 + ROUND_OFF) < (job.steps + 1) * step_s * (1.0 + 2 * ROUND_OFF)

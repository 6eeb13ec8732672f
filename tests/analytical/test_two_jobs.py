"""Two equal jobs on one fabric: on links that they share each collective takes exactly twice as long, and elsewhere exactly as long."""

from __future__ import annotations

import numpy as np
import pytest

from clustersim.engine.jobs import Repeated
from clustersim.engine.simulate import Machine, replay
from clustersim.network.in_flight import TICK_S
from clustersim.program.placing import Placement, placed
from clustersim.program.program import Program
from clustersim.trace.timeline import Timeline
from tests.unit.engine.factories import communicate, compute, group_of, instant, make_machine, program, task, work
from tests.unit.topology.factories import make_fabric, make_node

N_RANKS = 8
SIZES_BYTES = (1e8, 1e9, 3.7e9)


def machine_of(oversubscription: float) -> Machine:
    """Return eight nodes, four below each of two leaves, without any latency."""
    node = instant(make_node(fabric=make_fabric("leaf_spine", nodes_per_leaf=4, oversubscription=oversubscription)))
    return make_machine(node, 8)


def job(*nodes: int) -> Program:
    """Return all-reduces of all ranks of some nodes, one after the other, with computation in between."""
    group = group_of(tuple(range(len(nodes) * N_RANKS)), name="dp", dimension="dp")
    tasks = [
        each
        for number, size_bytes in enumerate(SIZES_BYTES)
        for each in (
            task(compute(work(0.1)), *([2 * number - 1] if number else [])),
            task(communicate(group, size_bytes, op="all_reduce"), 2 * number),
        )
    ]
    ranks = np.concatenate([node * N_RANKS + np.arange(N_RANKS) for node in nodes])
    return placed(program(*tasks, n_ranks=len(ranks)), Placement(ranks=ranks, hosts={}))


def all_reduces_s(timeline: Timeline) -> list[float]:
    return [span.end_s - span.start_s for span in timeline.spans if span.kind != "compute" and span.bytes > 0]


def beside(machine: Machine, first: Program, second: Program) -> Timeline:
    return replay(first, machine, others=[Repeated(name="other", program=second, kernels=machine.kernels)])[0]


@pytest.mark.parametrize("oversubscription", [4.0, 8.0])
def test_jobs_that_share_every_leaf_uplink_take_exactly_twice_as_long_for_each_all_reduce(oversubscription: float) -> None:
    machine = machine_of(oversubscription)
    first, second = job(0, 1, 4, 5), job(2, 3, 6, 7)

    alone, _ = replay(first, machine)
    both = beside(machine, first, second)

    assert len(all_reduces_s(alone)) == len(SIZES_BYTES)
    assert all_reduces_s(both) == pytest.approx([2.0 * seconds for seconds in all_reduces_s(alone)], abs=4 * TICK_S)


@pytest.mark.parametrize("oversubscription", [1.0, 4.0])
def test_jobs_below_leaves_of_their_own_take_exactly_as_long(oversubscription: float) -> None:
    machine = machine_of(oversubscription)
    first, second = job(0, 1, 2, 3), job(4, 5, 6, 7)

    alone, _ = replay(first, machine)
    both = beside(machine, first, second)

    assert all_reduces_s(both) == pytest.approx(all_reduces_s(alone), rel=1e-12)
    assert both.step_time_s == pytest.approx(alone.step_time_s, rel=1e-12)


def test_an_uplink_that_is_wide_enough_for_both_slows_nobody_down() -> None:
    machine = machine_of(1.0)
    first, second = job(0, 1, 4, 5), job(2, 3, 6, 7)

    alone, _ = replay(first, machine)

    assert all_reduces_s(beside(machine, first, second)) == pytest.approx(all_reduces_s(alone), rel=1e-12)

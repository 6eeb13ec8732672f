"""Several jobs on one fabric: they share what they share and nothing else, and the first is what is reported."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.engine.jobs import Repeated
from clustersim.engine.simulate import Machine, replay
from clustersim.errors import DeadlockError
from clustersim.kernels.kernel_model import KernelModel
from clustersim.network.in_flight import TICK_S
from clustersim.parallel.lower import lower
from clustersim.parallel.training_plan import Plan
from clustersim.program.placing import Placement, placed
from clustersim.program.program import Background, Program
from clustersim.program.tasks import Task
from clustersim.trace.timeline import JobProgress, LinkUse, Timeline
from tests.unit.engine.factories import (
    LATENT_NETWORK,
    collective,
    communicate,
    compute,
    group_of,
    instant,
    make_machine,
    program,
    task,
    transfer,
    work,
)
from tests.unit.parallel.factories import make_plan
from tests.unit.topology.factories import NIC_BYTES_PER_S, SCALE_UP_BYTES_PER_S, make_fabric, make_node

N_RANKS = 8
OVERSUBSCRIPTION = 4.0
NARROW = instant(make_node(fabric=make_fabric("leaf_spine", nodes_per_leaf=2, oversubscription=OVERSUBSCRIPTION)))
"""Two nodes at a leaf, whose way up is as wide as the adapters of half a node."""
UPLINK_BYTES_PER_S = 2 * N_RANKS * NIC_BYTES_PER_S / OVERSUBSCRIPTION
ACROSS = transfer(*((rank, N_RANKS + rank) for rank in range(N_RANKS)), size_bytes=UPLINK_BYTES_PER_S / N_RANKS)
"""Every rank of the first node sends to the second; on an uplink of its own this takes a second."""


def on_nodes(of: Program, *nodes: int) -> Program:
    return placed(of, Placement(ranks=np.concatenate([node * N_RANKS + np.arange(N_RANKS) for node in nodes]), hosts={}))


def job(*tasks: Task, nodes: tuple[int, int]) -> Program:
    return on_nodes(program(*tasks, n_ranks=2 * N_RANKS), *nodes)


def other(of: Program, machine: Machine, name: str = "other") -> Repeated:
    return Repeated(name=name, program=of, kernels=machine.kernels)


def beside(machine: Machine, first: Program, *others: Program) -> Timeline:
    rest = [other(each, machine, f"other {number}") for number, each in enumerate(others)]
    return replay(first, machine, others=rest)[0]


def use_of(timeline: Timeline, name: str) -> LinkUse:
    (use,) = [link for link in timeline.links if link.name == name]
    return use


def test_the_work_of_one_job_lies_in_the_gaps_of_the_other() -> None:
    machine = make_machine(NARROW, 4)
    sends_late = job(task(compute(work(1.0))), task(ACROSS, 0), nodes=(0, 2))
    sends_first = job(task(ACROSS), task(compute(work(2.0)), 0), nodes=(1, 3))

    both = beside(machine, sends_late, sends_first)

    assert both.step_time_s == beside(machine, sends_late).step_time_s


def test_another_job_repeats_its_step_until_the_first_has_ended() -> None:
    machine = make_machine(NARROW, 4)

    both = beside(machine, job(task(compute(work(1.0))), nodes=(0, 2)), job(task(compute(work(0.3))), nodes=(1, 3)))

    assert both.step_time_s == 1.0
    assert [(each.name, each.steps) for each in both.jobs] == [("other 0", 3)]
    assert both.jobs[0].steps_s == pytest.approx(0.9, abs=4 * TICK_S)


def test_a_step_that_is_longer_than_that_of_the_first_does_not_end() -> None:
    machine = make_machine(NARROW, 4)

    both = beside(machine, job(task(compute(work(1.0))), nodes=(0, 2)), job(task(compute(work(5.0))), nodes=(1, 3)))

    assert both.jobs == (JobProgress(name="other 0", steps=0, steps_s=0.0),)


def test_a_step_that_takes_no_time_is_not_repeated_for_ever() -> None:
    machine = make_machine(NARROW, 4)

    both = beside(machine, job(task(compute(work(1.0))), nodes=(0, 2)), job(nodes=(1, 3)))

    assert both.jobs[0].steps == 0


def test_the_timeline_is_that_of_the_first_job() -> None:
    machine = make_machine(NARROW, 4)
    mine = job(task(compute(work(1.0), name="mine")), task(ACROSS, 0), nodes=(0, 2))

    both = beside(machine, mine, job(task(compute(work(0.3), name="theirs")), task(ACROSS, 0), nodes=(1, 3)))

    assert [span.name for span in both.spans] == ["mine", "send"]
    assert both.rank_classes == mine.rank_classes
    assert both.engine.ranks == 2 * N_RANKS
    assert len(both.collectives) == 1


def test_links_carry_the_traffic_of_all_jobs_by_name() -> None:
    machine = make_machine(NARROW, 4)

    both = beside(machine, job(task(ACROSS), nodes=(0, 2)), job(task(ACROSS), nodes=(1, 3)))

    uplink = use_of(both, "leaf0/up")
    assert uplink.bytes == pytest.approx(2 * UPLINK_BYTES_PER_S, rel=1e-12)
    assert uplink.users == ("pp send", "other 0: pp send")
    assert [meeting.names for meeting in uplink.meetings] == [("other 0: pp send", "pp send")]
    assert use_of(both, "node1/nic0/tx").users == ("other 0: pp send",)


def test_groups_of_the_same_name_in_two_jobs_are_two() -> None:
    machine = make_machine(NARROW, 4)
    inside = communicate(group_of(tuple(range(N_RANKS)), name="tp", dimension="tp"), 1e9)

    both = beside(machine, job(task(inside), nodes=(0, 2)), job(task(inside), nodes=(1, 3)))

    assert {link.name.split("/")[0] for link in both.links} == {"node0", "node1"}


def test_links_inside_the_nodes_of_another_job_carry_what_its_passes_move() -> None:
    machine = make_machine(NARROW, 4)
    tp = group_of((0, 1, 2, 3, 4, 5, 6, 7), name="tp", dimension="tp")
    theirs = compute(collective(tp, SCALE_UP_BYTES_PER_S), repeat=2)

    # 2 x 7/4 s a pass: one whole step and a seventh of the second.
    both = beside(machine, job(task(compute(work(4.0))), nodes=(0, 2)), job(task(theirs), nodes=(1, 3)))

    assert both.jobs[0].steps == 1
    use = use_of(both, "node1/gpu0/nvlink/up")
    assert use.busy_s == pytest.approx(4.0, rel=1e-12)
    assert use.bytes == pytest.approx(4.0 * SCALE_UP_BYTES_PER_S, rel=1e-12)


def test_a_pass_meets_another_job_on_the_links_of_its_collectives() -> None:
    machine = make_machine(NARROW, 4)
    tp = group_of(*((rank, N_RANKS + rank) for rank in range(N_RANKS)), name="tp", dimension="tp")
    action = compute(work(0.25), collective(tp, UPLINK_BYTES_PER_S / N_RANKS))

    alone = beside(machine, job(task(action), nodes=(0, 2)))
    both = beside(machine, job(task(action), nodes=(0, 2)), job(task(action), nodes=(1, 3)))

    (span,), (shared,) = alone.spans, both.spans
    assert shared.compute_s == span.compute_s == 0.25
    # Two flows on every link instead of one all the time.
    assert dict(shared.exposed_s)["tp"] == pytest.approx(2 * dict(span.exposed_s)["tp"], rel=1e-12)


PLANS = [make_plan(dp=8, tp=2, zero_stage=1), make_plan(dp=2, tp=4, pp=2, zero_stage=1), make_plan(dp=16, zero_stage=3)]


@pytest.mark.parametrize("plan", PLANS)
def test_the_place_of_a_job_makes_no_difference_to_it(plan: Plan) -> None:
    machine = make_machine(NARROW, 4, network=LATENT_NETWORK)

    here, there = (beside(machine, on_nodes(lower(plan), *nodes)) for nodes in ((0, 2), (3, 1)))

    assert there.step_time_s == here.step_time_s
    assert there.spans == here.spans


def test_two_copies_of_one_job_keep_in_step() -> None:
    machine = make_machine(NARROW, 4, network=LATENT_NETWORK)
    plan = make_plan(dp=16, zero_stage=1)
    first, second = (on_nodes(lower(plan), *nodes) for nodes in ((0, 2), (1, 3)))

    one, other_one = beside(machine, first, second), beside(machine, second, first)

    assert one.step_time_s == other_one.step_time_s
    assert one.step_time_s > beside(machine, first).step_time_s


def test_a_job_may_compute_in_another_precision() -> None:
    machine = make_machine(NARROW, 4)
    assert isinstance(machine.kernels, KernelModel)
    slow = replace(machine.kernels, calibration=replace(machine.calibration, memory_fraction=0.5))
    step = job(task(compute(work(0.4))), nodes=(1, 3))

    timeline, _ = replay(job(task(compute(work(1.0))), nodes=(0, 2)), machine, others=[Repeated(name="slow", program=step, kernels=slow)])

    assert timeline.jobs[0].steps_s == pytest.approx(0.8, abs=4 * TICK_S)


def test_three_jobs_and_a_load_share_an_uplink() -> None:
    machine = make_machine(NARROW, 8)
    jobs = [job(task(ACROSS), nodes=nodes) for nodes in ((0, 2), (1, 3))]
    uplink = next(link_id for link_id, link in enumerate(machine.cluster.links) if link.name == "leaf0/up")
    load = Background(name="backup", link_ids=(uplink,), rate_bytes_per_s=0.2 * UPLINK_BYTES_PER_S, n_flows=N_RANKS)

    timeline, _ = replay(jobs[0], machine, [load], others=[other(jobs[1], machine), other(job(task(ACROSS), nodes=(4, 6)), machine, "far")])

    assert timeline.step_time_s == pytest.approx(2.0 / 0.8, rel=1e-12)
    assert [(each.name, each.steps) for each in timeline.jobs] == [("other", 1), ("far", 2)]
    assert [each.steps_s for each in timeline.jobs] == pytest.approx([2.5, 2.0], rel=1e-12)


CIRCLE = (task(compute(work(0.1), name="before")), task(compute(work(1.0)), 0, 2), task(communicate(group_of((0, 1)), 1.0), 1))


def test_a_deadlock_of_the_first_job_is_found_although_others_go_on() -> None:
    machine = make_machine(NARROW, 4)

    with pytest.raises(DeadlockError, match="2 of 3 tasks wait"):
        beside(machine, job(*CIRCLE, nodes=(0, 2)), job(task(ACROSS), nodes=(1, 3)))


def test_a_deadlock_of_another_job_is_found() -> None:
    machine = make_machine(NARROW, 4)

    with pytest.raises(
        DeadlockError, match=r"2 of 3 tasks of job 'other 0' wait .* on rank 8:\n  F on stage 0 waits for reduce on stage 0"
    ):
        beside(machine, job(task(compute(work(1.0))), nodes=(0, 2)), job(*CIRCLE, nodes=(1, 3)))

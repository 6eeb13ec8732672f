from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.engine import folding
from clustersim.engine.folding import Folding, Wired, Wires
from clustersim.engine.pace import Pace
from clustersim.engine.simulate import Machine, replay
from clustersim.hardware.models import Fabric
from clustersim.parallel.lower import lower
from clustersim.program.program import Background, Program
from clustersim.topology.cluster import IntArray
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.names import LinkChange
from clustersim.trace.timeline import Timeline
from tests.unit.engine.factories import RAMPED_NETWORK, communicate, compute, group_of, make_machine, program, task, transfer, work
from tests.unit.parallel.factories import make_plan
from tests.unit.topology.factories import make_fabric, make_node


def machine_of(n_nodes: int, *, fabric: Fabric | None = None, changes: tuple[LinkChange, ...] = (), how: Folding = "cells") -> Machine:
    node = make_node(n_accelerators=4, n_nics=4)
    machine = make_machine(node, n_nodes, network=RAMPED_NETWORK)
    cluster = build_cluster(node, n_nodes, fabric or make_fabric(nodes_per_leaf=2), changes=changes)
    return replace(machine, cluster=cluster, folding=how)


def played(of: Program, machine: Machine) -> Timeline:
    timeline, _ = replay(of, machine)
    return timeline


def same(one: Timeline, other: Timeline) -> bool:
    """Return whether a step takes as long, to round-off, and links of every tier carry as much."""
    return one.step_time_s == pytest.approx(other.step_time_s, rel=1e-9) and carried(one) == pytest.approx(carried(other), rel=1e-9)


def carried(timeline: Timeline) -> dict[str, float]:
    """Return the bytes on all links of each tier."""
    sums: dict[str, float] = {}
    for use in timeline.links:
        sums[use.tier] = sums.get(use.tier, 0.0) + use.bytes * use.n_links
    return sums


PLAN = make_plan(dp=4, tp=2, pp=2, global_batch_size=16)
"""Sixteen ranks on four nodes: replicas fill half a node on each stage."""


def test_where_all_are_alike_there_is_a_class_for_each_stage() -> None:
    timeline = played(lower(PLAN), machine_of(4))

    assert [(each.name, each.n_ranks) for each in timeline.rank_classes] == [("stage 0", 8), ("stage 1", 8)]
    assert timeline.engine.told_apart == "all"


def test_no_fold_replays_every_rank_and_comes_to_the_same() -> None:
    apart = played(lower(PLAN), machine_of(4, how="ranks"))

    assert [each.n_ranks for each in apart.rank_classes] == [1] * 16
    assert not apart.engine.folded
    assert same(apart, played(lower(PLAN), machine_of(4)))


def test_a_degraded_adapter_splits_the_groups_and_the_replica_that_cross_it() -> None:
    change = LinkChange(between=("node0/nic0", "*"), fraction=0.25)
    of = program(task(compute(work(1.0))), task(communicate(group_of((0, 4), (1, 5), (2, 6), (3, 7)), 1e9), 0))

    timeline = played(of, machine_of(2, changes=(change,)))

    assert [each.ranks.tolist() for each in timeline.rank_classes] == [[0, 4], [1, 2, 3, 5, 6, 7]]
    slow, others = (max(span.end_s for span in timeline.spans if span.rank_class == number) for number in (0, 1))
    assert slow > others


def test_a_group_on_whole_links_is_not_held_up_by_one_on_a_degraded_link() -> None:
    change = LinkChange(between=("node0/nic0", "*"), fraction=0.25)
    of = program(task(communicate(group_of((0, 4), (1, 5), (2, 6), (3, 7)), 1e9)))
    whole = played(of, machine_of(2))

    timeline = played(of, machine_of(2, changes=(change,)))

    ends_s = [span.end_s for span in timeline.spans]
    assert min(ends_s) == pytest.approx(whole.step_time_s, rel=1e-9)
    assert max(ends_s) > 2 * whole.step_time_s


@pytest.mark.parametrize("slow", [0, 3])
def test_a_slow_rank_splits_what_waits_for_it(slow: int) -> None:
    machine = machine_of(4)
    pace_of = np.zeros(16, dtype=np.int64)
    pace_of[slow] = 1
    paces = (Pace(kernels=machine.kernels), Pace(kernels=machine.kernels, slowdown=2.0))
    machine = replace(machine, paces=paces, pace_of=pace_of)
    of = program(
        task(compute(work(1.0))),
        task(communicate(group_of(*((rank, rank + 4) for rank in (*range(4), *range(8, 12)))), 1e6), 0),
        n_ranks=16,
    )

    timeline = played(of, machine)

    assert {tuple(each.ranks.tolist()) for each in timeline.rank_classes} == {
        (slow,),
        (slow + 4,),
        tuple(rank for rank in range(16) if rank not in (slow, slow + 4)),
    }


def test_paths_that_collide_tell_apart_what_they_touch() -> None:
    fabric = make_fabric("leaf_spine", nodes_per_leaf=1, oversubscription=2.0, routing="ecmp", n_ports=8)

    folded, apart = (played(lower(PLAN), machine_of(4, fabric=fabric, how=how)) for how in ("cells", "ranks"))

    assert len(folded.rank_classes) > 2
    assert same(folded, apart)


def test_what_is_too_much_to_be_told_apart_is_replayed_together_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = make_fabric("leaf_spine", nodes_per_leaf=1, oversubscription=2.0, routing="ecmp", n_ports=8)
    of = lower(PLAN)
    monkeypatch.setattr(folding, "MOST_WORK", 20 * len(of.tasks))

    coarse = played(of, machine_of(4, fabric=fabric))

    assert coarse.engine.told_apart in ("nodes", "none")
    # Together, all go at the pace of the slowest; to round-off.
    assert coarse.step_time_s >= (1 - 1e-12) * played(of, machine_of(4, fabric=fabric, how="ranks")).step_time_s


def test_a_load_on_one_link_tells_its_group_apart() -> None:
    machine = machine_of(2)
    of = program(task(communicate(group_of((0, 4), (1, 5), (2, 6), (3, 7)), 1e9)))
    (link,) = [number for number, each in enumerate(machine.cluster.links) if each.name == "node0/nic2/tx"]
    load = Background(name="backup", link_ids=(link,), rate_bytes_per_s=1e12)

    timeline, _ = replay(of, machine, [load])

    assert [each.ranks.tolist() for each in timeline.rank_classes] == [[0, 1, 3, 4, 5, 7], [2, 6]]


def by_rotation(of: Program, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> tuple[Timeline, list[bool]]:
    """Return the timeline with clusters of any size folded by rotation, and for each replay whether its was."""
    taken: list[bool] = []
    fold_by_rotation = folding.fold_by_rotation

    def noted(program: Program, wires: Wires, colours: IntArray | None) -> Wired | None:
        found = fold_by_rotation(program, wires, colours)
        taken.append(found is not None)
        return found

    monkeypatch.setattr(folding, "LEAST_ROTATED", 0)
    monkeypatch.setattr(folding, "fold_by_rotation", noted)
    return played(of, machine), taken


RAILS = program(
    task(compute(work(1.0))),
    task(communicate(group_of(*((rank, rank + 4, rank + 8, rank + 12) for rank in range(4))), 1e9), 0),
    task(transfer((0, 4), (1, 5), (2, 6), (3, 7), size_bytes=1e8), 1),
    n_ranks=16,
)


def test_a_program_on_rails_is_folded_by_rotation(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = played(RAILS, machine_of(4))

    rotated, taken = by_rotation(RAILS, machine_of(4), monkeypatch)

    assert taken == [True]
    assert [each.ranks.tolist() for each in rotated.rank_classes] == [each.ranks.tolist() for each in whole.rank_classes]
    assert (rotated.spans, rotated.links, rotated.collectives) == (whole.spans, whole.links, whole.collectives)


@pytest.mark.parametrize(("slow", "rotates"), [([5], False), ([4, 5, 6, 7], True)], ids=["one rank", "all of a node"])
def test_a_pace_of_one_rank_of_a_node_is_no_rotation(slow: list[int], rotates: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = machine_of(4)
    pace_of = np.zeros(16, dtype=np.int64)
    pace_of[slow] = 1
    machine = replace(machine, paces=(Pace(kernels=machine.kernels), Pace(kernels=machine.kernels, slowdown=2.0)), pace_of=pace_of)
    whole = played(RAILS, machine)

    found, taken = by_rotation(RAILS, machine, monkeypatch)

    assert taken == [rotates]
    assert (found.spans, found.links) == (whole.spans, whole.links)


def test_a_class_with_some_ranks_of_a_node_is_no_rotation(monkeypatch: pytest.MonkeyPatch) -> None:
    halves = program(*(task(compute(work(1.0)), rank_class=half) for half in range(4)), n_classes=4, n_ranks=8)

    _, taken = by_rotation(halves, machine_of(2), monkeypatch)

    assert taken == [False]

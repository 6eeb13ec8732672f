"""A program on other ranks: everything that names a rank follows, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.hardware.library_costs import Servers
from clustersim.parallel.lower import lower
from clustersim.parallel.training_plan import Plan
from clustersim.program.placing import Placement, placed
from clustersim.program.program import Program
from clustersim.program.tasks import Collective, Communicate, Compute, HostCopy, HostUpdate, Overlapped, Task, Transfer
from tests.rows import rows
from tests.unit.engine.factories import collective, communicate, compute, group_of, overlapped, program, task, transfer, work
from tests.unit.parallel.factories import make_plan

SWAPPED = Placement(ranks=np.array((1, 0, 3, 2)), hosts={0: 4, 1: 7})


def only(task_of: Task) -> Task:
    (moved,) = placed(program(task_of, n_ranks=4), SWAPPED).tasks
    return moved


def test_groups_follow() -> None:
    action = only(task(communicate(group_of((0, 1), (2, 3)), 8.0))).action

    assert isinstance(action, Communicate)
    assert rows(action.collective.group.members) == ((1, 0), (3, 2))


def test_sends_follow() -> None:
    action = only(task(transfer((0, 2), (1, 3), size_bytes=8.0))).action

    assert isinstance(action, Transfer)
    assert rows(action.pairs) == ((1, 3), (0, 2))


def test_collectives_inside_a_pass_follow() -> None:
    group = group_of((0, 2))
    action = only(task(compute(work(1.0), collective(group, 8.0), overlapped(collective(group, 8.0), 1.0)))).action

    assert isinstance(action, Compute)
    _, stopping, beside = action.blocks[0].body
    assert isinstance(stopping, Collective)
    assert isinstance(beside, Overlapped)
    assert rows(stopping.group.members) == rows(beside.collectives[0].group.members) == ((1, 3),)


def test_servers_follow() -> None:
    servers = Servers(hosts=(1, 0))
    push = replace(collective(group_of((0, 1)), 8.0, "push"), servers=servers)
    action = only(task(Communicate(name="push", collective=push))).action

    assert isinstance(action, Communicate)
    assert action.collective.servers == replace(servers, hosts=(7, 4))


def test_copies_and_updates_on_hosts_follow() -> None:
    copy = only(task(HostCopy(name="copy", ranks=np.array((0, 2)), bytes=8.0, source="accelerator", destination="host"))).action
    update = only(task(HostUpdate(name="update", ranks=np.array((3,)), bytes=8.0))).action

    assert isinstance(copy, HostCopy)
    assert isinstance(update, HostUpdate)
    assert (copy.ranks.tolist(), update.ranks.tolist()) == ([1, 3], [2])
    assert (copy.source, copy.destination, copy.bytes, update.bytes) == ("accelerator", "host", 8.0, 8.0)


def test_representatives_follow() -> None:
    moved = placed(program(n_classes=2, n_ranks=4), SWAPPED)

    assert [rank_class.representative_rank for rank_class in moved.rank_classes] == [1, 3]
    assert [rank_class.ranks.tolist() for rank_class in moved.rank_classes] == [[0, 1], [2, 3]]


def test_a_rank_that_is_placed_nowhere_is_a_mistake() -> None:
    with pytest.raises(IndexError):
        placed(program(task(transfer((0, 4), size_bytes=8.0))), SWAPPED)


def identities(of: Program) -> list[int]:
    """Return, for each thing in the order of the tasks, the place of the first that is the same object."""
    things: list[object] = []
    for each in of.tasks:
        things.append(each.action)
        if isinstance(each.action, Compute):
            for block in each.action.blocks:
                things.append(block)
                for item in block.body:
                    inside = item.collectives[0] if isinstance(item, Overlapped) else item
                    things += [item, inside, *([inside.group] if isinstance(inside, Collective) else [])]
        elif isinstance(each.action, Communicate):
            things += [each.action.collective, each.action.collective.group]
    first: dict[int, int] = {}
    return [first.setdefault(id(thing), place) for place, thing in enumerate(things)]


@pytest.mark.parametrize("plan", [make_plan(dp=2, tp=2, pp=2, zero_stage=1), make_plan(dp=8, zero_stage=3)])
def test_what_was_one_object_stays_one(plan: Plan) -> None:
    original = lower(plan)

    moved = placed(original, Placement(ranks=np.arange(8, 16), hosts={}))

    assert identities(moved) == identities(original)
    assert len(set(identities(original))) < len(identities(original))


def test_there_and_back_is_the_same_program() -> None:
    original = lower(make_plan(dp=2, tp=2, pp=2, zero_stage=1))
    there = Placement(ranks=np.array((3, 1, 4, 0, 5, 7, 2, 6)), hosts={})
    back = Placement(ranks=np.argsort(there.ranks), hosts={})

    assert repr(placed(placed(original, there), back)) == repr(original)


def test_in_its_own_place_nothing_changes() -> None:
    original = lower(make_plan(dp=2, tp=4, pp=1))

    assert repr(placed(original, Placement(ranks=np.arange(8), hosts={}))) == repr(original)

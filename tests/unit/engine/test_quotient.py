from __future__ import annotations

import numpy as np

from clustersim.engine.instance_sets import InstanceSets
from clustersim.engine.quotient import Names, Quotient
from clustersim.engine.refinement import Partition
from clustersim.program.program import Program
from clustersim.program.tasks import Collective, Communicate, Compute, Lane, Task, Transfer
from clustersim.topology.cluster_wiring import build_cluster
from tests.unit.engine.factories import collective, communicate, compute, group_of, program, task, transfer, work
from tests.unit.topology.factories import make_node, ranks

GROUPS = group_of((0, 4), (1, 5), (2, 6), (3, 7))


def quotient(of: Program, *slow: int) -> Quotient:
    """Return the quotient when some ranks are unlike the others."""
    cluster = build_cluster(make_node(n_accelerators=4, n_nics=4), 2)
    instance_sets = InstanceSets.of(of, cluster)
    colours = np.zeros(8, dtype=np.int64)
    for number, rank_class in enumerate(of.rank_classes):
        colours[rank_class.ranks] = 2 * number
    colours[list(slow)] += 1
    incidences = [instance_set.incidence for instance_set in instance_sets.found]
    partition = Partition(colours, incidences, [np.zeros(each.n_instances, dtype=np.int64) for each in incidences])
    partition.refine()
    return Quotient(
        program=of, instance_sets=instance_sets, rank_colours=partition.ranks, instance_colours=partition.instances, names=Names()
    )


def test_a_program_without_differences_stays_as_it_is() -> None:
    of = program(task(compute(work(1.0))), task(communicate(GROUPS, 1.0), 0))

    assert quotient(of).build() is of


def test_a_slow_rank_splits_its_pass_and_the_group_that_waits_for_it() -> None:
    of = program(task(compute(work(1.0))), task(communicate(GROUPS, 1.0), 0), task(compute(work(1.0), name="update"), 1))

    built = quotient(of, 5).build()

    assert [(each.name, each.ranks.tolist()) for each in built.rank_classes] == [
        ("stage 0, ranks 0, 2-4, 6-7", [0, 2, 3, 4, 6, 7]),
        ("stage 0, rank 1", [1]),
        ("stage 0, rank 5", [5]),
    ]
    assert [(each.action.name, [lane.rank_class for lane in each.lanes], each.after) for each in built.tasks] == [
        ("F", [0], ()),
        ("F", [1], ()),
        ("F", [2], ()),
        ("reduce", [0], (0,)),
        ("reduce", [1, 2], (1, 2)),
        ("update", [0], (3,)),
        ("update", [1], (4,)),
        ("update", [2], (4,)),
    ]
    groups = [each.action.collective.group for each in built.tasks if isinstance(each.action, Communicate)]
    assert [(group.name, group.members.tolist()) for group in groups] == [
        ("group, cell 1", [[0, 4], [2, 6], [3, 7]]),
        ("group, cell 2", [[1, 5]]),
    ]


def test_ranks_that_a_pass_joins_stay_in_one_task_on_lanes_of_all() -> None:
    inside = group_of((0, 1, 2, 3), (4, 5, 6, 7), name="inside")
    of = program(task(compute(work(1.0), collective(inside, 1.0))))

    built = quotient(of, 5).build()

    assert [[lane.rank_class for lane in each.lanes] for each in built.tasks] == [[0], [1, 2]]
    (slow,) = [each.action for each in built.tasks if len(each.lanes) == 2]
    assert isinstance(slow, Compute)
    assert [item.group.members.tolist() for item in slow.blocks[0].body if isinstance(item, Collective)] == [[[4, 5, 6, 7]]]


def test_a_transfer_is_split_by_pairs_and_holds_up_those_that_receive() -> None:
    send = transfer((0, 4), (1, 5), (2, 6), (3, 7), size_bytes=1.0)
    lanes = (Lane(rank_class=0, stream="send"), Lane(rank_class=1, stream="receive"))
    of = program(
        task(compute(work(1.0))), Task(action=send, lanes=lanes, after=(0,)), task(compute(work(1.0)), 1, rank_class=1), n_classes=2
    )

    built = quotient(of, 2).build()

    parts = [each.action for each in built.tasks if isinstance(each.action, Transfer)]
    assert [(part.name, part.pairs.tolist()) for part in parts] == [("send, cell 1", [[0, 4], [1, 5], [3, 7]]), ("send, cell 2", [[2, 6]])]
    assert [each.after for each in built.tasks] == [(), (), (0,), (1,), (2,), (3,)]
    assert [[lane.stream for lane in each.lanes] for each in built.tasks[2:4]] == [["send", "receive"]] * 2


def test_a_task_that_shares_no_rank_with_what_it_waits_for_waits_for_all_of_it() -> None:
    of = program(task(compute(work(1.0))), task(compute(work(1.0)), 0, rank_class=1), n_classes=2)

    built = quotient(of, 1, 6).build()

    assert [each.after for each in built.tasks] == [(), (), (0, 1), (0, 1)]


def test_equal_parts_have_one_name_and_others_never_the_same() -> None:
    names = Names()

    first, second, again = names.part("a", ranks(0, 1)), names.part("a", ranks(2)), names.part("a", ranks(0, 1))

    assert (first, second, again) == ("a, cell 1", "a, cell 2", "a, cell 1")
    assert names.part("b", ranks(0, 1)) == "b, cell 1"


def test_equal_actions_stay_one_object() -> None:
    passed = compute(work(1.0))
    of = program(task(passed), task(passed, 0))

    built = quotient(of, 0).build()

    assert built.tasks[0].action is built.tasks[2].action
    assert built.tasks[1].action is built.tasks[3].action

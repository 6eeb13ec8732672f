from __future__ import annotations

import numpy as np

from clustersim.engine.instance_sets import InstanceSet, InstanceSets
from clustersim.program.tasks import Action, HostUpdate
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.wired import Cluster
from tests.unit.engine.factories import collective, communicate, compute, group_of, program, task, transfer, work
from tests.unit.topology.factories import make_node, ranks


def cluster_of(n_nodes: int = 2) -> Cluster:
    return build_cluster(make_node(n_accelerators=4, n_nics=4), n_nodes)


def instance_set_of(action: Action, cluster: Cluster | None = None) -> InstanceSet:
    instance_sets = InstanceSets.of(program(task(action)), cluster or cluster_of())
    return instance_sets.found[instance_sets.of_action[action]]


def members(instance_set: InstanceSet) -> list[list[int]]:
    incidence = instance_set.incidence
    return [incidence.ranks[incidence.instances == number].tolist() for number in range(incidence.n_instances)]


def test_each_group_of_a_collective_is_an_instance() -> None:
    instance_set = instance_set_of(communicate(group_of((0, 4), (1, 5), (2, 6)), 1e6))

    assert members(instance_set) == [[0, 4], [1, 5], [2, 6]]
    assert instance_set.instance_of.numbers.tolist() == [0, 1, 2, -1, 0, 1, 2]


def test_each_pair_of_a_transfer_is_an_instance_whose_sender_owns_its_flows() -> None:
    instance_set = instance_set_of(transfer((0, 4), (1, 5), size_bytes=1.0))

    assert members(instance_set) == [[0, 4], [1, 5]]
    assert instance_set.instance_of.numbers.tolist() == [0, 1]
    assert instance_set.incidence.parts is not None
    assert instance_set.incidence.parts.tolist() == [0, 0, 1, 1]


def test_ranks_without_anything_to_wait_for_go_through_a_pass_by_themselves() -> None:
    assert members(instance_set_of(compute(work(1.0)))) == [[rank] for rank in range(8)]


def test_collectives_inside_a_pass_join_ranks_as_far_as_they_are_connected() -> None:
    two, other = group_of((0, 1), (2, 3), (4, 5), (6, 7)), group_of((1, 2), (5, 6), name="other")

    alone, both = compute(collective(two, 1.0)), compute(collective(two, 1.0), collective(other, 1.0))

    assert members(instance_set_of(alone)) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert members(instance_set_of(both)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_every_rank_that_a_host_works_for_is_an_instance() -> None:
    update = HostUpdate(name="update", ranks=ranks(2, 5), bytes=1.0)

    assert members(instance_set_of(update)) == [[2], [5]]


def test_actions_of_the_same_groups_are_one_instance_set() -> None:
    group = group_of((0, 4), (1, 5))
    one, other = communicate(group, 1.0), communicate(group, 2.0)

    instance_sets = InstanceSets.of(program(task(one), task(other)), cluster_of())

    assert len(instance_sets.found) == 1
    assert instance_sets.of_action[one] == instance_sets.of_action[other] == 0


def test_structure_tells_how_members_lie_in_their_domains() -> None:
    together, across, uneven = (0, 1, 2), (0, 1, 4), (0, 4, 5)

    structure = instance_set_of(communicate(group_of(together, across, uneven, (4, 5, 6)), 1.0)).structure.tolist()

    assert structure[0] == structure[3]
    assert len(set(structure)) == 3


def test_structure_tells_transfers_that_leave_their_domain() -> None:
    structure = instance_set_of(transfer((0, 1), (2, 6), (4, 7), size_bytes=1.0)).structure.tolist()

    assert structure[0] == structure[2] != structure[1]


def test_structure_counts_the_groups_that_a_pass_is_joined_by() -> None:
    # The second unit has a group that leaves its node.
    structure = instance_set_of(compute(collective(group_of((0, 1), (2, 4), (5, 6)), 1.0))).structure

    units = instance_set_of(compute(collective(group_of((0, 1), (2, 4), (5, 6)), 1.0))).instance_of
    assert structure[units[0]] == structure[units[5]] != structure[units[2]]
    assert np.unique(structure).size == 3  # the third kind is ranks of no group

"""Instance sets of a program: instances of one action that many ranks do at the same time, a few together each."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from clustersim.collectives.rotated import NotAlikeError, Rotated, Standing
from clustersim.engine.refinement import Hashes, Incidence, scrambled, summed
from clustersim.program.program import Program
from clustersim.program.tasks import Action, Communicate, Compute, HostCopy, HostUpdate, RankGroups, Task, Transfer, collectives_in
from clustersim.topology.cluster import IntArray, RankTable, ascending
from clustersim.topology.wired import Cluster

NOBODY: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InstanceSet:
    """Instances that differ in who takes part in them.

    An instance is one group of a collective, one pair of a transfer, one rank that copies, or the ranks that go through a pass together
    because collectives inside it join them.
    """

    incidence: Incidence
    instance_of: RankTable
    """For each rank, the instance whose flows it sends; ``NOBODY`` where it sends none."""
    structure: Hashes
    """Hash of each instance without its links: the positions of its members with respect to each other."""
    standing: Standing | None = None
    """The groups or pairs that are instances and representatives; None where all are."""


@dataclass(slots=True, kw_only=True)
class InstanceSets:
    """All sets of concurrent actions of a program; actions of the same ranks share one.

    Under a rotation of the cluster that makes groups of groups and pairs of pairs, an instance represents those whose place it takes, and
    only the lowest of ranks that are alike take part.
    """

    cluster: Cluster
    rank_classes: Sequence[IntArray]
    """Ranks of each class of the program."""
    rotated: Rotated | None = None
    found: list[InstanceSet] = field(default_factory=list[InstanceSet])
    of_action: dict[Action, int] = field(default_factory=dict[Action, int])
    """Number of the instance set."""
    n_tasks: list[int] = field(default_factory=list[int])
    """Tasks of each instance set."""
    _numbers: dict[Hashable, int] = field(default_factory=dict[Hashable, int])

    @classmethod
    def of(cls, program: Program, cluster: Cluster, rotated: Rotated | None = None) -> InstanceSets:
        """Return the instance sets of all actions of a program.

        Raises
        ------
        NotAlikeError
            Something that the program does is not the same after the rotation, or it is not known whether it is.
        """
        instance_sets = cls(cluster=cluster, rank_classes=[rank_class.ranks for rank_class in program.rank_classes], rotated=rotated)
        for task in program.tasks:
            number = instance_sets.of_action.get(task.action)
            if number is None:
                number = instance_sets.of_action[task.action] = instance_sets._number(task)
            instance_sets.n_tasks[number] += 1
        return instance_sets

    def groups_of(self, action: Compute) -> tuple[RankGroups, ...]:
        """Return the groups of the collectives inside a pass, each once."""
        inside = (collective.group for block in action.blocks for item in block.body for collective in collectives_in(item))
        return tuple(dict.fromkeys(inside))

    def instances_of(self, number: int, group: RankGroups) -> IntArray:
        """Return the instance of each group."""
        firsts = group.members[:, 0]
        return self.found[number].instance_of[firsts if self.rotated is None else self.rotated.rotation.lowest_rank[firsts]]

    def know_part(self, members: IntArray, whole: IntArray, instances: IntArray) -> None:
        """Store the representatives of the groups or pairs of some instances."""
        if self.rotated is not None:
            self.rotated.know_part(members, whole, instances)

    def _number(self, task: Task) -> int:
        key = self._key(task)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.found)
            self.n_tasks.append(0)
            self.found.append(self._instance_set(task.action, task.lanes[0].rank_class))
        return number

    def _key(self, task: Task) -> Hashable:
        action = task.action
        match action:
            case Communicate():
                return action.collective.group
            case Transfer():
                return "pairs", id(action.pairs)
            case HostCopy() | HostUpdate():
                return "ranks", id(action.ranks)
            case Compute():
                return "units", task.lanes[0].rank_class, *self.groups_of(action)

    def _instance_set(self, action: Action, rank_class: int) -> InstanceSet:
        if self.rotated is not None:
            return self._rotated(action, self.rank_classes[rank_class], self.rotated)
        match action:
            case Communicate():
                return self._of_groups(action.collective.group)
            case Transfer():
                return self._of_pairs(action.pairs)
            case HostCopy() | HostUpdate():
                return self._of_ranks(action.ranks, np.arange(len(action.ranks), dtype=np.int64))
            case Compute():
                ranks, groups = self.rank_classes[rank_class], self.groups_of(action)
                units = _joined(RankTable.of(ranks, np.arange(len(ranks), dtype=np.int64)), ranks, groups)
                instance_set = self._of_ranks(ranks, units)
                for group in groups:
                    rows = self._rows(group.members)
                    np.add.at(instance_set.structure, instance_set.instance_of[group.members[:, 0]], scrambled(rows))
                return instance_set

    def _rotated(self, action: Action, ranks: IntArray, rotated: Rotated) -> InstanceSet:
        """Return the representatives of instances under a node symmetry."""
        match action:
            case Communicate():
                return self._of_lowest_groups(action.collective.group, rotated)
            case Transfer():
                standing = rotated.pairs(action.pairs)
                return replace(self._of_pairs(standing.rows.members), standing=standing)
            case Compute():
                lowest, groups = ranks[rotated.rotation.lowest_rank[ranks] == ranks], self.groups_of(action)
                if not groups:
                    return self._of_ranks(lowest, np.arange(len(lowest), dtype=np.int64))
                instance_set = self._of_lowest_groups(groups[0], rotated)
                # Units that several groups join may be of unlike sizes; and units count in the order of their ranks.
                if (
                    len(groups) > 1
                    or not np.array_equal(ascending(instance_set.incidence.ranks), lowest)
                    or (np.diff(instance_set.incidence.ranks) < 0).any()
                ):
                    raise NotAlikeError
                return instance_set
            case HostCopy() | HostUpdate():
                raise NotAlikeError

    def _of_lowest_groups(self, group: RankGroups, rotated: Rotated) -> InstanceSet:
        standing = rotated.groups(group.members)
        rows = standing.rows
        ranks = rows.lowest.reshape(-1)
        instances = np.repeat(np.arange(len(rows.members), dtype=np.int64), len(rows.places))
        incidence = Incidence(ranks=ranks, instances=instances, n_instances=len(rows.members))
        table, structure = RankTable.of(ranks, instances), self._rows(rows.members)
        return InstanceSet(incidence=incidence, instance_of=table, structure=structure, standing=standing)

    def _of_groups(self, group: RankGroups) -> InstanceSet:
        n_groups, size = group.members.shape
        ranks, rows = group.members.reshape(-1), np.repeat(np.arange(n_groups, dtype=np.int64), size)
        incidence = Incidence(ranks=ranks, instances=rows, n_instances=n_groups)
        return InstanceSet(incidence=incidence, instance_of=RankTable.of(ranks, rows), structure=self._rows(group.members))

    def _of_pairs(self, pairs: IntArray) -> InstanceSet:
        n_pairs = len(pairs)
        rows = np.arange(n_pairs, dtype=np.int64)
        ends = np.repeat(np.arange(2, dtype=np.int64), n_pairs)
        incidence = Incidence(ranks=pairs.T.reshape(-1), instances=np.tile(rows, 2), n_instances=n_pairs, parts=ends)
        leaves = self.cluster.domain_of(pairs[:, 0]) != self.cluster.domain_of(pairs[:, 1])
        structure = scrambled(leaves.astype(np.int64)) + self._kinds(pairs)
        return InstanceSet(incidence=incidence, instance_of=RankTable.of(pairs[:, 0], rows), structure=structure)

    def _of_ranks(self, ranks: IntArray, instances: IntArray) -> InstanceSet:
        n_instances = int(instances.max(initial=-1)) + 1
        structure = summed(scrambled(self._kinds(ranks[:, None])), instances, n_instances)
        incidence = Incidence(ranks=ranks, instances=instances, n_instances=n_instances)
        return InstanceSet(incidence=incidence, instance_of=RankTable.of(ranks, instances), structure=structure)

    def _rows(self, members: IntArray) -> Hashes:
        """Return for each group at which places it leaves a domain, and the kinds of nodes that its members are on."""
        members = ascending(members)
        domains = self.cluster.domain_of(members.reshape(-1)).reshape(members.shape)
        leaves = (domains[:, 1:] != domains[:, :-1]).astype(np.uint64)
        places = scrambled(np.arange(leaves.shape[1], dtype=np.int64))
        return (leaves * places).sum(axis=1, dtype=np.uint64) + self._kinds(members)

    def _kinds(self, ranks: IntArray) -> Hashes:
        """Return for each row of ranks the kinds of nodes that they are on."""
        if len(self.cluster.kinds) == 1:
            return np.zeros(len(ranks), dtype=np.uint64)
        kinds = self.cluster.kind_of(self.cluster.node_of(ranks.reshape(-1))).reshape(ranks.shape)
        places = scrambled(np.arange(ranks.shape[1], dtype=np.int64), 1)
        return (scrambled(kinds) * places).sum(axis=1, dtype=np.uint64)


def _joined(labels: RankTable, ranks: IntArray, groups: Sequence[RankGroups]) -> IntArray:
    """Return for each of the ranks the number of the set of ranks that groups join it with."""
    while True:
        before = labels.numbers.copy()
        for group in groups:
            labels[group.members] = labels[group.members].min(axis=1, keepdims=True)
        if bool((labels.numbers == before).all()):
            return np.unique(labels[ranks], return_inverse=True)[1].reshape(-1).astype(np.int64)

"""One representative per stage gives the same step as every model replica replayed by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from clustersim.engine.simulate import replay
from clustersim.parallel.division import Mesh, place
from clustersim.parallel.lower import lower
from clustersim.parallel.training_plan import Plan
from clustersim.program.program import Program
from clustersim.program.tasks import (
    Action,
    Block,
    Collective,
    Communicate,
    Compute,
    HostCopy,
    HostUpdate,
    Item,
    Lane,
    Overlapped,
    RankGroups,
    Task,
    Transfer,
)
from clustersim.topology.cluster import IntArray
from tests.rows import rows
from tests.unit.engine.factories import RAMPED_NETWORK, make_machine
from tests.unit.parallel.factories import make_plan
from tests.unit.topology.factories import make_fabric, make_node


def unfolded(program: Program, mesh: Mesh) -> Program:
    """Return the same program with a rank class for each stage of each data-parallel replica."""
    n_stages, n_replicas = mesh.ranks.shape[:2]
    return _Unfolding(program, [frozenset(mesh.ranks[:, replica].ravel().tolist()) for replica in range(n_replicas)], n_stages).program()


class _Unfolding:
    def __init__(self, folded: Program, replicas: list[frozenset[int]], n_stages: int) -> None:
        self.folded, self.replicas, self.n_stages = folded, replicas, n_stages
        self.copies: dict[tuple[int, int], Compute] = {}

    def program(self) -> Program:
        tasks: list[Task] = []
        index: dict[tuple[int, int], int] = {}
        for number, task in enumerate(self.folded.tasks):
            shared = self._shared(task.action)
            for replica in range(1 if shared else len(self.replicas)):
                index[number, replica] = len(tasks) + replica
            tasks += [task] * (1 if shared else len(self.replicas))
        made: list[Task] = []
        for task in self.folded.tasks:
            everyone = range(len(self.replicas))
            for replica in range(1) if self._shared(task.action) else everyone:
                sides = everyone if self._shared(task.action) else (replica,)
                after = dict.fromkeys(index.get((earlier, side), index[earlier, 0]) for earlier in task.after for side in sides)
                lanes = tuple(
                    Lane(rank_class=lane.rank_class + self.n_stages * side, stream=lane.stream) for lane in task.lanes for side in sides
                )
                made.append(task._replace(action=self._copy(task.action, replica), lanes=lanes, after=tuple(after)))
        classes = tuple(
            replace(rank_class, name=f"{rank_class.name} of {replica}", ranks=rank_class.ranks[np.isin(rank_class.ranks, sorted(ranks))])
            for replica, ranks in enumerate(self.replicas)
            for rank_class in self.folded.rank_classes
        )
        return Program(rank_classes=classes, tasks=tuple(made))

    def _shared(self, action: Action) -> bool:
        return isinstance(action, Communicate) and not set(action.collective.group.members[0].tolist()) <= self.replicas[0]

    def _copy(self, action: Action, replica: int) -> Action:
        match action:
            case Compute():
                key = (id(action), replica)
                if key not in self.copies:
                    blocks = tuple(replace(block, body=tuple(self._item(item, replica) for item in block.body)) for block in action.blocks)
                    self.copies[key] = replace(action, blocks=blocks)
                return self.copies[key]
            case Transfer():
                return replace(action, name=f"{action.name} of {replica}", pairs=self._of(replica, action.pairs, action.pairs[:, 0]))
            case Communicate():
                return action if self._shared(action) else replace(action, collective=self._own(action.collective, replica))
            case HostCopy() | HostUpdate():
                return replace(action, ranks=self._of(replica, action.ranks, action.ranks))

    def _of(self, replica: int, members: IntArray, ranks: IntArray) -> IntArray:
        return members[np.isin(ranks, sorted(self.replicas[replica]))]

    def _item(self, item: Item, replica: int) -> Item:
        match item:
            case Collective():
                return self._own(item, replica)
            case Overlapped():
                return replace(item, collectives=tuple(self._own(each, replica) for each in item.collectives))
            case _:
                return item

    def _own(self, collective: Collective, replica: int) -> Collective:
        members = self._of(replica, collective.group.members, collective.group.members[:, 0])
        group: RankGroups = replace(collective.group, name=f"{collective.group.name} of {replica}", members=members)
        return replace(collective, group=group)


def step_times(plan: Plan, *, n_accelerators: int, n_nics: int) -> tuple[float, float]:
    """Return the step time of the folded and of the unfolded program on the same machine."""
    # One leaf for each rail, so that no two replicas are placed differently.
    node = make_node(n_accelerators=n_accelerators, n_nics=n_nics, fabric=make_fabric("rail_optimized", nodes_per_leaf=64))
    machine = make_machine(node, max(1, plan.n_ranks // n_accelerators), network=RAMPED_NETWORK)
    folded = lower(plan)
    apart = unfolded(folded, place(plan.strategy))
    times = [replay(program, machine)[0].step_time_s for program in (folded, apart)]
    return times[0], times[1]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    dp=st.sampled_from([2, 3, 4]),
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4]),
    schedule=st.sampled_from(["naive", "gpipe", "1f1b"]),
    zero_stage=st.sampled_from([0, 1]),
    sequence_parallel=st.booleans(),
    overlap=st.booleans(),
    n_nics=st.sampled_from([4, 8]),
)
def test_a_representative_is_exact_for_layouts_at_random(
    *, dp: int, tp: int, pp: int, schedule: str, zero_stage: int, sequence_parallel: bool, overlap: bool, n_nics: int
) -> None:
    assume(dp * tp * pp % 8 == 0)
    plan = make_plan(
        dp=dp,
        tp=tp,
        pp=pp,
        schedule=schedule,
        zero_stage=zero_stage,
        sequence_parallel=sequence_parallel and tp > 1,
        overlap=overlap,
        overlap_p2p=overlap,
        global_batch_size=dp * 3,
    )

    folded_s, unfolded_s = step_times(plan, n_accelerators=8, n_nics=n_nics)

    assert unfolded_s == pytest.approx(folded_s, rel=1e-9)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    dp=st.sampled_from([2, 4]),
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2]),
    zero_stage=st.sampled_from([0, 1, 2, 3]),
    degree=st.sampled_from([None, 1, 2]),
    no_sync=st.booleans(),
    overlap=st.booleans(),
)
def test_replicas_in_parts_of_their_own_take_as_long_as_all_in_one(
    *, dp: int, tp: int, pp: int, zero_stage: int, degree: int | None, no_sync: bool, overlap: bool
) -> None:
    assume(dp * tp * pp >= 8 and (zero_stage < 2 or pp == 1) and (zero_stage > 0 or degree is None))
    plan = make_plan(
        dp=dp, tp=tp, pp=pp, zero_stage=zero_stage, shard_degree=degree, no_sync=no_sync, overlap=overlap, global_batch_size=dp * 2
    )
    machine = make_machine(make_node(n_accelerators=8, n_nics=8), dp * tp * pp // 8, network=RAMPED_NETWORK)

    together, apart = (replay(lower(plan, parts), machine)[0] for parts in (None, [(replica,) for replica in range(dp)]))

    assert len(apart.rank_classes) == dp * len(together.rank_classes)
    assert apart.step_time_s == pytest.approx(together.step_time_s, rel=1e-9)


def test_unfolding_multiplies_passes_and_keeps_reductions() -> None:
    plan = make_plan(dp=2, tp=2, pp=2, global_batch_size=8)
    folded = lower(plan)

    apart = unfolded(folded, place(plan.strategy))

    passes = [sum(isinstance(task.action, Compute) for task in program.tasks) for program in (folded, apart)]
    reductions = [sum(task.action.name == "gradients" for task in program.tasks) for program in (folded, apart)]
    assert passes[1] == 2 * passes[0]
    assert reductions[1] == reductions[0] > 0
    assert len(apart.rank_classes) == 4


def test_blocks_of_one_replica_hold_its_own_groups() -> None:
    plan = make_plan(dp=2, tp=2, pp=1, global_batch_size=4)

    apart = unfolded(lower(plan), place(plan.strategy))

    blocks: list[Block] = [block for task in apart.tasks if isinstance(task.action, Compute) for block in task.action.blocks]
    groups = {rows(item.group.members) for block in blocks for item in block.body if isinstance(item, Collective)}
    assert groups == {((0, 1),), ((2, 3),)}

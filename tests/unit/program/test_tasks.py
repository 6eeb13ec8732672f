from __future__ import annotations

import typing

import numpy as np
import pytest

from clustersim.program.tasks import Collective, Compute, Lane, Phase, RankGroups, Task
from clustersim.trace.timeline import KINDS


def test_a_group_has_the_size_of_any_of_its_orbit() -> None:
    assert RankGroups(name="tp", dimension="tp", members=np.array(((0, 1, 2), (3, 4, 5)))).size == 3


def test_a_collective_is_one_call_by_a_method_chosen_for_it() -> None:
    group = RankGroups(name="dp", dimension="dp", members=np.array(((0, 1),)))

    collective = Collective(op="all_reduce", group=group, bytes=1.0)

    assert collective.pieces == 1


def test_a_task_belongs_to_no_micro_batch_unless_it_says_so() -> None:
    task = Task(action=Compute(name="F", phase="forward", blocks=()), lanes=(Lane(rank_class=0, stream="compute"),), after=())

    assert (task.micro_batch, task.chunk) == (-1, -1)


def test_every_phase_is_a_kind_of_span() -> None:
    assert set(typing.get_args(Phase)) == set(KINDS) - {"communication"}


def test_what_is_to_be_done_cannot_be_changed() -> None:
    lane = Lane(rank_class=0, stream="compute")

    with pytest.raises(AttributeError):
        lane.stream = "dp"  # pyright: ignore[reportAttributeAccessIssue] - what the test is about


def test_lanes_are_equal_by_what_they_say() -> None:
    assert len({Lane(rank_class=1, stream="dp"), Lane(rank_class=1, stream="dp"), Lane(rank_class=2, stream="dp")}) == 2

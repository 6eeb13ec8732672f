"""Rank classes: stages, and the parts that replicas fall into."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.parallel.division import Division, divided, place
from clustersim.trace.timeline import ranks_text
from tests.rows import rows
from tests.unit.parallel.factories import make_plan


def division(*parts: tuple[int, ...], **degrees: int) -> Division:
    return divided(place(make_plan(**degrees).strategy), parts or None)


def test_even_replicas_make_one_class_for_each_stage() -> None:
    classes = division(pp=2, tp=2, dp=3).rank_classes()

    assert [(each.name, each.stage, each.n_ranks) for each in classes] == [("stage 0", 0, 6), ("stage 1", 1, 6)]


def test_every_part_makes_a_class_of_every_stage() -> None:
    classes = division((0, 2), (1,), pp=2, tp=2, dp=3).rank_classes()

    assert [(each.name, each.stage, each.representative_rank, each.n_ranks) for each in classes] == [
        ("stage 0, ranks 0-1, 4-5", 0, 0, 4),
        ("stage 0, ranks 2-3", 0, 2, 2),
        ("stage 1, ranks 6-7, 10-11", 1, 6, 4),
        ("stage 1, ranks 8-9", 1, 8, 2),
    ]


def test_a_part_holds_its_own_groups() -> None:
    made = division((0, 2), (1,), tp=2, dp=3)

    assert rows(made.group("tp", 0, 0).members) == ((0, 1), (4, 5))
    assert rows(made.group("tp", 0, 1).members) == ((2, 3),)
    assert rows(made.group("dp", 0, 0).members) == ((0, 4), (1, 5))
    assert rows(made.group("dp", 0, 1).members) == ((2,), (3,))


def test_the_lanes_of_a_stage_are_one_for_each_part() -> None:
    made = division((0,), (1,), pp=2, dp=2)

    assert [(lane.rank_class, lane.stream) for lane in made.lanes(1, "dp")] == [(2, "dp"), (3, "dp")]
    assert made.lane(1, 0).rank_class == made.rank_class(1, 0) == 2


@given(dp=st.integers(1, 6), tp=st.integers(1, 3), pp=st.integers(1, 3), data=st.data())
def test_the_classes_hold_every_rank_once(dp: int, tp: int, pp: int, data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.integers(0, 2), min_size=dp, max_size=dp))
    parts = [tuple(replica for replica, kind in enumerate(kinds) if kind == wanted) for wanted in sorted(set(kinds))]
    made = divided(place(make_plan(dp=dp, tp=tp, pp=pp, global_batch_size=dp).strategy), parts)

    ranks = [rank for stage in made.stages for part in range(made.n_parts) for rank in made.ranks(stage, part).tolist()]

    assert sorted(ranks) == list(range(dp * tp * pp))
    assert sum(each.n_ranks for each in made.rank_classes()) == dp * tp * pp


@pytest.mark.parametrize(
    ("ranks", "text"), [([5], "rank 5"), ([1, 0], "ranks 0-1"), ([0, 2, 4], "ranks 0, 2, 4"), (range(0, 10, 2), "ranks 0, 2, 4 and 2 more")]
)
def test_ranks_are_written_as_stretches(ranks: list[int], text: str) -> None:
    assert ranks_text(ranks) == text

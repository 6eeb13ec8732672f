"""Rows of experts on their ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.parallel.training_plan import Plan
from clustersim.workloads.token_routing import ExpertLoad
from clustersim.workloads.transformer_shape import Experts
from tests.unit.parallel.factories import LLAMA, local_of, make_plan

S = 256
SPARSE = replace(LLAMA, experts=Experts(n_experts=16, top_k=2, intermediate_size=256, dense_layers=(0, 1)))


def plan_of(**changes: object) -> Plan:
    return make_plan(SPARSE, attention="flash", **changes)


@pytest.mark.parametrize(
    ("layout", "tokens"),
    [
        ({}, S),
        ({"dp": 4, "ep": 4}, 4 * S),
        ({"cp": 4, "ep": 4}, S),
        ({"tp": 4, "ep": 4, "etp": 1, "sequence_parallel": True}, S),
        ({"tp": 4, "sequence_parallel": True}, S),
        ({"dp": 2, "tp": 2, "ep": 2, "sequence_parallel": True}, 2 * S),
    ],
)
def test_the_ranks_that_hold_all_experts_send_all_their_tokens_twice(layout: dict[str, object], tokens: int) -> None:
    assert sum(local_of(plan_of(**layout)).expert_spread.dispatch().rows) == 2 * tokens


def test_the_hottest_place_is_the_one_with_most_rows() -> None:
    load = ExpertLoad(kind="file", shares=((1.0,) * 12 + (4.0,) * 4,) * SPARSE.n_layers)
    spread = local_of(plan_of(dp=4, ep=4, expert_load=load)).expert_spread.dispatch(2)

    assert spread.hottest == 3
    assert spread.skew == pytest.approx(16 / 7, rel=0.01)


def test_the_mean_of_all_places_has_as_many_rows_as_all_together() -> None:
    plan = plan_of(dp=4, ep=4, expert_load=ExpertLoad(kind="zipf"))
    spread = local_of(plan).expert_spread
    mean = spread.share(2)

    assert 4 * mean.received_rows == sum(spread.share(2, place).received_rows for place in range(4))
    assert mean.n_local == 4


def test_layers_differ_where_each_is_drawn_for_itself() -> None:
    even, drawn = (plan_of(dp=4, ep=4, expert_load=load) for load in (ExpertLoad(), ExpertLoad(kind="dirichlet")))

    assert [count for _, count in local_of(even).equal_layers(range(SPARSE.n_layers))] == [2, SPARSE.n_layers - 2]
    assert [count for _, count in local_of(drawn).equal_layers(range(SPARSE.n_layers))] == [2] + [1] * (SPARSE.n_layers - 2)


def test_the_fullest_place_keeps_most() -> None:
    plan = plan_of(dp=4, ep=4, expert_load=ExpertLoad(kind="zipf"))
    kept = [sum(operator.saved_bytes for operator in local_of(plan).layer(2, place)) for place in range(4)]

    assert kept == sorted(kept, reverse=True)
    assert kept[0] > kept[3]

"""Numbers of nodes that reach a goal, and figures that are not known of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.apps.plan.goal import Asking, Goal, counts, goal_document, goal_lines, reach
from clustersim.errors import ScenarioError

LIMITS = ("tp=1,2,4,8", "pp=1", "cp=1", "micro_batch_size=1", "offload=none", "zero_stage=1", "recompute=none")
OVERRIDES = ("training.global_batch_size=120", "training.seq_length=1024")
GOAL = Goal(tokens=1e9, within_s=3600.0, nodes=("dgx-b300",), most_nodes=16)
ASKING = Asking(overrides=OVERRIDES, limits=LIMITS)


def test_counts_are_whole_numbers_and_then_eighths_between_powers_of_two() -> None:
    found = counts(100)

    assert found[:16] == tuple(range(1, 17))
    assert found[16:] == (18, 20, 22, 24, 26, 28, 30, 32, 36, 40, 44, 48, 52, 56, 60, 64, 72, 80, 88, 96)


def test_the_fewest_nodes_that_are_in_time_are_found_and_fewer_are_shown_not_to_be() -> None:
    free = reach("llama3.2-1b", replace(GOAL, within_s=None, most_nodes=3), ASKING).found[0]
    three = next(each for each in reach("llama3.2-1b", replace(GOAL, within_s=free.time_s / 2.5), ASKING).found)

    answer = reach("llama3.2-1b", replace(GOAL, within_s=free.time_s / 2.5), ASKING)

    assert free.n_nodes == 1
    assert answer.reached
    assert answer.best is not None
    # Three nodes are no power of two.
    assert answer.best.n_nodes == three.n_nodes == 3
    assert [each.n_nodes for each in answer.missed] == [n for n in (1, 2) if n >= min(each.n_nodes for each in answer.missed)]


def test_what_is_not_known_is_said_and_is_no_zero() -> None:
    answer = reach("llama3.2-1b", replace(GOAL, within_s=None), ASKING)

    best, plan, lines = answer.best, answer.plan, goal_lines(answer)
    assert best is not None
    assert best.usd is None
    assert best.power_w is not None
    assert best.power_w > 8 * 500.0
    assert "no price" in lines[0]
    assert any("no price of b300-sxm is known" in line for line in lines)
    assert plan is not None
    assert goal_document(answer)["cautions"] == list(plan.cautions)
    assert goal_document(answer)["assumed"] == list(plan.assumed)


def test_a_budget_needs_a_price() -> None:
    with pytest.raises(ScenarioError, match="no price of dgx-b300 is known"):
        reach("llama3.2-1b", replace(GOAL, within_s=None, budget_usd=1e6), ASKING)


@pytest.mark.slow
def test_where_none_is_in_time_the_largest_is_the_nearest() -> None:
    answer = reach("llama3.2-1b", replace(GOAL, within_s=1.0, most_nodes=2), ASKING)

    assert not answer.reached
    assert answer.best is not None
    assert answer.best.n_nodes == 2

"""Numbers of nodes that reach a goal, and figures that are not known of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.apps.plan.drafts import Drafts
from clustersim.apps.plan.goal import Asking, Goal, counts, reach
from clustersim.apps.plan.search import Terms
from clustersim.config.checks import parse_check
from clustersim.errors import ScenarioError
from clustersim.measure.error_bars import with_ends

LIMITS = ("tp=1,2,4,8", "pp=1", "cp=1", "micro_batch_size=1", "offload=none", "zero_stage=1", "recompute=none")
OVERRIDES = ("training.global_batch_size=128", "training.seq_length=1024")
GOAL = Goal(tokens=1e9, within_s=3600.0, nodes=("dgx-b300",), most_nodes=16)
ASKING = Asking(overrides=OVERRIDES, limits=LIMITS)


def test_counts_are_whole_numbers_and_then_eighths_between_powers_of_two() -> None:
    found = counts(100)

    assert found[:16] == tuple(range(1, 17))
    assert found[16:] == (18, 20, 22, 24, 26, 28, 30, 32, 36, 40, 44, 48, 52, 56, 60, 64, 72, 80, 88, 96)


def test_the_fewest_nodes_that_are_in_time_are_found_and_fewer_are_shown_not_to_be() -> None:
    free = reach("llama3.2-1b", replace(GOAL, within_s=None, most_nodes=3), ASKING).found[0]

    answer = reach("llama3.2-1b", replace(GOAL, within_s=free.time_s / 2.5), ASKING)

    assert free.n_nodes == 1
    assert answer.reached
    assert answer.best is not None
    # Three nodes are no power of two.
    assert answer.best.n_nodes == 3
    assert [(each.n_nodes, each.too_small) for each in answer.missed] == [(2, True)]
    adapted = "3 dgx-b300: the batch is 120 and not 128, which 24 GPUs do not divide"
    assert adapted in str(answer.to_dict()["cautions"])
    assert f"{adapted}." in answer.tables()[1].sentences


@pytest.mark.parametrize(("share", "is_open"), [(1.01, True), (2.0, False)])
def test_a_goal_that_the_error_bars_do_not_decide_says_so(share: float, is_open: bool) -> None:
    free = reach("llama3.2-1b", replace(GOAL, within_s=None, most_nodes=1), ASKING).found[0]

    answer = reach("llama3.2-1b", replace(GOAL, within_s=share * free.time_s, most_nodes=1), ASKING)

    assert answer.reached
    assert ("within the error bars it is not decided whether that is in time." in answer.tables()[1].sentences) is is_open
    assert with_ends(free.time_s, "s", free.bar) in answer.headline()


def test_numbers_that_no_layout_divides_say_nothing_of_fewer_nodes() -> None:
    asking = replace(ASKING, limits=("tp=4", "pp=4", "schedule=1f1b", *LIMITS[2:]))

    answer = reach("llama3.2-1b", replace(GOAL, within_s=None, most_nodes=5), asking)

    assert answer.best is not None
    assert answer.best.n_nodes == 2
    assert [(each.n_nodes, each.too_small) for each in answer.missed] == [(1, False), (3, False)]


def test_a_layout_with_a_burden_is_taken_where_only_it_holds_the_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = replace(ASKING, overrides=(*OVERRIDES, "cost.gpu_hour=3 USD"))
    free = replace(GOAL, within_s=None, most_nodes=1)
    fast = reach("llama3.2-1b", free, asking).found[0]
    fastest = fast.search.fastest
    assert fastest is not None
    assert fast.usd is not None
    monkeypatch.setattr(Drafts, "burdens", lambda _drafts, layout: ("is heavy",) if layout == fastest.layout else ())
    monkeypatch.setattr("clustersim.apps.plan.findings.is_near", lambda _best, _other: True)
    plain, held = (reach("llama3.2-1b", goal, asking) for goal in (free, replace(free, budget_usd=1.0001 * fast.usd)))

    assert plain.best is not None
    assert "is heavy" in plain.best.search.choice
    assert held.reached
    assert held.best is not None
    assert held.best.search.winner is held.best.search.fastest


@pytest.mark.parametrize(("n_bounded", "said"), [(4, "not in time"), (1, "none in time was found before the search ended")])
def test_no_number_of_nodes_is_said_to_take_more_than_it_does(monkeypatch: pytest.MonkeyPatch, n_bounded: int, said: str) -> None:
    asking = replace(ASKING, limits=(*LIMITS[:5], "zero_stage=1,2,3", LIMITS[6]), terms=Terms(most_replays=1))
    one = reach("llama3.2-1b", replace(GOAL, within_s=None, most_nodes=1), ASKING).found[0]
    monkeypatch.setattr("clustersim.apps.plan.search.BOUNDED_FOR_REPLAY", n_bounded)

    answer = reach("llama3.2-1b", replace(GOAL, within_s=0.99 * one.time_s, most_nodes=2), asking)

    (missed,) = answer.missed
    assert missed.n_nodes == 1
    assert missed.time_s is not None
    assert missed.time_s <= one.time_s
    assert missed.why.startswith(f"{said}, it takes ")
    assert answer.cut_short is not missed.search.complete


def test_what_is_not_known_is_said_and_is_no_zero() -> None:
    answer = reach("llama3.2-1b", replace(GOAL, within_s=None), ASKING)

    best, told = answer.best, answer.to_dict()
    assert best is not None
    assert best.usd is None
    assert best.power_w is not None
    assert best.power_w > 8 * 500.0
    assert "no price" in answer.headline()
    assert any("no price of b300-sxm is known" in line for line in answer.tables()[1].sentences)
    assert "no price of b300-sxm is known" in str(told["cautions"])
    assert "launch_overhead 1.7 (Megatron Core)" in str(told["assumed"])


def test_a_budget_needs_a_price() -> None:
    with pytest.raises(ScenarioError, match="no price of dgx-b300 is known"):
        reach("llama3.2-1b", replace(GOAL, within_s=None, budget_usd=1e6), ASKING)


@pytest.mark.parametrize(
    ("asking", "why"),
    [
        (replace(ASKING, terms=Terms(constraints=(parse_check("mfu > 0.99"),))), "no layout in time fulfils the constraints"),
        (
            Asking(overrides=(*OVERRIDES, "strategy.recompute_layers=1"), limits=(*LIMITS[:-1], "recompute=full"), framework="deepspeed"),
            "no layout runs: DeepSpeed has no key for recomputation of some layers of a chunk (recompute_layers)",
        ),
    ],
)
def test_numbers_of_nodes_without_a_layout_are_a_no_with_their_reason(asking: Asking, why: str) -> None:
    answer = reach("llama3.2-1b", replace(GOAL, most_nodes=2), asking)

    assert answer.headline() == "no: none of these clusters runs the model as asked"
    assert any(line.endswith(f" dgx-b300: {why}") for line in answer.tables()[0].sentences)


def test_a_time_limit_is_that_of_all_numbers_of_nodes_together() -> None:
    asking = replace(ASKING, terms=Terms(time_limit_s=1e-9))

    answer = reach("llama3.2-1b", replace(GOAL, nodes=("dgx-b300", "dgx-h100")), asking)

    assert (answer.found, answer.missed) == ((), ())
    assert answer.headline() == "no: none was found before the searches ended"
    assert any("searches ended before all numbers of nodes were decided" in line for line in answer.cautions())


def test_where_none_is_in_time_the_largest_is_the_nearest() -> None:
    answer = reach("llama3.2-1b", replace(GOAL, within_s=1.0, most_nodes=2), ASKING)

    assert not answer.reached
    assert answer.best is not None
    assert answer.best.n_nodes == 2
    assert answer.missed == ()

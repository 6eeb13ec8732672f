"""Which layouts a search looks at, and what it says of the others."""

from __future__ import annotations

import pytest

from clustersim.apps.plan.asking import asked_of
from clustersim.apps.plan.margins import LESS_IS_FASTER, Turn
from clustersim.apps.plan.space import families, left_out
from clustersim.errors import ScenarioError

LIMITS = ("tp=1", "cp=1", "ep=1", "micro_batch_size=1", "schedule=1f1b", "recompute=none")


def dealt(model: str, *limits: str) -> set[tuple[int, bool]]:
    space = asked_of(model, "dgx-h100", nodes=1, limits=(*LIMITS, *limits)).space
    return {(family.pp, family.balanced) for family in families(space)}


def test_balanced_stages_are_searched_too_where_the_logits_are_as_long_as_layers() -> None:
    assert dealt("llama3.2-1b", "pp=1,2,4") == {(1, False), (2, False), (2, True), (4, False), (4, True)}
    assert dealt("llama3-70b", "pp=1,2,4") == {(1, False), (2, False), (4, False)}


@pytest.mark.parametrize(
    ("given", "found"), [("balanced", {(2, True)}), ("even", {(2, False)}), ("even,balanced", {(2, False), (2, True)})]
)
def test_how_layers_are_dealt_out_may_be_asked_for(given: str, found: set[tuple[int, bool]]) -> None:
    assert dealt("llama3-70b", "pp=2", f"stage_layers={given}") == found


@pytest.mark.parametrize("key", ["strategy.stage_layers", "strategy.tp", "strategy.dp", "training.micro_batch_size"])
def test_a_setting_that_each_layout_replaces_is_refused(key: str) -> None:
    with pytest.raises(ScenarioError, match=f"{key}: plan searches .*--only"):
        asked_of("llama3.2-1b", "dgx-h100", nodes=1, overrides=(f"{key}=2",))


def test_such_a_setting_is_refused_within_a_mapping_too() -> None:
    with pytest.raises(ScenarioError, match=r"strategy\.tp: plan searches tp"):
        asked_of("llama3.2-1b", "dgx-h100", nodes=1, overrides=("strategy={tp: 4}",))


def test_what_a_search_leaves_out_is_named() -> None:
    schedules, stages = left_out(asked_of("llama3-70b", "dgx-h100", nodes=1).space)
    assert schedules.startswith("schedules: naive, gpipe, ")
    assert "zb_h1" in schedules
    assert stages == "kinds of stages where layers divide evenly: balanced (--only stage_layers=...)"
    assert left_out(asked_of("llama3-70b", "dgx-h100", nodes=1, limits=("pp=1",)).space) == ()


def test_a_step_that_half_the_network_shortens_says_so() -> None:
    turn = Turn(condition="half", step_time_s=36.37, gain_fraction=0.0, remark=LESS_IS_FASTER)

    assert turn.text.startswith("the same layout wins, with a step of 36.4 s (shorter than on the whole network)")

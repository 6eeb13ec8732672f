"""Numbers of micro-batches, stages and layers that schedules refuse."""

from __future__ import annotations

import re

import pytest

from clustersim.errors import DomainError
from clustersim.parallel.contributors.pipeline_parallel import PipelineParallelism, check_layers
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.training_plan import StrategySettings
from tests.unit.parallel.factories import GPT, make_plan

STAGES = 4


def refusal(schedule: str, batch: int) -> DomainError | None:
    plan = make_plan(pp=STAGES, schedule=schedule, global_batch_size=batch, micro_batch_size=2)
    try:
        PipelineParallelism.refuse(plan.strategy, StrategySettings(schedule=schedule), model=plan.model, training=plan.training)
    except DomainError as error:
        return error
    return None


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_refused_batch_comes_with_batches_that_work(schedule: str) -> None:
    for error in (refusal(schedule, batch) for batch in range(2, 24, 2)):
        named = [] if error is None else [int(word) for word in re.findall(r"\d+", error.hint or "")]
        assert error is None or (error.path == ("training", "global_batch_size") and named)
        assert all(refusal(schedule, other) is None for other in named)


@pytest.mark.parametrize("schedule", [name for name, each in SCHEDULES.items() if each.whole_rounds or each.least_rounds])
def test_a_schedule_that_asks_for_rounds_refuses_a_single_micro_batch(schedule: str) -> None:
    assert refusal(schedule, 2) is not None


@pytest.mark.parametrize("schedule", [name for name, each in SCHEDULES.items() if each.splits])
def test_a_schedule_that_splits_passes_needs_stages(schedule: str) -> None:
    with pytest.raises(DomainError, match="stages") as error:
        PipelineParallelism.refuse_model(GPT, StrategySettings(schedule=schedule))

    assert error.value.path in (("strategy", "schedule"), ("strategy", "pp"))


def test_every_part_but_the_ends_has_a_layer() -> None:
    asked = StrategySettings.model_validate({"pp": STAGES, "stage_layers": [3, 0, 3, 2]})

    with pytest.raises(DomainError, match="chunk 1 has no layer"):
        check_layers(8, asked, STAGES)
    check_layers(8, StrategySettings.model_validate({"pp": STAGES, "stage_layers": [0, 4, 4, 0]}), STAGES)

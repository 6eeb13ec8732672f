"""Needs of settings."""

from __future__ import annotations

from clustersim.parallel.needs import CONDITIONS, OF_TRAINING
from clustersim.parallel.settings import Needs
from clustersim.parallel.step_settings import DataParallelSettings, Training
from clustersim.parallel.training_plan import StrategySettings


def test_every_need_is_a_condition_and_every_condition_is_needed() -> None:
    fields = [field for section in (Training, StrategySettings, DataParallelSettings) for field in section.model_fields.values()]

    assert {need.condition for field in fields for need in field.metadata if isinstance(need, Needs)} == {*CONDITIONS, *OF_TRAINING}

"""Needs of settings."""

from __future__ import annotations

from clustersim.strategy.needs import CONDITIONS
from clustersim.strategy.plan import StrategySettings
from clustersim.strategy.settings import Needs
from clustersim.strategy.step_settings import DataParallelSettings, Training


def test_every_need_is_a_condition_and_every_condition_is_needed() -> None:
    fields = [field for section in (Training, StrategySettings, DataParallelSettings) for field in section.model_fields.values()]

    assert {need.condition for field in fields for need in field.metadata if isinstance(need, Needs)} == CONDITIONS.keys()

"""Presets of frameworks that divide a model: what they set together, and what they cannot do."""

from __future__ import annotations

import pytest

from clustersim.documents.text import Data
from tests.unit.config.samples import built, refusal


@pytest.mark.parametrize(
    ("preset", "later"), [("megatron_lm", "interleaved_1f1b"), ("colossal_ai", "interleaved_1f1b"), ("gspmd", "breadth_first")]
)
def test_several_chunks_on_a_stage_are_interleaved_as_the_framework_has_it(preset: str, later: str) -> None:
    strategy = built(strategy={"preset": preset, "pp": 2, "virtual_stages": 2}).plan.strategy

    assert (strategy.schedule, strategy.virtual_stages) == (later, 2)


def test_gspmd_has_a_loop_over_stages_and_over_micro_batches_without_them() -> None:
    flat, staged = (built(strategy={"preset": "gspmd", "pp": pp}).plan.strategy for pp in (1, 2))

    assert (flat.zero_stage, flat.schedule) == (3, "naive")
    assert (staged.zero_stage, staged.schedule) == (3, "gpipe")


@pytest.mark.parametrize(
    ("strategy", "field", "hint"),
    [
        ({"preset": "deepspeed_3d", "zero_stage": 2}, "strategy.zero_stage", "leave the key out, or use preset deepspeed_zero2"),
        ({"preset": "deepspeed_3d", "schedule": "gpipe"}, "strategy.schedule", "use 1f1b, or preset gpipe, or leave the key out"),
        ({"preset": "megatron_lm", "schedule": "dualpipe"}, "strategy.schedule", "leave the key out, or use preset deepseek_v3"),
        ({"preset": "gspmd", "schedule": "zb_v"}, "strategy.schedule", "leave the key out"),
        ({"preset": "torchtitan", "zero_stage": 1}, "strategy.zero_stage", "leave the key out, or use preset deepspeed_zero1"),
        ({"preset": "deepseek_v3", "tp": 2}, "strategy.tp", "use 1, or leave the key out"),
    ],
)
def test_what_a_framework_cannot_do_is_refused(strategy: Data, field: str, hint: str) -> None:
    error = refusal(strategy=strategy)

    assert (error.field, error.hint) == (field, hint)
    assert "contradicts preset" in error.message

"""Presets of frameworks that divide a model: what they set together, and what they cannot do."""

from __future__ import annotations

import pytest

from clustersim.config.presets import apply_preset
from clustersim.documents.spots import Data
from clustersim.documents.text import plain_document
from tests.unit.config.samples import built, refusal


def part(data: Data, path: str) -> Data:
    for key in path.split("."):
        data = data.get(key) if isinstance(data, dict) else None
    return data


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


def test_deepspeed_3d_waits_for_what_it_sends_and_reduces_at_the_end() -> None:
    strategy = built(strategy={"preset": "deepspeed_3d", "tp": 2, "pp": 2}).plan.strategy

    assert (strategy.overlap_p2p, strategy.data_parallel.overlap, strategy.zero_stage, strategy.overlap_tp) == (False, False, 1, "none")


@pytest.mark.parametrize(("precision", "gradient"), [("bf16", "fp32"), ("fp16", "same")])
def test_deepspeed_3d_accumulates_bf16_gradients_in_fp32(precision: str, gradient: str) -> None:
    plan = built(f"training.precision={precision}", strategy={"preset": "deepspeed_3d"}).plan

    assert plan.training.gradient_precision == gradient


def test_deepseek_v3_sends_tokens_in_8_bits_only_where_products_are() -> None:
    document = plain_document({"training": {}, "strategy": {"preset": "deepseek_v3"}}, "scenario")

    wide = apply_preset(document.with_value(("training", "precision"), "bf16")).document.data
    narrow = apply_preset(document).document.data

    assert part(narrow, "strategy.dispatch_precision") == part(narrow, "training.precision") == "fp8"
    assert part(wide, "strategy.dispatch_precision") is None


@pytest.mark.parametrize(
    ("strategy", "field", "hint"),
    [
        ({"preset": "deepspeed_3d", "zero_stage": 2}, "strategy.zero_stage", "leave the key out, or use preset deepspeed_zero2"),
        ({"preset": "deepspeed_3d", "schedule": "gpipe"}, "strategy.schedule", "use 1f1b, or preset gpipe, or leave the key out"),
        ({"preset": "megatron_lm", "schedule": "dualpipe"}, "strategy.schedule", "leave the key out, or use preset deepseek_v3"),
        ({"preset": "gspmd", "schedule": "zb_v"}, "strategy.schedule", "leave the key out"),
        ({"preset": "torchtitan", "zero_stage": 1}, "strategy.zero_stage", "use 3, or preset deepspeed_zero1, or leave the key out"),
        ({"preset": "deepseek_v3", "tp": 2}, "strategy.tp", "use 1, or leave the key out"),
    ],
)
def test_what_a_framework_cannot_do_is_refused(strategy: Data, field: str, hint: str) -> None:
    error = refusal(strategy=strategy)

    assert (error.field, error.hint) == (field, hint)
    assert "contradicts preset" in error.message


def test_torchtitan_keeps_parameters_between_micro_batches_only_in_a_pipeline() -> None:
    flat, staged = (built(strategy={"preset": "torchtitan", "pp": pp}).plan.strategy for pp in (1, 2))

    assert (flat.reshard_after_forward, flat.data_parallel.no_sync) == (True, False)
    assert (staged.reshard_after_forward, staged.data_parallel.no_sync) == (False, True)

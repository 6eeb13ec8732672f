"""Work that MFU and HFU count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.parallel.factories import BERT, GPT, flops_of, make_plan, stage_model_flops

L, H, S, V, B = 16, 512, 256, 8192, 16


def test_a_gpt_s_work_is_the_formula_of_korthikanti_et_al() -> None:
    # 72 B L s h^2 (1 + s / 6h + V / 12 L h) in whole numbers; MLSys 2023, appendix A.
    assert flops_of(make_plan()).model == 72 * B * L * S * H**2 + 12 * B * L * S**2 * H + 6 * B * S * H * V


@pytest.mark.parametrize("attention", ["unfused", "flash"])
def test_how_attention_is_written_does_not_change_the_model_s_work(attention: str) -> None:
    assert flops_of(make_plan(attention=attention)).model == flops_of(make_plan()).model


def test_a_causal_mask_does_not_halve_attention() -> None:
    assert flops_of(make_plan(replace(GPT, causal=False))).model == flops_of(make_plan()).model


def test_padding_of_the_vocabulary_is_no_work_of_the_model() -> None:
    odd = replace(GPT, vocab_size=8191)

    assert flops_of(make_plan(odd, tp=8)).model == flops_of(make_plan(odd)).model


def test_full_recomputation_repeats_every_layer_s_forward_pass() -> None:
    extra = flops_of(make_plan(recompute="full")).hardware - flops_of(make_plan()).model

    assert extra == B * L * (24 * S * H**2 + 4 * S**2 * H)


@pytest.mark.parametrize("attention", ["unfused", "flash"])
def test_selective_recomputation_repeats_scores_and_context(attention: str) -> None:
    extra = flops_of(make_plan(recompute="selective", attention=attention)).hardware - flops_of(make_plan()).model

    assert extra == B * L * 4 * S**2 * H


def test_stages_do_equal_work_but_for_the_logits_of_the_last() -> None:
    plan = make_plan(pp=4)
    first, second, _, last = (stage_model_flops(plan, stage) for stage in range(4))

    assert first == second
    assert last - first == 6 * B * S * H * V


def test_padding_of_the_vocabulary_is_work_of_the_ranks() -> None:
    odd = make_plan(replace(GPT, vocab_size=8191), tp=8)

    assert 8 * stage_model_flops(odd, 0) - flops_of(odd).model == 6 * B * S * H * 1


def test_dense_layers_of_bert_s_head_are_repeated_on_every_rank() -> None:
    whole, divided = make_plan(BERT), make_plan(BERT, tp=4)
    repeated = 6 * B * (1 + S) * H**2

    assert stage_model_flops(whole, 0) == flops_of(whole).model
    assert 4 * stage_model_flops(divided, 0) - flops_of(divided).model == 3 * repeated

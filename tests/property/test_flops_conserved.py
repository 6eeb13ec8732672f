"""However a model is divided, its work is done once."""

from __future__ import annotations

from dataclasses import replace
from math import isclose

import pytest

from clustersim.parallel.training_plan import Plan
from clustersim.workloads.transformer import Transformer
from clustersim.workloads.transformer_shape import Experts, Window
from tests.unit.parallel.factories import GPT, LLAMA, flops_of, make_plan, stage_model_flops

N_RANKS = 64

# 64 layers and heads so that every degree divides them, and a vocabulary of 128 * 64 rows that no degree pads.
BIG_GPT = replace(GPT, n_layers=64, n_heads=64, n_kv_heads=64, head_dim=8)
BIG_LLAMA = replace(LLAMA, n_layers=64, n_heads=64, n_kv_heads=8, head_dim=16)


def laid_out(model: Transformer, dp: int, tp: int, pp: int, v: int, **changes: object) -> Plan:
    schedule = "interleaved_1f1b" if v > 1 else "1f1b"
    return make_plan(model, dp=dp, tp=tp, pp=pp, virtual_stages=v, schedule=schedule, global_batch_size=N_RANKS, **changes)


@pytest.mark.parametrize("model", [BIG_GPT, BIG_LLAMA], ids=["gpt", "llama"])
def test_shared_heads_biases_and_chunks_are_divided_without_loss(model: Transformer) -> None:
    # Corners; ranks beyond the key and value heads repeat their projection, which is another test.
    for dp, tp, pp, v in [(64, 1, 1, 1), (8, 8, 1, 1), (1, 2, 32, 2), (2, 8, 4, 4), (16, 2, 2, 4), (1, 8, 8, 2)]:
        plan = laid_out(model, dp, tp, pp, v)

        all_ranks = sum(stage_model_flops(plan, stage) for stage in range(pp)) * dp * tp

        assert isclose(all_ranks, flops_of(plan).model, rel_tol=1e-12), (dp, tp, pp, v)


@pytest.mark.parametrize("tp", [16, 32, 64])
def test_ranks_beyond_the_key_heads_repeat_no_more_than_their_projection(tp: int) -> None:
    plan = laid_out(BIG_LLAMA, N_RANKS // tp, tp, 1, 1)
    repeated = 2 * (tp - 8) * BIG_LLAMA.head_dim * BIG_LLAMA.hidden_size

    extra = stage_model_flops(plan, 0) * N_RANKS - flops_of(plan).model

    assert isclose(extra, 3 * N_RANKS * 64 * 2 * 256 * repeated, rel_tol=1e-9)


MIXTURE = replace(
    BIG_GPT,
    experts=Experts(n_experts=16, top_k=2, intermediate_size=256, shared_size=256, dense_layers=tuple(range(0, 64, 2))),
    window=Window(tokens=100, global_layers=tuple(range(32, 64))),
)


@pytest.mark.parametrize(("dp", "pp", "v"), [(64, 1, 1), (1, 64, 1), (1, 16, 4), (8, 8, 2)])
def test_layers_of_several_kinds_are_divided_without_loss(dp: int, pp: int, v: int) -> None:
    plan = laid_out(MIXTURE, dp, 1, pp, v)

    all_ranks = sum(stage_model_flops(plan, stage) for stage in range(pp)) * dp

    assert isclose(all_ranks, flops_of(plan).model, rel_tol=1e-12)


def test_a_token_s_work_is_that_of_its_experts() -> None:
    experts = Experts(n_experts=16, top_k=2, intermediate_size=256, shared_size=128)
    mixture, dense = (laid_out(replace(BIG_LLAMA, experts=each), 64, 1, 1, 1) for each in (experts, None))
    tokens, h = 64 * 256, BIG_LLAMA.hidden_size
    mlp, half = 3 * h * BIG_LLAMA.intermediate_size, 3 * h * (2 * 256 + 128) + 16 * h

    # Three passes of two operations for every weight that a token meets, in 64 layers.
    assert isclose(flops_of(mixture).model - flops_of(dense).model, 3 * 2 * tokens * 64 * (half - mlp), rel_tol=1e-9)

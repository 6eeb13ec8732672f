"""Keys of experts, latent attention and windows, as what they make of a model."""

from __future__ import annotations

from typing import Final

import pytest
from pydantic import ValidationError

from clustersim.errors import ScenarioError
from clustersim.workloads.reading.model_sparse import SparseSpec
from clustersim.workloads.transformer_shape import Experts, LatentAttention, Window

FULL: Final = "full_attention"
LOCAL: Final = "sliding_attention"


def test_nothing_given_is_nothing_sparse() -> None:
    spec = SparseSpec()

    assert (spec.experts(4, intermediate_size=8), spec.latent(), spec.window(4)) == (None, None, None)


def test_a_specification_written_out_reads_as_itself() -> None:
    for spec in (SparseSpec(), SparseSpec(num_experts=4, num_experts_per_tok=2, mlp_only_layers=(1,))):
        assert SparseSpec.model_validate(spec.model_dump()) == spec


def test_experts_have_every_trait_that_is_given() -> None:
    spec = SparseSpec(
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        num_shared_experts=2,
        shared_expert_gate=True,
        first_k_dense_replace=1,
        router_bias=True,
        expert_bias=True,
        n_group=4,
        topk_group=2,
        scoring_func="sigmoid",
    )

    assert spec.experts(3, intermediate_size=64) == Experts(
        n_experts=8,
        top_k=2,
        intermediate_size=16,
        shared_size=32,
        shared_gate=True,
        dense_layers=(0,),
        router_bias=True,
        bias=True,
        n_groups=4,
        topk_groups=2,
        scores="sigmoid",
    )


def test_latent_attention_has_its_ranks() -> None:
    spec = SparseSpec(kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10)

    assert spec.latent() == LatentAttention(q_lora_rank=None, kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10)


@pytest.mark.parametrize(
    ("spec", "window"),
    [
        (SparseSpec(sliding_window=8), Window(tokens=8)),
        (SparseSpec(sliding_window=8, sliding_window_pattern=2), Window(tokens=8, global_layers=(1, 3))),
        (SparseSpec(attention_chunk_size=8, sliding_window_pattern=4), Window(tokens=8, chunked=True, global_layers=(3,))),
        (SparseSpec(sliding_window=8, layer_types=(FULL, LOCAL, LOCAL, FULL)), Window(tokens=8, global_layers=(0, 3))),
        (SparseSpec(sliding_window=8, layer_types=(FULL,) * 4), None),
        (SparseSpec(sliding_window=8, sliding_window_pattern=1), None),
        (SparseSpec(layer_types=(LOCAL,) * 4), None),
    ],
)
def test_a_window_spares_the_layers_that_see_everything(spec: SparseSpec, window: Window | None) -> None:
    assert spec.window(4) == window


def test_a_type_of_layer_that_is_no_attention_is_refused() -> None:
    with pytest.raises(ValidationError, match="layer_types"):
        SparseSpec.model_validate({"layer_types": ["pooling"]})


def test_one_expert_is_an_mlp_whatever_else_is_said() -> None:
    assert SparseSpec(num_experts=1, num_experts_per_tok=1, moe_intermediate_size=8).experts(4, intermediate_size=8) is None


def test_what_belongs_to_experts_needs_them() -> None:
    with pytest.raises(ScenarioError, match="there are no experts"):
        SparseSpec(mlp_only_layers=(1,))


STATE = {"linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_num_value_heads": 4, "linear_value_head_dim": 8}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (STATE, "linear_num_key_heads"),
        ({"layer_types": (FULL, "linear_attention")}, "linear_num_key_heads"),
        ({"layer_types": (FULL, "linear_attention"), **STATE, "linear_key_head_dim": None}, "linear_key_head_dim"),
        ({"layer_types": (FULL, "linear_attention"), **STATE, "linear_num_key_heads": 3}, "linear_num_key_heads"),
    ],
)
def test_layers_with_a_state_and_their_sizes_need_each_other(given: dict[str, object], field: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        SparseSpec.model_validate(given).linear(2)

    assert caught.value.field == field

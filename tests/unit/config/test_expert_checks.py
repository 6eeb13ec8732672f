"""What expert parallelism asks of the model and of the other dimensions."""

from __future__ import annotations

import pytest

from clustersim.documents.spots import Data
from tests.unit.config.samples import built, refusal

MIXTURE: dict[str, Data] = {
    "num_hidden_layers": 8,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "vocab_size": 4096,
    "max_position_embeddings": 4096,
    "num_experts": 12,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 256,
}


@pytest.mark.parametrize(
    ("strategy", "field", "words"),
    [
        ({"ep": 8}, "strategy.ep", "8 does not divide 12 experts"),
        ({"ep": 3}, "strategy.ep", "does not divide the dp * cp * tp"),
        ({"ep": 2, "etp": 7}, "strategy.etp", "does not divide the width 256"),
        ({"tp": 2, "sequence_parallel": False}, "strategy.sequence_parallel", "tokens that tensor-parallel ranks have divided"),
        ({"ep": 4, "data_parallel": {"algorithm": "parameter_server"}}, "strategy.ep", "parameter servers keep whole models"),
        ({"ep": 4, "zero_stage": 1, "shard_degree": 2}, "strategy.shard_degree", "do not hold all experts"),
        ({"recompute": "alternate"}, "strategy.recompute", "dense layers only"),
    ],
)
def test_degrees_that_do_not_fit_are_refused_at_their_key(strategy: dict[str, Data], field: str, words: str) -> None:
    error = refusal(model=MIXTURE, strategy=strategy)

    assert error.field == field
    assert words in error.message
    assert error.hint


@pytest.mark.parametrize(("key", "value"), [("ep", 2), ("etp", 1), ("expert_load", "zipf")])
def test_a_model_without_experts_has_no_use_for_their_keys(key: str, value: Data) -> None:
    error = refusal(strategy={key: value})

    assert error.field == f"strategy.{key}"
    assert "has no experts" in error.message


def test_experts_of_several_ranks_fold_into_the_stage() -> None:
    strategy = built(model=MIXTURE, strategy={"tp": 2, "ep": 4, "etp": 1}).plan.strategy

    assert (strategy.ep, strategy.expert_tp, strategy.expert_replicas) == (4, 1, strategy.dp * 2 // 4)

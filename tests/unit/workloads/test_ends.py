"""Embedding and head: tables, logits and loss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.workloads.ends import embedding_operators, head_operators, prediction
from clustersim.workloads.layer import layer_operators
from clustersim.workloads.operators import Gemm, Operator, Stream
from clustersim.workloads.transformer import Transformer
from clustersim.workloads.transformer_shape import Experts
from tests.unit.parallel.factories import BERT, GPT, LLAMA, layer_parameters, make_shape, traffic_bytes
from tests.unit.workloads.kinds.factories import NUMERICS

ROWS, H, V = 96, 512, 8192
ELEMENTS = ROWS * H


def embedding(model: Transformer = GPT, **changes: int) -> tuple[Operator, ...]:
    return embedding_operators(model, make_shape(model, **changes), NUMERICS)


def head(model: Transformer = GPT, **changes: int) -> dict[str, Operator]:
    return {operator.name: operator for operator in head_operators(model, make_shape(model, **changes), NUMERICS)}


@pytest.mark.parametrize("model", [GPT, LLAMA, BERT, replace(GPT, unused_positions=2)], ids=["gpt", "llama", "bert", "opt"])
def test_the_embedding_has_the_parameters_of_its_tables(model: Transformer) -> None:
    tables = {"gpt": V + 256, "llama": V, "bert": V + 256 + 2 + 2}

    assert sum(operator.parameters for operator in embedding(model)) == (tables[model.name] + model.unused_positions) * H


def test_a_rank_of_tensor_parallelism_holds_its_part_of_the_tokens_and_all_positions() -> None:
    (part,) = embedding(vocab_size=V // 4)

    assert part.parameters == (V // 4 + 256) * H


def test_positions_are_a_second_lookup() -> None:
    dry = replace(GPT, dropout=False)
    (learned,), (rotary,) = embedding(dry), embedding(replace(dry, position="rope"))

    assert traffic_bytes(rotary.kernels("forward")) == 2 * 2 * ELEMENTS
    assert traffic_bytes(learned.kernels("forward")) == 2 * traffic_bytes(rotary.kernels("forward"))


def test_the_lookup_does_not_read_the_whole_table() -> None:
    (small,), (large,) = embedding(), embedding(replace(GPT, vocab_size=10 * V))

    assert large.parameters > small.parameters
    assert traffic_bytes(large.kernels("forward")) == traffic_bytes(small.kernels("forward"))


def test_the_embedding_keeps_the_mask_of_its_dropout_where_this_rank_works() -> None:
    assert embedding()[0].saved_bytes == ELEMENTS
    assert embedding(sequence_rows=12)[0].saved_bytes == 12 * H
    assert embedding(LLAMA)[0].saved_bytes == 0


def test_dropout_reads_writes_and_notes_its_mask() -> None:
    (wet,), (dry,) = embedding(), embedding(replace(GPT, dropout=False))

    assert traffic_bytes(wet.kernels("forward")) - traffic_bytes(dry.kernels("forward")) == (2 * 2 + 1) * ELEMENTS
    assert traffic_bytes(wet.kernels("weight_gradient")) - traffic_bytes(dry.kernels("weight_gradient")) == (2 * 2 + 1) * ELEMENTS


def test_the_embedding_passes_no_gradient_on_and_adds_rows_into_its_table() -> None:
    (operator,) = embedding(LLAMA)

    assert operator.kernels("input_gradient") == ()
    assert operator.kernels("weight_gradient") == (Stream(3 * 2 * ELEMENTS, launches=3),)


def test_bert_normalises_after_the_embedding() -> None:
    assert [operator.name for operator in embedding(BERT)] == ["embedding", "embedding_norm"]


@pytest.mark.parametrize("model", [LLAMA, replace(BERT, tied_embeddings=False)], ids=["llama", "bert"])
def test_an_untied_head_has_the_parameters_after_the_last_layer(model: Transformer) -> None:
    of_llama, of_bert = H + V * H, H * H + H + V * H + V + H * H + H + 2 * H

    assert sum(operator.parameters for operator in head(model).values()) == (of_llama if model is LLAMA else of_bert)


def test_a_tied_head_counts_its_copy_of_the_table_and_the_strategy_decides() -> None:
    assert sum(operator.parameters for operator in head().values()) == 2 * H + V * H


def test_a_decoder_ends_with_norm_logits_and_loss() -> None:
    assert list(head()) == ["final_norm", "logits", "loss"]


def test_bert_ends_with_pooler_transform_norm_logits_and_loss() -> None:
    assert list(head(BERT)) == ["pooler", "head_transform", "head_norm", "logits", "loss"]


def test_a_bare_encoder_has_no_logits() -> None:
    assert list(head(replace(BERT, lm_head=False))) == ["pooler"]
    assert head(replace(BERT, lm_head=False, pooler=False)) == {}


def test_logits_are_two_s_h_v_operations_a_sequence() -> None:
    assert head(batch=1, seq_length=32)["logits"].forward_flops == 2 * 32 * H * V


def test_the_pooler_works_on_one_token_of_each_sequence_and_the_transform_on_all() -> None:
    operators = head(BERT)

    assert operators["pooler"].kernels("forward") == (Gemm(3, H, H),)
    assert operators["head_transform"].kernels("forward") == (Gemm(ROWS, H, H),)


def test_dense_layers_of_the_head_are_not_divided() -> None:
    whole, part = head(BERT), head(BERT, vocab_size=V // 4, n_heads=2, n_kv_heads=2, intermediate_size=512)

    assert part["head_transform"] == whole["head_transform"]


def test_logits_and_loss_work_on_the_local_vocabulary() -> None:
    whole, part = head(), head(vocab_size=V // 4)

    assert part["logits"].forward_flops == whole["logits"].forward_flops / 4
    assert traffic_bytes(part["loss"].kernels("forward")) == traffic_bytes(whole["loss"].kernels("forward")) / 4


def test_the_loss_keeps_its_probabilities_in_fp32() -> None:
    # Korthikanti et al., section 4.3: 4 s b V bytes for the cross entropy.
    assert head()["loss"].saved_bytes == 4 * ROWS * V


def test_final_norm_and_logits_keep_their_inputs() -> None:
    # The same section: 2 s b h each for the layer norm and the output layer.
    assert head()["final_norm"].saved_bytes == head()["logits"].saved_bytes == 2 * ELEMENTS
    assert head(sequence_rows=12)["logits"].saved_bytes == 2 * 12 * H


def test_the_loss_multiplies_nothing_and_passes_over_the_logits() -> None:
    loss = head()["loss"]

    assert loss.forward_flops == 0
    assert loss.kernels("forward") == (Stream(38 * ROWS * V, launches=7),)
    assert loss.kernels("input_gradient") == (Stream(22 * ROWS * V, launches=3),)
    assert loss.parameters == 0


def loss(**changes: bool | int) -> Operator:
    numerics = replace(NUMERICS, **changes)
    return {operator.name: operator for operator in head_operators(GPT, make_shape(), numerics)}["loss"]


def test_a_fused_loss_passes_twice_over_the_logits_each_way_and_keeps_them_as_they_are() -> None:
    fused = loss(fused_loss=True)

    assert fused.kernels("forward") == fused.kernels("input_gradient") == (Stream(2 * 2 * ROWS * V),)
    assert fused.saved_bytes == 2 * ROWS * V
    assert traffic_bytes(fused.kernels("forward")) < traffic_bytes(loss().kernels("forward")) / 5


@pytest.mark.parametrize("fused", [False, True])
def test_every_metric_is_another_loss_without_a_way_back(fused: bool) -> None:
    plain, watched = loss(fused_loss=fused), loss(fused_loss=fused, loss_metrics=2)

    # Read in 16 bits, written, read and written in 32.
    assert traffic_bytes(watched.kernels("forward")) - traffic_bytes(plain.kernels("forward")) == 2 * 14 * ROWS * V
    assert (watched.kernels("input_gradient"), watched.saved_bytes) == (plain.kernels("input_gradient"), plain.saved_bytes)


@pytest.mark.parametrize("model", [GPT, BERT], ids=["gpt", "bert"])
def test_a_head_that_scores_some_tokens_works_on_these_alone(model: Transformer) -> None:
    whole, part = head(model), head(model, scored_tokens=8)

    for name in ("logits", "loss"):
        assert part[name].saved_bytes == whole[name].saved_bytes / 4
    assert part["logits"].forward_flops == whole["logits"].forward_flops / 4
    assert {name: operator.parameters for name, operator in part.items()} == {name: each.parameters for name, each in whole.items()}


MIXED = replace(LLAMA, n_layers=3, n_mtp=1, experts=Experts(n_experts=4, top_k=2, intermediate_size=64, dense_layers=(0,)))


def test_a_module_has_a_layer_like_the_last_one() -> None:
    shape = make_shape(MIXED)

    assert prediction(MIXED, shape, NUMERICS).layer == layer_operators(MIXED, shape, NUMERICS, 2)
    assert prediction(MIXED, shape, NUMERICS).layer != layer_operators(MIXED, shape, NUMERICS, 0)


def test_a_module_joins_two_normalised_rows_and_predicts_with_the_head_s_matrix() -> None:
    module = prediction(MIXED, make_shape(MIXED), NUMERICS)

    names = [operator.name for operator in module.joining + module.head]
    assert names == [
        *("mtp_embedding", "mtp_norm_1", "mtp_norm_2", "mtp_join", "mtp_projection"),
        *("mtp_final_norm", "mtp_logits", "mtp_loss"),
    ]
    assert [operator.parameters for operator in module.head] == [H, 0, 0]


def test_its_head_plays_no_role_of_the_model_s_own() -> None:
    module = prediction(MIXED, make_shape(MIXED), NUMERICS)

    assert {operator.role for operator in module.head} == {"other"}
    assert {operator.role for operator in head_operators(MIXED, make_shape(MIXED), NUMERICS)} == {"other", "logits", "loss"}


def test_its_parameters_are_a_layer_a_projection_and_three_norms() -> None:
    module = prediction(MIXED, make_shape(MIXED), NUMERICS)

    assert sum(operator.parameters for operator in module.operators) == layer_parameters(MIXED, 2) + 2 * H * H + 3 * H


def test_a_published_count_may_leave_the_modules_out() -> None:
    main = replace(MIXED, published_scope="main")

    assert main.n_published == replace(MIXED, n_mtp=0).n_parameters
    assert MIXED.n_published == MIXED.n_parameters

"""Parameter counts against checkpoints written out tensor by tensor, and against the closed form of Megatron's paper."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

import pytest

from clustersim.workloads.parameters import (
    attention_parameters,
    backbone_parameters,
    embedding_parameters,
    final_norm_parameters,
    head_parameters,
    layer_parameters,
    norm_parameters,
    parameters_as_published,
    pooler_parameters,
    qk_norm_parameters,
    total_parameters,
)
from tests.unit.workloads.factories import BERT, GPT, LLAMA


def gpt_checkpoint() -> Iterator[tuple[int, ...]]:
    """Yield the shapes of GPT's tensors, as a checkpoint lists them."""
    yield from [(1000, 64), (128, 64)]
    for _ in range(3):
        yield from [(64,), (64,), (64, 192), (192,), (64, 64), (64,)]
        yield from [(64,), (64,), (64, 256), (256,), (256, 64), (64,)]
    yield from [(64,), (64,)]


def llama_checkpoint() -> Iterator[tuple[int, ...]]:
    """Yield the shapes of LLAMA's tensors, as a checkpoint lists them."""
    yield (1000, 64)
    for _ in range(3):
        yield from [(64,), (64, 64), (32, 64), (32, 64), (64, 64)]
        yield from [(64,), (176, 64), (176, 64), (64, 176)]
    yield from [(64,), (1000, 64)]


def bert_checkpoint() -> Iterator[tuple[int, ...]]:
    """Yield the shapes of BERT's tensors without its head, as a checkpoint lists them."""
    yield from [(1000, 64), (128, 64), (2, 64), (64,), (64,)]
    for _ in range(3):
        yield from [(64, 64), (64,), (64, 64), (64,), (64, 64), (64,), (64, 64), (64,), (64,), (64,)]
        yield from [(256, 64), (256,), (64, 256), (64,), (64,), (64,)]
    yield from [(64, 64), (64,)]


def test_gpt_has_the_parameters_of_its_checkpoint() -> None:
    assert total_parameters(GPT) == sum(map(prod, gpt_checkpoint()))


def test_llama_has_the_parameters_of_its_checkpoint() -> None:
    assert total_parameters(LLAMA) == sum(map(prod, llama_checkpoint()))


def test_bert_without_its_head_has_the_parameters_of_its_checkpoint() -> None:
    assert backbone_parameters(BERT) == sum(map(prod, bert_checkpoint()))


def test_bert_s_head_is_a_dense_layer_a_norm_and_a_bias() -> None:
    assert head_parameters(BERT) == (64 * 64 + 64) + 2 * 64 + 1000


@pytest.mark.parametrize(
    ("n_layers", "hidden", "vocabulary", "positions"), [(2, 64, 100, 16), (24, 2304, 51200, 2048), (96, 12288, 51200, 2048)]
)
def test_a_gpt_has_the_parameters_of_megatron_s_formula(n_layers: int, hidden: int, vocabulary: int, positions: int) -> None:
    model = replace(
        GPT,
        n_layers=n_layers,
        hidden_size=hidden,
        head_dim=hidden // 4,
        intermediate_size=4 * hidden,
        vocab_size=vocabulary,
        max_positions=positions,
    )

    # P = 12 l h^2 (1 + 13 / 12 h + (V + s) / 12 l h), Narayanan et al. (2021), equation 2, in whole numbers.
    formula = 12 * n_layers * hidden**2 + 13 * n_layers * hidden + (vocabulary + positions) * hidden

    # The paper leaves out the last normalisation.
    assert total_parameters(model) - final_norm_parameters(model) == formula


def test_heads_may_be_wider_than_the_hidden_size() -> None:
    model = replace(LLAMA, head_dim=32, n_kv_heads=4)

    assert attention_parameters(model) == 4 * 64 * 128


def test_layernorm_has_scale_and_shift_and_rmsnorm_only_scale() -> None:
    assert norm_parameters(GPT) == 2 * 64
    assert norm_parameters(LLAMA) == 64


@pytest.mark.parametrize("vectors", [0, 1, 2])
def test_a_norm_may_have_other_vectors_than_usual(vectors: int) -> None:
    assert norm_parameters(replace(GPT, normalization_vectors=vectors)) == vectors * 64


@pytest.mark.parametrize("norms", [1, 2, 4])
def test_each_norm_of_a_layer_counts(norms: int) -> None:
    assert layer_parameters(replace(LLAMA, norms_per_layer=norms)) - layer_parameters(LLAMA) == (norms - 2) * 64


def test_shared_query_and_key_norms_are_two_vectors_of_a_head() -> None:
    assert qk_norm_parameters(replace(LLAMA, qk_normalization=True)) == 2 * 16


def test_query_and_key_norms_over_the_projection_are_as_wide_as_it() -> None:
    assert qk_norm_parameters(replace(LLAMA, qk_normalization=True, qk_normalization_shared=False)) == 64 + 32


def test_unused_rows_of_the_position_table_count() -> None:
    assert embedding_parameters(replace(GPT, unused_positions=2)) - embedding_parameters(GPT) == 2 * 64


def test_a_bare_encoder_has_no_head_at_all() -> None:
    assert head_parameters(replace(BERT, lm_head=False)) == 0


def test_the_pooler_is_a_dense_layer() -> None:
    assert pooler_parameters(BERT) == 64 * 64 + 64
    assert pooler_parameters(GPT) == 0


def test_a_published_count_of_the_backbone_leaves_the_head_out() -> None:
    assert parameters_as_published(BERT) == backbone_parameters(BERT) != total_parameters(BERT)
    assert parameters_as_published(LLAMA) == total_parameters(LLAMA)

"""Parameter counts against checkpoints written out tensor by tensor, and against the closed form of Megatron's paper."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

import pytest

from clustersim.workloads.transformer import Transformer
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
    assert GPT.n_parameters == sum(map(prod, gpt_checkpoint()))


def test_llama_has_the_parameters_of_its_checkpoint() -> None:
    assert LLAMA.n_parameters == sum(map(prod, llama_checkpoint()))


def test_bert_without_its_head_has_the_parameters_of_its_checkpoint() -> None:
    assert BERT.n_published == sum(map(prod, bert_checkpoint()))


def test_bert_s_head_is_a_dense_layer_a_norm_and_a_bias() -> None:
    assert BERT.n_parameters - BERT.n_published == (64 * 64 + 64) + 2 * 64 + 1000


@pytest.mark.parametrize(
    ("n_layers", "hidden", "vocabulary", "positions"), [(2, 64, 100, 16), (24, 2304, 51200, 2048), (96, 12288, 51200, 2048)]
)
def test_a_gpt_has_the_parameters_of_megatron_s_formula(n_layers: int, hidden: int, vocabulary: int, positions: int) -> None:
    sizes = {"n_layers": n_layers, "hidden_size": hidden, "head_dim": hidden // 4, "intermediate_size": 4 * hidden}
    model = replace(GPT, vocab_size=vocabulary, max_positions=positions, **sizes)

    # P = 12 l h^2 (1 + 13 / 12 h + (V + s) / 12 l h), Narayanan et al. (2021), equation 2, in whole numbers.
    formula = 12 * n_layers * hidden**2 + 13 * n_layers * hidden + (vocabulary + positions) * hidden

    # The paper leaves out the last normalisation.
    assert model.n_parameters - 2 * hidden == formula


@pytest.mark.parametrize(
    ("model", "change", "more"),
    [
        (GPT, {"normalization_vectors": 1}, -7 * 64),
        (LLAMA, {"norms_per_layer": 4}, 3 * 2 * 64),
        (LLAMA, {"qk_normalization": True}, 3 * 2 * 16),
        (LLAMA, {"qk_normalization": True, "qk_normalization_shared": False}, 3 * (64 + 32)),
        (LLAMA, {"head_dim": 32, "n_kv_heads": 4}, 3 * (4 * 64 * 128 - 3 * 64 * 64)),
        (GPT, {"unused_positions": 2}, 2 * 64),
        (GPT, {"pooler": True}, 64 * 64 + 64),
    ],
)
def test_what_a_model_has_besides_is_counted(model: Transformer, change: dict[str, int], more: int) -> None:
    assert replace(model, **change).n_parameters - model.n_parameters == more

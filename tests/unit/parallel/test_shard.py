"""Share of one rank under tensor, sequence and pipeline parallelism, and its bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clustersim.parallel.shard import head_vector_bytes, numerics, padded_vocabulary
from clustersim.parallel.stage import stage_of
from clustersim.parallel.stages import model_chunks
from clustersim.parallel.step_settings import Precision
from tests.unit.parallel.factories import GPT, LLAMA, local_of, make_plan


@pytest.mark.parametrize(
    ("precision", "activation", "operand"), [("fp32", 4, 4), ("tf32", 4, 4), ("fp16", 2, 2), ("bf16", 2, 2), ("fp8", 2, 1)]
)
def test_each_precision_has_its_bytes(precision: Precision, activation: float, operand: float) -> None:
    number = numerics(make_plan(precision=precision).training)

    assert (number.element_bytes, number.gemm_element_bytes) == (activation, operand)


@pytest.mark.parametrize(("precision", "kept", "size"), [("bf16", "fp32", 4), ("bf16", "same", 2), ("fp32", "same", 4), ("fp8", "same", 2)])
def test_gradients_are_kept_in_fp32_or_in_the_training_precision(precision: Precision, kept: str, size: float) -> None:
    assert numerics(make_plan(precision=precision, gradient_precision=kept).training).gradient_bytes == size


@pytest.mark.parametrize(
    ("precision", "elementwise", "size"), [("fp16", "same", 2), ("fp16", "fp32", 4), ("fp8", "fp32", 4), ("tf32", "same", 4)]
)
def test_mixed_precision_may_leave_what_is_no_product_in_fp32(precision: Precision, elementwise: str, size: float) -> None:
    number = numerics(make_plan(precision=precision, elementwise_precision=elementwise).training)

    assert number.elementwise_bytes == size
    assert number.element_bytes == numerics(make_plan(precision=precision).training).element_bytes


@pytest.mark.parametrize(("precision", "passes"), [("fp32", 3), ("bf16", 3), ("fp16", 6)])
def test_clipping_every_micro_batch_passes_over_gradients_and_in_fp16_undoes_the_scale_of_the_loss(
    precision: Precision, passes: int
) -> None:
    assert numerics(make_plan(precision=precision).training).gradient_passes == 0
    clipped = make_plan(precision=precision, clip_micro_batches=True, fused_gradient_accumulation=False)
    assert numerics(clipped.training).gradient_passes == passes


def test_how_kernels_are_written_is_passed_on() -> None:
    number = numerics(make_plan(kernels="eager", attention="flash", fused_gradient_accumulation=False).training)

    assert (number.kernels, number.attention, number.fused_gradient_accumulation) == ("eager", "flash", False)


def test_one_rank_alone_has_the_whole_layer() -> None:
    shape = local_of(make_plan(LLAMA, micro_batch_size=3)).shape()

    assert (shape.batch, shape.rows, shape.sequence_rows) == (3, 768, 768)
    assert (shape.n_heads, shape.n_kv_heads, shape.intermediate_size, shape.vocab_size) == (8, 4, 1536, 8192)


def test_tensor_parallelism_divides_heads_width_and_vocabulary_but_no_rows() -> None:
    shape = local_of(make_plan(LLAMA, tp=4)).shape()

    assert (shape.n_heads, shape.n_kv_heads, shape.intermediate_size, shape.vocab_size) == (2, 1, 384, 2048)
    assert shape.rows == shape.sequence_rows == 256


def test_sequence_parallelism_divides_the_rows_of_norms_and_residuals_alone() -> None:
    shape = local_of(make_plan(LLAMA, tp=4, sequence_parallel=True)).shape()

    assert (shape.rows, shape.sequence_rows) == (256, 64)


def test_ranks_beyond_the_key_heads_keep_copies_of_them() -> None:
    shape = local_of(make_plan(LLAMA, tp=8)).shape()

    assert (shape.n_heads, shape.n_kv_heads) == (1, 1)


@pytest.mark.parametrize(
    ("vocab_size", "tp", "padded"), [(50257, 1, 50257), (50257, 2, 50432), (50257, 8, 51200), (51200, 8, 51200), (128256, 8, 129024)]
)
def test_the_vocabulary_is_padded_to_128_rows_a_rank_as_megatron_does(vocab_size: int, tp: int, padded: int) -> None:
    # 50257 on 8 ranks is the 51200 of the tables in Megatron's papers.
    assert padded_vocabulary(vocab_size, tp) == padded


@pytest.mark.parametrize(
    ("tp", "multiple", "padded"), [(1, 64, 50304), (1, 128, 50304), (1, 1, 50257), (2, 1, 50258), (2, 8, 50272), (8, 128, 51200)]
)
def test_a_rank_has_a_multiple_of_as_many_words_as_the_plan_says(tp: int, multiple: int, padded: int) -> None:
    assert padded_vocabulary(50257, tp, multiple) == padded


@pytest.mark.parametrize(
    ("changes", "at_once"),
    [({}, 2), ({"tp": 2}, 16), ({"vocabulary_multiple": 8}, 16), ({"vocabulary_multiple": 4}, 8), ({"precision": "fp32"}, 16)],
)
def test_the_head_reads_at_once_what_a_rank_s_part_of_the_vocabulary_allows(changes: dict[str, Any], at_once: int) -> None:
    plan = make_plan(replace(GPT, vocab_size=50257), **changes)

    assert head_vector_bytes(local_of(plan), plan.training.precision) == at_once


def test_without_a_head_nothing_is_read_by_halves() -> None:
    plan = make_plan(replace(GPT, vocab_size=50257, lm_head=False))

    assert head_vector_bytes(local_of(plan), plan.training.precision) == 16


def test_the_padded_vocabulary_is_what_a_rank_shares_in() -> None:
    assert local_of(make_plan(GPT, tp=2)).shape().vocab_size == 4096
    assert padded_vocabulary(8193, 2) == 8448


def test_without_stages_one_chunk_holds_both_ends() -> None:
    (chunk,) = stage_of(make_plan(), 0).chunks

    assert (chunk.n_layers, chunk.first, chunk.last) == (16, True, True)


def test_stages_share_the_layers_and_the_ends_hold_embedding_and_head() -> None:
    chunks = model_chunks(make_plan(pp=4).strategy, GPT.n_layers)

    assert [(chunk.stage, chunk.n_layers, chunk.first, chunk.last) for (chunk,) in chunks] == [
        (0, 4, True, False),
        (1, 4, False, False),
        (2, 4, False, False),
        (3, 4, False, True),
    ]


def test_interleaving_deals_chunks_around_the_stages() -> None:
    chunks = model_chunks(make_plan(pp=4, virtual_stages=2, schedule="interleaved_1f1b").strategy, GPT.n_layers)

    assert [[chunk.n_layers for chunk in stage] for stage in chunks] == [[2, 2]] * 4
    assert [[chunk.chunk for chunk in stage] for stage in chunks] == [[0, 1]] * 4
    assert [(chunk.stage, chunk.chunk) for stage in chunks for chunk in stage if chunk.first] == [(0, 0)]
    assert [(chunk.stage, chunk.chunk) for stage in chunks for chunk in stage if chunk.last] == [(3, 1)]

"""Collectives of tensor parallelism in the passes of a layer and of the two ends."""

from __future__ import annotations

from dataclasses import replace
from math import isclose

import pytest

from clustersim.parallel.stage_passes import ChunkPasses
from clustersim.parallel.stages import ModelChunk
from clustersim.parallel.training_plan import Plan
from clustersim.program.tasks import Block, Collective, Item, Overlapped, Work
from clustersim.workloads.ends import embedding_operators, head_operators
from clustersim.workloads.layer import layer_operators
from clustersim.workloads.operators import Kernel
from clustersim.workloads.transformer import Transformer
from clustersim.workloads.transformer_shape import Experts, LatentAttention, Window
from tests.unit.parallel.factories import BERT, GPT, LLAMA, chunk_passes, collectives_of, kernels_of, make_plan, works_of

ACTIVATION_BYTES = 2.0 * 256 * 512
WHOLE = ModelChunk(stage=0, chunk=0, start=0, n_layers=16, first=True, last=True, beside_first=True)
MIDDLE = replace(WHOLE, first=False, last=False)


def passes(model: Transformer = GPT, **changes: object) -> ChunkPasses:
    return chunk_passes(make_plan(model, **changes))


def operations(items: tuple[Item, ...]) -> list[str]:
    return [collective.op for collective in collectives_of(items)]


def multiset(kernels: list[Kernel] | tuple[Kernel, ...]) -> list[str]:
    return sorted(map(repr, kernels))


def names(items: tuple[Item, ...]) -> list[str]:
    """Return work by its name, a collective by its operation, and what runs side by side joined by +."""
    out: list[str] = []
    for item in items:
        match item:
            case Work():
                out.append(item.name)
            case Collective():
                out.append(item.op)
            case Overlapped():
                out.append(f"{item.collectives[0].op} + {item.works[0].name}")
    return out


def test_without_tensor_parallelism_a_layer_is_two_stretches_of_work() -> None:
    assert names(passes().layer_forward()) == ["attention", "mlp"]
    assert names(passes().layer_backward()) == ["mlp", "attention"]


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_every_collective_of_a_layer_is_one_activation(sequence_parallel: bool) -> None:
    divided = passes(tp=4, sequence_parallel=sequence_parallel, micro_batch_size=3)

    for collective in collectives_of(divided.layer_forward() + divided.layer_backward()):
        assert collective.bytes == 3 * ACTIVATION_BYTES
        assert collective.group.name == "tp of stage 0"


def test_the_collectives_of_the_forward_pass_stand_around_the_split_pair() -> None:
    assert names(passes(tp=4, sequence_parallel=True).layer_forward())[:5] == [
        *("norm_1", "all_gather", "qkv to projection", "reduce_scatter", "residual_1")
    ]


def test_the_input_gradient_is_reduced_beside_the_weight_gradient() -> None:
    assert names(passes(tp=4).layer_backward())[:5] == [
        *("residual_2 to activation", "mlp_up input gradient", "all_reduce + mlp_up weight gradient"),
        *("norm_2", "residual_1 to attention"),
    ]


def test_under_sequence_parallelism_the_input_is_gathered_beside_its_gradient() -> None:
    assert names(passes(tp=4, sequence_parallel=True).layer_backward())[:6] == [
        *("residual_2", "all_gather", "mlp_down to activation", "all_gather + mlp_up input gradient"),
        *("reduce_scatter + mlp_up weight gradient", "norm_2"),
    ]


def test_without_overlap_nothing_runs_side_by_side() -> None:
    items = passes(tp=4, sequence_parallel=True, overlap_tp="none").layer_backward()

    assert not [item for item in items if isinstance(item, Overlapped)]
    assert operations(items) == operations(passes(tp=4, sequence_parallel=True).layer_backward())


CHUNKED = {"tp": 4, "sequence_parallel": True, "overlap_tp": "gemm_chunks"}


def test_products_in_chunks_hide_what_comes_before_and_after_a_pair() -> None:
    chunked = passes(**CHUNKED)

    assert names(chunked.layer_forward())[:7] == [
        *("norm_1", "qkv", "all_gather + qkv chunks", "attention"),
        *("projection", "reduce_scatter + projection chunks", "residual_1"),
    ]
    assert names(chunked.layer_backward())[:7] == [
        *("residual_2", "mlp_down input gradient", "all_gather + mlp_down input gradient chunks", "mlp_down to activation"),
        *("all_gather + mlp_up input gradient", "reduce_scatter + mlp_up weight gradient", "norm_2"),
    ]


def test_asynchronous_tp_scatters_a_sum_of_gradients_with_nothing_beside_it() -> None:
    items = passes(**{**CHUNKED, "overlap_tp": "async_tp"})

    assert names(items.layer_forward()) == names(passes(**CHUNKED).layer_forward())
    assert names(items.layer_backward())[:8] == [
        *("residual_2", "mlp_down input gradient", "all_gather + mlp_down input gradient chunks", "mlp_down to activation"),
        *("all_gather", "mlp_up input gradient", "reduce_scatter", "mlp_up weight gradient"),
    ]


@pytest.mark.parametrize("overlap", ["gemm_chunks", "async_tp"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_chunks_change_neither_the_work_nor_what_is_sent(recompute: str, overlap: str) -> None:
    whole, chunked = (passes(**{**CHUNKED, "overlap_tp": each, "recompute": recompute}) for each in ("none", overlap))

    for direction in (ChunkPasses.layer_forward, ChunkPasses.layer_backward):
        before, after = direction(whole), direction(chunked)
        assert operations(before) == operations(after)
        flops, chunked_flops = (sum(each.flops for work in works_of(items) for each in work.kernels) for items in (before, after))
        assert isclose(flops, chunked_flops, rel_tol=1e-12)


def test_recomputation_that_stops_early_gathers_beside_chunks_too() -> None:
    items = passes(LLAMA, **CHUNKED, recompute="full", recompute_stops_early=True).layer_backward()

    again = [item for item in items if isinstance(item, Overlapped) and item.works[0].phase == "recompute"]
    assert [item.works[0].name for item in again] == ["qkv chunks", "projection chunks", "mlp_up chunks"]


@pytest.mark.parametrize("changes", [{}, {"tp": 4}, {"tp": 4, "sequence_parallel": True}, {"tp": 4, "overlap_tp": "none"}])
@pytest.mark.parametrize("model", [GPT, LLAMA, BERT], ids=lambda model: model.name)
def test_a_layer_runs_every_kernel_of_its_operators_once(model: Transformer, changes: dict[str, object]) -> None:
    layer = passes(model, **changes)
    operators = layer_operators(model, layer.local.shape(), layer.local.numerics)

    forward = [kernel for work in works_of(layer.layer_forward()) for kernel in work.kernels]
    backward = [kernel for work in works_of(layer.layer_backward()) for kernel in work.kernels]

    assert forward == [kernel for operator in operators for kernel in operator.kernels("forward")]
    assert multiset(backward) == multiset(
        [each for operator in operators for each in (*operator.kernels("input_gradient"), *operator.kernels("weight_gradient"))]
    )


@pytest.mark.parametrize("changes", [{}, {"tp": 4}, {"tp": 4, "sequence_parallel": True}])
@pytest.mark.parametrize("model", [GPT, LLAMA, BERT, replace(BERT, lm_head=False)], ids=["gpt", "llama", "bert", "bare"])
def test_the_ends_run_every_kernel_of_their_operators_once(model: Transformer, changes: dict[str, object]) -> None:
    ends = passes(model, **changes)
    shapes = model, ends.local.shape(), ends.local.numerics

    for operators, forward, backward in (
        (embedding_operators(*shapes), ends.embedding_forward(), ends.embedding_backward()),
        (head_operators(*shapes), ends.head_forward(), ends.head_backward()),
    ):
        gradients = [each for operator in operators for each in (*operator.kernels("input_gradient"), *operator.kernels("weight_gradient"))]
        assert [kernel for work in works_of(forward) for kernel in work.kernels] == [
            each for one in operators for each in one.kernels("forward")
        ]
        assert multiset([kernel for work in works_of(backward) for kernel in work.kernels]) == multiset(gradients)


def test_a_chunk_repeats_its_layers_between_the_ends_it_holds() -> None:
    def shown(blocks: tuple[Block, ...]) -> list[tuple[str, int]]:
        return [(block.name, block.repeat) for block in blocks]

    assert shown(passes().forward(WHOLE)) == [("embedding", 1), ("layer", 16), ("head", 1)]
    assert shown(passes().backward(WHOLE)) == [("head", 1), ("layer", 16), ("embedding", 1)]
    assert shown(passes().forward(MIDDLE)) == shown(passes().backward(MIDDLE)) == [("layer", 16)]


def test_slices_of_the_backward_pass_make_the_whole_last_layers_first() -> None:
    late, early = passes().backward_slice(WHOLE, 10, 16), passes().backward_slice(WHOLE, 0, 10)

    assert [block.name for block in late] == ["head", "layer"]
    assert [block.name for block in early] == ["layer", "embedding"]
    assert kernels_of(late + early) == kernels_of(passes().backward(WHOLE))


def test_slices_of_the_forward_pass_make_the_whole() -> None:
    early, late = passes().forward_slice(WHOLE, 0, 10), passes().forward_slice(WHOLE, 10, 16)

    assert [block.name for block in early] == ["embedding", "layer"]
    assert [block.name for block in late] == ["layer", "head"]
    assert kernels_of(early + late) == kernels_of(passes().forward(WHOLE))


def test_full_recomputation_runs_the_layer_forward_again_collectives_included() -> None:
    again = passes(tp=4, recompute="full")
    items = again.layer_backward()

    n_again = len(works_of(again.layer_forward()))

    assert operations(items) == ["all_reduce"] * 4
    assert {work.phase for work in works_of(items)[:n_again]} == {"recompute"}
    assert {work.phase for work in works_of(items)[n_again:]} == {"backward"}


def test_selective_recomputation_runs_attention_again_right_before_its_gradient() -> None:
    items = passes(recompute="selective").layer_backward()

    assert [(work.name, work.phase) for work in works_of(items)] == [
        ("mlp", "backward"),
        ("attention", "recompute"),
        ("attention", "backward"),
    ]


def test_parts_of_the_embedding_are_summed_or_scattered() -> None:
    assert names(passes(tp=4).embedding_forward()) == ["embedding", "all_reduce"]
    assert names(passes(tp=4, sequence_parallel=True).embedding_forward()) == ["embedding", "reduce_scatter"]
    assert names(passes(tp=4, sequence_parallel=True).embedding_backward()) == ["all_gather", "embedding"]
    assert names(passes(tp=4).embedding_backward()) == ["embedding"]


def test_the_loss_over_a_divided_vocabulary_reduces_three_numbers_a_token() -> None:
    (reduction,) = collectives_of(passes(tp=4).head_forward())

    assert (reduction.op, reduction.bytes, reduction.pieces) == ("all_reduce", 3 * 256 * 4.0, 3)


def test_the_head_gathers_its_input_and_returns_its_gradient_like_a_column_split_layer() -> None:
    head = passes(tp=4, sequence_parallel=True)

    assert names(head.head_forward()) == ["final_norm", "all_gather", "logits to loss", "all_reduce"]
    assert names(head.head_backward()) == [
        *("loss", "all_gather + logits input gradient", "reduce_scatter + logits weight gradient", "final_norm")
    ]


@pytest.mark.parametrize("model", [GPT, LLAMA, BERT], ids=lambda model: model.name)
def test_one_rank_alone_communicates_with_nobody(model: Transformer) -> None:
    alone: Plan = make_plan(model, recompute="full")
    whole = chunk_passes(alone)

    assert [each for block in (*whole.forward(WHOLE), *whole.backward(WHOLE)) for each in collectives_of(block.body)] == []


MIXED = replace(
    LLAMA,
    experts=Experts(n_experts=8, top_k=2, intermediate_size=128, dense_layers=(0, 1)),
    window=Window(tokens=64, global_layers=tuple(range(8, 16))),
)
LATENT = LatentAttention(q_lora_rank=128, kv_lora_rank=64, qk_nope_head_dim=48, qk_rope_head_dim=16, v_head_dim=64)


def test_passes_go_through_runs_of_equal_layers() -> None:
    mixed = passes(MIXED)

    assert [block.repeat for block in mixed.forward(MIDDLE)] == [2, 6, 8]
    assert [block.repeat for block in mixed.backward(MIDDLE)] == [8, 6, 2]


def test_a_window_that_no_sequence_exceeds_makes_no_kinds_of_layers() -> None:
    wide = replace(MIXED, experts=None, window=Window(tokens=256, global_layers=(3,)))

    assert [block.repeat for block in passes(wide).forward(MIDDLE)] == [16]


def test_runs_are_cut_where_recomputation_ends() -> None:
    partly = passes(MIXED, recompute="full", recompute_layers=4)

    assert [block.repeat for block in partly.backward(MIDDLE)] == [8, 4, 2, 2]


def test_sequence_parallelism_gathers_latent_rows_before_the_heads() -> None:
    model = replace(LLAMA, latent=LATENT, n_kv_heads=8, head_dim=64)
    layer = passes(model, tp=4, sequence_parallel=True).layer_forward()

    attention, mlp = collectives_of(layer)[0], collectives_of(layer)[2]
    assert attention.bytes == ACTIVATION_BYTES * (128 + 64 + 16) / 512
    assert mlp.bytes == ACTIVATION_BYTES


def test_latent_attention_sums_one_gradient_for_both_ways_up() -> None:
    model = replace(LLAMA, latent=LATENT, n_kv_heads=8, head_dim=64)
    backward = passes(model, tp=4, overlap_tp=False).layer_backward()

    assert "q_up and kv_up input gradient" in names(backward)
    assert [collective.bytes for collective in collectives_of(backward)] == [ACTIVATION_BYTES, ACTIVATION_BYTES * 208 / 512]


def test_further_predictions_run_a_layer_and_the_head_once_more() -> None:
    more = passes(replace(LLAMA, n_mtp=1), tp=4)
    once = passes(LLAMA, tp=4)

    assert operations(more.head_forward()) == operations(once.head_forward() + once.layer_forward() + once.head_forward())
    assert operations(more.head_backward()) == [
        *operations(once.head_backward() + once.layer_backward()),
        *operations(once.head_backward()),
    ]

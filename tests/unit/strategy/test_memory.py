"""Peak memory of a rank, by what it holds. The published closed forms are in ``tests/analytical``."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from clustersim.strategy.activation_memory import chunk_activation_bytes, layer_activation_bytes
from clustersim.strategy.gradients import gradient_buckets
from clustersim.strategy.memory import (
    FRAMEWORK_BYTES,
    StageHolds,
    chunk_weights,
    holdings,
    optimizer_bytes_per_parameter,
    stage_memory,
    stage_parameters,
)
from clustersim.strategy.plan import Offload, Plan
from clustersim.strategy.shard import model_chunks
from clustersim.workload.experts import Experts
from clustersim.workload.kinds.call import Layer
from clustersim.workload.kinds.dense import LinearLayer
from clustersim.workload.layered import Layered
from clustersim.workload.parameters import embedding_parameters, final_norm_parameters, layer_parameters, total_parameters
from clustersim.workload.transformer import Transformer
from tests.unit.strategy.factories import GPT, LLAMA, make_plan, servers

H, V = 512, 8192


def holds(plan: Plan, stage: int = 0) -> StageHolds:
    return stage_memory(plan, stage)


@pytest.mark.parametrize("model", [GPT, LLAMA], ids=lambda model: model.name)
def test_one_rank_alone_holds_the_model_once(model: Transformer) -> None:
    assert stage_parameters(make_plan(model), 0) == total_parameters(model)


def test_a_tied_head_on_another_stage_is_a_copy() -> None:
    plan = make_plan(pp=4)

    assert sum(stage_parameters(plan, stage) for stage in range(4)) == total_parameters(GPT) + V * H


def test_an_untied_head_is_held_once_wherever_it_is() -> None:
    plan = make_plan(LLAMA, pp=4)

    assert sum(stage_parameters(plan, stage) for stage in range(4)) == total_parameters(LLAMA)


def test_stages_hold_their_layers_and_their_end() -> None:
    plan = make_plan(pp=4)
    layers = 4 * layer_parameters(GPT)

    assert [stage_parameters(plan, stage) for stage in range(4)] == [
        layers + embedding_parameters(GPT),
        layers,
        layers,
        layers + V * H + final_norm_parameters(GPT),
    ]


def test_chunks_of_a_stage_hold_what_the_stage_holds() -> None:
    plan = make_plan(pp=4, virtual_stages=2, schedule="interleaved_1f1b")

    for stage, chunks in enumerate(model_chunks(plan)):
        assert sum(chunk_weights(plan, chunk).total for chunk in chunks) == stage_parameters(plan, stage)
    assert stage_parameters(plan, 1) == stage_parameters(make_plan(pp=4), 1)


@pytest.mark.parametrize(
    ("precision", "optimizer", "size"),
    [
        ("bf16", "adam", 12),
        ("fp16", "adam", 12),
        ("fp8", "adam", 12),
        ("bf16", "momentum", 8),
        ("bf16", "sgd", 4),
        ("fp32", "adam", 8),
        ("tf32", "momentum", 4),
        ("fp32", "sgd", 0),
    ],
)
def test_optimizer_state_is_the_moments_and_a_master_copy_of_narrow_weights(precision: str, optimizer: str, size: float) -> None:
    assert optimizer_bytes_per_parameter(make_plan(precision=precision, optimizer=optimizer)) == size


def test_weights_and_gradients_have_their_own_bytes() -> None:
    held, same = holds(make_plan()), holds(make_plan(gradient_precision="same"))
    parameters = total_parameters(GPT)

    assert held.parameters_bytes == same.parameters_bytes == 2 * parameters
    assert (held.gradients_bytes, same.gradients_bytes) == (4 * parameters, 2 * parameters)
    assert held.optimizer_bytes == 12 * parameters


@pytest.mark.parametrize(("zero_stage", "parameters", "gradients", "optimizer"), [(0, 1, 1, 1), (1, 1, 1, 4), (2, 1, 4, 4), (3, 4, 4, 4)])
def test_each_zero_stage_divides_what_it_promises(zero_stage: int, parameters: int, gradients: int, optimizer: int) -> None:
    whole, part = holdings(make_plan(dp=4), 0), holdings(make_plan(dp=4, zero_stage=zero_stage), 0)

    assert whole.parameters_bytes / part.parameters_bytes == parameters
    assert whole.gradients_bytes / part.gradients_bytes == gradients
    assert whole.optimizer_bytes / part.optimizer_bytes == optimizer
    assert whole.kept_bytes == part.kept_bytes


@pytest.mark.parametrize("degree", [1, 2, 4])
def test_hybrid_sharding_divides_by_its_degree(degree: int) -> None:
    whole, part = holdings(make_plan(dp=4), 0), holdings(make_plan(dp=4, zero_stage=3, shard_degree=degree), 0)

    for name in ("parameters_bytes", "gradients_bytes", "optimizer_bytes"):
        assert getattr(whole, name) / getattr(part, name) == degree


def test_context_parallel_ranks_share_the_optimizer_state_too() -> None:
    assert holds(make_plan(dp=2, cp=2, zero_stage=1)).optimizer_bytes == holds(make_plan()).optimizer_bytes / 4


@pytest.mark.parametrize("zero_stage", [2, 3])
def test_zero_divides_nothing_among_one_replica(zero_stage: int) -> None:
    assert holds(make_plan(zero_stage=zero_stage)) == holds(make_plan())


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        ({}, 2),
        ({"prefetch": 0}, 1),
        ({"prefetch": 3}, 4),
        ({"prefetch": 100}, 16),
        ({"overlap": False}, 1),
        ({"reshard_after_forward": False}, 16),
    ],
)
def test_gathered_layers_and_both_ends_are_whole_under_zero_3(changes: dict[str, object], layers: int) -> None:
    ends = total_parameters(GPT) - 16 * layer_parameters(GPT)

    assert holdings(make_plan(dp=4, zero_stage=3, **changes), 0).gathered_bytes == 2 * (layers * layer_parameters(GPT) + ends)
    assert holdings(make_plan(dp=4, zero_stage=2, **changes), 0).gathered_bytes == 0.0


@pytest.mark.parametrize(
    ("changes", "number_bytes", "layers", "casts_bytes"),
    [
        # Gradients are made in 16 bits, and cast to 32 before they travel unless the plan says otherwise.
        ({}, 2, 2, 4),
        ({"overlap": False}, 2, 1, 4),
        ({"gradient_precision": "same"}, 2, 2, 0),
        ({"reduce_precision": "bf16"}, 2, 2, 0),
    ],
)
def test_whole_gradients_wait_for_their_reduction(changes: dict[str, object], number_bytes: int, layers: int, casts_bytes: int) -> None:
    layer, ends = layer_parameters(GPT), total_parameters(GPT) - 16 * layer_parameters(GPT)
    held = holdings(make_plan(**{"dp": 4, "zero_stage": 3, "no_sync": False, **changes}), 0)

    assert held.full_gradients_bytes == number_bytes * (layers * layer + ends) + casts_bytes * layer


@pytest.mark.parametrize("zero_stage", [2, 3])
def test_gradients_that_add_up_are_whole_and_no_shard_is_beside_them(zero_stage: int) -> None:
    whole, sharded = (holdings(make_plan(dp=4, zero_stage=stage, no_sync=True), 0) for stage in (1, zero_stage))

    assert whole.full_gradients_bytes == 0.0
    assert sharded.gradients_bytes == whole.gradients_bytes / 4
    assert sharded.gradients_bytes + sharded.full_gradients_bytes == whole.gradients_bytes == 4 * total_parameters(GPT)


def test_sharded_gradients_of_experts_never_take_more_than_whole_ones() -> None:
    # Few ranks share an expert, so that their shard is a large part of the whole; here two of eight replicas.
    model = replace(LLAMA, experts=Experts(n_experts=8, top_k=2, intermediate_size=256))
    layout = {"dp": 8, "pp": 2, "ep": 4, "global_batch_size": 32, "no_sync": True, "schedule": "interleaved_1f1b", "virtual_stages": 2}
    one, two = (stage_memory(make_plan(model, zero_stage=stage, **layout), 0) for stage in (1, 2))

    assert two.gradients_bytes == pytest.approx(one.gradients_bytes, rel=1e-12)
    assert two.peak_bytes == pytest.approx(one.peak_bytes, rel=1e-12)


def test_one_micro_batch_adds_nothing_up() -> None:
    held = holdings(make_plan(dp=4, zero_stage=3, no_sync=True, global_batch_size=4), 0)

    assert held.full_gradients_bytes == holdings(make_plan(dp=4, zero_stage=3, no_sync=False), 0).full_gradients_bytes


def test_ddp_copies_gradients_into_buckets_unless_products_add_into_them() -> None:
    gradients_bytes = 4 * total_parameters(GPT)

    assert holds(make_plan(dp=4, fused_gradient_accumulation=False)).buffers_bytes == FRAMEWORK_BYTES + gradients_bytes
    assert holds(make_plan(dp=4)).buffers_bytes == holds(make_plan(fused_gradient_accumulation=False)).buffers_bytes == FRAMEWORK_BYTES


def test_sharded_optimizer_states_need_two_buckets() -> None:
    plan = make_plan(dp=4, zero_stage=1, fused_gradient_accumulation=False, bucket_bytes=4e6)
    largest = max(bucket.parameters / bucket.n_calls for bucket in gradient_buckets(plan, model_chunks(plan)[0][0]))

    assert holds(plan).buffers_bytes == FRAMEWORK_BYTES + 2 * 4 * largest


def test_a_precision_of_its_own_on_the_wire_needs_a_bucket_of_it() -> None:
    plan = make_plan(dp=4, reduce_precision="bf16")
    largest = max(bucket.parameters / bucket.n_calls for bucket in gradient_buckets(plan, model_chunks(plan)[0][0]))

    assert holds(plan).buffers_bytes == FRAMEWORK_BYTES + 2 * largest


def test_fp8_keeps_a_cast_and_a_transpose_of_every_weight_of_a_layer_and_their_scales() -> None:
    narrow, wide = holdings(make_plan(precision="fp8"), 0), holdings(make_plan(), 0)
    products = 4 * 512 * 512 + 8 * 512 * 512 + 3 * 512 + 512 + 2048 + 512
    scales = 5 * 1026 * 4

    assert narrow.parameters_bytes - wide.parameters_bytes == 16 * (2 * products + 4 * scales)
    assert narrow.optimizer_bytes == wide.optimizer_bytes


def test_weights_in_fp8_alone_take_with_their_transposes_what_they_take_in_sixteen_bits() -> None:
    narrow, wide = holdings(make_plan(precision="fp8", fp8_parameters=True), 0), holdings(make_plan(), 0)

    assert narrow.parameters_bytes - wide.parameters_bytes == 16 * 4 * 5 * 1026 * 4


def test_sharded_weights_are_cast_as_they_are_gathered() -> None:
    narrow, wide = (holdings(make_plan(dp=4, zero_stage=3, precision=precision), 0) for precision in ("fp8", "bf16"))

    assert narrow.parameters_bytes - wide.parameters_bytes == 16 * 4 * 5 * 1026 * 4
    assert narrow.gathered_bytes - wide.gathered_bytes == 2 * 2 * layer_parameters(GPT)


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_32_bit_weights_are_kept_once(precision: str) -> None:
    held = holdings(make_plan(precision=precision), 0)

    assert (held.parameters_bytes, held.optimizer_bytes) == (4 * total_parameters(GPT), 8 * total_parameters(GPT))


def test_an_update_with_copies_may_be_the_peak() -> None:
    plan = make_plan(kernels="eager", seq_length=16, global_batch_size=1)
    held, peak = holdings(plan, 0), stage_memory(plan, 0)

    assert held.update_bytes == 8 * total_parameters(GPT)
    assert peak == held.during_update()
    assert (peak.activations_bytes, peak.optimizer_bytes) == (0.0, (12 + 8) * total_parameters(GPT))


def test_long_sequences_have_their_peak_in_a_backward_pass() -> None:
    plan = make_plan(kernels="eager", micro_batch_size=16)
    held = holdings(plan, 0)

    assert stage_memory(plan, 0) == held.during_passes(held.kept_bytes[0] + held.backward_bytes)


def test_what_is_offloaded_is_not_on_the_accelerator() -> None:
    offload = Offload(optimizer="host", gradients="host", parameters="host")
    held = holdings(make_plan(dp=4, zero_stage=3, kernels="eager", offload=offload), 0)

    assert (held.parameters_bytes, held.gradients_bytes, held.optimizer_bytes, held.update_bytes) == (0.0, 0.0, 0.0, 0.0)
    assert held.buffers_bytes > FRAMEWORK_BYTES


def test_layers_of_a_list_are_counted_one_by_one() -> None:
    sizes = (64, 32, 2048, 16)
    layers: tuple[Layer, ...] = tuple(LinearLayer(input=(a,), features=b, bias=False) for a, b in pairwise(sizes))
    model = Layered(name="wide", input=(64,), tokens_per_sample=1, layers=layers)
    plan = replace(make_plan(dp=2, zero_stage=3, micro_batch_size=4, global_batch_size=8, no_sync=False), model=model)
    held, weights = holdings(plan, 0), [64 * 32, 32 * 2048, 2048 * 16]

    assert stage_parameters(plan, 0) == sum(weights)
    assert held.gathered_bytes == 2 * max(weights[0] + weights[1], weights[1] + weights[2])
    assert held.kept_bytes == (2 * 4 * (64 + 32 + 2048),)
    assert layer_activation_bytes(replace(plan, strategy=plan.strategy.changed(recompute="full")), 2)[0] == 2 * 4 * 2048


def test_the_framework_takes_its_share_of_every_rank() -> None:
    assert holds(make_plan()).buffers_bytes == holds(make_plan(pp=4), 3).buffers_bytes == FRAMEWORK_BYTES


def test_the_peak_is_everything_together() -> None:
    assert StageHolds(parameters_bytes=1, gradients_bytes=2, optimizer_bytes=4, activations_bytes=8, buffers_bytes=16).peak_bytes == 31


def test_without_recomputation_a_layer_keeps_all_it_has() -> None:
    kept, whole = layer_activation_bytes(make_plan())

    assert kept == whole > 0


def test_selective_recomputation_keeps_less_and_is_whole_again_for_one_layer() -> None:
    kept, whole = layer_activation_bytes(make_plan(recompute="selective"))

    assert whole == layer_activation_bytes(make_plan())[1]
    assert whole - kept == 5 * 8 * 256**2
    plan = make_plan(recompute="selective", pp=2)
    assert holds(plan).activations_bytes == holds(make_plan(pp=2)).activations_bytes - 15 * (whole - kept)


def test_full_recomputation_keeps_the_input_of_a_layer() -> None:
    assert layer_activation_bytes(make_plan(recompute="full"))[0] == 2 * 256 * H
    assert layer_activation_bytes(make_plan(recompute="full", tp=4, sequence_parallel=True))[0] == 2 * 64 * H


def test_flash_attention_leaves_little_for_selective_recomputation() -> None:
    kept, whole = layer_activation_bytes(make_plan(attention="flash", recompute="selective"))

    assert whole - kept == 4 * 8 * 256


def test_the_ends_of_the_model_keep_their_own() -> None:
    plan = make_plan(pp=4)
    first, middle, last = (chunk_activation_bytes(plan, model_chunks(plan)[stage][0]) for stage in (0, 1, 3))

    assert middle == 4 * layer_activation_bytes(plan)[0]
    assert first - middle == 256 * H  # the mask of the dropout after the embedding
    assert last - middle == 2 * 256 * H + 2 * 256 * H + 4 * 256 * V  # inputs of norm and logits, probabilities


@pytest.mark.parametrize(("schedule", "in_flight"), [("naive", (1, 1, 1, 1)), ("gpipe", (8, 8, 8, 8)), ("1f1b", (4, 3, 2, 1))])
def test_stages_keep_the_micro_batches_that_their_schedule_has_in_flight(schedule: str, in_flight: tuple[int, ...]) -> None:
    plan = make_plan(pp=4, schedule=schedule, global_batch_size=8)

    for stage, ((chunk,), n_kept) in enumerate(zip(model_chunks(plan), in_flight, strict=True)):
        in_flight_bytes = holds(plan, stage).activations_bytes - holdings(plan, stage).backward_bytes
        assert in_flight_bytes == n_kept * chunk_activation_bytes(plan, chunk)


def test_the_last_stage_has_the_gradient_of_the_logits_beside_what_it_keeps() -> None:
    plan = make_plan(pp=4)

    # In fp32 and, cast, in 16 bits, for each of the 256 tokens.
    assert [holdings(plan, stage).backward_bytes for stage in range(4)] == [0, 0, 0, (4 + 2) * 256 * V]
    assert holdings(make_plan(pp=4, fused_loss=True), 3).backward_bytes == 2 * 256 * V


def test_a_layer_that_is_whole_again_and_the_gradient_of_the_logits_are_not_there_at_once() -> None:
    kept, whole = layer_activation_bytes(make_plan(recompute="full"))

    assert holdings(make_plan(recompute="full"), 0).backward_bytes == max(whole - kept, 6 * 256 * V)


def test_a_short_batch_keeps_no_more_micro_batches_than_it_has() -> None:
    two, three = (holds(make_plan(pp=4, global_batch_size=size)).activations_bytes for size in (2, 3))

    assert two / 2 == three / 3


def test_interleaving_keeps_a_little_more_on_the_first_stage() -> None:
    plain, interleaved = make_plan(pp=4), make_plan(pp=4, schedule="interleaved_1f1b", virtual_stages=2)
    layer_bytes = layer_activation_bytes(plain)[0]
    mask_bytes = 256 * H

    # p v + p - 1 = 11 chunks of 2 layers against p = 4 of 4 layers; two rounds of p micro-batches are in the first chunk.
    assert holds(plain).activations_bytes == 16 * layer_bytes + 4 * mask_bytes
    assert holds(interleaved).activations_bytes == 22 * layer_bytes + 8 * mask_bytes


def test_a_larger_micro_batch_keeps_more() -> None:
    small, large = make_plan(pp=4), make_plan(pp=4, micro_batch_size=2)

    assert holds(large).activations_bytes == 2 * holds(small).activations_bytes
    assert holds(large).optimizer_bytes == holds(small).optimizer_bytes


def test_parameter_servers_keep_the_optimizer_state() -> None:
    service = servers(0, assignment="greedy", priority="none")
    ring, served = holds(make_plan(dp=4)), holds(make_plan(dp=4, service=service))

    assert ring.optimizer_bytes == 12 * total_parameters(GPT)
    assert served.optimizer_bytes == 0.0
    assert served.peak_bytes == ring.peak_bytes - ring.optimizer_bytes


def test_sharded_gradients_are_whole_until_their_bucket_is_reduced() -> None:
    def whole_bytes(bucket_bytes: float, *, overlap: bool = True) -> float:
        plan = make_plan(dp=4, global_batch_size=4, zero_stage=2, no_sync=False, bucket_bytes=bucket_bytes, overlap=overlap)
        return holdings(plan, 0).full_gradients_bytes

    assert whole_bytes(1e12) == 4 * total_parameters(GPT)
    plan = make_plan(dp=4, global_batch_size=4, zero_stage=2, no_sync=False, bucket_bytes=8e6)
    sizes = [4 * bucket.parameters for bucket in gradient_buckets(plan, model_chunks(plan)[0][0])]
    assert whole_bytes(8e6) == max(map(sum, pairwise(sizes)))
    assert whole_bytes(8e6, overlap=False) == max(sizes)


def test_a_lone_rank_holds_whole_layers_of_what_lives_on_its_host() -> None:
    away = Offload(optimizer="host", gradients="host", parameters="host")
    alone, two = (holdings(make_plan(dp=dp, global_batch_size=dp, zero_stage=3, no_sync=False, offload=away), 0) for dp in (1, 2))

    assert alone.gathered_bytes == two.gathered_bytes > 0.0
    assert alone.full_gradients_bytes == two.full_gradients_bytes > 0.0

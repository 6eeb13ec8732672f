"""Memory of a rank as the sum of holds. The published closed forms are in ``tests/analytical``."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from clustersim.parallel.contributors.model_state import FRAMEWORK_BYTES
from clustersim.parallel.optimizer import optimizer_bytes_per_parameter
from clustersim.parallel.stage import stage_of
from clustersim.parallel.stages import model_chunks
from clustersim.parallel.training_plan import Offload
from clustersim.program.holds import (
    ALWAYS,
    BACKWARD_PASS,
    BACKWARD_TO_REDUCTION,
    FORWARD_TO_BACKWARD,
    GATHER_TO_LAST_PASS,
    INPUT_TO_WEIGHT,
    UPDATE,
)
from clustersim.workloads.experts import Experts
from clustersim.workloads.kinds.call import Layer
from clustersim.workloads.kinds.normalization import LinearLayer
from clustersim.workloads.layered import Layered
from tests.unit.parallel.factories import (
    GPT,
    LLAMA,
    buckets_of,
    embedding_parameters,
    held,
    layer_activation_bytes,
    layer_parameters,
    local_of,
    make_plan,
    peak,
    servers,
)

H, V = 512, 8192


def test_a_tied_head_on_another_stage_is_a_copy() -> None:
    plan = make_plan(pp=4)

    assert sum(stage_of(plan, stage).weights.total for stage in range(4)) == GPT.n_parameters + V * H


def test_an_untied_head_is_held_once_wherever_it_is() -> None:
    plan = make_plan(LLAMA, pp=4)

    assert sum(stage_of(plan, stage).weights.total for stage in range(4)) == LLAMA.n_parameters


def test_stages_hold_their_layers_and_their_end() -> None:
    plan = make_plan(pp=4)
    layers = 4 * layer_parameters(GPT)

    assert [stage_of(plan, stage).weights.total for stage in range(4)] == [
        layers + embedding_parameters(GPT),
        layers,
        layers,
        layers + V * H + 2 * H,
    ]


def test_chunks_of_a_stage_hold_what_the_stage_holds() -> None:
    plan = make_plan(pp=4, virtual_stages=2, schedule="interleaved_1f1b")

    for stage, chunks in enumerate(model_chunks(plan.strategy, plan.model.n_layers)):
        assert sum(local_of(plan).chunk_weights(chunk).total for chunk in chunks) == stage_of(plan, stage).weights.total
    assert stage_of(plan, 1).weights.total == stage_of(make_plan(pp=4), 1).weights.total


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
    plan = make_plan(precision=precision, optimizer=optimizer)

    assert optimizer_bytes_per_parameter(plan.training, local_of(plan)) == size


def test_weights_and_gradients_have_their_own_bytes() -> None:
    plan, same = make_plan(), make_plan(gradient_precision="same")
    parameters = GPT.n_parameters

    assert held(plan, category="parameters") == held(same, category="parameters") == 2 * parameters
    assert (held(plan, category="gradients"), held(same, category="gradients")) == (4 * parameters, 2 * parameters)
    assert held(plan, category="optimizer") == 12 * parameters


def test_context_parallel_ranks_share_the_optimizer_state_too() -> None:
    assert held(make_plan(dp=2, cp=2, zero_stage=1), category="optimizer") == held(make_plan(), category="optimizer") / 4


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
    ends = GPT.n_parameters - 16 * layer_parameters(GPT)

    gathered, whole = (held(make_plan(dp=4, zero_stage=stage, **changes), interval=GATHER_TO_LAST_PASS) for stage in (3, 2))
    assert (gathered, whole) == (2 * (layers * layer_parameters(GPT) + ends), 0.0)


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
    layer, ends = layer_parameters(GPT), GPT.n_parameters - 16 * layer_parameters(GPT)
    plan = make_plan(**{"dp": 4, "zero_stage": 3, "no_sync": False, **changes})

    assert held(plan, interval=BACKWARD_TO_REDUCTION) == number_bytes * (layers * layer + ends) + casts_bytes * layer


@pytest.mark.parametrize("zero_stage", [2, 3])
def test_gradients_that_add_up_are_whole_and_no_shard_is_beside_them(zero_stage: int) -> None:
    whole, sharded = (make_plan(dp=4, zero_stage=stage, no_sync=True) for stage in (1, zero_stage))

    assert held(whole, interval=BACKWARD_TO_REDUCTION) == 0.0
    assert held(sharded, category="gradients", interval=ALWAYS) == GPT.n_parameters
    assert held(sharded, category="gradients") == held(whole, category="gradients") == 4 * GPT.n_parameters


def test_sharded_gradients_of_experts_never_take_more_than_whole_ones() -> None:
    # Few ranks share an expert, so that their shard is a large part of the whole; here two of eight replicas.
    model = replace(LLAMA, experts=Experts(n_experts=8, top_k=2, intermediate_size=256))
    layout = {"dp": 8, "pp": 2, "ep": 4, "global_batch_size": 32, "no_sync": True, "schedule": "interleaved_1f1b", "virtual_stages": 2}
    one, two = (make_plan(model, zero_stage=stage, **layout) for stage in (1, 2))

    assert peak(two, category="gradients") == pytest.approx(peak(one, category="gradients"), rel=1e-12)
    assert peak(two) == pytest.approx(peak(one), rel=1e-12)


def test_one_micro_batch_adds_nothing_up() -> None:
    one, each = make_plan(dp=4, zero_stage=3, no_sync=True, global_batch_size=4), make_plan(dp=4, zero_stage=3, no_sync=False)

    assert held(one, interval=BACKWARD_TO_REDUCTION) == held(each, interval=BACKWARD_TO_REDUCTION)


def test_ddp_copies_gradients_into_buckets_unless_products_add_into_them() -> None:
    copied, fused, alone = (
        held(make_plan(dp=dp, fused_gradient_accumulation=fused), owner="gradient_reduction")
        for dp, fused in ((4, False), (4, True), (1, False))
    )

    assert (copied, fused, alone) == (4 * GPT.n_parameters, 0.0, 0.0)


def test_sharded_optimizer_states_need_two_buckets() -> None:
    plan = make_plan(dp=4, zero_stage=1, fused_gradient_accumulation=False, bucket_bytes=4e6)
    largest = max(bucket.parameters / bucket.n_calls for bucket in buckets_of(plan))

    assert held(plan, owner="gradient_reduction") == 2 * 4 * largest


def test_a_precision_of_its_own_on_the_wire_needs_a_bucket_of_it() -> None:
    plan = make_plan(dp=4, reduce_precision="bf16")
    largest = max(bucket.parameters / bucket.n_calls for bucket in buckets_of(plan))

    assert held(plan, owner="gradient_reduction") == 2 * largest


def test_fp8_keeps_a_cast_and_a_transpose_of_every_weight_of_a_layer_and_their_scales() -> None:
    narrow, wide = make_plan(precision="fp8"), make_plan()
    products = 4 * 512 * 512 + 8 * 512 * 512 + 3 * 512 + 512 + 2048 + 512
    scales = 5 * 1026 * 4

    assert held(narrow, owner="fp8") == 16 * (2 * products + 4 * scales)
    assert held(narrow, owner="optimizer") == held(wide, owner="optimizer")


def test_weights_in_fp8_alone_take_with_their_transposes_what_they_take_in_sixteen_bits() -> None:
    assert held(make_plan(precision="fp8", fp8_parameters=True), owner="fp8") == 16 * 4 * 5 * 1026 * 4


def test_sharded_weights_are_cast_as_they_are_gathered() -> None:
    narrow, wide = (make_plan(dp=4, zero_stage=3, precision=precision) for precision in ("fp8", "bf16"))

    assert held(narrow, owner="fp8") == 16 * 4 * 5 * 1026 * 4
    more = held(narrow, interval=GATHER_TO_LAST_PASS) - held(wide, interval=GATHER_TO_LAST_PASS)
    assert more == 2 * 2 * layer_parameters(GPT)


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_32_bit_weights_are_kept_once(precision: str) -> None:
    plan = make_plan(precision=precision)

    assert (held(plan, category="parameters"), held(plan, category="optimizer")) == (4 * GPT.n_parameters, 8 * GPT.n_parameters)


def test_an_update_with_copies_may_be_the_peak() -> None:
    plan = make_plan(kernels="eager", seq_length=16, global_batch_size=1)

    assert held(plan, interval=UPDATE) == 8 * GPT.n_parameters
    assert (peak(plan, category="activations"), peak(plan, category="optimizer")) == (0.0, (12 + 8) * GPT.n_parameters)


def test_long_sequences_have_their_peak_in_a_backward_pass() -> None:
    plan = make_plan(kernels="eager", micro_batch_size=16)

    assert peak(plan) == held(plan) - held(plan, interval=UPDATE) - held(plan, interval=INPUT_TO_WEIGHT)


def test_state_that_is_offloaded_is_not_on_the_accelerator() -> None:
    offload = Offload(optimizer="host", gradients="host", parameters="host")
    plan = make_plan(dp=4, zero_stage=3, kernels="eager", offload=offload)

    assert [held(plan, category=category, interval=ALWAYS) for category in ("parameters", "gradients", "optimizer")] == [0.0] * 3
    assert held(plan, interval=UPDATE) == 0.0
    assert held(plan, owner="offload") > 0.0


def test_layers_of_a_list_are_counted_one_by_one() -> None:
    sizes = (64, 32, 2048, 16)
    layers: tuple[Layer, ...] = tuple(LinearLayer(input=(a,), features=b, bias=False) for a, b in pairwise(sizes))
    model = Layered(name="wide", input=(64,), tokens_per_sample=1, layers=layers)
    plan = replace(make_plan(dp=2, zero_stage=3, micro_batch_size=4, global_batch_size=8, no_sync=False), model=model)
    weights = [64 * 32, 32 * 2048, 2048 * 16]

    assert stage_of(plan, 0).weights.total == sum(weights)
    assert held(plan, interval=GATHER_TO_LAST_PASS) == 2 * max(weights[0] + weights[1], weights[1] + weights[2])
    assert held(plan, interval=FORWARD_TO_BACKWARD) == 2 * 4 * (64 + 32 + 2048)
    assert layer_activation_bytes(replace(plan, strategy=plan.strategy.changed(recompute="full")), 2)[0] == 2 * 4 * 2048


def test_the_framework_takes_its_share_of_every_rank() -> None:
    assert held(make_plan(), category="buffers") == held(make_plan(pp=4), 3, category="buffers") == FRAMEWORK_BYTES


def test_the_ends_of_the_model_keep_their_own() -> None:
    plan = make_plan(pp=4)
    first, middle, last = (held(plan, stage, interval=FORWARD_TO_BACKWARD) for stage in (0, 1, 3))

    assert middle == 4 * layer_activation_bytes(plan)[0]
    assert first - middle == 256 * H  # the mask of the dropout after the embedding
    assert last - middle == 2 * 256 * H + 2 * 256 * H + 4 * 256 * V  # inputs of norm and logits, probabilities


def test_the_last_stage_has_the_gradient_of_the_logits_beside_what_it_keeps() -> None:
    plan = make_plan(pp=4)

    # In fp32 and, cast, in 16 bits, for each of the 256 tokens.
    assert [held(plan, stage, interval=BACKWARD_PASS) for stage in range(4)] == [0, 0, 0, (4 + 2) * 256 * V]
    assert held(make_plan(pp=4, fused_loss=True), 3, interval=BACKWARD_PASS) == 2 * 256 * V
    # In the place of the probabilities, so that the cast alone comes on top.
    assert held(make_plan(pp=4, loss_gradient="in_place"), 3, interval=BACKWARD_PASS) == 2 * 256 * V
    # In the place of the logits, which are in 16 bits already.
    assert held(make_plan(pp=4, loss_gradient="in_place", fused_loss=True), 3, interval=BACKWARD_PASS) == 0


def test_a_layer_that_is_whole_again_and_the_gradient_of_the_logits_are_not_there_at_once() -> None:
    kept, whole = layer_activation_bytes(make_plan(recompute="full"))

    assert held(make_plan(recompute="full"), interval=BACKWARD_PASS) == max(whole - kept, 6 * 256 * V)


def test_parameter_servers_keep_the_optimizer_state() -> None:
    service = servers(0, assignment="greedy", priority="none")
    ring, served = make_plan(dp=4), make_plan(dp=4, service=service)

    assert (held(ring, category="optimizer"), held(served, category="optimizer")) == (12 * GPT.n_parameters, 0.0)
    assert peak(served) == peak(ring) - held(ring, category="optimizer")


def test_sharded_gradients_are_whole_until_their_bucket_is_reduced() -> None:
    def whole_bytes(bucket_bytes: float, *, overlap: bool = True) -> float:
        plan = make_plan(dp=4, global_batch_size=4, zero_stage=2, no_sync=False, bucket_bytes=bucket_bytes, overlap=overlap)
        return held(plan, interval=BACKWARD_TO_REDUCTION)

    assert whole_bytes(1e12) == 4 * GPT.n_parameters
    plan = make_plan(dp=4, global_batch_size=4, zero_stage=2, no_sync=False, bucket_bytes=8e6)
    sizes = [4 * bucket.parameters for bucket in buckets_of(plan)]
    assert whole_bytes(8e6) == max(map(sum, pairwise(sizes)))
    assert whole_bytes(8e6, overlap=False) == max(sizes)


def test_a_lone_rank_holds_whole_layers_of_what_lives_on_its_host() -> None:
    away = Offload(optimizer="host", gradients="host", parameters="host")
    alone, two = (make_plan(dp=dp, global_batch_size=dp, zero_stage=3, no_sync=False, offload=away) for dp in (1, 2))

    for interval in (GATHER_TO_LAST_PASS, BACKWARD_TO_REDUCTION):
        assert held(alone, interval=interval) == held(two, interval=interval) > 0.0

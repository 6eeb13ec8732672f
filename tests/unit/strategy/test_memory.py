"""Peak memory of a rank, by what it holds. The published closed forms are in ``tests/analytical``."""

from __future__ import annotations

import pytest

from clustersim.strategy.memory import (
    FRAMEWORK_BYTES,
    StageHolds,
    chunk_activation_bytes,
    chunk_parameters,
    layer_activation_bytes,
    optimizer_bytes_per_parameter,
    stage_memory,
    stage_parameters,
)
from clustersim.strategy.plan import ParameterService, Plan
from clustersim.strategy.shard import model_chunks
from clustersim.workload.parameters import embedding_parameters, final_norm_parameters, layer_parameters, total_parameters
from clustersim.workload.transformer import Transformer
from tests.unit.strategy.factories import GPT, LLAMA, make_plan

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
        assert sum(chunk_parameters(plan, chunk) for chunk in chunks) == stage_parameters(plan, stage)
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
    whole, part = holds(make_plan(dp=4)), holds(make_plan(dp=4, zero_stage=zero_stage))

    assert whole.parameters_bytes / part.parameters_bytes == parameters
    assert whole.gradients_bytes / part.gradients_bytes == gradients
    assert whole.optimizer_bytes / part.optimizer_bytes == optimizer
    assert whole.activations_bytes == part.activations_bytes


def test_context_parallel_ranks_share_the_optimizer_state_too() -> None:
    assert holds(make_plan(dp=2, cp=2, zero_stage=1)).optimizer_bytes == holds(make_plan()).optimizer_bytes / 4


def test_zero_divides_nothing_among_one_replica() -> None:
    assert holds(make_plan(zero_stage=2)) == holds(make_plan())


def test_two_gathered_layers_are_in_use_under_zero_3() -> None:
    extra = holds(make_plan(dp=4, zero_stage=3)).buffers_bytes - holds(make_plan(dp=4)).buffers_bytes

    assert extra == 2 * 2 * layer_parameters(GPT)


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
    assert holds(make_plan(recompute="selective")).activations_bytes == holds(make_plan()).activations_bytes - 15 * (whole - kept)


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
        assert holds(plan, stage).activations_bytes == n_kept * chunk_activation_bytes(plan, chunk)


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
    service = ParameterService(hosts=(0,), assignment="greedy", priority="none", reduce_in_node=False)
    ring, served = holds(make_plan(dp=4)), holds(make_plan(dp=4, algorithm="parameter_server", service=service))

    assert ring.optimizer_bytes == 12 * total_parameters(GPT)
    assert served.optimizer_bytes == 0.0
    assert served.peak_bytes == ring.peak_bytes - ring.optimizer_bytes

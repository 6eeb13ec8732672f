"""A model that is a list of layers under the strategies: blocks, FLOPs, and steps of every kind of data parallelism."""

from __future__ import annotations

from dataclasses import replace
from math import fsum, isclose

import pytest

from clustersim.parallel.lower import lower
from clustersim.parallel.shard import numerics
from clustersim.parallel.stage import stage_of
from clustersim.parallel.stage_passes import ChunkPasses
from clustersim.parallel.training_plan import Plan
from clustersim.program.tasks import Communicate, Compute, Work
from clustersim.workloads.layered import Layered
from clustersim.workloads.operators import Convolution
from clustersim.workloads.reading.model_spec import load_model
from tests.unit.parallel.factories import GPT, chunk_passes, flops_of, kernels_of, local_of, make_plan, servers, stage_model_flops

BATCH, MICRO = 64, 8


def listed(name: str = "resnet-50") -> Layered:
    model = load_model(name).model
    assert isinstance(model, Layered)
    return model


def plan(name: str = "resnet-50", **changes: object) -> Plan:
    """Return a plan of a list of layers on 4 ranks."""
    whole = make_plan(GPT, **({"dp": 4, "global_batch_size": BATCH, "micro_batch_size": MICRO, "seq_length": 1} | changes))
    return replace(whole, model=listed(name))


def passes(of: Plan) -> ChunkPasses:
    return chunk_passes(of)


def test_runs_of_equal_blocks_are_one_block() -> None:
    (chunk,) = stage_of(plan(), 0).chunks

    repeats = [block.repeat for block in passes(plan()).forward(chunk)]

    # Stem, pooling, then the first and the other blocks of each stage, and pooling, flattening, classifier and loss.
    assert repeats == [1, 1, 1, 2, 1, 3, 1, 5, 1, 2, 1, 1, 1, 1]
    assert sum(repeats) == chunk.n_layers == 22


def test_backward_goes_through_the_same_blocks_from_the_last_one() -> None:
    (chunk,) = stage_of(plan(), 0).chunks

    forward, backward = passes(plan()).forward(chunk), passes(plan()).backward(chunk)

    assert [block.repeat for block in backward] == [block.repeat for block in reversed(forward)]
    first = backward[-1].body[-1]
    assert isinstance(first, Work)
    convolutions = [kernel.product for kernel in first.kernels if isinstance(kernel, Convolution)]
    assert convolutions == ["weight_gradient"]


@pytest.mark.parametrize("cut", [1, 5, 9, 20])
def test_slices_make_up_the_whole_pass(cut: int) -> None:
    (chunk,) = stage_of(plan(), 0).chunks
    whole = passes(plan())

    parts = (*whole.forward_slice(chunk, 0, cut), *whole.forward_slice(chunk, cut, chunk.n_layers))

    assert kernels_of(parts) == kernels_of(whole.forward(chunk))


def test_full_recomputation_repeats_every_layer_before_its_backward_pass() -> None:
    again = plan(recompute="full")
    (chunk,) = stage_of(again, 0).chunks

    computing = [block for block in passes(again).backward(chunk) if block.body]
    phases = [[item.phase for item in block.body if isinstance(item, Work)] for block in computing]

    assert phases == [["recompute", "backward"]] * len(phases) != []
    assert flops_of(again).hardware == flops_of(again).model * 4 / 3


def test_model_flops_are_three_forward_passes_of_every_sample() -> None:
    assert flops_of(plan()).model == 3 * BATCH * listed().forward_flops
    assert isclose(4 * stage_model_flops(plan(), 0), flops_of(plan()).model, rel_tol=1e-12)


@pytest.mark.parametrize("name", ["resnet-50", "vgg-16", "inception-v3", "gnmt"])
def test_the_replay_leaves_out_the_gradient_of_the_model_s_input_alone(name: str) -> None:
    of = plan(name)
    first = local_of(of).layer(0)[0]
    # An embedding, which comes first in GNMT, has no products.
    left_out = first.forward_flops * of.n_micro_batches if name != "gnmt" else 0.0

    flops = fsum(kernel.flops for task in lower(of).tasks if isinstance(task.action, Compute) for kernel in kernels_of(task.action.blocks))
    pointwise = fsum(
        operator.forward_flops * (3 if operator.name == "scores" else 0) * count
        for operators, count in local_of(of).runs(range(of.model.n_layers))
        for operator in operators
    )

    # Additive attention compares without a matrix product.
    assert isclose(flops, flops_of(of).model / 4 - left_out - pointwise * of.n_micro_batches, rel_tol=1e-9)


def test_full_recomputation_keeps_what_a_layer_receives() -> None:
    of = plan()

    assert local_of(of).layer_input_bytes(0) == MICRO * 3 * 224 * 224 * 2
    assert local_of(of).layer_input_bytes(2) == MICRO * 64 * 56 * 56 * 2


@pytest.mark.parametrize(
    ("precision", "channels_last", "transposes"), [("fp16", True, False), ("tf32", False, True), ("fp32", False, False)]
)
def test_only_matrix_units_have_images_transposed(precision: str, channels_last: bool, transposes: bool) -> None:
    assert numerics(plan(precision=precision, channels_last=channels_last).training).transposes_images is transposes


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
@pytest.mark.parametrize("name", ["resnet-50", "gnmt"])
def test_a_step_reduces_every_gradient_once(name: str, zero_stage: int) -> None:
    of = plan(name, zero_stage=zero_stage, global_batch_size=32)
    collectives = [task.action.collective for task in lower(of).tasks if isinstance(task.action, Communicate)]
    op = "all_reduce" if zero_stage == 0 else "reduce_scatter"

    reduced = fsum(collective.bytes for collective in collectives if collective.op == op)

    assert isclose(reduced, 4 * listed(name).n_parameters, rel_tol=1e-9)


def test_gradients_meet_while_the_backward_pass_still_runs() -> None:
    tasks = lower(plan()).tasks
    waits = [max(task.after) for task in tasks if isinstance(task.action, Communicate)]
    computed = [index for index, task in enumerate(tasks) if isinstance(task.action, Compute) and task.action.name == "B"]

    assert len(waits) > 3
    assert min(waits) < max(computed)


def test_parameter_servers_take_every_tensor() -> None:
    of = plan(global_batch_size=32, service=servers(0))
    moved = [task.action.collective for task in lower(of).tasks if isinstance(task.action, Communicate)]

    pushed = fsum(collective.bytes for collective in moved if collective.op == "push")

    assert isclose(pushed, 4 * listed().n_parameters, rel_tol=1e-9)

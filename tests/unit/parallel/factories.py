"""Plans for tests: a small GPT, and any field of training, strategy or gradients changed by its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import fsum

from clustersim.parallel.contributors import layer_techniques, stage_holds, stage_peak
from clustersim.parallel.division import divided, place
from clustersim.parallel.flops import BACKWARD_FACTOR, StepFlops, step_flops
from clustersim.parallel.gradients import Bucket, gradient_buckets
from clustersim.parallel.groups import parallel_groups
from clustersim.parallel.layers import Gradients
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.lower import lower
from clustersim.parallel.recomputation import recomputation_of
from clustersim.parallel.schedules.order import StageOrder, order_tasks
from clustersim.parallel.shard import local_model
from clustersim.parallel.stage import stage_of
from clustersim.parallel.stage_passes import ChunkPasses
from clustersim.parallel.stages import places_of
from clustersim.parallel.step_settings import DataParallel, Training
from clustersim.parallel.training_plan import Plan, Strategy
from clustersim.program.holds import FORWARD_TO_BACKWARD, INPUT_TO_WEIGHT, Hold, MemoryPlace, held_bytes, held_over
from clustersim.program.program import Program
from clustersim.program.tasks import Block, Collective, Communicate, Compute, Item, Task, Work, collectives_in, works_in
from clustersim.workloads.layer import layer_operators
from clustersim.workloads.operators import Gemm, Kernel
from clustersim.workloads.shapes import ExpertShare, LocalShape, balanced_rows
from clustersim.workloads.transformer import Transformer
from tests.unit.workloads import factories as workload
from tests.unit.workloads.kinds.factories import NUMERICS

_SIZES = {"n_layers": 16, "hidden_size": 512, "n_heads": 8, "head_dim": 64, "vocab_size": 8192, "max_positions": 256}
"""Sizes that tensor and pipeline parallelism can divide."""

GPT = replace(workload.GPT, n_kv_heads=8, intermediate_size=2048, **_SIZES)
LLAMA = replace(workload.LLAMA, n_kv_heads=4, intermediate_size=1536, **_SIZES)
BERT = replace(workload.BERT, n_kv_heads=8, intermediate_size=2048, **_SIZES)

TRAINING = Training(global_batch_size=16, fused_gradient_accumulation=True, kernels="fused", attention="unfused").changed(
    seq_length=256,
    precision="bf16",
    gradient_precision="fp32",
    fp8_scaling="delayed",
    optimizer_kernels="fused",
    grouped_experts=True,
    channels_last=True,
)

STRATEGY = Strategy(data_parallel=DataParallel().changed(no_sync=True)).changed(
    dp=1,
    sequence_parallel=False,
    virtual_stages=1,
    optimizer_post_validation=False,
    recompute_modules=("core_attention",),
    overlap_p2p=False,
)


def make_plan(model: Transformer = GPT, /, **changes: object) -> Plan:
    """Return a plan for one rank, changed in the named fields of its training, strategy or data parallelism.

    A ``service`` is what its gradients meet on.
    """
    of_training = {name: changes.pop(name) for name in Training.model_fields if name in changes}
    if of_training.get("kernels") == "eager":
        of_training.setdefault("optimizer_kernels", "foreach")
    of_gradients = {name: changes.pop(name) for name in DataParallel.model_fields if name in changes and name != "placement"}
    gradients = changes.pop("service", STRATEGY.data_parallel)
    assert isinstance(gradients, DataParallel)
    return Plan(
        model=model,
        training=TRAINING.changed(**of_training),
        strategy=STRATEGY.changed(data_parallel=gradients.changed(**of_gradients), **changes),
    )


def servers(*hosts: int, **changes: object) -> DataParallel:
    """Return gradients that meet on parameter servers on some hosts, which keep even parts of every tensor."""
    gradients = STRATEGY.data_parallel.changed(algorithm="parameter_server", assignment="key_ranges", priority="layers")
    return gradients.changed(hosts=hosts, reduce_in_node=False).changed(**changes)


def local_of(plan: Plan) -> LocalModel:
    """Return the model on one rank of a plan."""
    return local_model(plan.model, plan.training, plan.strategy)


def flops_of(plan: Plan) -> StepFlops:
    """Return the FLOPs of a step of a plan."""
    return step_flops(plan.model, plan.training, plan.strategy)


def stage_model_flops(plan: Plan, stage: int) -> float:
    """Return the model FLOPs that one rank of a stage does in one step.

    Over all ranks they add up to the model's, unless the layout itself adds work: a padded vocabulary, or key and value heads
    that are repeated because there are fewer of them than ranks.
    """
    local, forward_flops = local_of(plan), 0.0
    for chunk in stage_of(plan, stage).chunks:
        operators = [(each, count) for run, count in local.runs(chunk.layers) for each in run]
        operators += [(each, 1) for each in local.back] if chunk.last else []
        n_passes = len(places_of(plan.strategy).micro_batches(chunk.way, plan.n_micro_batches))
        forward_flops += n_passes * fsum(count * each.forward_flops for each, count in operators)
    return (1.0 + BACKWARD_FACTOR) * forward_flops


def layer_activation_bytes(plan: Plan, layer: int = 0) -> tuple[float, float]:
    """Return what one layer keeps of a micro-batch until its backward pass, and what it holds while that pass runs."""
    local, operators = local_of(plan), local_of(plan).layer(layer)
    return recomputation_of(plan.strategy).kept_bytes(local, layer, operators), fsum(operator.saved_bytes for operator in operators)


def buckets_of(plan: Plan, stage: int = 0) -> tuple[Bucket, ...]:
    """Return the buckets of gradients of the first chunk of a stage."""
    return gradient_buckets(local_of(plan), plan.strategy.data_parallel, stage_of(plan, stage).chunks[0])


def held(plan: Plan, stage: int = 0, *, place: MemoryPlace = "accelerator", **of: object) -> float:
    """Return the bytes of the holds of a stage whose fields are as given."""
    return held_bytes(stage_holds(stage_of(plan, stage), place), **of)


def peak(plan: Plan, stage: int = 0, *, place: MemoryPlace = "accelerator", **of: object) -> float:
    """Return the bytes of those holds when most is held."""
    return held_bytes(stage_peak(stage_of(plan, stage), place=place), **of)


def peak_in_flight(order: StageOrder, chunk_bytes: Sequence[float], weight_bytes: Sequence[float] | None = None) -> float:
    """Return the most that micro-batches hold of each chunk up to their input and, if it says so, then up to their weight gradients."""
    sizes = {FORWARD_TO_BACKWARD: chunk_bytes, INPUT_TO_WEIGHT: chunk_bytes if weight_bytes is None else weight_bytes}
    holds = [
        Hold(category="activations", owner="test", bytes=size, interval=interval, chunk=chunk)
        for interval, of_chunks in sizes.items()
        for chunk, size in enumerate(of_chunks)
    ]
    return held_bytes(held_over(holds, order_tasks(order)).peak())


def make_shape(model: Transformer = GPT, *, batch: int = 3, seq_length: int = 32, **changes: int) -> LocalShape:
    """Return the shape of a whole layer on one rank, changed in the named fields."""
    tokens, experts = batch * seq_length, model.experts
    whole = LocalShape(
        batch=batch,
        seq_length=seq_length,
        sequence_rows=batch * seq_length,
        n_heads=model.n_heads,
        n_kv_heads=model.n_kv_heads,
        intermediate_size=model.intermediate_size,
        vocab_size=model.vocab_size,
        experts=None
        if experts is None
        else ExpertShare(
            rows=balanced_rows(tokens * experts.top_k, experts.n_experts),
            intermediate_size=experts.intermediate_size,
            dispatched_rows=tokens * experts.top_k,
        ),
        shared_size=0 if experts is None else experts.shared_size,
    )
    return replace(whole, **changes)


def layer_parameters(model: Transformer, layer: int = 0) -> float:
    """Return the parameters of a layer."""
    return fsum(operator.parameters for operator in layer_operators(model, make_shape(model), NUMERICS, layer))


def embedding_parameters(model: Transformer) -> float:
    """Return the parameters before the first layer."""
    return fsum(operator.parameters for operator in model.front(make_shape(model), NUMERICS))


def gemms(kernels: tuple[Kernel, ...]) -> list[Gemm]:
    """Return the matrix products among kernels."""
    return [kernel for kernel in kernels if isinstance(kernel, Gemm)]


def traffic_bytes(kernels: tuple[Kernel, ...]) -> float:
    """Return what kernels read and write together."""
    return sum(kernel.traffic_bytes for kernel in kernels)


def collectives_of(items: tuple[Item, ...]) -> list[Collective]:
    """Return the collectives among items, those beside work too."""
    return [collective for item in items for collective in collectives_in(item)]


def works_of(items: tuple[Item, ...]) -> list[Work]:
    """Return the work among items, that beside collectives too."""
    return [work for item in items for work in works_in(item)]


def kernels_of(blocks: tuple[Block, ...]) -> list[Kernel]:
    """Return every kernel of blocks as often as it runs, in order."""
    return [kernel for block in blocks for _ in range(block.repeat) for work in works_of(block.body) for kernel in work.kernels]


def tasks_of(plan: Plan, name: str | None = None, *, stream: str | None = None, rank_class: int | None = None) -> list[Task]:
    """Return the tasks of a lowered plan, by the name of their action, the stream and the rank class."""
    return chosen(lower(plan), name, stream=stream, rank_class=rank_class)


def chosen(program: Program, name: str | None = None, *, stream: str | None = None, rank_class: int | None = None) -> list[Task]:
    """Return the tasks of a program by the name of their action, the stream and the rank class."""
    return [
        task
        for task in program.tasks
        if (name is None or task.action.name == name)
        and (stream is None or any(lane.stream == stream for lane in task.lanes))
        and (rank_class is None or any(lane.rank_class == rank_class for lane in task.lanes))
    ]


def computes(program: Program, rank_class: int) -> list[Task]:
    """Return what a rank class computes, in order."""
    return [task for task in chosen(program, stream="compute", rank_class=rank_class) if isinstance(task.action, Compute)]


def chunk_passes(plan: Plan, gradients: Gradients = "all") -> ChunkPasses:
    """Return the passes of the ranks of the first stage."""
    groups = parallel_groups(plan.model, plan.strategy, divided(place(plan.strategy)), stage=0, part=0)
    local, strategy = local_of(plan), plan.strategy
    return ChunkPasses(local=local, strategy=strategy, techniques=layer_techniques(local, strategy, groups), gradients=gradients)


def waits_for(program: Program, task: Task) -> list[Task]:
    return [program.tasks[index] for index in task.after]


def collective(task: Task) -> Collective:
    assert isinstance(task.action, Communicate)
    return task.action.collective

"""Lower a plan to a Program: passes in schedule order, sends between stages, gradients, optimizer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from clustersim.program.program import Key, Program, ProgramBuilder
from clustersim.program.tasks import Block, Collective, Communicate, Compute, Group, Lane
from clustersim.strategy.gradients import GRADIENT_STREAM, gradient_collective, gradient_group, layer_slices, optimizer_update
from clustersim.strategy.memory import chunk_parameters, stage_parameters
from clustersim.strategy.mesh import Mesh, place
from clustersim.strategy.parameter_server import lower_served_step
from clustersim.strategy.passes import ChunkPasses
from clustersim.strategy.pipeline import Pipeline, compute_lane
from clustersim.strategy.plan import Plan
from clustersim.strategy.schedules import stage_orders
from clustersim.strategy.schedules.order import StageOrder
from clustersim.strategy.shard import ModelChunk, local_shape, model_chunks, numerics
from clustersim.strategy.sharded import lower_sharded_passes
from clustersim.trace.timeline import RankClass

NORM_BYTES = 4.0


def rank_classes(mesh: Mesh) -> tuple[RankClass, ...]:
    """Return one class for each pipeline stage: its ranks do the same work at the same time."""
    n_stages = mesh.ranks.shape[0]
    return tuple(
        RankClass(
            name=f"stage {stage}" if n_stages > 1 else "all ranks",
            stage=stage,
            representative_rank=int(mesh.stage_ranks(stage)[0]),
            n_ranks=int(mesh.stage_ranks(stage).size),
        )
        for stage in range(n_stages)
    )


def lower(plan: Plan) -> Program:
    """Return what every rank class does in one optimizer step.

    The order of passes comes from the schedule. A pass waits for what it receives and, unless the plan overlaps
    point-to-point transfers, for what its stage has sent. Buckets of gradients follow the last backward pass of a chunk; then
    come the gradient of a shared embedding, the norm over all ranks of the model, the update, and with sharded optimizer states
    the gathering of the new weights. With parameter servers there is none of that: see ``lower_served_step``.
    """
    mesh, strategy = place(plan.strategy), plan.strategy
    lowering = _Lowering(plan=plan, mesh=mesh)
    for stage in range(strategy.pp):
        lowering.add_host(stage)
    if strategy.data_parallel.service is not None:
        lower_served_step(lowering.builder, plan, mesh, strategy.data_parallel.service)
        return lowering.builder.build(rank_classes(mesh))
    if strategy.zero_stage >= 2:
        lower_sharded_passes(lowering.builder, plan, mesh)
    else:
        lowering.add_pipeline()
    lowering.add_embedding_sync()
    lowering.add_norm()
    for stage in range(strategy.pp):
        lowering.add_update(stage)
    return lowering.builder.build(rank_classes(mesh))


@dataclass(slots=True)
class _Lowering:
    plan: Plan
    mesh: Mesh
    builder: ProgramBuilder = field(default_factory=ProgramBuilder)

    def add_host(self, stage: int) -> None:
        self.builder.add(("host", stage), Compute(name="host", phase="host", blocks=()), [compute_lane(stage)])

    def add_pipeline(self) -> None:
        plan, strategy = self.plan, self.plan.strategy
        pipeline = Pipeline(
            builder=self.builder,
            mesh=self.mesh,
            chunks=model_chunks(plan),
            pair_bytes=self._activation_bytes() / strategy.tp,
            overlap=strategy.overlap_p2p,
        )
        orders = stage_orders(strategy.schedule, strategy.pp, plan.n_micro_batches, strategy.virtual_stages)
        for stage, order in enumerate(orders):
            self._add_stage(pipeline, stage, order)

    def add_embedding_sync(self) -> None:
        """Sum the gradients of a tied head, which is a copy of the embedding on the last stage, and of the embedding."""
        plan = self.plan
        if plan.strategy.pp == 1 or not (plan.model.tied_embeddings and plan.model.lm_head):
            return
        last = plan.strategy.pp - 1
        pairs = zip(self.mesh.stage_ranks(0).tolist(), self.mesh.stage_ranks(last).tolist(), strict=True)
        group = Group(name="embedding", dimension="pp", members=tuple(pairs))
        size_bytes = local_shape(plan).vocab_size * plan.model.hidden_size * numerics(plan).gradient_bytes
        collective = Collective(op="all_reduce", group=group, bytes=size_bytes)
        after = self.builder.last(compute_lane(0)) + self.builder.last(compute_lane(last))
        communicate = Communicate(name="embedding gradient", collective=collective)
        self.builder.add(("embedding",), communicate, [_gradient_lane(0), _gradient_lane(last)], after=after)

    def add_norm(self) -> None:
        """Add the norm of all gradients of a model replica: one number, for which everybody waits."""
        strategy, ranks = self.plan.strategy, self.mesh.ranks
        if strategy.tp * strategy.pp == 1:
            return
        replicas = ranks.transpose(1, 2, 0, 3).reshape(strategy.dp * strategy.cp, -1)
        group = Group(name="model", dimension="pp" if strategy.pp > 1 else "tp", members=tuple(map(tuple, replicas.tolist())))
        communicate = Communicate(name="gradient norm", collective=Collective(op="all_reduce", group=group, bytes=NORM_BYTES))
        stages = range(strategy.pp)
        after = [key for stage in stages for key in self.builder.last(compute_lane(stage))]
        self.builder.add(("norm",), communicate, [_gradient_lane(stage) for stage in stages], after=after)

    def add_update(self, stage: int) -> None:
        """Add the update, which waits for all gradients; sharded optimizer states end with the gathering of the new weights."""
        plan, lane = self.plan, _gradient_lane(stage)
        parameters = stage_parameters(plan, stage)
        update: Key = ("optimizer", stage)
        self.builder.add(update, optimizer_update(plan, parameters), [compute_lane(stage)], after=self.builder.last(lane))
        if plan.strategy.zero_stage in (1, 2) and plan.strategy.dp * plan.strategy.cp > 1:
            size_bytes = parameters * numerics(plan).element_bytes
            algorithm = plan.strategy.data_parallel.algorithm
            collective = Collective(op="all_gather", group=gradient_group(self.mesh, stage), bytes=size_bytes, algorithm=algorithm)
            self.builder.add(("weights", stage), Communicate(name="gather weights", collective=collective), [lane], after=[update])

    def _add_stage(self, pipeline: Pipeline, stage: int, order: StageOrder) -> None:
        group = Group(name=f"tp of stage {stage}", dimension="tp", members=self.mesh.groups("tp", stage))
        passes, receive = ChunkPasses(plan=self.plan, group=group), self._gather_received(group)
        chunks = pipeline.chunks[stage]
        forward = [_compute("F", (() if chunk.first else receive) + passes.forward(chunk)) for chunk in chunks]
        backward = [_compute("B", (() if chunk.last else receive) + passes.backward(chunk)) for chunk in chunks]
        last = {step.chunk: position for position, step in enumerate(order) if step.backward}
        reduces = self.plan.strategy.dp * self.plan.strategy.cp > 1
        for position, step in enumerate(order):
            if not step.backward:
                pipeline.add_pass(stage, step, [forward[step.chunk]])
                continue
            chunk = chunks[step.chunk]
            if reduces and self.plan.strategy.data_parallel.overlap and last[step.chunk] == position:
                keys = pipeline.add_pass(stage, step, self._buckets(passes, chunk, () if chunk.last else receive))
                for key in keys:
                    self._add_gradients(stage, chunk_parameters(self.plan, chunk) / len(keys), after=key)
            else:
                pipeline.add_pass(stage, step, [backward[step.chunk]])
        if reduces and not self.plan.strategy.data_parallel.overlap:
            (after,) = self.builder.last(compute_lane(stage))
            self._add_gradients(stage, stage_parameters(self.plan, stage), after=after)

    def _buckets(self, passes: ChunkPasses, chunk: ModelChunk, receive: tuple[Block, ...]) -> tuple[Compute, ...]:
        """Return a backward pass in pieces of as many layers as fill a bucket, evenly, last layers first."""
        slices = [passes.backward_slice(chunk, start, stop) for start, stop in reversed(layer_slices(self.plan, chunk.n_layers))]
        return tuple(_compute("B", (receive if number == 0 else ()) + blocks) for number, blocks in enumerate(slices))

    def _add_gradients(self, stage: int, parameters: float, *, after: Key) -> None:
        collective = gradient_collective(self.plan, gradient_group(self.mesh, stage), parameters * numerics(self.plan).gradient_bytes)
        communicate = Communicate(name="gradients", collective=collective)
        self.builder.add(("gradients", *after), communicate, [_gradient_lane(stage)], after=[after])

    def _gather_received(self, group: Group) -> tuple[Block, ...]:
        """Without sequence parallelism each rank receives 1/tp of the activation, and the group puts it together.

        Megatron-LM calls it the scatter-gather optimisation.
        """
        strategy = self.plan.strategy
        if strategy.tp == 1 or strategy.pp == 1 or strategy.sequence_parallel:
            return ()
        return (Block(name="receive", body=(Collective(op="all_gather", group=group, bytes=self._activation_bytes()),)),)

    def _activation_bytes(self) -> float:
        training = self.plan.training
        rows = training.micro_batch_size * training.seq_length
        return rows * self.plan.model.hidden_size * numerics(self.plan).element_bytes


def _compute(name: Literal["F", "B"], blocks: tuple[Block, ...]) -> Compute:
    return Compute(name=name, phase="forward" if name == "F" else "backward", blocks=blocks)


def _gradient_lane(stage: int) -> Lane:
    return Lane(rank_class=stage, stream=GRADIENT_STREAM)

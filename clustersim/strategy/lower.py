"""Lower a plan to a Program: passes in schedule order, sends between stages, gradients, optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from clustersim.program.program import Key, Program, ProgramBuilder
from clustersim.program.tasks import Block, Collective, Communicate, Compute, Group, Work
from clustersim.strategy.division import Division, Part, divided
from clustersim.strategy.gradients import GRADIENT_STREAM, gradient_collective, gradient_group, layer_slices, optimizer_update
from clustersim.strategy.memory import chunk_parameters, stage_parameters
from clustersim.strategy.mesh import place
from clustersim.strategy.parameter_server import lower_served_step
from clustersim.strategy.passes import ChunkPasses
from clustersim.strategy.pipeline import Pipeline
from clustersim.strategy.plan import Plan
from clustersim.strategy.schedules import stage_orders
from clustersim.strategy.schedules.order import StageOrder
from clustersim.strategy.shard import ModelChunk, local_shape, model_chunks, numerics
from clustersim.strategy.sharded import lower_sharded_passes
from clustersim.strategy.single_process import lower_single_process_step
from clustersim.workload.operators import Recorded

LOADER_STREAM: Final = "loader"
NORM_BYTES: Final = 4.0


def lower(plan: Plan, parts: Sequence[Part] | None = None) -> Program:
    """Return what every rank class does in one optimizer step.

    The order of passes comes from the schedule. A pass waits for what it receives and, unless the plan overlaps
    point-to-point transfers, for what its stage has sent. Buckets of gradients follow the last backward pass of a chunk; then
    come the gradient of a shared embedding, the norm over all ranks of the model, the update, and with sharded optimizer states
    the gathering of the new weights. Meanwhile the data loader reads the batch of the next step, for which that step waits. With
    parameter servers, or one process for all accelerators of a node, there is none of that but the loader: see
    ``lower_served_step`` and ``lower_single_process_step``.

    Parameters
    ----------
    parts
        Replicas that are alike, by their data-parallel index, where some are slower than others; all are alike when left out.
    """
    division = divided(place(plan.strategy), parts)
    lowering = _Lowering(plan=plan, division=division)
    lowering.add_host()
    lowering.add_loading()
    gradients = plan.strategy.data_parallel
    if gradients.service is not None:
        lower_served_step(lowering.builder, plan, division, gradients.service)
    elif gradients.single_process:
        lower_single_process_step(lowering.builder, plan, division)
    else:
        lowering.add_step()
    return lowering.builder.build(division.rank_classes())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """Gradients that one pass completes."""

    key: Key
    """Of the pass."""
    parameters: float


@dataclass(slots=True)
class _Lowering:
    plan: Plan
    division: Division
    builder: ProgramBuilder = field(default_factory=ProgramBuilder)

    def add_host(self) -> None:
        for stage in self.division.stages:
            for lane in self.division.lanes(stage):
                self.builder.add(("host", lane.rank_class), Compute(name="host", phase="host", blocks=()), [lane])

    def add_loading(self) -> None:
        """Add the reading of the next batch, which the ranks that embed it wait for."""
        training = self.plan.training
        if training.loader_samples_per_s is None:
            return
        duration_s = training.global_batch_size / (training.loader_samples_per_s * self.plan.n_ranks)
        work = Work(name="load", phase="load", kernels=(Recorded(duration_s),))
        action = Compute(name="load", phase="load", blocks=(Block(name="load", body=(work,)),))
        for lane in self.division.lanes(0, LOADER_STREAM):
            self.builder.add(("load", lane.rank_class), action, [lane])

    def add_step(self) -> None:
        if self.plan.strategy.zero_stage >= 2:
            lower_sharded_passes(self.builder, self.plan, self.division.mesh)
        else:
            self.add_pipeline()
        self.add_embedding_sync()
        self.add_norm()
        for stage in self.division.stages:
            self.add_update(stage)

    def add_pipeline(self) -> None:
        plan, strategy = self.plan, self.plan.strategy
        pipelines = [
            Pipeline(
                builder=self.builder,
                division=self.division,
                chunks=model_chunks(plan),
                pair_bytes=self._activation_bytes() / strategy.tp,
                overlap=strategy.overlap_p2p,
                part=part,
            )
            for part in range(self.division.n_parts)
        ]
        orders = stage_orders(strategy.schedule, strategy.pp, plan.n_micro_batches, strategy.virtual_stages)
        for stage, order in enumerate(orders):
            ready = [self._add_stage(pipeline, stage, order) for pipeline in pipelines]
            for buckets in zip(*ready, strict=True):
                self._add_gradients(stage, buckets[0].parameters, after=[bucket.key for bucket in buckets])

    def add_embedding_sync(self) -> None:
        """Sum the gradients of a tied head, which is a copy of the embedding on the last stage, and of the embedding."""
        plan, division = self.plan, self.division
        if plan.strategy.pp == 1 or not (plan.model.tied_embeddings and plan.model.lm_head):
            return
        last = plan.strategy.pp - 1
        size_bytes = local_shape(plan).vocab_size * plan.model.hidden_size * numerics(plan).gradient_bytes
        for part in range(division.n_parts):
            pairs = zip(division.ranks(0, part).tolist(), division.ranks(last, part).tolist(), strict=True)
            collective = Collective(op="all_reduce", group=Group(name="embedding", dimension="pp", members=tuple(pairs)), bytes=size_bytes)
            after = [key for stage in (0, last) for key in self.builder.last(division.lane(stage, part))]
            lanes = [division.lane(stage, part, GRADIENT_STREAM) for stage in (0, last)]
            self.builder.add(("embedding", part), Communicate(name="embedding gradient", collective=collective), lanes, after=after)

    def add_norm(self) -> None:
        """Add the norm of all gradients of a model replica: one number, for which everybody waits."""
        strategy, division = self.plan.strategy, self.division
        if strategy.tp * strategy.pp == 1:
            return
        for part, replicas in enumerate(division.parts):
            ranks = division.mesh.ranks[:, list(replicas)]
            members = ranks.transpose(1, 2, 0, 3).reshape(len(replicas) * strategy.cp, -1).tolist()
            group = Group(name="model", dimension="pp" if strategy.pp > 1 else "tp", members=tuple(map(tuple, members)))
            communicate = Communicate(name="gradient norm", collective=Collective(op="all_reduce", group=group, bytes=NORM_BYTES))
            after = [key for stage in division.stages for key in self.builder.last(division.lane(stage, part))]
            lanes = [division.lane(stage, part, GRADIENT_STREAM) for stage in division.stages]
            self.builder.add(("norm", part), communicate, lanes, after=after)

    def add_update(self, stage: int) -> None:
        """Add the update, which waits for all gradients; sharded optimizer states end with the gathering of the new weights."""
        plan, lanes = self.plan, self.division.lanes(stage, GRADIENT_STREAM)
        parameters = stage_parameters(plan, stage)
        updates: list[Key] = []
        for lane, gradient_lane in zip(self.division.lanes(stage), lanes, strict=True):
            updates.append(("optimizer", lane.rank_class))
            self.builder.add(updates[-1], optimizer_update(plan, parameters), [lane], after=self.builder.last(gradient_lane))
        if plan.strategy.zero_stage in (1, 2) and plan.strategy.dp * plan.strategy.cp > 1:
            size_bytes = parameters * numerics(plan).element_bytes
            algorithm = plan.strategy.data_parallel.algorithm
            group = gradient_group(self.division.mesh, stage)
            collective = Collective(op="all_gather", group=group, bytes=size_bytes, algorithm=algorithm)
            self.builder.add(("weights", stage), Communicate(name="gather weights", collective=collective), lanes, after=updates)

    def _add_stage(self, pipeline: Pipeline, stage: int, order: StageOrder) -> list[_Ready]:
        """Add the passes of one part of a stage; return the buckets of gradients in the order in which they become ready."""
        strategy, chunks = self.plan.strategy, pipeline.chunks[stage]
        group = self.division.group("tp", stage, pipeline.part)
        passes, receive = ChunkPasses(plan=self.plan, group=group), self._gather_received(group)
        forward = [_compute("F", (() if chunk.first else receive) + passes.forward(chunk)) for chunk in chunks]
        backward = [_compute("B", (() if chunk.last else receive) + passes.backward(chunk)) for chunk in chunks]
        last = {step.chunk: position for position, step in enumerate(order) if step.backward}
        reduces = strategy.dp * strategy.cp > 1
        ready: list[_Ready] = []
        for position, step in enumerate(order):
            if not step.backward:
                pipeline.add_pass(stage, step, [forward[step.chunk]])
                continue
            chunk = chunks[step.chunk]
            if reduces and strategy.data_parallel.overlap and last[step.chunk] == position:
                keys = pipeline.add_pass(stage, step, self._buckets(passes, chunk, () if chunk.last else receive))
                parameters = chunk_parameters(self.plan, chunk) / len(keys)
                ready += [_Ready(key=key, parameters=parameters) for key in keys]
            else:
                pipeline.add_pass(stage, step, [backward[step.chunk]])
        if reduces and not strategy.data_parallel.overlap:
            (after,) = self.builder.last(self.division.lane(stage, pipeline.part))
            ready.append(_Ready(key=after, parameters=stage_parameters(self.plan, stage)))
        return ready

    def _buckets(self, passes: ChunkPasses, chunk: ModelChunk, receive: tuple[Block, ...]) -> tuple[Compute, ...]:
        """Return a backward pass in pieces of as many layers as fill a bucket, evenly, last layers first."""
        slices = [passes.backward_slice(chunk, start, stop) for start, stop in reversed(layer_slices(self.plan, chunk.n_layers))]
        return tuple(_compute("B", (receive if number == 0 else ()) + blocks) for number, blocks in enumerate(slices))

    def _add_gradients(self, stage: int, parameters: float, *, after: Sequence[Key]) -> None:
        group = gradient_group(self.division.mesh, stage)
        collective = gradient_collective(self.plan, group, parameters * numerics(self.plan).gradient_bytes)
        communicate = Communicate(name="gradients", collective=collective)
        self.builder.add(("gradients", *after[0]), communicate, self.division.lanes(stage, GRADIENT_STREAM), after=after)

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

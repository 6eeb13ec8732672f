"""Lower a plan to a Program: passes in schedule order, sends between stages, gradients, optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from clustersim.program.program import Key, Program, ProgramBuilder
from clustersim.program.tasks import Block, Collective, Communicate, Compute, Group, Work
from clustersim.strategy.activation_offload import StageCopies
from clustersim.strategy.division import Division, Part, divided
from clustersim.strategy.gradients import COPY_STREAM, GRADIENT_STREAM, Bucket, GradientReduction, gathered_bytes
from clustersim.strategy.halves import parallel_groups
from clustersim.strategy.layers import boundary_bytes, tied_parameters
from clustersim.strategy.memory import stage_weights
from clustersim.strategy.mesh import place
from clustersim.strategy.offload import HostSide, offloads
from clustersim.strategy.optimizer import offloaded_update, optimizer_update
from clustersim.strategy.parameter_server import lower_served_step
from clustersim.strategy.passes import ChunkPasses
from clustersim.strategy.pipeline import Labelled, Piece, Pipeline, StagePieces
from clustersim.strategy.plan import SHARDS_GRADIENTS, Plan
from clustersim.strategy.schedules.order import Pass, StageOrder
from clustersim.strategy.shard import ModelChunk, model_chunks, numerics
from clustersim.strategy.sharding_groups import expert_replicas, replicas, shard_scopes
from clustersim.strategy.single_process import lower_single_process_step
from clustersim.strategy.stage_work import Cut, StageWork, completed
from clustersim.strategy.stages import orders_of, places_of
from clustersim.strategy.state_sharding import StageGathers, gatherings
from clustersim.strategy.units import reduces_in_units, reductions
from clustersim.strategy.weights import NOTHING, Weights
from clustersim.workload.operators import Recorded

LOADER_STREAM: Final = "loader"
NORM_BYTES: Final = 4.0


def with_micro_batches(plan: Plan, n_micro_batches: int) -> Plan:
    """Return a plan with another batch, of so many micro-batches for each replica."""
    training = plan.training
    size = n_micro_batches * plan.strategy.dp * training.micro_batch_size
    return replace(plan, training=replace(training, global_batch_size=size))


def lower(plan: Plan, parts: Sequence[Part] | None = None, *, n_micro_batches: int | None = None) -> Program:
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
    n_micro_batches
        How many there are passes of, where those of others are left out: what a step does once is that of the plan.
    """
    division = divided(place(plan.strategy), parts)
    passes = plan if n_micro_batches is None else with_micro_batches(plan, n_micro_batches)
    lowering = _Lowering(plan=plan, passes=passes, division=division)
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
class _Beside:
    """What runs beside the passes of a stage."""

    gathers: StageGathers
    copies: StageCopies
    reduction: GradientReduction

    def cut(self, position: int, reducing: Weights) -> Cut:
        """Return the cut of a pass, beside whose first piece gradients of some parameters are reduced."""
        cut, borders = self.gathers.cut(position), self.copies.borders(position)
        return replace(cut, borders=cut.borders | borders, reducing=reducing) if borders or reducing.total else cut

    def done(self, step: Pass, number: int, piece: Piece) -> tuple[Key, ...]:
        """Return the reductions of the gradients that a piece of a pass completes."""
        reductions = _reductions(self.gathers.stage, step, number, piece)
        return tuple(key for name, bucket in reductions for key in self.reduction.done(name, bucket))

    def awaited(self, position: int, part: int, pieces: Sequence[Piece]) -> tuple[Piece, ...]:
        """Return the pieces of a pass, which wait for what they need."""
        return self.copies.awaited(position, self.gathers.awaited(position, part, pieces))


def _reductions(stage: int, step: Pass, number: int, piece: Piece) -> list[tuple[Key, Bucket]]:
    """Return the buckets that a piece of a pass completes, each with the name of its reduction."""
    return [(("after", stage, step.kind, step.chunk, step.micro_batch, number, count), each) for count, each in enumerate(piece.completes)]


def _last_gradients(order: StageOrder) -> dict[int, int]:
    """Return for each chunk the pass that makes its last gradients of weights."""
    return {step.chunk: position for position, step in enumerate(order) if step.makes_weight_gradients}


@dataclass(slots=True)
class _Lowering:
    plan: Plan
    passes: Plan
    """The same, with as many micro-batches as there are passes of."""
    division: Division
    builder: ProgramBuilder = field(default_factory=ProgramBuilder)
    chunks: tuple[tuple[ModelChunk, ...], ...] = field(init=False)
    """Of every stage."""
    reduces: bool = field(init=False)
    """Whether gradients go anywhere."""
    _sides: dict[int, HostSide] = field(default_factory=dict[int, HostSide])

    def __post_init__(self) -> None:
        """Divide the model once, and ask once what every pass needs to know."""
        self.chunks = model_chunks(self.plan)
        self.reduces = self.plan.strategy.reduces_gradients or offloads(self.plan)

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
        self.add_pipeline()
        self.add_copies_sync()
        self.add_embedding_sync()
        # Checked later, the norm goes from stage to stage with the first activations of the next step: a few bytes, and nobody waits.
        if not self.plan.strategy.optimizer_post_validation:
            self.add_norm()
        for stage in self.division.stages:
            self.add_update(stage)

    def add_pipeline(self) -> None:
        plan, strategy = self.passes, self.plan.strategy
        pipelines = [
            Pipeline(
                builder=self.builder,
                division=self.division,
                places=places_of(strategy),
                pair_bytes=boundary_bytes(plan) / strategy.tp,
                overlap=strategy.overlap_p2p,
                part=part,
            )
            for part in range(self.division.n_parts)
        ]
        for stage, order in enumerate(orders_of(plan)):
            self._add_stage(pipelines, stage, order)

    def _host(self, stage: int) -> HostSide:
        side = self._sides.get(stage)
        if side is None:
            side = self._sides[stage] = HostSide(builder=self.builder, plan=self.passes, division=self.division, stage=stage)
        return side

    def add_embedding_sync(self) -> None:
        """Sum the gradients of a tied head, which is a copy of the embedding on another stage, and of the embedding."""
        plan, division = self.plan, self.division
        ends = places_of(plan.strategy).routes[0]
        first, last = ends[0][0], ends[-1][0]
        if first == last or not tied_parameters(plan) or any(chunk.last and chunk.beside_first for chunk in self.chunks[last]):
            return
        # Shards of the table are added up where gradients are sharded.
        shards = plan.strategy.sharding.degree if plan.strategy.zero_stage >= SHARDS_GRADIENTS else 1
        size_bytes = tied_parameters(plan) / shards * numerics(plan).gradient_bytes
        for part in range(division.n_parts):
            pairs = np.stack((division.ranks(first, part), division.ranks(last, part)), axis=1)
            group = division.named("embedding", "pp", pairs, part)
            collective = Collective(op="all_reduce", group=group, bytes=size_bytes)
            after = [key for stage in (first, last) for key in self.builder.last(division.lane(stage, part))]
            lanes = [division.lane(stage, part, GRADIENT_STREAM) for stage in (first, last)]
            self.builder.add(("embedding", part), Communicate(name="embedding gradient", collective=collective), lanes, after=after)

    def add_copies_sync(self) -> None:
        """Sum the gradients of the copies of the model, which went through different micro-batches."""
        plan, division = self.plan, self.division
        if places_of(plan.strategy).n_copies == 1:
            return
        for stage in range(plan.strategy.pp // 2):
            opposite = plan.strategy.pp - 1 - stage
            size_bytes = stage_weights(plan, stage).shard(plan.strategy.sharding) * numerics(plan).gradient_bytes
            for part in range(division.n_parts):
                pairs = np.stack((division.ranks(stage, part), division.ranks(opposite, part)), axis=1)
                group = division.named(f"copies {stage}, {opposite}", "pp", pairs, part)
                lanes = [division.lane(each, part, GRADIENT_STREAM) for each in (stage, opposite)]
                after = [key for each in (stage, opposite) for key in self.builder.last(division.lane(each, part))]
                action = Communicate(name="gradients of copies", collective=Collective(op="all_reduce", group=group, bytes=size_bytes))
                self.builder.add(("copies of the model", stage, part), action, lanes, after=after)

    def add_norm(self) -> None:
        """Add the norm of all gradients of a model replica: one number, for which everybody waits."""
        strategy, division = self.plan.strategy, self.division
        if strategy.tp * strategy.pp == 1:
            return
        for part, of_part in enumerate(division.parts):
            ranks = division.mesh.ranks[:, list(of_part)]
            members = ranks.transpose(1, 2, 0, 3).reshape(len(of_part) * strategy.cp, -1)
            group = division.named("model", "pp" if strategy.pp > 1 else "tp", members, part)
            communicate = Communicate(name="gradient norm", collective=Collective(op="all_reduce", group=group, bytes=NORM_BYTES))
            after = [key for stage in division.stages for key in self.builder.last(division.lane(stage, part))]
            lanes = [division.lane(stage, part, GRADIENT_STREAM) for stage in division.stages]
            self.builder.add(("norm", part), communicate, lanes, after=after)

    def add_update(self, stage: int) -> None:
        """Add the update, which waits for all gradients; sharded optimizer states end with the gathering of the new weights."""
        plan, division, strategy = self.plan, self.division, self.plan.strategy
        weights = stage_weights(plan, stage)
        updates: list[Key] = []
        for part, lane in enumerate(division.lanes(stage)):
            reduced = [key for stream in (GRADIENT_STREAM, COPY_STREAM) for key in self.builder.last(division.lane(stage, part, stream))]
            if offloads(plan):
                updates += reduced
            updates.append(("optimizer", lane.rank_class))
            action = offloaded_update(plan, weights) if offloads(plan) else optimizer_update(plan, weights)
            self.builder.add(updates[-1], action, [lane], after=reduced)
        on_host = self._host(stage).add_update(weights, after=updates) if offloads(plan) else ()
        if strategy.zero_stage not in (1, 2):
            return
        dense, expert = (holders(strategy, division.mesh, stage) for holders in (replicas, expert_replicas))
        for holders, parameters in ((dense, weights.dense), (expert, weights.expert)):
            if holders.degree == 1 or not parameters:
                continue
            size_bytes, algorithm = parameters * gathered_bytes(plan), strategy.data_parallel.algorithm
            for scope in shard_scopes(division, holders):
                collective = Collective(op="all_gather", group=scope.group, bytes=size_bytes, algorithm=algorithm)
                action = Communicate(name="gather weights", collective=collective)
                after = on_host or [updates[part] for part in scope.parts]
                self.builder.add((f"{holders.kind}weights", stage, *scope.parts), action, scope.lanes(GRADIENT_STREAM), after=after)

    def _add_stage(self, pipelines: Sequence[Pipeline], stage: int, order: StageOrder) -> None:
        """Add the passes of all parts of a stage, what is gathered for them, and the reduction of the gradients that they complete."""
        plan, host = self.passes, self._host(stage)
        beside = _Beside(
            gathers=StageGathers(
                builder=self.builder,
                plan=plan,
                division=self.division,
                stage=stage,
                host=host,
                gathered=gatherings(plan, self.chunks[stage], order),
            ),
            copies=StageCopies(plan=plan, host=host, chunks=self.chunks[stage], order=order),
            reduction=GradientReduction(builder=self.builder, plan=plan, division=self.division, stage=stage),
        )
        parts = [self._add_passes(pipeline, order, beside) for pipeline in pipelines]
        last, reduced = _last_gradients(order), dict.fromkeys(range(len(self.chunks[stage])), 0)
        for position, step in enumerate(order):
            own, pieces = [added.own(position) for added in parts], parts[0].pieces[position]
            beside.gathers.add(position, step, parts)
            beside.copies.add(position, parts, pieces)
            # Micro-batches are counted for whoever adds up: the last one of the step is the one behind which nothing is added any more.
            number = plan.n_micro_batches - 1 if last.get(step.chunk) == position else reduced[step.chunk]
            label = (-1, -1) if last.get(step.chunk) == position else (step.micro_batch, step.chunk)
            for piece_number, (piece, keys) in enumerate(zip(pieces, zip(*own, strict=True), strict=True)):
                for key, bucket in _reductions(stage, step, piece_number, piece):
                    done = beside.reduction.add(key, bucket, after=keys, label=label)
                    host.add_gradient_copy(bucket.weights, after=done, micro_batch=number)
            reduced[step.chunk] += any(piece.completes for piece in pieces)

    def _add_passes(self, pipeline: Pipeline, order: StageOrder, beside: _Beside) -> StagePieces:
        """Add the passes of one part of a stage."""
        stage, overlap = beside.gathers.stage, self.plan.strategy.data_parallel.overlap
        groups = parallel_groups(self.plan, self.division, stage, pipeline.part)
        passes, receive = ChunkPasses(plan=self.plan, groups=groups), self._gather_received(groups.tp)
        work = StageWork(plan=self.plan, passes=passes, chunks=self.chunks[stage], receive=receive)
        last, added = _last_gradients(order), StagePieces()
        reducing = NOTHING
        together: list[Labelled] = []
        for position, step in enumerate(order):
            pieces = self._pieces(work, step, position, last=last, cut=beside.cut(position, reducing))
            reducing = completed(pieces[-1].completes)
            pieces = beside.awaited(position, pipeline.part, pieces)
            if not overlap:
                for number, piece in enumerate(pieces):
                    added.reductions.append(beside.done(step, number, piece))
                pieces = added.one_by_one(pieces)
            together.append((step, pieces))
            if step.beside_next:
                continue
            for keys, (_, done) in zip(pipeline.add_together(stage, work.woven(together)), together, strict=True):
                added.starts.append(len(added.keys))
                added.keys += keys
                added.pieces.append(tuple(done))
            together = []
        return added

    def _pieces(self, work: StageWork, step: Pass, position: int, *, last: Mapping[int, int], cut: Cut) -> tuple[Piece, ...]:
        """Return the pieces of a pass, with the buckets of gradients that they complete; none for most passes."""
        plan, gradients = self.plan, self.plan.strategy.data_parallel
        complete = step.makes_weight_gradients and self.reduces and (last[step.chunk] == position or not gradients.no_sync)
        if complete and reduces_in_units(plan):
            return work.pieces(step, replace(cut, reduces=True))
        pieces = work.pieces(step, cut)
        # Without overlap a replica reduces everything behind its last pass, or each micro-batch behind its own.
        if not complete or (position < max(last.values()) and gradients.no_sync):
            return pieces
        chunks = work.chunks if gradients.no_sync else [work.chunks[step.chunk]]
        return work.with_buckets(pieces, reductions(plan, chunks))

    def _gather_received(self, group: Group) -> tuple[Block, ...]:
        """Without sequence parallelism each rank receives 1/tp of the activation, and the group puts it together.

        Megatron-LM calls it the scatter-gather optimisation.
        """
        strategy = self.plan.strategy
        if strategy.tp == 1 or strategy.pp == 1 or strategy.sequence_parallel:
            return ()
        return (Block(name="receive", body=(Collective(op="all_gather", group=group, bytes=boundary_bytes(self.plan)),)),)

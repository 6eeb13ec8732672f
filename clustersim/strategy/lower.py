"""Lower a plan to a Program: passes in schedule order, sends between stages, gradients, optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import fsum
from types import MappingProxyType
from typing import Final

from clustersim.program.program import Key, Program, ProgramBuilder
from clustersim.program.tasks import Block, Collective, Communicate, Compute, Group, Work
from clustersim.strategy.division import Division, Part, divided
from clustersim.strategy.gradients import (
    COPY_STREAM,
    GRADIENT_STREAM,
    Bucket,
    GradientReduction,
    cast_blocks,
    gathered_bytes,
    gradient_buckets,
)
from clustersim.strategy.halves import PHASES, Gradients, parallel_groups
from clustersim.strategy.interference import beside_blocks
from clustersim.strategy.layers import boundary_bytes, tied_parameters
from clustersim.strategy.memory import stage_weights
from clustersim.strategy.mesh import place
from clustersim.strategy.offload import HostSide, offloads
from clustersim.strategy.optimizer import offloaded_update, optimizer_update
from clustersim.strategy.parameter_server import lower_served_step
from clustersim.strategy.passes import ChunkPasses
from clustersim.strategy.pipeline import Labelled, Pipeline
from clustersim.strategy.plan import Plan
from clustersim.strategy.schedules.order import Pass, PassKind, StageOrder
from clustersim.strategy.shard import ModelChunk, model_chunks, numerics
from clustersim.strategy.sharded import lower_sharded_passes
from clustersim.strategy.sharding_groups import expert_replicas, replicas, shard_scopes
from clustersim.strategy.single_process import lower_single_process_step
from clustersim.strategy.stages import orders_of, places_of
from clustersim.strategy.weaving import woven
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


GRADIENTS: Final[Mapping[PassKind, Gradients]] = MappingProxyType({"F": "all", "B": "all", "I": "input", "W": "weight"})
"""What each kind of pass computes as it goes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """Gradients that one pass completes."""

    key: Key
    """Of the pass."""
    bucket: Bucket


@dataclass(slots=True)
class _Lowering:
    plan: Plan
    division: Division
    builder: ProgramBuilder = field(default_factory=ProgramBuilder)
    chunks: tuple[tuple[ModelChunk, ...], ...] = field(init=False)
    """Of every stage."""
    _sides: dict[int, HostSide] = field(default_factory=dict[int, HostSide])

    def __post_init__(self) -> None:
        """Divide the model once."""
        self.chunks = model_chunks(self.plan)

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
            lower_sharded_passes(self.builder, self.plan, self.division, self._host(0))
        else:
            self.add_pipeline()
        self.add_copies_sync()
        self.add_embedding_sync()
        # Checked later, the norm goes from stage to stage with the first activations of the next step: a few bytes, and nobody waits.
        if not self.plan.strategy.optimizer_post_validation:
            self.add_norm()
        for stage in self.division.stages:
            self.add_update(stage)

    def add_pipeline(self) -> None:
        plan, strategy = self.plan, self.plan.strategy
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
            reduction = GradientReduction(builder=self.builder, plan=plan, division=self.division, stage=stage)
            for parts in zip(*(self._add_stage(pipeline, stage, order) for pipeline in pipelines), strict=True):
                key: Key = ("after", *parts[0].key)
                reduced = reduction.add(key, parts[0].bucket, after=[ready.key for ready in parts])
                self._host(stage).add_gradient_copy(parts[0].bucket.weights, after=reduced, micro_batch=plan.n_micro_batches - 1)

    def _host(self, stage: int) -> HostSide:
        side = self._sides.get(stage)
        if side is None:
            side = self._sides[stage] = HostSide(builder=self.builder, plan=self.plan, division=self.division, stage=stage)
        return side

    def add_embedding_sync(self) -> None:
        """Sum the gradients of a tied head, which is a copy of the embedding on another stage, and of the embedding."""
        plan, division = self.plan, self.division
        ends = places_of(plan.strategy).routes[0]
        first, last = ends[0][0], ends[-1][0]
        if first == last or not tied_parameters(plan) or any(chunk.last and chunk.beside_first for chunk in self.chunks[last]):
            return
        size_bytes = tied_parameters(plan) * numerics(plan).gradient_bytes
        for part in range(division.n_parts):
            pairs = zip(division.ranks(first, part).tolist(), division.ranks(last, part).tolist(), strict=True)
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
                pairs = zip(division.ranks(stage, part).tolist(), division.ranks(opposite, part).tolist(), strict=True)
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
            members = ranks.transpose(1, 2, 0, 3).reshape(len(of_part) * strategy.cp, -1).tolist()
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

    def _add_stage(self, pipeline: Pipeline, stage: int, order: StageOrder) -> list[_Ready]:
        """Add the passes of one part of a stage; return the buckets of gradients in the order in which they become ready."""
        groups = parallel_groups(self.plan, self.division, stage, pipeline.part)
        passes, receive = ChunkPasses(plan=self.plan, groups=groups), self._gather_received(groups.tp)
        work = _StageWork(plan=self.plan, passes=passes, chunks=self.chunks[stage], receive=receive)
        last = {step.chunk: position for position, step in enumerate(order) if step.makes_weight_gradients}
        ready: list[_Ready] = []
        together: list[tuple[Pass, tuple[Compute, ...], tuple[Bucket, ...]]] = []
        for position, step in enumerate(order):
            together.append((step, *self._pieces(work, step, last, position)))
            if step.beside_next:
                continue
            added = pipeline.add_together(stage, work.woven([(each, pieces) for each, pieces, _ in together]))
            for keys, (_, _, buckets) in zip(added, together, strict=True):
                # A pass with one bucket for all of its pieces has one piece.
                ready += [_Ready(key=key, bucket=bucket) for key, bucket in zip(keys, buckets, strict=bool(buckets))]
            together = []
        return ready

    def _pieces(
        self, work: _StageWork, step: Pass, last: Mapping[int, int], position: int
    ) -> tuple[tuple[Compute, ...], tuple[Bucket, ...]]:
        """Return the pieces of a pass, and the buckets of gradients that each of them completes; nothing for most passes."""
        plan, gradients = self.plan, self.plan.strategy.data_parallel
        reduces = plan.strategy.reduces_gradients or offloads(plan)
        complete = step.makes_weight_gradients and reduces and (last[step.chunk] == position or not gradients.no_sync)
        if complete and gradients.overlap:
            return work.buckets(step)
        # Without overlap a replica reduces everything behind its last pass, or each micro-batch behind its own.
        if not complete or (position < max(last.values()) and gradients.no_sync):
            return (work.whole(step),), ()
        bucket = self._one_bucket(work.chunks if gradients.no_sync else [work.chunks[step.chunk]])
        return (_compute(step.kind, work.whole(step).blocks + cast_blocks(plan, bucket.weights.total)),), (bucket,)

    def _one_bucket(self, chunks: Sequence[ModelChunk]) -> Bucket:
        """Return all gradients of some chunks as one bucket of as many calls."""
        buckets = [bucket for chunk in chunks for bucket in gradient_buckets(self.plan, chunk)]
        return Bucket(
            parameters=fsum(each.parameters for each in buckets),
            layer=0,
            n_calls=sum(each.n_calls for each in buckets),
            expert_parameters=fsum(each.expert_parameters for each in buckets),
            expert_calls=sum(each.expert_calls for each in buckets),
        )

    def _gather_received(self, group: Group) -> tuple[Block, ...]:
        """Without sequence parallelism each rank receives 1/tp of the activation, and the group puts it together.

        Megatron-LM calls it the scatter-gather optimisation.
        """
        strategy = self.plan.strategy
        if strategy.tp == 1 or strategy.pp == 1 or strategy.sequence_parallel:
            return ()
        return (Block(name="receive", body=(Collective(op="all_gather", group=group, bytes=boundary_bytes(self.plan)),)),)


@dataclass(slots=True, kw_only=True)
class _StageWork:
    """The passes of one stage as work, each kind made once."""

    plan: Plan
    passes: ChunkPasses
    chunks: Sequence[ModelChunk]
    receive: tuple[Block, ...]
    """Puts together what was sent in parts."""
    _known: dict[tuple[PassKind, int], Compute] = field(default_factory=dict[tuple[PassKind, int], Compute])
    _pairs: dict[tuple[int, int], tuple[Compute, ...]] = field(default_factory=dict[tuple[int, int], tuple[Compute, ...]])

    def whole(self, step: Pass) -> Compute:
        """Return a pass in one piece."""
        chunk, action = self.chunks[step.chunk], self._known.get((step.kind, step.chunk))
        if action is None:
            passes = self.passes.of(GRADIENTS[step.kind])
            blocks = passes.forward(chunk) if step.kind == "F" else passes.backward(chunk)
            action = self._known[step.kind, step.chunk] = _compute(step.kind, self._received(step) + blocks)
        return action

    def woven(self, passes: list[Labelled]) -> list[Labelled]:
        """Return passes as they run at once: two of them, each in one piece, with their collectives beside the other."""
        if len(passes) == 1 or any(len(pieces) > 1 for _, pieces in passes):
            return passes
        (one, (mine,)), (other, (theirs,)) = passes
        found = self._pairs.get((id(mine), id(theirs)))
        if found is None:
            # Both are kept by the pair, so that their identities stay theirs.
            found = self._pairs[id(mine), id(theirs)] = (mine, theirs, *woven(mine, theirs))
        return [(one, (found[2],)), (other, (found[3],))]

    def buckets(self, step: Pass) -> tuple[tuple[Compute, ...], tuple[Bucket, ...]]:
        """Return a backward pass in pieces, last layers first, and the bucket of gradients that each of them completes."""
        plan, chunk, passes = self.plan, self.chunks[step.chunk], self.passes.of(GRADIENTS[step.kind])
        buckets = gradient_buckets(plan, chunk)
        borders = pairwise((chunk.n_layers, *(bucket.layer for bucket in buckets)))
        pieces = [
            (self._received(step) if number == 0 else ())
            + passes.backward_slice(chunk, start, stop)
            + cast_blocks(plan, buckets[number].weights.total)
            # The bucket before is reduced beside this piece.
            + (beside_blocks(plan, "backward", reduced=buckets[number - 1].weights) if number else ())
            for number, (stop, start) in enumerate(borders)
        ]
        return tuple(_compute(step.kind, blocks) for blocks in pieces), buckets

    def _received(self, step: Pass) -> tuple[Block, ...]:
        chunk = self.chunks[step.chunk]
        return () if step.kind == "W" or (chunk.first if step.kind == "F" else chunk.last) else self.receive


def _compute(kind: PassKind, blocks: tuple[Block, ...]) -> Compute:
    return Compute(name=kind, phase="forward" if kind == "F" else PHASES[GRADIENTS[kind]], blocks=blocks)

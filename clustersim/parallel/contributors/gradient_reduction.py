"""Gradient reduction: buckets of complete gradients are reduced among all ranks with the same parameters.

References
----------
.. [1] Y. Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023, section 3.2.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import fsum

import numpy as np

from clustersim.collectives import ALGORITHMS
from clustersim.collectives.pattern import Grouping, grouping
from clustersim.errors import DomainError
from clustersim.hardware.library_costs import CollectiveOp
from clustersim.parallel.contributors.contributor import Contributor, StageContributor, Step
from clustersim.parallel.division import place
from clustersim.parallel.gradients import (
    COPY_STREAM,
    GRADIENT_STREAM,
    SHARDS_OF_COPIES,
    Bucket,
    cast_blocks,
    copies_gradients,
    gradient_buckets,
    gradient_operations,
    operations_among,
    reduced_bytes,
)
from clustersim.parallel.layers import heaviest_run
from clustersim.parallel.offload import offloads
from clustersim.parallel.pipeline import Piece, StagePieces
from clustersim.parallel.schedules.order import Pass, StageOrder
from clustersim.parallel.sharding_groups import Holders, expert_replicas, replicas, shard_scopes
from clustersim.parallel.stage import Stage
from clustersim.parallel.stage_work import Cut, completed
from clustersim.parallel.stages import ModelChunk
from clustersim.parallel.step_settings import PARAMETER_SERVER
from clustersim.parallel.training_plan import SHARDS_GRADIENTS, Strategy
from clustersim.parallel.units import BUCKETS_IN_USE, reduces_in_units, reductions
from clustersim.parallel.weights import NOTHING
from clustersim.program.holds import BACKWARD_TO_REDUCTION, Hold
from clustersim.program.program import Key
from clustersim.program.tasks import Compute
from clustersim.topology.wired import Cluster
from clustersim.workloads.model import Model


class GradientReduction(Contributor):
    """Reduction of gradients by collectives, and copies to hosts that update."""

    @classmethod
    def applies(cls, strategy: Strategy) -> bool:
        """Return whether gradients go anywhere, and neither to parameter servers nor to the root of one process."""
        return not strategy.data_parallel.central and (strategy.reduces_gradients or offloads(strategy))

    @classmethod
    def refuse_placed(cls, strategy: Strategy, *, model: Model, cluster: Cluster, nodes: Sequence[int]) -> None:
        """Refuse an algorithm that an operation does not have, or that the cluster cannot run, with those that would run."""
        name = strategy.data_parallel.algorithm
        if name in ("auto", PARAMETER_SERVER):
            return
        path, ops = ("strategy", "data_parallel", "algorithm"), gradient_operations(strategy)
        shared = [known for known in ALGORITHMS["all_reduce"] if all(known in ALGORITHMS[op] for op in ops)]
        if name not in shared:
            what = f"'{name}' is not an algorithm of {' and '.join(ops)}, which zero_stage {strategy.zero_stage} needs"
            raise DomainError(what, path=path, hint=_advice(shared))
        groups = _groups(strategy, cluster, nodes)
        for op in ops:
            error = _refusal(cluster, groups, op, name)
            if error is not None:
                runs = [other for other in shared if all(_refusal(cluster, groups, each, other) is None for each in ops)]
                raise DomainError(error.message, path=path, hint=_advice(runs), in_the_way=error.path) from error

    @classmethod
    def holds(cls, stage: Stage) -> tuple[Hold, ...]:
        """Return the buffers of gradient reduction: buckets, and gradients that are whole until then."""
        return (
            Hold(category="buffers", owner="gradient_reduction", bytes=_buckets_bytes(stage)),
            Hold(category="gradients", owner="state_sharding", bytes=_whole_bytes(stage), interval=BACKWARD_TO_REDUCTION),
        )

    def stage(self, stage: int, order: StageOrder) -> StageContributor:
        """Return the reductions of a stage."""
        return _StageReductions(self.step, stage, order)


def _groups(strategy: Strategy, cluster: Cluster, nodes: Sequence[int]) -> tuple[Grouping, ...]:
    """Return the groups of gradient reduction of each stage, on the ranks of the cluster; none without partners."""
    mesh, stages = place(strategy), range(strategy.pp)
    groups = [holders(strategy, mesh, stage).group() for stage in stages for holders in (replicas, expert_replicas)]
    local, per_node = np.array(nodes, dtype=np.int64), cluster.node.n_accelerators
    members = [group.members for group in groups if group.size > 1]
    return tuple(grouping(cluster, local[ranks // per_node] * per_node + ranks % per_node) for ranks in members)


def _refusal(cluster: Cluster, groups: Sequence[Grouping], op: CollectiveOp, name: str) -> DomainError | None:
    """Return why some groups cannot run an algorithm; None where all can."""
    try:
        for group in groups:
            ALGORITHMS[op][name].lay(cluster, group)
    except DomainError as error:
        return error
    return None


def _advice(names: Sequence[str]) -> str:
    return f"use {', '.join(['auto', *names[:-1]])} or {names[-1]}"


class _StageReductions(StageContributor):
    """Reductions after the passes of one stage that complete gradients.

    With overlap, and where parameters are sharded, each unit is reduced as soon as it is complete. Without overlap a replica reduces
    everything behind its last pass, or each micro-batch behind its own, and the next piece waits.
    """

    def __init__(self, step: Step, stage: int, order: StageOrder) -> None:
        self.stage, self.host, self.order, self.n_micro_batches = step.stages[stage], step.host(stage), order, step.n_micro_batches
        self._reduction = BucketReduction(step, stage)
        self._last = {each.chunk: position for position, each in enumerate(order) if each.makes_weight_gradients}
        """Pass that makes the last gradients of weights of each chunk."""
        self._n_reduced = dict.fromkeys(range(len(self.stage.chunks)), 0)
        """Micro-batches of each chunk that were reduced so far."""
        self._reducing = NOTHING
        """Parameters whose gradients are reduced beside the next pass."""
        self._filled: dict[tuple[int, tuple[Bucket, ...]], tuple[Compute, Compute]] = {}
        """For each pass and its buckets, the pass itself, so that its identity stays its own, and the pass that fills them."""

    def cut(self, position: int, cut: Cut) -> Cut:
        """Return the division of a pass after the layers that complete a unit."""
        reducing = self._reducing if position else NOTHING
        reduces = self._completes(position) and reduces_in_units(self.stage.strategy)
        return replace(cut, reducing=reducing, reduces=reduces) if reduces or reducing is not NOTHING else cut

    def pieces(self, position: int, pieces: tuple[Piece, ...], added: StagePieces) -> tuple[Piece, ...]:
        """Return the pieces of a pass, the last of which fills buckets that are reduced together."""
        gradients = self.stage.strategy.data_parallel
        at_once = self._completes(position) and not reduces_in_units(self.stage.strategy)
        if at_once and not (gradients.no_sync and position < max(self._last.values())):
            chunks = self.stage.chunks if gradients.no_sync else [self.stage.chunks[self.order[position].chunk]]
            pieces = self._with_buckets(pieces, reductions(self.stage.local, self.stage.strategy, chunks))
        self._reducing = completed(pieces[-1].completes)
        if gradients.overlap:
            return pieces
        for number, piece in enumerate(pieces):
            behind = self._reductions(self.order[position], number, piece)
            added.reductions.append(tuple(key for name, bucket in behind for key in self._reduction.done(name, bucket)))
        return added.one_by_one(pieces)

    def beside(self, position: int, parts: Sequence[StagePieces]) -> None:
        """Add the reductions after a pass, and the copies of their results to the host."""
        step, own, pieces = self.order[position], [part.own(position) for part in parts], parts[0].pieces[position]
        # Micro-batches are counted for ranks that add up: nothing is added behind the last one of the step.
        last = self._last.get(step.chunk) == position
        number = self.n_micro_batches - 1 if last else self._n_reduced[step.chunk]
        label = (-1, -1) if last else (step.micro_batch, step.chunk)
        for piece_number, (piece, keys) in enumerate(zip(pieces, zip(*own, strict=True), strict=True)):
            for key, bucket in self._reductions(step, piece_number, piece):
                done = self._reduction.add(key, bucket, after=keys, label=label)
                self.host.add_gradient_copy(bucket.weights, after=done, micro_batch=number)
        self._n_reduced[step.chunk] += any(piece.completes for piece in pieces)

    def _completes(self, position: int) -> bool:
        """Return whether gradients are complete after a pass."""
        step = self.order[position]
        added_up = self.stage.strategy.data_parallel.no_sync and self._last.get(step.chunk) != position
        return step.makes_weight_gradients and not added_up

    def _reductions(self, step: Pass, number: int, piece: Piece) -> list[tuple[Key, Bucket]]:
        """Return the buckets that a piece of a pass completes, each with the name of its reduction."""
        name = ("after", self.stage.number, step.kind, step.chunk, step.micro_batch, number)
        return [((*name, count), each) for count, each in enumerate(piece.completes)]

    def _with_buckets(self, pieces: tuple[Piece, ...], buckets: tuple[Bucket, ...]) -> tuple[Piece, ...]:
        """Return pieces of which the last one puts gradients into their buckets."""
        last = pieces[-1].action
        known = (id(last), buckets)
        if known not in self._filled:
            filling = cast_blocks(self.stage.strategy, self.stage.local.numerics, completed(buckets).total)
            self._filled[known] = last, replace(last, blocks=last.blocks + filling)
        return (*pieces[:-1], replace(pieces[-1], action=self._filled[known][1], completes=buckets))


class BucketReduction:
    """Reduction of the buckets of one stage: one collective for all parts of its replicas.

    Without sharding, and with optimizer states that are sharded over some of the ranks only, all ranks add up in full. Otherwise each
    rank of a shard group receives its part of the sum, and copies add up these parts on a stream of their own, as PyTorch does
    for hybrid sharding [1]_.
    """

    def __init__(self, step: Step, stage: int) -> None:
        """Find the groups of ranks once."""
        strategy, mesh = step.strategy, step.division.mesh
        self._dense, self._expert = (_Reduction(step, holders(strategy, mesh, stage)) for holders in (replicas, expert_replicas))

    def add(self, key: Key, bucket: Bucket, *, after: Sequence[Key], label: tuple[int, int] = (-1, -1)) -> tuple[Key, ...]:
        """Add the reduction of a bucket; return the names of its last tasks, with which every rank has its sum.

        Parameters
        ----------
        key
            A name for it, unique in the program together with the word ``gradients``.
        after
            Names of the passes that complete the bucket, one for each part of the replicas.
        label
            Micro-batch and chunk for the timeline.
        """
        for reduction, parameters, n_calls in self._parts(bucket):
            reduction.add(key, parameters, n_calls, after=after, label=label)
        return self.done(key, bucket) or tuple(after)

    def done(self, key: Key, bucket: Bucket) -> tuple[Key, ...]:
        """Return the names of the last tasks of the reduction of a bucket; nothing for gradients of a lone rank."""
        return tuple(reduction.done(key) for reduction, _, _ in self._parts(bucket))

    def _parts(self, bucket: Bucket) -> list[tuple[_Reduction, float, int]]:
        """Return the parts of a bucket that are added up, each with its parameters and calls."""
        parts = [(self._dense, bucket.parameters, bucket.n_calls)] if bucket.n_calls else []
        if bucket.expert_calls and self._expert.whole.size > 1:
            parts.append((self._expert, bucket.expert_parameters, bucket.expert_calls))
        return parts


class _Reduction:
    """Reduction of the gradients of one kind of parameters."""

    def __init__(self, step: Step, holders: Holders) -> None:
        self.step, self.holders, self.whole, self.copies = step, holders, holders.group(), holders.copies()
        self.ops = operations_among(self.whole.size, holders.degree, step.strategy)
        self.scopes = shard_scopes(step.division, holders)

    def done(self, key: Key) -> Key:
        """Return the name of the collective that ends a reduction."""
        return (f"{self.holders.kind}{'copies' if self.ops == SHARDS_OF_COPIES else 'gradients'}", *key)

    def add(self, key: Key, parameters: float, n_calls: int, *, after: Sequence[Key], label: tuple[int, int]) -> None:
        """Add the collectives of one bucket."""
        step, stage = self.step, self.holders.stage
        size_bytes = parameters * reduced_bytes(step.strategy.data_parallel, step.stages[stage].local.numerics)
        if self.ops != SHARDS_OF_COPIES:
            action = step.collective("gradients", self.ops[0], self.whole, size_bytes, n_calls)
            step.builder.add(self.done(key), action, step.division.lanes(stage, GRADIENT_STREAM), after=after, label=label)
            return
        scattered: list[Key] = []
        for scope in self.scopes:
            scattered.append((f"{self.holders.kind}gradients", *key, *scope.parts))
            action = step.collective("gradients", "reduce_scatter", scope.group, size_bytes, n_calls)
            needed = [after[part] for part in scope.parts]
            step.builder.add(scattered[-1], action, scope.lanes(GRADIENT_STREAM), after=needed, label=label)
        action = step.collective("gradients of copies", "all_reduce", self.copies, size_bytes / self.holders.degree, n_calls)
        step.builder.add(self.done(key), action, step.division.lanes(stage, COPY_STREAM), after=scattered, label=label)


def _buckets_bytes(stage: Stage) -> float:
    """Return the buffers of the reduction of whole gradients.

    PyTorch's DDP keeps every gradient twice, once in its bucket; see ``copies_gradients``. Sharded optimizer states use a bucket that
    fills and one that is reduced (DeepSpeed, ``reduce_bucket_size`` with ``overlap_comm``). A precision of its own on the wire needs a
    bucket in that precision.
    """
    strategy, number = stage.strategy, stage.local.numerics
    if strategy.replicas == 1 or strategy.zero_stage >= SHARDS_GRADIENTS:
        return 0.0
    buckets = [bucket for chunk in stage.chunks for bucket in gradient_buckets(stage.local, strategy.data_parallel, chunk)]
    calls = [call for each in buckets for call in ((each.parameters, each.n_calls), (each.expert_parameters, each.expert_calls))]
    largest = max((parameters / n_calls for parameters, n_calls in calls if n_calls), default=0.0)
    wire_bytes = reduced_bytes(strategy.data_parallel, number)
    size_bytes = largest * wire_bytes if wire_bytes != number.gradient_bytes else 0.0
    if copies_gradients(strategy, number):
        copied = fsum(bucket.weights.total for bucket in buckets) if strategy.zero_stage == 0 else BUCKETS_IN_USE * largest
        size_bytes += copied * number.gradient_bytes
    return size_bytes


def _whole_bytes(stage: Stage) -> float:
    """Return the whole gradients besides the stored shard.

    With ZeRO-3 two layers at a time, one computed while the other is reduced, and those of embedding and head, which are complete at the
    end (PyTorch FSDP, the root unit); with ZeRO-2 what two buckets hold. Without overlap it is one of them. All gradients, of every chunk
    of a stage, are whole where micro-batches add up before they are reduced (``no_sync``). The reduction makes the shard out of them and
    frees them unit by unit, so that the two are one and not a sum (PyTorch FSDP: ``zero_grad`` leaves no shard behind, and under
    ``no_sync`` there is none before the last backward pass).
    """
    whole = stage.weights.total
    stays = stage.strategy.offload.gradients == "accelerator"
    # Gradients that live elsewhere pass whole through the memory of a lone rank too.
    if stays and stage.kept_parameters(SHARDS_GRADIENTS) >= whole:
        return 0.0
    if stage.strategy.data_parallel.no_sync and stage.n_micro_batches > 1:
        return max(0.0, whole * stage.local.numerics.gradient_bytes - stage.kept_gradients_bytes)
    return max(_unreduced_bytes(stage, chunk) for chunk in stage.chunks)


def _unreduced_bytes(stage: Stage, chunk: ModelChunk) -> float:
    """Return the gradients of one chunk that are whole at a time where each micro-batch reduces its own."""
    local, number, gradients = stage.local, stage.local.numerics, stage.strategy.data_parallel
    layers, ends = [each.total for each in local.layer_weights(chunk.layers)], local.end_weights(chunk).total
    wire_bytes = reduced_bytes(gradients, number)
    window = BUCKETS_IN_USE if gradients.overlap else 1
    if stage.strategy.zero_stage == SHARDS_GRADIENTS:
        buckets = [bucket.weights.total for bucket in gradient_buckets(local, gradients, chunk)]
        casts_bytes = max(buckets, default=0.0) * wire_bytes if wire_bytes != number.gradient_bytes else 0.0
        return heaviest_run(buckets, window) * number.gradient_bytes + casts_bytes
    most = heaviest_run(layers, window)
    casts_bytes = max(layers, default=0.0) * wire_bytes if wire_bytes != number.element_bytes else 0.0
    return (most + ends) * number.element_bytes + casts_bytes

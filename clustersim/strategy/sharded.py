"""Passes of ZeRO-2 and ZeRO-3: weights gathered layer by layer, gradients reduced layer by layer."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import fsum

from clustersim.hardware.communication import CollectiveOp
from clustersim.program.program import Key, ProgramBuilder
from clustersim.program.tasks import COMPUTE_STREAM, Collective, Communicate, Compute, Group, Lane
from clustersim.strategy.gradients import GRADIENT_STREAM, gradient_group, n_buckets
from clustersim.strategy.memory import chunk_parameters
from clustersim.strategy.mesh import Mesh
from clustersim.strategy.passes import ChunkPasses
from clustersim.strategy.plan import Plan
from clustersim.strategy.shard import ModelChunk, local_shape, model_chunks, numerics
from clustersim.workload.layer import layer_operators

GATHER_STREAM = "dp_gather"


def lower_sharded_passes(builder: ProgramBuilder, plan: Plan, mesh: Mesh) -> None:
    """Add forward and backward passes of every micro-batch, layer by layer, for a plan without pipeline stages.

    Each layer's weights (ZeRO-3) are gathered before its forward and again before its backward pass, one layer ahead when
    overlapped; each layer's gradients are reduce-scattered after its backward pass of every micro-batch.
    """
    (chunk,) = model_chunks(plan)[0]
    lowering = _Sharded(builder=builder, plan=plan, mesh=mesh, chunk=chunk, group=gradient_group(mesh, 0))
    for micro_batch in range(plan.n_micro_batches):
        for layer in range(chunk.n_layers):
            lowering.add_layer(micro_batch, layer, backward=False)
        for layer in reversed(range(chunk.n_layers)):
            lowering.add_layer(micro_batch, layer, backward=True)


@dataclass(slots=True, kw_only=True)
class _Sharded:
    builder: ProgramBuilder
    plan: Plan
    mesh: Mesh
    chunk: ModelChunk
    group: Group
    _computes: dict[tuple[bool, bool, bool], Compute] = field(default_factory=dict[tuple[bool, bool, bool], Compute])
    _collectives: dict[tuple[CollectiveOp, bool], Communicate] = field(default_factory=dict[tuple[CollectiveOp, bool], Communicate])

    def add_layer(self, micro_batch: int, layer: int, *, backward: bool) -> None:
        kind = "B" if backward else "F"
        key: Key = (kind, 0, micro_batch, layer)
        label = (micro_batch, 0)
        after: list[Key] = []
        if self.plan.strategy.zero_stage == 3:
            gather: Key = ("gather", kind, micro_batch, layer)
            self.builder.add(
                gather, self._collective("all_gather", layer), [self._lane(GATHER_STREAM)], after=self._prefetch(), label=label
            )
            after.append(gather)
        if not self.plan.strategy.data_parallel.overlap:
            after += self.builder.last(self._lane(GRADIENT_STREAM))
        self.builder.add(key, self._compute(layer, backward=backward), [self._lane(COMPUTE_STREAM)], after=after, label=label)
        if backward:
            self.builder.add(
                ("reduce", micro_batch, layer),
                self._collective("reduce_scatter", layer),
                [self._lane(GRADIENT_STREAM)],
                after=[key],
                label=label,
            )

    def _prefetch(self) -> tuple[Key, ...]:
        """Return what a gather waits for: one layer is gathered while the layer before it computes."""
        computed = self.builder.last(self._lane(COMPUTE_STREAM))
        if not self.plan.strategy.data_parallel.overlap:
            return computed + self.builder.last(self._lane(GRADIENT_STREAM))
        return self._before(computed[0]) if computed else ()

    def _before(self, key: Key) -> tuple[Key, ...]:
        if key[0] not in ("F", "B"):
            return ()
        kind, stage, micro_batch, layer = key
        earlier = int(layer) + (1 if kind == "B" else -1)
        return ((kind, stage, micro_batch, earlier),) if 0 <= earlier < self.chunk.n_layers else ()

    def _lane(self, stream: str) -> Lane:
        return Lane(rank_class=0, stream=stream)

    def _compute(self, layer: int, *, backward: bool) -> Compute:
        ends = layer == 0, layer == self.chunk.n_layers - 1
        compute = self._computes.get((*ends, backward))
        if compute is None:
            tp_group = Group(name="tp of stage 0", dimension="tp", members=self.mesh.groups("tp", 0))
            passes = ChunkPasses(plan=self.plan, group=tp_group)
            one = ModelChunk(stage=0, chunk=0, n_layers=1, first=ends[0], last=ends[1])
            blocks = passes.backward(one) if backward else passes.forward(one)
            compute = Compute(name="B" if backward else "F", phase="backward" if backward else "forward", blocks=blocks)
            self._computes[(*ends, backward)] = compute
        return compute

    def _collective(self, op: CollectiveOp, layer: int) -> Communicate:
        at_end = layer in (0, self.chunk.n_layers - 1)
        communicate = self._collectives.get((op, at_end))
        if communicate is None:
            communicate = self._collectives[(op, at_end)] = self._sized(op, at_end=at_end)
        return communicate

    def _sized(self, op: CollectiveOp, *, at_end: bool) -> Communicate:
        """Return the collective of one layer; embedding and head are gathered with the outer layers, half of them each."""
        shapes = self.plan.model, local_shape(self.plan), numerics(self.plan)
        weights = [operator.parameters for operator in layer_operators(*shapes) if operator.parameters]
        ends = chunk_parameters(self.plan, self.chunk) - self.chunk.n_layers * fsum(weights)
        number_bytes = shapes[2].element_bytes if op == "all_gather" else shapes[2].gradient_bytes
        size_bytes = (fsum(weights) + (ends / min(2, self.chunk.n_layers) if at_end else 0.0)) * number_bytes
        # Weights are gathered parameter by parameter; gradients travel in buckets, of which a layer fills at least one.
        pieces = len(weights) if op == "all_gather" else n_buckets(self.plan, size_bytes)
        name = "gather weights" if op == "all_gather" else "gradients"
        algorithm = self.plan.strategy.data_parallel.algorithm
        return Communicate(name=name, collective=Collective(op=op, group=self.group, bytes=size_bytes, pieces=pieces, algorithm=algorithm))

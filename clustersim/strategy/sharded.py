"""Passes of ZeRO-2, ZeRO-3 and FSDP: weights gathered layer by layer, gradients reduced layer by layer."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import fsum
from typing import Final, Literal

from clustersim.program.program import Key, ProgramBuilder
from clustersim.program.tasks import COMPUTE_STREAM, Collective, Communicate, Compute
from clustersim.strategy.division import Division
from clustersim.strategy.gradients import (
    COPY_STREAM,
    GRADIENT_STREAM,
    Bucket,
    GradientReduction,
    cast_blocks,
    gathered_bytes,
)
from clustersim.strategy.halves import parallel_groups
from clustersim.strategy.interference import beside_blocks
from clustersim.strategy.layers import first_alike, recomputed_layers
from clustersim.strategy.memory import end_weights
from clustersim.strategy.offload import HostSide, offloads
from clustersim.strategy.passes import ChunkPasses
from clustersim.strategy.plan import Plan, Sharding
from clustersim.strategy.shard import ModelChunk, model_chunks
from clustersim.strategy.sharding_groups import ShardScope, expert_replicas, replicas, shard_scopes
from clustersim.strategy.units import casts_gathered, chunk_layer_weights, gather_calls, reduction_units
from clustersim.strategy.weights import NOTHING, Weights, total_weights

GATHER_STREAM: Final = "dp_gather"
"""Stream on which weights are gathered."""

Direction = Literal["F", "B"]

_ENDS: Final = -1
"""Number of the unit that holds embedding and head."""


def lower_sharded_passes(builder: ProgramBuilder, plan: Plan, division: Division, host: HostSide | None = None) -> None:
    """Add forward and backward passes of every micro-batch, layer by layer, for a plan without pipeline stages.

    With ZeRO-3 the weights of each layer are gathered in its shard group before its forward and again before its backward pass, as many
    layers ahead as the plan says; embedding and head are gathered together, before either direction. Gradients of a layer are
    reduced as soon as its backward pass is through, those of embedding and head at the end; with ZeRO-2 they go in buckets. They
    are reduced for every micro-batch, or for the last one only where micro-batches add up first.

    Parameters
    ----------
    host
        Adds the ways between accelerators and hosts, where parts of the training state are offloaded.

    References
    ----------
    .. [1] S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020, sections 5 and 7.
    .. [2] Y. Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023, sections 3.2 and 3.3.
    """
    (chunk,) = model_chunks(plan)[0]
    lowering = _Sharded(
        builder=builder,
        plan=plan,
        division=division,
        chunk=chunk,
        units=_Units.of(plan, chunk),
        scopes=tuple(shard_scopes(division, holders(plan.strategy, division.mesh, 0)) for holders in (replicas, expert_replicas)),
        reduction=GradientReduction(builder=builder, plan=plan, division=division, stage=0),
        host=host,
    )
    for micro_batch in range(plan.n_micro_batches):
        lowering.add_micro_batch(micro_batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Units:
    """What is gathered and reduced together: every layer, and embedding with head."""

    layers: tuple[Weights, ...]
    """Parameters of each layer."""
    ends: Weights
    buckets: tuple[Bucket, ...]
    """In the order in which the backward pass completes them."""
    kinds: tuple[int, ...]
    """For each layer the first one that is equal to it."""
    n_calls: tuple[int, ...]
    """That gather each layer, and the ends."""

    @classmethod
    def of(cls, plan: Plan, chunk: ModelChunk) -> _Units:
        kinds = tuple(first_alike(plan, layer) for layer in range(chunk.n_layers))
        calls, around = gather_calls(plan, chunk)
        return cls(
            layers=chunk_layer_weights(plan, chunk),
            ends=end_weights(plan, chunk),
            buckets=reduction_units(plan, chunk),
            kinds=kinds,
            n_calls=(*calls, around),
        )

    def weights(self, unit: int) -> Weights:
        """Return the parameters of a layer, or of the ends."""
        return self.ends if unit == _ENDS else self.layers[unit]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beside:
    """Parameters that are gathered, and whose gradients are reduced, beside a pass."""

    gathered: Weights
    reduced: Weights


@dataclass(slots=True, kw_only=True)
class _Sharded:
    builder: ProgramBuilder
    plan: Plan
    division: Division
    chunk: ModelChunk
    units: _Units
    scopes: tuple[tuple[ShardScope, ...], ...]
    """Of parameters that all replicas share, and of experts."""
    reduction: GradientReduction
    host: HostSide | None
    _passes: list[tuple[Key, ...]] = field(default_factory=list[tuple[Key, ...]])
    """All passes in order, each as its tasks by part."""
    _gathered: dict[int, dict[int, tuple[Key, ...]]] = field(default_factory=dict[int, dict[int, tuple[Key, ...]]])
    """For each unit that is whole, by which tasks, for each part."""
    _computes: dict[tuple[int | bool | float | str | Weights, ...], Compute] = field(
        default_factory=dict[tuple[int | bool | float | str | Weights, ...], Compute]
    )
    _reducing: Weights = NOTHING
    """Parameters whose gradients are reduced beside the next pass."""
    _gathers: dict[tuple[str, float, int], Communicate] = field(default_factory=dict[tuple[str, float, int], Communicate])
    _sharding: Sharding = field(init=False)
    _gathers_weights: bool = field(init=False)

    def __post_init__(self) -> None:
        """Ask once how weights are spread: every pass needs to know."""
        self._sharding, self._gathers_weights = self.plan.strategy.sharding, self.plan.strategy.gathers_weights

    def add_micro_batch(self, micro_batch: int) -> None:
        """Add all passes of one micro-batch."""
        strategy, layers = self.plan.strategy, range(self.chunk.n_layers)
        self._gathered.clear()
        self._gather("F", micro_batch, _ENDS)
        for layer in layers:
            self._gather("F", micro_batch, layer)
            self._add_pass("F", micro_batch, layer)
        if self._sharding.reshard_after_forward:
            kept = self._gathered.get(_ENDS) if self._sharding.keep_ends else None
            self._gathered = {} if kept is None else {_ENDS: kept}
        self._gather("B", micro_batch, _ENDS)
        last = micro_batch == self.plan.n_micro_batches - 1
        reduces = (strategy.reduces_gradients or offloads(self.plan)) and (last or not strategy.data_parallel.no_sync)
        for layer in reversed(layers):
            self._gather("B", micro_batch, layer)
            complete = [bucket for bucket in self.units.buckets if bucket.layer == layer] if reduces else []
            self._add_pass("B", micro_batch, layer, casts=fsum(bucket.weights.total for bucket in complete))
            self._reducing = total_weights((bucket.weights, 1) for bucket in complete)
            for number, bucket in enumerate(complete):
                reduced = self.reduction.add((micro_batch, layer, number), bucket, after=self._passes[-1], label=(micro_batch, 0))
                if self.host is not None:
                    self.host.add_gradient_copy(bucket.weights, after=reduced, micro_batch=micro_batch)

    def _gather(self, direction: Direction, micro_batch: int, unit: int) -> None:
        """Add the gathering of a unit that is not whole."""
        if not self._gathers_weights or unit in self._gathered or not self.units.weights(unit).total:
            return
        self._gathered[unit] = {}
        weights, label, n_calls = self.units.weights(unit), (micro_batch, 0), self.units.n_calls[unit]
        rooms = [[self._room(scope) for scope in kind] for kind in self.scopes]
        ahead = [key for kind in rooms for room in kind for key in room]
        fetched = () if self.host is None else self.host.add_parameter_fetch(weights, after=ahead, label=label)
        for scopes, places, parameters in zip(self.scopes, rooms, (weights.dense, weights.expert), strict=True):
            if not parameters:
                continue
            for scope, room in zip(scopes, places, strict=True):
                key: Key = (f"gather {scope.group.name}", direction, micro_batch, unit)
                action = self._gather_action(scope, parameters, n_calls)
                self.builder.add(key, action, scope.lanes(GATHER_STREAM), after=(*room, *fetched), label=label)
                for part in scope.parts:
                    self._gathered[unit][part] = (*self._gathered[unit].get(part, ()), key)

    def _room(self, scope: ShardScope) -> tuple[Key, ...]:
        """Return what a gather waits for: until so many layers ahead of the one that computes are whole, no further one is gathered."""
        if not self.plan.strategy.data_parallel.overlap:
            streams = (COMPUTE_STREAM, GRADIENT_STREAM, COPY_STREAM)
            return tuple(key for stream in streams for lane in scope.lanes(stream) for key in self.builder.last(lane))
        before = len(self._passes) - 1 - self._sharding.prefetch
        return tuple(self._passes[before][part] for part in scope.parts) if before >= 0 else ()

    def _add_pass(self, direction: Direction, micro_batch: int, layer: int, *, casts: float = 0.0) -> None:
        keys: list[Key] = []
        # The first pass waits for what it needs, and so does every one where nothing is gathered ahead.
        ahead = bool(self._passes) and self._sharding.prefetch > 0
        beside = _Beside(gathered=self._gathered_for(direction, layer) if ahead else NOTHING, reduced=self._reducing)
        self._reducing = NOTHING
        for part in range(self.division.n_parts):
            lane = self.division.lane(0, part)
            needed = [key for unit in (_ENDS, layer) if unit in self._gathered for key in self._gathered[unit][part]]
            if not self.plan.strategy.data_parallel.overlap:
                needed += [
                    key for stream in (GRADIENT_STREAM, COPY_STREAM) for key in self.builder.last(self.division.lane(0, part, stream))
                ]
            keys.append((direction, lane.rank_class, micro_batch, layer))
            action = self._compute(direction, part, layer, casts=casts, beside=beside)
            self.builder.add(keys[-1], action, [lane], after=needed, label=(micro_batch, 0))
        self._passes.append(tuple(keys))

    def _compute(self, direction: Direction, part: int, layer: int, *, casts: float, beside: _Beside) -> Compute:
        """Return the same object for layers that do the same, so that it is priced once."""
        ends = layer == 0, layer == self.chunk.n_layers - 1
        known = (
            direction,
            part,
            self.units.kinds[layer],
            *ends,
            casts,
            beside.gathered,
            beside.reduced,
            layer < recomputed_layers(self.plan, self.chunk),
        )
        compute = self._computes.get(known)
        if compute is None:
            passes = ChunkPasses(plan=self.plan, groups=parallel_groups(self.plan, self.division, 0, part))
            cut = passes.forward_slice if direction == "F" else passes.backward_slice
            phase = "forward" if direction == "F" else "backward"
            gathered = self._gathered_for(direction, layer)
            blocks = (
                casts_gathered(self.plan, gathered, self.units.layers[layer])
                + cut(self.chunk, layer, layer + 1)
                + (cast_blocks(self.plan, casts) if casts else ())
            )
            lost = beside_blocks(self.plan, phase, gathered=beside.gathered, reduced=beside.reduced)
            compute = Compute(name=direction, phase=phase, blocks=blocks + lost)
            self._computes[known] = compute
        return compute

    def _gathered_for(self, direction: Direction, layer: int) -> Weights:
        """Return the parameters that are gathered for a pass of a layer, embedding and head with the first layer of either direction."""
        if not self._gathers_weights or (direction == "B" and not self._sharding.reshard_after_forward):
            return NOTHING
        first = layer == (0 if direction == "F" else self.chunk.n_layers - 1)
        with_ends = first and (direction == "F" or not self._sharding.keep_ends)
        return self.units.layers[layer] + (self.units.ends if with_ends else NOTHING)

    def _gather_action(self, scope: ShardScope, parameters: float, n_calls: int) -> Communicate:
        known = (scope.group.name, parameters, n_calls)
        action = self._gathers.get(known)
        if action is None:
            size_bytes, algorithm = parameters * gathered_bytes(self.plan), self.plan.strategy.data_parallel.algorithm
            collective = Collective(op="all_gather", group=scope.group, bytes=size_bytes, pieces=n_calls, algorithm=algorithm)
            action = self._gathers[known] = Communicate(name="gather weights", collective=collective)
        return action

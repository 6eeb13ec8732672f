"""State sharding (ZeRO-3, FSDP): parameters are gathered unit by unit before their layers, and freed after them.

References
----------
.. [1] S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020, sections 5 and 7.
.. [2] Y. Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023, sections 3.2 and 3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Final

from clustersim.errors import DomainError
from clustersim.parallel.contributors.contributor import Contributor, StageContributor, Step
from clustersim.parallel.gradients import GRADIENT_STREAM, gathered_bytes
from clustersim.parallel.layers import heaviest_run
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.optimizer import FP8_COPY_BYTES
from clustersim.parallel.pipeline import Piece, StagePieces
from clustersim.parallel.schedules.order import Pass, StageOrder
from clustersim.parallel.sharding_groups import ShardScope, expert_replicas, replicas, shard_scopes
from clustersim.parallel.stage import Stage
from clustersim.parallel.stage_work import WHOLE, Cut
from clustersim.parallel.stages import ModelChunk
from clustersim.parallel.step_settings import Training
from clustersim.parallel.training_plan import SHARDS_PARAMETERS, GatherUnit, Strategy, StrategySettings
from clustersim.parallel.units import gather_calls
from clustersim.parallel.weights import Weights, total_weights
from clustersim.program.holds import GATHER_TO_LAST_PASS, Hold
from clustersim.program.program import Key
from clustersim.program.tasks import Communicate, RankGroups
from clustersim.units.divisors import divisors, listed
from clustersim.workloads.model import Model

GATHER_STREAM: Final = "dp_gather"
"""Stream on which weights are gathered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Parameters that are gathered together: a layer, or embedding and head."""

    weights: Weights
    n_calls: int
    piece: int
    """Number of the piece of the pass that waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering:
    """Units that are gathered for one pass, in order, and its cut."""

    units: tuple[Unit, ...]
    cut: Cut


def gatherings(stage: Stage, order: StageOrder) -> tuple[Gathering, ...]:
    """Return the units that are gathered for each pass of a stage.

    With resharding the parameters of a chunk are freed behind every pass, and otherwise behind each backward pass, or the last one where
    they are kept; embedding and head that are to be kept, behind each backward pass. A pass that computes nothing but gradients of
    weights needs no parameters.
    """
    strategy = stage.strategy
    units = [_ChunkUnits.of(stage.local, chunk, strategy.gather) for chunk in stage.chunks]
    layers_whole, ends_whole = set[int](), set[int]()
    found: list[Gathering] = []
    for position, step in enumerate(order):
        if step.kind == "W":
            found.append(Gathering(units=(), cut=WHOLE))
            continue
        in_pair = step.beside_next or (position > 0 and order[position - 1].beside_next)
        missing = step.chunk not in layers_whole, step.chunk not in ends_whole
        ahead = strategy.data_parallel.overlap and strategy.prefetch > 0 and position > 0
        found.append(units[step.chunk].gathering(step, missing, ahead=ahead, in_pair=in_pair))
        layers_whole.add(step.chunk)
        ends_whole.add(step.chunk)
        if not strategy.keeps_gathered and (step.goes_back or strategy.reshard_after_forward):
            layers_whole.discard(step.chunk)
        if not strategy.keeps_gathered and (step.goes_back or (strategy.reshard_after_forward and not strategy.keep_ends)):
            ends_whole.discard(step.chunk)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChunkUnits:
    """Units of one chunk: every layer, and embedding with head."""

    layers: tuple[Weights, ...]
    ends: Weights
    calls: tuple[int, ...]
    end_calls: int

    @classmethod
    def of(cls, local: LocalModel, chunk: ModelChunk, gather: GatherUnit) -> _ChunkUnits:
        calls, end_calls = gather_calls(local, chunk, gather)
        layers = tuple(each.held for each in local.layer_weights(chunk.layers))
        return cls(layers=layers, ends=local.end_weights(chunk).held, calls=calls, end_calls=end_calls)

    def gathering(self, step: Pass, missing: tuple[bool, bool], *, ahead: bool, in_pair: bool) -> Gathering:
        """Return the all-gather of a pass where layers or ends are missing; one call for overlapped passes, which are not divided."""
        layers = range(len(self.layers))
        order = list(reversed(layers)) if step.goes_back else list(layers)
        units = [Unit(weights=self.ends, n_calls=self.end_calls, piece=0)] if missing[1] else []
        if missing[0]:
            units += [Unit(weights=self.layers[layer], n_calls=self.calls[layer], piece=place) for place, layer in enumerate(order)]
        units = [unit for unit in units if unit.weights.total]
        if in_pair and units:
            weights = total_weights([(unit.weights, 1) for unit in units])
            units = [Unit(weights=weights, n_calls=sum(unit.n_calls for unit in units), piece=0)]
        borders = frozenset(layers[1:]) if missing[0] and not in_pair else frozenset[int]()
        return Gathering(units=tuple(units), cut=Cut(borders=borders, layers=missing[0], ends=missing[1], ahead=ahead))


class ParameterSharding(Contributor):
    """Parameters gathered before each pass and freed after it (ZeRO-3, FSDP)."""

    @classmethod
    def applies(cls, strategy: Strategy) -> bool:
        """Return whether parameters are sharded, or live elsewhere."""
        return strategy.gathers_weights

    @classmethod
    def refuse(cls, strategy: Strategy, asked: StrategySettings, *, model: Model, training: Training) -> None:
        """Refuse weights stored in fp8 that are gathered for each pass."""
        if training.fp8_parameters and strategy.zero_stage == SHARDS_PARAMETERS:
            message = "sharded weights are cast to fp8 as they are gathered, and kept as they were"
            hint = "set strategy.data_parallel.gather_precision to fp8 instead"
            raise DomainError(message, path=("training", "fp8_parameters"), hint=hint)

    @classmethod
    def holds(cls, stage: Stage) -> tuple[Hold, ...]:
        """Return the parameters that are whole at a time: embedding and head, the layer in use and those gathered ahead of it.

        Without freeing after the forward pass all of them, and so where passes through several chunks run side by side. Of stages that look
        ahead the ends of two chunks may be whole, those in use and those of the next pass.
        """
        strategy, local, number = stage.strategy, stage.local, stage.local.numerics
        layers = [[each.held.total for each in local.layer_weights(chunk.layers)] for chunk in stage.chunks]
        ends = [local.end_weights(chunk).held.total for chunk in stage.chunks]
        ahead = strategy.prefetch if strategy.data_parallel.overlap else 0
        if not strategy.reshard_after_forward or any(step.beside_next for step in stage.order):
            most, around = fsum(size for chunk in layers for size in chunk), fsum(ends)
        else:
            most, around = max(heaviest_run(chunk, ahead + 1) for chunk in layers), fsum(ends) if ahead or strategy.keep_ends else max(ends)
        copies_bytes = FP8_COPY_BYTES * number.gemm_element_bytes if number.casts_weights else 0.0
        size_bytes = (most + around) * number.element_bytes + most * copies_bytes
        return (Hold(category="buffers", owner="state_sharding", bytes=size_bytes, interval=GATHER_TO_LAST_PASS),)

    def stage(self, stage: int, order: StageOrder) -> StageContributor:
        """Return the gathers of a stage."""
        return _StageGathers(self.step, stage, order)


class StateSharding(Contributor):
    """Optimizer states, and gradients, that are sharded beside whole parameters (ZeRO-1, ZeRO-2)."""

    @classmethod
    def applies(cls, strategy: Strategy) -> bool:
        """Return whether each rank updates a shard of parameters that it stores whole."""
        return 0 < strategy.zero_stage < SHARDS_PARAMETERS

    @classmethod
    def refuse(cls, strategy: Strategy, asked: StrategySettings, *, model: Model, training: Training) -> None:
        """Refuse degrees that do not divide the replicas or do not hold all experts, and any where nothing is sharded."""
        degree, replicas, path = strategy.shard_degree, strategy.replicas, ("strategy", "shard_degree")
        if degree is None:
            return
        if strategy.zero_stage == 0:
            raise DomainError(f"{degree} shards nothing with zero_stage 0", path=path, hint="use auto, or zero_stage 1, 2 or 3")
        if replicas % degree:
            hint = f"use auto, {listed(divisors(replicas))}"
            raise DomainError(f"{degree} does not divide dp = {replicas}", path=path, hint=hint)
        if model.experts is not None and degree > 1 and degree * strategy.expert_replicas % replicas:
            least = strategy.ep * strategy.expert_tp // strategy.tp
            message = f"{degree} ranks that hold one copy together do not hold all experts, which are on {least}"
            raise DomainError(message, path=path, hint=f"use auto or a multiple of {least}")

    def finish(self) -> None:
        """Gather the new weights of all stages."""
        for stage in self.step.stages:
            number_bytes = gathered_bytes(stage.strategy.data_parallel, stage.local.numerics)
            sizes_bytes = (stage.weights.dense * number_bytes, stage.weights.expert * number_bytes)
            for scopes, size_bytes in zip(_scopes(self.step, stage.number), sizes_bytes, strict=True):
                for scope in scopes if size_bytes else ():
                    if scope.group.size > 1:
                        after = [key for part in scope.parts for key in self.step.updated[stage.number][part]]
                        action = self._new_weights(stage, scope.group, size_bytes)
                        self.step.builder.add(("weights", scope.group.name), action, scope.lanes(GRADIENT_STREAM), after=after)

    def _new_weights(self, stage: Stage, group: RankGroups, size_bytes: float) -> Communicate:
        """Return the gathering of new weights, or one broadcast from each rank that owns whole tensors."""
        if not stage.strategy.deals_tensors:
            return self.step.collective("gather weights", "all_gather", group, size_bytes)
        return self.step.collective("broadcast weights", "broadcast", group, size_bytes, min(group.size, stage.n_owners))


def _scopes(step: Step, stage: int) -> tuple[tuple[ShardScope, ...], ...]:
    """Return the shard groups of a stage, and those of its experts."""
    strategy, division = step.strategy, step.division
    return tuple(shard_scopes(division, holders(strategy, division.mesh, stage)) for holders in (replicas, expert_replicas))


class _StageGathers(StageContributor):
    """Gathers of parameters before the passes of one stage.

    A unit is gathered as soon as the layers before it that are to be whole at once are no more than ``prefetch``. Without overlap each
    unit is gathered when all before it has ended.
    """

    def __init__(self, step: Step, stage: int, order: StageOrder) -> None:
        self.step, self.strategy, self.division, self.host = step, step.strategy, step.division, step.host(stage)
        self.stage, self.order, self.gathered = stage, order, gatherings(step.stages[stage], order)
        self._scopes = _scopes(step, stage)
        self._number_bytes = gathered_bytes(self.strategy.data_parallel, step.stages[stage].local.numerics)

    def cut(self, position: int, cut: Cut) -> Cut:
        """Return the cut of a pass at its units."""
        own = self.gathered[position].cut
        return replace(own, borders=own.borders | cut.borders)

    def pieces(self, position: int, pieces: tuple[Piece, ...], added: StagePieces) -> tuple[Piece, ...]:
        """Return the pieces of a pass, which wait for their parameters."""
        waiting = list(pieces)
        for number, unit in enumerate(self.gathered[position].units):
            keys = [self._key(scope, position, number) for scope, _ in self._of(unit.weights) if added.part in scope.parts]
            waiting[unit.piece] = replace(waiting[unit.piece], after=(*waiting[unit.piece].after, *keys))
        return tuple(waiting)

    def beside(self, position: int, parts: Sequence[StagePieces]) -> None:
        """Add the gathers of a pass."""
        step = self.order[position]
        label = (step.micro_batch, step.chunk)
        for number, unit in enumerate(self.gathered[position].units):
            rooms = [
                (scope, parameters, tuple(key for part in scope.parts for key in self._room(parts[part], position, unit.piece, part)))
                for scope, parameters in self._of(unit.weights)
            ]
            after = tuple(dict.fromkeys(key for _, _, room in rooms for key in room))
            fetched = self.host.add_parameter_fetch(unit.weights, after=after, label=label)
            for scope, parameters, room in rooms:
                key, size_bytes = self._key(scope, position, number), parameters * self._number_bytes
                action = self.step.collective("gather weights", "all_gather", scope.group, size_bytes, unit.n_calls)
                self.step.builder.add(key, action, scope.lanes(GATHER_STREAM), after=(*room, *fetched), label=label)

    def _room(self, before: StagePieces, position: int, piece: int, part: int) -> tuple[Key, ...]:
        """Return the tasks before the all-gather of a piece."""
        if not self.strategy.data_parallel.overlap:
            return before.awaited(position, piece) or (("host", self.division.rank_class(self.stage, part)),)
        return before.before(position, piece, self.strategy.prefetch + 1)

    def _of(self, weights: Weights) -> list[tuple[ShardScope, float]]:
        """Return the shard groups that have some of these parameters, and how many."""
        kinds = zip((weights.dense, weights.expert), self._scopes, strict=True)
        return [(scope, parameters) for parameters, scopes in kinds if parameters for scope in scopes]

    def _key(self, scope: ShardScope, position: int, unit: int) -> Key:
        return (f"gather {scope.group.name}", self.stage, position, unit)

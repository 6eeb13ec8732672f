"""Sharded parameters of pipeline stages: gathered before each pass that needs them, freed behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from clustersim.program.program import Key, ProgramBuilder
from clustersim.program.tasks import Collective, Communicate
from clustersim.strategy.division import Division
from clustersim.strategy.gradients import gathered_bytes
from clustersim.strategy.memory import end_weights
from clustersim.strategy.offload import HostSide
from clustersim.strategy.pipeline import Piece
from clustersim.strategy.plan import Plan
from clustersim.strategy.schedules.order import Pass, StageOrder
from clustersim.strategy.shard import ModelChunk
from clustersim.strategy.sharded import GATHER_STREAM
from clustersim.strategy.sharding_groups import ShardScope, expert_replicas, replicas, shard_scopes
from clustersim.strategy.stage_work import WHOLE, Cut
from clustersim.strategy.units import chunk_layer_weights, gather_calls
from clustersim.strategy.weights import NOTHING, Weights, total_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering:
    """What is gathered for one pass: all at once, or what its first layer needs and the rest."""

    units: tuple[tuple[Weights, int], ...]
    """Parameters, and in how many calls."""
    cut: Cut


def gatherings(plan: Plan, chunks: Sequence[ModelChunk], order: StageOrder) -> tuple[Gathering | None, ...]:
    """Return what is gathered for each pass of a stage; None where everything it needs is whole.

    With resharding the parameters of a chunk are freed behind every pass, and otherwise behind the last one; embedding and head that are
    to be kept, behind each backward pass. A pass that computes nothing but gradients of weights needs no parameters.
    """
    strategy = plan.strategy
    if not strategy.gathers_weights:
        return (None,) * len(order)
    units = [_ChunkUnits.of(plan, chunk) for chunk in chunks]
    sharding, ahead = strategy.sharding, strategy.data_parallel.overlap and strategy.prefetch > 0
    frees_behind = sharding.reshard_after_forward or strategy.pp == 1
    layers_whole, ends_whole = set[int](), set[int]()
    found: list[Gathering | None] = []
    for position, step in enumerate(order):
        if step.kind == "W":
            found.append(None)
            continue
        in_pair = step.beside_next or (position > 0 and order[position - 1].beside_next)
        missing = step.chunk not in layers_whole, step.chunk not in ends_whole
        found.append(units[step.chunk].gathering(step, missing, ahead=ahead, in_pair=in_pair))
        layers_whole.add(step.chunk)
        ends_whole.add(step.chunk)
        if frees_behind and (step.goes_back or sharding.reshard_after_forward):
            layers_whole.discard(step.chunk)
        if frees_behind and (step.goes_back or (sharding.reshard_after_forward and not sharding.keep_ends)):
            ends_whole.discard(step.chunk)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChunkUnits:
    """What is gathered together of one chunk: every layer, and embedding with head."""

    layers: tuple[Weights, ...]
    ends: Weights
    calls: tuple[int, ...]
    end_calls: int

    @classmethod
    def of(cls, plan: Plan, chunk: ModelChunk) -> _ChunkUnits:
        calls, end_calls = gather_calls(plan, chunk)
        ends = end_weights(plan, chunk)
        return cls(layers=chunk_layer_weights(plan, chunk), ends=ends, calls=calls, end_calls=end_calls if ends.total else 0)

    def gathering(self, step: Pass, missing: tuple[bool, bool], *, ahead: bool, in_pair: bool) -> Gathering | None:
        """Return what a pass gathers where layers, and ends, are missing."""
        layers = range(len(self.layers)) if missing[0] else range(0)
        order = list(reversed(layers)) if step.goes_back else list(layers)
        ends = (self.ends, self.end_calls) if missing[1] else (NOTHING, 0)
        in_two = ahead and not in_pair and len(order) > 1
        groups = [order[:1], order[1:]] if in_two else [order]
        units: list[tuple[Weights, int]] = []
        for number, group in enumerate(groups):
            own = total_weights([(self.layers[layer], 1) for layer in group])
            n_calls = sum(self.calls[layer] for layer in group if self.layers[layer].total)
            units.append((own + ends[0], n_calls + ends[1]) if number == 0 else (own, n_calls))
        gathered = total_weights([(weights, 1) for weights, _ in units])
        if not gathered.total:
            return None
        # The layer that is computed last has a piece of its own, which waits for the rest.
        borders = frozenset({1 if step.goes_back else len(self.layers) - 1}) if in_two else frozenset[int]()
        return Gathering(units=tuple(units), cut=Cut(borders=borders, gathered=gathered, ends=missing[1], ahead=ahead))


@dataclass(slots=True, kw_only=True)
class StageGathers:
    """Adds the gathering of parameters before the passes of one stage.

    What the first layer of a pass needs is gathered beside the last piece of the pass before, and the other layers beside all of the pass
    but its last layer, which waits for them: as long as layers are alike, that takes as long as one gather ahead of every layer.
    Passes side by side have everything gathered beside what stands before them. Without looking ahead, a pass waits for all of it.
    """

    builder: ProgramBuilder
    plan: Plan
    division: Division
    stage: int
    host: HostSide
    gathered: tuple[Gathering | None, ...]
    _scopes: tuple[tuple[ShardScope, ...], ...] = field(init=False)
    _actions: dict[tuple[str, float, int], Communicate] = field(default_factory=dict[tuple[str, float, int], Communicate])

    def __post_init__(self) -> None:
        """Lay the groups once."""
        strategy, mesh = self.plan.strategy, self.division.mesh
        self._scopes = tuple(shard_scopes(self.division, holders(strategy, mesh, self.stage)) for holders in (replicas, expert_replicas))

    def cut(self, position: int) -> Cut:
        """Return how a pass is cut."""
        gathering = self.gathered[position]
        return WHOLE if gathering is None else gathering.cut

    def awaited(self, position: int, part: int, pieces: Sequence[Piece]) -> tuple[Piece, ...]:
        """Return the pieces of a pass, which wait for what is gathered for them."""
        gathering, waiting = self.gathered[position], list(pieces)
        if gathering is None:
            return tuple(pieces)
        for unit, (weights, _) in enumerate(gathering.units):
            place = 0 if unit == 0 else -1
            keys = [self._key(scope, position, unit) for scope, _ in self._of(weights) if part in scope.parts]
            waiting[place] = replace(waiting[place], after=(*waiting[place].after, *keys))
        return tuple(waiting)

    def add(self, position: int, step: Pass, before: Sequence[Sequence[Key]]) -> None:
        """Add what is gathered for a pass.

        Parameters
        ----------
        before
            For each part the pieces that stand before it, in order.
        """
        gathering = self.gathered[position]
        if gathering is None:
            return
        strategy = self.plan.strategy
        ahead, label = strategy.data_parallel.overlap and strategy.prefetch > 0, (step.micro_batch, step.chunk)
        for unit, (weights, n_calls) in enumerate(gathering.units):
            away = 2 if ahead and unit == 0 else 1
            rooms = [
                (scope, parameters, tuple(before[part][-away] for part in scope.parts if len(before[part]) >= away))
                for scope, parameters in self._of(weights)
            ]
            after = tuple(dict.fromkeys(key for _, _, room in rooms for key in room))
            fetched = self.host.add_parameter_fetch(weights, after=after, label=label)
            for scope, parameters, room in rooms:
                key, lanes = self._key(scope, position, unit), scope.lanes(GATHER_STREAM)
                self.builder.add(key, self._action(scope, parameters, n_calls), lanes, after=(*room, *fetched), label=label)

    def _of(self, weights: Weights) -> list[tuple[ShardScope, float]]:
        """Return the shard groups that have some of these parameters, and how many."""
        kinds = zip((weights.dense, weights.expert), self._scopes, strict=True)
        return [(scope, parameters) for parameters, scopes in kinds if parameters for scope in scopes]

    def _key(self, scope: ShardScope, position: int, unit: int) -> Key:
        return (f"gather {scope.group.name}", self.stage, position, unit)

    def _action(self, scope: ShardScope, parameters: float, n_calls: int) -> Communicate:
        known = (scope.group.name, parameters, n_calls)
        action = self._actions.get(known)
        if action is None:
            size_bytes, algorithm = parameters * gathered_bytes(self.plan), self.plan.strategy.data_parallel.algorithm
            collective = Collective(op="all_gather", group=scope.group, bytes=size_bytes, pieces=n_calls, algorithm=algorithm)
            action = self._actions[known] = Communicate(name="gather weights", collective=collective)
        return action

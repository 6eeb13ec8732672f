"""A least time for any plan on one cluster, quickly: what plans have in common is priced once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from clustersim.measure.bounds.layer_bounds import Key, LayerPrices, PartPasses, PassName, cut_key, part_passes
from clustersim.measure.bounds.pipeline_bounds import ChunkPlacement, Lanes, lanes, pass_ends_s, ways_of, ways_of_schedule
from clustersim.measure.bounds.reduction_bounds import LayoutCommunication, StageStates, layer_wise, pass_gathers_s, states_of
from clustersim.measure.bounds.unit_costs import EXPOSED, ISSUE, MATRIX, MEMORY, WIDTH, UnitCosts
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.shard import local_model
from clustersim.parallel.stage import stage_with
from clustersim.parallel.stages import ModelChunk, orders_of, part_layers, places_of
from clustersim.parallel.training_plan import Plan, Strategy
from clustersim.parallel.units import reduces_in_units
from clustersim.topology import SYMMETRIC
from clustersim.topology.cluster import FloatArray

WHOLE_PASSES: Final = tuple(name for name, schedule in SCHEDULES.items() if not schedule.splits)
"""Schedules in which nothing of a pass is put off."""

ROUND_OFF: Final = 1e-9
"""Relative error of a sum of durations, far above that of a million of them in any order."""

PATH: Final = ("matrix units", "memory and launches", "tp", "cp", "ep", "host", "sends", "fill and drain", "gradients", "optimizer")
"""Parts of the longest path through a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBound:
    """A time below which no step of a plan can end: the longest of three."""

    path_s: float
    """Longest way through passes, sends, reductions and updates, in order."""
    exchange_s: float
    """End of the stream of data parallelism, from when it can begin."""
    link_s: float
    """Load of one link of an accelerator with data parallelism."""
    stage: int
    """Stage on which the longest way turns."""
    parts_s: tuple[float, ...]
    """Parts of the longest way, by ``PATH``."""

    @property
    def bound_s(self) -> float:
        """The time itself, less what sums of the same durations in another order can differ by."""
        return max(self.path_s, self.exchange_s, self.link_s) * (1.0 - ROUND_OFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A plan, and what all of its stages do."""

    plan: Plan
    ways: ChunkPlacement
    times: FloatArray  # micro-batches that go each way
    passes: PartPasses
    states: tuple[StageStates, ...]
    send_s: float
    host_s: float

    @property
    def n_reductions(self) -> int:
        """Number of reductions of each gradient in a step."""
        return 1 if self.plan.strategy.data_parallel.no_sync else self.plan.n_micro_batches

    @property
    def serial(self) -> bool:
        """Whether nothing of data parallelism runs beside passes."""
        return not self.plan.strategy.data_parallel.overlap


@dataclass(slots=True, kw_only=True)
class BoundEvaluator:
    """Least times of steps on one cluster."""

    prices: UnitCosts
    chained: bool = True
    """False where steps overlap: only the time that each stage is busy counts."""
    _layers: dict[Key, LayerPrices] = field(default_factory=dict[Key, LayerPrices])
    _exchanges: dict[Key, LayoutCommunication] = field(default_factory=dict[Key, LayoutCommunication])
    _gathers: dict[Key, FloatArray] = field(default_factory=dict[Key, FloatArray])
    _gathered_s: dict[Key, float] = field(default_factory=dict[Key, float])
    _names: dict[Key, str] = field(default_factory=dict[Key, str])
    _passes: dict[Key, PartPasses] = field(default_factory=dict[Key, PartPasses])
    _states: dict[Key, StageStates] = field(default_factory=dict[Key, StageStates])
    _chunks: dict[Key, tuple[tuple[ModelChunk, ...], ...]] = field(default_factory=dict[Key, tuple[tuple[ModelChunk, ...], ...]])
    _ends: dict[Key, FloatArray] = field(default_factory=dict[Key, FloatArray])
    _alike: dict[Key, bool] = field(default_factory=dict[Key, bool])

    def bound(self, plan: Plan) -> StepBound:
        """Return a time below which no step of a plan can end."""
        step, strategy = self._step(plan), plan.strategy
        found = _lanes(step)
        if strategy.data_parallel.central:
            path_s = step.host_s + float(found.busy_s.max())
            return StepBound(path_s=path_s, exchange_s=0.0, link_s=0.0, stage=0, parts_s=_parts(step, 0, (0.0, 0.0, 0.0, 0.0)))
        return self._joined(step, found)

    def mean_s(self, plan: Plan) -> float:
        """Return the mean of what stages have to compute, below which the busiest of them cannot be, however layers are dealt out."""
        strategy = plan.strategy
        _, layers = self._layer_prices(plan)
        back: tuple[PassName, ...] = ("F", "again" if strategy.recompute == "full" else "B")
        rows = sum((layers.sums(kind)[-1] + layers.ends(kind)[0] + layers.ends(kind)[1] for kind in back), np.zeros(WIDTH))
        if strategy.recompute == "full" and strategy.recompute_layers is not None:
            rows = rows - layers.sums("again")[-1] + layers.sums("B")[-1]
        exposed_s = float(rows[EXPOSED:ISSUE].sum()) if strategy.schedule in WHOLE_PASSES else 0.0
        device_s = float(rows[MATRIX] + rows[MEMORY]) + exposed_s
        return (self.prices.host_s() + plan.n_micro_batches * device_s / strategy.pp) * (1.0 - ROUND_OFF)

    def _layer_prices(self, plan: Plan) -> tuple[Key, LayerPrices]:
        """Return the prices of layers, and what they depend on: without a symmetric scale-up wiring, on the place of every stage too."""
        strategy, symmetric = plan.strategy, self.prices.cluster.node.scale_up.kind in SYMMETRIC
        cut = cut_key(plan) if symmetric else (*cut_key(plan), strategy.placement, strategy.dp, strategy.pp)
        found = self._layers.get(cut)
        if found is None:
            found = self._layers[cut] = LayerPrices(prices=self.prices, plan=plan, name=f"cut {len(self._layers)}")
        return cut, found

    def passes_s(self, plan: Plan) -> float:
        """Return a time below which no step can end whatever it does with gradients, weights and optimizer states."""
        step = self._step(plan, with_states=False)
        found = _lanes(step)
        if self.chained and not plan.strategy.optimizer_post_validation:
            least_s = float((found.fill_s + found.busy_s + found.drain_s).max())
        else:
            least_s = max(float(found.busy_s.max()), _trip_s(step) if self.chained else 0.0)
        return (step.host_s + least_s) * (1.0 - ROUND_OFF)

    def in_order_s(self, plan: Plan) -> float:
        """Return a time below which no step can end whose stages go through their passes in the order of the schedule.

        It is tighter than ``bound`` and takes longer to find. 0 where it says nothing: without stages, or where passes are split or meet.
        """
        strategy = plan.strategy
        whole = strategy.schedule in WHOLE_PASSES and not strategy.written and not strategy.data_parallel.service
        if not (self.chained and strategy.pp > 1 and whole):
            return 0.0
        step = self._step(plan)
        if step.passes.meets or len(step.ways.stage_of) > 1:
            return 0.0
        key = (step.passes.forward_s.tobytes(), step.passes.backward_s.tobytes(), step.send_s, strategy.schedule, plan.n_micro_batches)
        ends_s = self._ends.get(key)
        if ends_s is None:
            passes = step.passes.forward_s, step.passes.backward_s
            orders = orders_of(strategy, plan.n_micro_batches)
            ends_s = self._ends[key] = pass_ends_s(
                places_of(strategy), orders, passes, send_s=step.send_s, sends_block=not strategy.overlap_p2p
            )
        last_s = float((ends_s + _behind_s(step)).max())
        return step.host_s + last_s + max(state.update_s + state.after.seconds for state in step.states)

    def _step(self, plan: Plan, *, with_states: bool = True) -> _Step:
        strategy, local = plan.strategy, local_model(plan.model, plan.training, plan.strategy)
        written = strategy.written
        ways = ways_of(written.places) if written else ways_of_schedule(strategy.schedule, strategy.pp, strategy.virtual_stages)
        places = places_of(strategy)
        times = np.array([len(places.micro_batches(way, plan.n_micro_batches)) for way in range(places.n_copies)], dtype=np.float64)
        cut, layers = self._layer_prices(plan)
        shape = (strategy.schedule, strategy.pp, strategy.virtual_stages, strategy.stage_layers, strategy.recompute_layers)
        passes = self._passes.get((*cut, shape))
        if passes is None:
            counts = part_layers(strategy, plan.model.n_layers, ways.stage_of.shape[1])
            passes = self._passes[*cut, shape] = part_passes(strategy, layers, counts)
        laid, exchange = self._exchange(plan)
        if with_states and strategy.gathers_weights and not layer_wise(strategy):
            passes = self._waiting(local, strategy, (cut, laid), (ways, passes), exchange)
        return _Step(
            plan=plan,
            ways=ways,
            times=times,
            passes=passes,
            states=self._stages(plan, (cut, laid), ways, exchange) if with_states else (),
            send_s=exchange.sent(strategy, local.boundary_bytes).seconds if strategy.pp > 1 else 0.0,
            host_s=self.prices.host_s(),
        )

    def _waiting(
        self,
        local: LocalModel,
        strategy: Strategy,
        keys: tuple[Key, Key],
        of_model: tuple[ChunkPlacement, PartPasses],
        exchange: LayoutCommunication,
    ) -> PartPasses:
        """Return passes with what the gathering of their parameters, beside them or before them, adds."""
        ways, passes = of_model
        if not strategy.reshard_after_forward or len(ways.stage_of) > 1 or passes.meets:
            return passes
        gathering = (strategy.sharding, strategy.prefetch)
        key = (*keys, gathering, strategy.schedule, strategy.pp, strategy.virtual_stages, strategy.stage_layers)
        gathers_s = self._gathers.get(key)
        if gathers_s is None:
            stages = self._chunks_of(local, strategy, keys[0], ways)
            seen = [0] * strategy.pp
            found: list[float] = []
            route: list[int] = ways.stage_of[0].tolist()
            for stage in route:
                chunk = stages[stage][seen[stage]]
                seen[stage] += 1
                known = (keys[1], gathering, chunk)
                if known not in self._gathered_s:
                    self._gathered_s[known] = pass_gathers_s(local, strategy, chunk, exchange)
                found.append(self._gathered_s[known])
            gathers_s = self._gathers[key] = np.array(found)
        if strategy.data_parallel.overlap and strategy.prefetch > 0:
            more_s = np.maximum(gathers_s - passes.forward_s, 0.0) + np.maximum(gathers_s - passes.backward_s, 0.0)
        else:
            more_s = 2.0 * gathers_s
        return replace(passes, more_s=more_s)

    def _exchange(self, plan: Plan) -> tuple[Key, LayoutCommunication]:
        """Return how ranks that share parameters, and neighbouring stages, reach each other, and what that depends on."""
        strategy = plan.strategy
        degrees = (strategy.tp, strategy.cp, strategy.dp, strategy.pp, strategy.ep, strategy.etp)
        where: Key = (degrees, strategy.placement)
        kept = plan.training.changed(global_batch_size=0, micro_batch_size=0)
        laid = (id(plan.model), where, kept, strategy.zero_stage, strategy.shard_degree, strategy.data_parallel, strategy.offload)
        found = self._exchanges.get(laid)
        if found is None:
            name = self._names.setdefault(where, f"laid {len(self._names)}")
            found = self._exchanges[laid] = LayoutCommunication(prices=self.prices, plan=plan, name=name)
        return laid, found

    def _stages(self, plan: Plan, keys: tuple[Key, Key], ways: ChunkPlacement, exchange: LayoutCommunication) -> tuple[StageStates, ...]:
        """Return what each stage does besides passes; stages with equal chunks of the model do the same."""
        strategy, (cut, laid) = plan.strategy, keys
        if strategy.data_parallel.central:
            return ()
        often = plan.n_micro_batches if not strategy.data_parallel.no_sync else 0
        gathering = (strategy.gather, strategy.prefetch, strategy.reshard_after_forward, strategy.keep_ends)
        state = (laid, strategy.sharding, gathering, often)
        found: list[StageStates] = []
        local = local_model(plan.model, plan.training, strategy)
        for chunks in self._chunks_of(local, strategy, cut, ways):
            key = (state, chunks)
            known = self._states.get(key)
            if known is None:
                known = self._states[key] = states_of(stage_with(local, plan.training, strategy, chunks), self.prices, exchange)
            found.append(known)
        return tuple(found)

    def _chunks_of(self, local: LocalModel, strategy: Strategy, cut: Key, ways: ChunkPlacement) -> tuple[tuple[ModelChunk, ...], ...]:
        """Return the chunks of each stage; where all layers are alike, as if each began with the first of them."""
        key = (id(local.model), strategy.schedule, strategy.pp, strategy.virtual_stages, strategy.stage_layers, strategy.written)
        found = self._chunks.get(key)
        if found is None:
            n_parts = ways.stage_of.shape[1]
            counts = part_layers(strategy, local.model.n_layers, n_parts)
            starts = np.concatenate(([0], np.cumsum(counts)))
            alike = self._all_alike(local, cut)
            stages = [list[ModelChunk]() for _ in range(strategy.pp)]
            routes: list[list[int]] = ways.stage_of.tolist()
            for route in routes:
                for part, stage in enumerate(route):
                    chunk = ModelChunk(
                        stage=0,
                        chunk=len(stages[stage]),
                        start=0 if alike else int(starts[part]),
                        n_layers=counts[part],
                        first=part == 0,
                        last=part == n_parts - 1,
                        beside_first=route[0] == stage,
                    )
                    stages[stage].append(chunk)
            found = self._chunks[key] = tuple(tuple(chunks) for chunks in stages)
        return found

    def _all_alike(self, local: LocalModel, cut: Key) -> bool:
        found = self._alike.get(cut)
        if found is None:
            found = self._alike[cut] = all(local.first_alike(layer) == 0 for layer in range(local.model.n_layers))
        return found

    def _joined(self, step: _Step, found: Lanes) -> StepBound:
        plan, strategy, states = step.plan, step.plan.strategy, step.states
        update_s = np.array([state.update_s + state.after.seconds for state in states])
        more_s = step.n_reductions * np.array([state.casts_s for state in states])
        start_s, gathered = step.host_s, states[0].gathered
        if gathered is not None:
            start_s = max(step.host_s, gathered.first_s)
            more_s = more_s + plan.n_micro_batches * gathered.beside_s
        # What the accelerator does besides is hidden where it waits for the host.
        busy_s = found.busy_s + np.maximum(more_s - np.maximum(_held_s(step), 0.0), 0.0)
        if gathered is not None and (step.serial or strategy.prefetch == 0):
            busy_s = busy_s + plan.n_micro_batches * gathered.all.seconds - gathered.first_s
        behind_s = _behind_s(step)
        if not self.chained or strategy.optimizer_post_validation:
            path_s = busy_s + update_s + (start_s if self.chained else 0.0)
            stage = int(path_s.argmax())
            around = (float(path_s[stage] - busy_s[stage] - update_s[stage]), 0.0, 0.0, float(update_s[stage]))
            return self._bound(step, found, stage, (float(path_s[stage]), around))
        ends = np.unique(step.ways.stage_of[:, 0])
        own_s, drained_s = (
            start_s + found.fill_s + busy_s + behind_s,
            start_s + found.fill_s + busy_s + found.drain_s + behind_s[ends].min(),
        )
        together = strategy.tp * strategy.pp > 1
        if together:
            # The norm of all gradients comes before any update.
            own_s, drained_s = own_s + update_s.max(), drained_s + update_s.max()
        else:
            own_s, drained_s = own_s + update_s, drained_s + update_s[ends].min()
        ends_s = np.maximum(own_s, drained_s)
        stage = int(ends_s.argmax())
        tail_s = float(update_s.max() if together else update_s[stage])
        rest_s = float(ends_s[stage] - start_s - busy_s[stage] - tail_s)
        back_s = float(found.fill_s[stage] + (found.drain_s[stage] if drained_s[stage] > own_s[stage] else 0.0))
        return self._bound(step, found, stage, (float(ends_s[stage]), (start_s, back_s, rest_s - back_s, tail_s)))

    def _bound(self, step: _Step, found: Lanes, stage: int, path: tuple[float, tuple[float, float, float, float]]) -> StepBound:
        path_s, around = path
        if self.chained:
            path_s = max(path_s, step.host_s + _trip_s(step))
        exchange_s, link_s = (0.0, 0.0) if not self.chained else (self._exchange_s(step, found), self._link_s(step))
        return StepBound(path_s=path_s, exchange_s=exchange_s, link_s=link_s, stage=stage, parts_s=_parts(step, stage, around))

    def _exchange_s(self, step: _Step, found: Lanes) -> float:
        """Return when the stream on which gradients meet can have done its work, and the update behind it."""
        plan, strategy, states = step.plan, step.plan.strategy, step.states
        if strategy.optimizer_post_validation:
            return 0.0
        begin_s = np.full(step.ways.n_stages, np.inf)
        forward_s, backward_s = step.passes.forward_s, step.passes.backward_s
        all_but_last_s = step.times[:, None] * (forward_s + backward_s)[None] - backward_s[None]
        least_s = np.broadcast_to(forward_s, all_but_last_s.shape) if step.n_reductions > 1 else all_but_last_s
        np.minimum.at(begin_s, step.ways.stage_of.reshape(-1), least_s.reshape(-1))
        reduced_s = step.n_reductions * np.array([state.reduced.stream_s for state in states])
        update_s = np.array([state.update_s + state.after.seconds for state in states])
        exchange_s = step.host_s + found.fill_s + np.maximum(begin_s, 0.0) + reduced_s + update_s
        gathered = states[0].gathered
        gather_s = 0.0 if gathered is None else plan.n_micro_batches * gathered.all.seconds + states[0].last_s + states[0].update_s
        return max(float(exchange_s.max()), gather_s)

    def _link_s(self, step: _Step) -> float:
        """Return how long one link of the first accelerator is busy."""
        first = step.states[0]
        busy_s = step.n_reductions * first.reduced.busy_s + first.after.busy_s
        if first.gathered is not None:
            busy_s = busy_s + step.plan.n_micro_batches * first.gathered.all.busy_s
        return float(busy_s.max(initial=0.0))


def _behind_s(step: _Step) -> FloatArray:
    """Return for each stage what of the reduction of its gradients comes behind its last pass."""
    alone, gradients = step.plan.strategy.pp == 1, step.plan.strategy.data_parallel
    # Elsewhere reductions of other chunks may lie where a stage waits for others.
    if not step.serial or (not alone and (reduces_in_units(step.plan.strategy) or not gradients.no_sync)):
        return np.array([state.last_s for state in step.states])
    return (step.n_reductions if alone else 1) * np.array([state.reduced.stream_s for state in step.states])


def _lanes(step: _Step) -> Lanes:
    strategy, passes = step.plan.strategy, (step.passes.forward_s, step.passes.backward_s)
    blocks = not strategy.overlap_p2p and strategy.written is None
    found = lanes(step.ways, passes, step.times, send_s=step.send_s, sends_block=blocks, more_s=step.passes.more_s)
    return found if step.passes.waits_behind else replace(found, drain_s=np.zeros(step.ways.n_stages))


def _trip_s(step: _Step) -> float:
    """Return how long one micro-batch takes through the whole model and back, for which the stage of the first part waits."""
    return step.passes.trip_s + 2.0 * step.send_s * float(step.ways.leaves[0].sum())


def _held_s(step: _Step) -> FloatArray:
    """Return for each stage by how much the host makes its passes longer."""
    passes = step.passes
    held_s = (passes.forward_s + passes.backward_s - passes.rows[:, :ISSUE].sum(axis=1))[None] * step.times[:, None]
    return np.bincount(step.ways.stage_of.reshape(-1), weights=held_s.reshape(-1), minlength=step.ways.n_stages).astype(np.float64)


def _parts(step: _Step, stage: int, around: tuple[float, float, float, float]) -> tuple[float, ...]:
    """Return what the longest way consists of, given what stands around the passes of its stage."""
    start_s, back_s, behind_s, update_s = around
    on_stage = (step.ways.stage_of == stage) * step.times[:, None]
    often = on_stage.sum(axis=0)
    row = (step.passes.rows * often[:, None]).sum(axis=0)
    pass_s = float(((step.passes.forward_s + step.passes.backward_s) * often).sum())
    held_s = pass_s - float(row[:ISSUE].sum())
    return (*(float(each) for each in row[:ISSUE]), start_s + held_s, 0.0, back_s, behind_s, update_s)

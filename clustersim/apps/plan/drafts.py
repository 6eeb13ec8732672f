"""From a layout to the plan of a scenario, without reading a file for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from clustersim.apps.plan.flags import FrameworkFiles
from clustersim.apps.plan.space import LayoutFamily, ParallelLayout
from clustersim.apps.run.bound import evaluator_of
from clustersim.apps.run.intervals import shipped_memory_band
from clustersim.config.build import Built, build
from clustersim.config.constraints import TOKENS
from clustersim.config.load import load_scenario
from clustersim.documents.text import Data
from clustersim.errors import DomainError, ScenarioError
from clustersim.measure.bounds.bound_evaluator import BoundEvaluator
from clustersim.measure.bounds.layer_bounds import again_key, cut_key
from clustersim.measure.error_bars import TIGHT, memory_verdict_of
from clustersim.parallel.contributors import CONTRIBUTORS, stage_holds, stage_peak
from clustersim.parallel.contributors.model_state import FRAMEWORK_BYTES
from clustersim.parallel.pass_costs import balanced_layers, kernels_of
from clustersim.parallel.schedules.order import backward, forward
from clustersim.parallel.shard import local_model
from clustersim.parallel.stage import Stage, stage_of
from clustersim.parallel.stages import places_of
from clustersim.parallel.step_settings import Training
from clustersim.parallel.training_plan import Plan, Strategy, StrategySettings
from clustersim.program.holds import FORWARD_TO_BACKWARD, held_bytes

SURROUNDINGS: Final = ("cluster", "cost", "reliability", "background", "jobs", "checks")
"""Sections of a scenario that no layout changes: an error there concerns all layouts."""

FILLS_UP: Final = ("1f1b", "interleaved_1f1b", "gpipe")
"""Schedules whose first stage begins as many micro-batches as there are stages before it ends one."""

Key = tuple[object, ...]


@dataclass(slots=True)
class PeakMemory:
    """Peak memory of a layout, as far as its stages were looked at."""

    at_least_bytes: float
    n_stages: int = 0
    """Number of stages that it is the largest of, the ends of the model first."""


Peaks = dict[ParallelLayout, PeakMemory]
"""Peaks by layout at one placement, since memory does not depend on where ranks are."""


@dataclass(slots=True)
class Drafts:
    """Makes plans of layouts, each kind from one that was built in full."""

    base: Mapping[str, Data]
    """A scenario, whose layout is replaced."""
    peaks: Peaks = field(default_factory=dict[ParallelLayout, PeakMemory])
    """Those that are known; searches on clusters with the same accelerators may share them."""
    writes: Callable[[Plan], FrameworkFiles] | None = None
    """Writes a plan in the words of a framework, or refuses one that the framework cannot have."""
    _templates: dict[Key, Built] = field(default_factory=dict[Key, Built])
    """By kind of layout."""
    _checked: dict[Key, str | None] = field(default_factory=dict[Key, "str | None"])
    """By kind of layout and degrees, why the model does not go with them."""
    _balanced: dict[Key, tuple[int, ...]] = field(default_factory=dict[Key, tuple[int, ...]])
    _bench: BoundEvaluator | None = None
    _first: Built | None = None

    def document(self, layout: ParallelLayout) -> dict[str, Data]:
        """Return the scenario of a layout, as a mapping."""
        document = {key: dict(value) if isinstance(value, dict) else value for key, value in self.base.items()}
        for dotted, value in layout.changes().items():
            section, key = dotted.split(".")
            part = document.setdefault(section, {})
            assert isinstance(part, dict)
            if value is None:
                part.pop(key, None)
            else:
                part[key] = value
        return document

    def built(self, layout: ParallelLayout) -> Built:
        """Return a layout built in full."""
        return build(load_scenario(self.document(layout)))

    def whole_plan(self, layout: ParallelLayout) -> Plan | str:
        """Return the plan of a layout with the layers of each stage, or why there is none."""
        plan = self.plan(layout)
        return plan if isinstance(plan, str) else self._arranged(plan, layout.family)

    def plan(self, layout: ParallelLayout) -> Plan | str:
        """Return the plan of a layout, without a note on uneven layers; or the reason why there is none.

        Raises
        ------
        ScenarioError
            When something is wrong with all layouts.
        """
        family = layout.family
        key = (
            (family.schedule, family.pp > 1, family.tp > 1, family.cp > 1, family.ep > 1, family.recompute),
            (layout.zero_stage, layout.offload, family.balanced, family.dp * family.cp > 1),
        )
        checked = (key, family.tp, family.pp, family.cp, family.ep, family.dp, layout.placement if self.writes else ())
        refusal, template = self._checked.get(checked), self._templates.get(key)
        if refusal is not None:
            return refusal
        if template is None:
            try:
                template = self._templates[key] = build(load_scenario(self.document(layout)), others=False)
                self._first = self._first or template
            except ScenarioError as error:
                if error.field == TOKENS or (error.field or "").partition(".")[0] in SURROUNDINGS:
                    raise
                # Another layout of this kind may do.
                self._checked[checked] = said = f"{error.field}: {error.message}" if error.field else error.message
                return said
        plan = self._moved(template.plan.training, template.plan.strategy, layout)
        if checked not in self._checked:
            refused = _refused(plan, template.scenario.spec.strategy) or self._written(plan, family)
            self._checked[checked] = refused if isinstance(refused, str) else None
        return self._checked[checked] or plan

    @property
    def capacity_bytes(self) -> float:
        """The memory of the smallest accelerator."""
        return min(node.accelerator.memory_bytes for node, _ in self.first.cluster.kinds)

    def burdens(self, layout: ParallelLayout) -> tuple[str, ...]:
        """Return reasons to choose a plainer layout than this one, which has a plan, where the error bars do not tell which is faster."""
        plan, most_bytes = self.plan(layout), self.capacity_bytes
        written = "" if isinstance(plan, str) else self._written(plan, layout.family)
        unusual = written.burdens if isinstance(written, FrameworkFiles) else ()
        tight = memory_verdict_of(self.peak_bytes(layout, most_bytes), most_bytes, shipped_memory_band()) == TIGHT
        return (*(["offloads"] if layout.offload else []), *(["is tight in memory"] if tight else []), *unusual)

    def _written(self, plan: Plan, family: LayoutFamily) -> FrameworkFiles | str | None:
        """Return a plan, whose layers are not dealt out yet, in the words of the framework, or why it does not have it."""
        if self.writes is None:
            return None
        try:
            return self.writes(replace(plan, strategy=plan.strategy.changed(stage_layers=(1,))) if family.balanced else plan)
        except ScenarioError as error:
            return error.message

    def peak_bytes(self, layout: ParallelLayout, most_bytes: float = 0.0) -> float:
        """Return the peak of a layout that has a plan, or a lower bound of it that is above some bytes.

        Stages are weighed in turn, the ends of the model first: one that does not fit is enough.
        """
        # Memory does not depend on where ranks are.
        key = replace(layout, placement=())
        peak = self.peaks.get(key)
        if peak is not None and (peak.at_least_bytes > most_bytes or peak.n_stages == layout.family.pp):
            return peak.at_least_bytes
        plan = self.whole_plan(layout)
        assert not isinstance(plan, str)
        peak = self.peaks.setdefault(key, peak or PeakMemory(least_bytes(stage_of(plan, 0))))
        stages = sorted(range(plan.strategy.pp), key=lambda each: min(each, plan.strategy.pp - 1 - each))
        while peak.n_stages < len(stages) and peak.at_least_bytes <= most_bytes:
            peak.at_least_bytes = max(peak.at_least_bytes, held_bytes(stage_peak(stage_of(plan, stages[peak.n_stages]))))
            peak.n_stages += 1
        return peak.at_least_bytes

    def evaluator(self) -> BoundEvaluator:
        """Return what bounds all of them."""
        if self._bench is None:
            assert self._first is not None  # nothing is bounded before a plan was made
            self._bench = evaluator_of(self._first)
        return self._bench

    @property
    def first(self) -> Built:
        """The first layout that could be built."""
        assert self._first is not None
        return self._first

    def _moved(self, training: Training, strategy: Strategy, layout: ParallelLayout) -> Plan:
        family = layout.family
        strategy = strategy.changed(
            dp=family.dp,
            tp=family.tp,
            pp=family.pp,
            cp=family.cp,
            ep=family.ep,
            virtual_stages=family.virtual_stages,
            placement=layout.placement,
            stage_layers=None,
            shard_degree=None,
        )
        model = self.first.plan.model
        return Plan(model=model, training=training.changed(micro_batch_size=family.micro_batch_size), strategy=strategy)

    def _arranged(self, plan: Plan, family: LayoutFamily) -> Plan:
        if not family.balanced:
            return plan
        n_parts = places_of(plan.strategy).n_parts
        key = (cut_key(plan), again_key(plan.strategy), n_parts)
        found = self._balanced.get(key)
        if found is None:
            kernels = kernels_of(plan.training, plan.strategy, self.first.cluster.node)
            local = local_model(plan.model, plan.training, plan.strategy)
            found = self._balanced[key] = balanced_layers(local, plan.strategy, kernels, n_parts=n_parts)
        return replace(plan, strategy=plan.strategy.changed(stage_layers=found))


def _refused(plan: Plan, asked: StrategySettings) -> str | None:
    """Return why a plan that was moved from another cannot be."""
    try:
        for contributor in CONTRIBUTORS:
            contributor.refuse_model(plan.model, plan.strategy)
        for contributor in CONTRIBUTORS:
            contributor.refuse(plan.strategy, asked, model=plan.model, training=plan.training)
    except DomainError as error:
        return error.message
    return None


def least_bytes(first: Stage) -> float:
    """Return a lower bound of the first stage's memory, independent of the order of its passes."""
    order = (*(forward(micro_batch) for micro_batch in range(_in_flight(first))), backward(0))
    return held_bytes(stage_peak(first, order=order))


def activations_bytes_of(first: Stage) -> float:
    """Return the memory of activations on the first stage, for any sharding."""
    kept_bytes = held_bytes(stage_holds(first), interval=FORWARD_TO_BACKWARD, chunk=0)
    return FRAMEWORK_BYTES + _in_flight(first) * kept_bytes


def _in_flight(first: Stage) -> int:
    strategy = first.strategy
    return min(strategy.pp, first.n_micro_batches) if strategy.schedule in FILLS_UP else 1

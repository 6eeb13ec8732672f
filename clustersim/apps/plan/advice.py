"""Which family of parallel strategies suits a model on a cluster, and what was simulated to say so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from clustersim.apps.plan.asking import PlanRequest
from clustersim.apps.plan.drafts import Drafts
from clustersim.apps.plan.findings import MARGIN, MEMORY, REFUSED, Search
from clustersim.apps.plan.replays import ReplayOutcome, Replays, outcome_of
from clustersim.apps.plan.search import MEMORY_MARGIN, fastest
from clustersim.apps.plan.space import Space
from clustersim.apps.run.running import run_built
from clustersim.config.build import build
from clustersim.config.load import load_scenario
from clustersim.config.yaml_text import plain
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.measure.deciding import UNDECIDED, Judged, judged_by, undecided, undecided_text
from clustersim.measure.metrics import Breakdown
from clustersim.report.facts import memory_text
from clustersim.report.text_tables import TextAnswer, TextTable
from clustersim.units.quantity import format_quantity

ASYNCHRONOUS: Final = "asynchronous data parallelism"

NAMES: Final[Mapping[str, str]] = {
    "compute": "computation",
    "bubble": "pipeline bubbles",
    "stall": "waiting",
    "optimizer": "the optimizer",
    "host": "the host",
    "tp": "tensor-parallel communication",
    "pp": "sends between stages",
    "dp": "data-parallel communication",
    "ep": "expert-parallel communication",
    "cp": "context-parallel communication",
    "ps": "parameter servers",
    "offload": "the way to the host",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """Verdict on one family."""

    family: str
    layout: str | None
    """Its fastest; None where none can run."""
    step_time_s: float | None
    mfu: float | None
    memory_fraction: float | None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Advice(TextAnswer):
    """Choice of a family, and reasons against the others."""

    sentence: str
    families: tuple[Opinion, ...]
    """Fastest family first; those that cannot run last."""
    undecided: tuple[str, ...]
    """Families within the error bars of the fastest."""
    assumed: tuple[str, ...]
    cautions: tuple[str, ...]

    def headline(self) -> str:
        """Return the choice."""
        return self.sentence

    def tables(self) -> Sequence[TextTable]:
        """Return the verdict on each family."""
        return (TextTable("", sentences=tuple(f"- {each.sentence}" for each in self.families)),)

    def to_dict(self) -> dict[str, Data]:
        """Return the answer as one JSON document."""
        return {each.name: plain(getattr(self, each.name)) for each in fields(self)}

    def notes(self) -> Sequence[str]:
        """Return cautions, and what was assumed."""
        return [*self.cautions, *(f"assumed: {line}" for line in self.assumed)]


def spaces(space: Space) -> dict[str, Space]:
    """Return the families of a space that fit it, each as its own space."""
    several_tp = tuple(degree for degree in space.tp if degree > 1)
    several_pp = tuple(degree for degree in space.pp if degree > 1)
    lone = replace(space, tp=(1,), pp=(1,), cp=(1,), offload=((),))
    found = {
        "data parallelism": replace(lone, zero_stage=(0, 1)),
        "sharded data parallelism (ZeRO 2 or 3)": replace(lone, zero_stage=(2, 3)),
        "tensor parallelism": replace(lone, tp=several_tp, zero_stage=(0, 1)),
        "pipeline parallelism": replace(lone, pp=several_pp, zero_stage=(0, 1)),
        "hybrid parallelism": replace(space, tp=several_tp, offload=((),), least_dimensions=2),
    }
    return {name: each for name, each in found.items() if each.tp and each.pp}


def advise(asked: PlanRequest) -> Advice:
    """Return which family suits, with the best run of each."""
    drafts = Drafts(asked.base)
    with asked.told(), Replays() as replays:
        searches = {name: fastest(drafts, space, replays=replays) for name, space in spaces(asked.space).items()}
    results = {name: search.winner.result for name, search in searches.items() if search.winner}
    layouts = {name: search.winner.layout.words() for name, search in searches.items() if search.winner}
    unevenly = _asynchronous(asked)
    if unevenly is not None:
        results[ASYNCHRONOUS], layouts[ASYNCHRONOUS] = unevenly, f"dp {unevenly.metrics.ranks}, parameter servers"
    order = sorted(results, key=lambda name: (_pace(results[name]), name))
    near = [order[place] for place in undecided([_judged(results[name]) for name in order])]
    opinions = [_opinion(name, results, layouts[name], best=order[0], decided=name not in near) for name in order]
    opinions += [_cannot(name, search) for name, search in searches.items() if name not in results]
    sentence = _answer(order, results, layouts, near)
    return Advice(sentence=sentence, families=tuple(opinions), undecided=tuple(near), assumed=asked.assumed, cautions=asked.cautions)


def _pace(result: ReplayOutcome) -> float:
    """Return seconds for each sample: steps of asynchronous workers are no common ones."""
    return 1.0 / result.metrics.samples_per_s


def _judged(result: ReplayOutcome) -> Judged | None:
    return judged_by("samples_per_s", result.metrics.samples_per_s, result.metrics.error_bar)


def _answer(order: Sequence[str], results: Mapping[str, ReplayOutcome], layouts: Mapping[str, str], near: Sequence[str]) -> str:
    if not order:
        return "Nothing fits: the model does not train on this cluster in any layout that was looked at."
    best = order[0]
    doubt = f"; {undecided_text(near)}" if near else ""
    return f"Use {best}: {layouts[best]}, {format_quantity(results[best].step_time_s, 's')} a step{doubt}."


def _opinion(name: str, results: Mapping[str, ReplayOutcome], layout: str, *, best: str, decided: bool) -> Opinion:
    result, metrics = results[name], results[name].metrics
    share = metrics.memory.peak_bytes / metrics.memory.capacity_bytes
    step = format_quantity(metrics.step_time_s, "s")
    evidence = f"{step} a step, {memory_text(metrics.memory.peak_bytes)} of {memory_text(metrics.memory.capacity_bytes)}, {layout}"
    if name == best:
        sentence = f"{_capital(name)} is fastest: {evidence}."
    else:
        longer = 100 * (_pace(result) / _pace(results[best]) - 1.0)
        doubt = "" if decided else f", {UNDECIDED}"
        sentence = f"{_capital(name)} takes {longer:.0f} % longer{doubt} ({evidence}); it loses by {_loss(result, results[best])}."
    return Opinion(family=name, layout=layout, step_time_s=metrics.step_time_s, mfu=metrics.mfu, memory_fraction=share, sentence=sentence)


def _loss(result: ReplayOutcome, best: ReplayOutcome) -> str:
    """Return where a run spends more than the best one does."""
    mine, theirs = _shares(result.metrics.breakdown_s), _shares(best.metrics.breakdown_s)
    more = {name: mine[name] - theirs[name] for name in mine}
    largest = max(more, key=lambda name: more[name])
    return f"{format_quantity(more[largest], 's')} more of {NAMES[largest]}"


def _shares(breakdown: Breakdown) -> dict[str, float]:
    exposed = breakdown.exposed_communication
    parts = {name: float(getattr(breakdown, name)) for name in ("compute", "bubble", "stall", "optimizer", "host")}
    return {**parts, **{name: float(getattr(exposed, name)) for name in ("tp", "pp", "dp", "ep", "cp", "ps", "offload")}}


def _cannot(name: str, search: Search) -> Opinion:
    margin = f"no layout of it leaves {100 * MEMORY_MARGIN:g} % of memory free"
    # The reason of those that came furthest holds for the others too.
    reasons = {MARGIN: margin, MEMORY: "no layout of it fits in memory", REFUSED: "no layout of it is legal"}
    reason = next((each for each in reasons if search.counts.get(each)), REFUSED)
    least = f": the smallest needs {memory_text(search.least_bytes)}" if reason != REFUSED and search.least_bytes else ""
    sentence = f"{_capital(name)} cannot run: {reasons[reason]}{least}."
    return Opinion(family=name, layout=None, step_time_s=None, mfu=None, memory_fraction=None, sentence=sentence)


def _asynchronous(asked: PlanRequest) -> ReplayOutcome | None:
    """Return a run of workers at their own pace, where machines are uneven and a replica fits on one accelerator."""
    cluster = asked.base.get("cluster")
    if not isinstance(cluster, dict) or (
        not any(cluster.get(key) for key in ("stragglers", "jitter")) and not isinstance(cluster.get("nodes"), list)
    ):
        return None
    strategy: dict[str, Data] = {"data_parallel": {"algorithm": "parameter_server", "mode": "async"}}
    try:
        outcome = outcome_of(run_built(build(load_scenario({**asked.base, "strategy": strategy}))))
    except ScenarioError:
        return None
    return outcome if outcome.metrics.memory.fits else None


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]

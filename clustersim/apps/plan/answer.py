"""Result of a search, as a document and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from clustersim.apps.plan.asking import PlanRequest, asked_of
from clustersim.apps.plan.drafts import Drafts
from clustersim.apps.plan.findings import ABOVE, MARGIN, REASONS, REFUSED, TIE_FRACTION, UNSEEN, Search, Tried
from clustersim.apps.plan.layout_table import AGAINST_FIRST, layout_table, within_error_bars
from clustersim.apps.plan.margins import LEAST_GAIN, Margin, Turn, margins, turns
from clustersim.apps.plan.replays import ReplayOutcome, Replays
from clustersim.apps.plan.search import Terms, fastest
from clustersim.apps.plan.space import ParallelLayout
from clustersim.apps.run.bound import NAMES
from clustersim.apps.run.intervals import ABOVE_PUBLISHED, PublishedMfu, beside_published, published_beside, shipped_support
from clustersim.config.checks import parse_check
from clustersim.config.overriding import override_texts
from clustersim.config.yaml_text import plain
from clustersim.documents.text import Data
from clustersim.measure.deciding import MARK, UNDECIDED
from clustersim.measure.error_bars import ALL_RUNS, TIGHT
from clustersim.notices import Flag
from clustersim.parallel.training_plan import Plan
from clustersim.progress import phase
from clustersim.report.facts import interval_text, memory_verdict, percent_text
from clustersim.report.text_tables import TextAnswer, TextTable
from clustersim.units.divisors import count_text
from clustersim.units.quantity import format_alike, format_quantity

RUNNERS_UP: Final = 5
BELOW_BOUND: Final = "replay_below_bound"
"""Code of the flag that withdraws the certificate."""
MOST_NEAR: Final = 5
"""Layouts within the error bars that are named besides those of the table."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PlanAnswer(TextAnswer):
    """The answer to a plan."""

    search: Search
    margins: tuple[Margin, ...]
    turns: tuple[Turn, ...]
    scenario: dict[str, Data] | None
    """That of the winner."""
    plan: Plan | None
    """As it is built from it."""
    assumed: tuple[str, ...]
    cautions: tuple[str, ...]
    """Notices on what is not as it was asked for, and on unknown prices and powers."""
    memory_margin_fraction: float
    usual: tuple[Flag, ...] = ()
    """Notices on usual settings that all layouts have."""
    own: Tried | None = None
    """The layout that the scenario had."""
    own_refusal: str = ""
    """Why it cannot be run."""
    nearest: tuple[str, ...] = ()
    """Clusters and changes with which a layout can run, in sentences, where none can."""
    published: PublishedMfu | None = None
    """The published run with the highest MFU of the winner's class; None without one."""

    def __repr__(self) -> str:
        """Return the winner in one line; all of it is in ``print(answer)``."""
        winner = self.search.winner
        step = f"; {format_quantity(winner.step_time_s, 's')} a step" if winner else ""
        return f"<PlanAnswer: {self.headline()}{step}>"

    def headline(self) -> str:
        """Return the layout of the winner in words, or why none can run."""
        winner, n_without = self.search.winner, self.search.counts.get(MARGIN)
        if winner is not None:
            return winner.layout.words()
        if not n_without:
            return f"No layout can run: {self.search.commonest}."
        kept = f"{100 * self.memory_margin_fraction:g} % of the memory free"
        return f"No layout leaves {kept}; {n_without:,} may fit with less (--memory-margin)."

    def lines(self) -> Sequence[str]:
        """Return memory, bound and step of the winner, or the nearest that can run; why the layout of the scenario is left out."""
        winner = self.search.winner
        own = [f"The layout of the scenario cannot run: {self.own_refusal}"] if self.own_refusal else []
        return [*self.nearest, *own] if winner is None else [bound_line(winner), *self.context, *own]

    def tables(self) -> Sequence[TextTable]:
        """Return the fastest layouts, and why no other one is faster."""
        table = layout_table(self.families, own=self.own)
        found = [replace(table, sentences=(AGAINST_FIRST,) if any(MARK in row[1] for row in table.rows) else ())]
        if len(self.pareto) > 1 and not set(self.pareto) <= set(self.families):
            found.append(layout_table(self.pareto, with_energy=True))
        return [*found, *(TextTable(heading, sentences=tuple(lines)) for heading, lines in self.sections.items())]

    def notes(self) -> Sequence[str]:
        """Return cautions, and what was assumed."""
        return [*self.cautions, *(f"assumed: {line}" for line in self.assumed)]

    @property
    def context(self) -> tuple[str, ...]:
        """Sequences of a step and its speed, and whether the search ended early."""
        search, winner, plan = self.search, self.search.winner, self.plan
        if winner is None or plan is None:
            return ()
        training, speed = plan.training, winner.result.metrics.tokens_per_s
        batch = f"{training.global_batch_size:,} {'sequences' if plan.model.divisible else 'samples'}"
        step = f"a step has {batch} of {training.seq_length:,} tokens: {speed:,.0f} tokens/s"
        n_unseen = search.counts.get(UNSEEN)
        early = f"search ended early: {n_unseen or 0:,} of {search.n_layouts:,} layouts not looked at"
        return (*([search.choice] if search.choice else []), step, *([early] if n_unseen else []))

    @property
    def sections(self) -> dict[str, list[str]]:
        """Sentences by their heading."""
        return {
            "Within the error bars of the first layout too: not decided": near_lines(self),
            "What the choice turns on": turn_lines(self),
            "What 10 % more would buy": margin_lines(self.margins),
            "Certificate": certificate_lines(self.search, self.memory_margin_fraction),
        }

    @property
    def families(self) -> tuple[Tried, ...]:
        """The fastest layout of each kind, the winner first."""
        return tuple(self.search.kinds[: RUNNERS_UP + 1])

    @property
    def pareto(self) -> tuple[Tried, ...]:
        """The layouts that were replayed of which no other is as good in time, cost and energy; alike to three digits, the first."""
        tried = self.search.tried
        best = [one for one in tried if not any(_beats(other, one) for other in tried)]
        unlike: dict[tuple[str, ...], Tried] = {}
        for one in best:
            unlike.setdefault(tuple(f"{figure:.3g}" for figure in _figures(one)), one)
        return tuple(unlike.values())

    @property
    def flags(self) -> tuple[Flag, ...]:
        """Flags of the answer."""
        flags: list[Flag] = []
        wrong = self.search.below_bound
        if wrong:
            worst = min(wrong, key=lambda tried: tried.step_time_s / tried.least_s)
            step, least = format_quantity(worst.step_time_s, "s", 4), format_quantity(worst.least_s, "s", 4)
            such = f"{len(wrong)} replays are shorter than their bounds, such as {worst.layout.words()}: {step}, with a bound of {least}"
            message = f"{such}; the bounds are wrong here, and a layout that was left out by its bound may be faster"
            flags.append(Flag(code=BELOW_BOUND, message=message))
        winner = self.search.winner
        if winner is not None and winner.result.metrics.memory.verdict == TIGHT:
            flags.append(Flag(code="memory_tight", message=f"the winner {memory_verdict(winner.result.metrics)}"))
        if winner is not None:
            flags += [flag for flag in winner.result.metrics.flags if flag.code == ABOVE_PUBLISHED]
        return tuple(flags)

    def to_dict(self) -> dict[str, Data]:
        """Return the answer as one JSON document."""
        search, winner = self.search, self.search.winner
        return {
            "found": winner is not None,
            "winner": _entry(winner) if winner else None,
            "fastest": _entry(search.fastest) if search.fastest else None,
            "choice": search.choice or None,
            "undecided": [tried.layout.words() for tried in within_error_bars(search.replayed)],
            "families": [_entry(tried) for tried in self.families],
            "own": None if self.own is None else _entry(self.own),
            "own_refusal": self.own_refusal or None,
            "runners_up": [_entry(tried) for tried in search.replayed[1 : RUNNERS_UP + 1]],
            "pareto": [_entry(tried) for tried in self.pareto],
            "margins": plain(self.margins),
            "turns": plain(self.turns),
            "published_mfu": None if self.published is None else self.published.model_dump(),
            "certificate": {
                "complete": search.complete,
                "holds": not search.below_bound,
                "n_layouts": search.n_layouts,
                "n_bounds": search.n_bounds,
                "n_replayed": len(search.tried) + len(search.failing),
                "next_bound_s": search.next_bound_s,
                "gap_fraction": search.gap_fraction,
                "left_out": list(search.left_out),
                "why_not": {reason: search.counts[reason] for reason in REASONS if search.counts.get(reason)},
            },
            "memory_margin_fraction": self.memory_margin_fraction,
            "flags": plain((*self.flags, *self.usual)),
            "scenario": self.scenario,
            "assumed": list(self.assumed),
            "cautions": list(self.cautions),
        }


def _figures(tried: Tried) -> tuple[float, float, float]:
    cost = tried.result.cost
    if cost is None:
        return tried.step_time_s, 0.0, 0.0
    return tried.step_time_s, cost.step.usd or 0.0, cost.step.energy_kwh


def _beats(one: Tried, other: Tried) -> bool:
    mine, theirs = _figures(one), _figures(other)
    return mine != theirs and all(left <= right for left, right in zip(mine, theirs, strict=True))


def _entry(tried: Tried) -> dict[str, Data]:
    metrics, cost = tried.result.metrics, tried.result.cost
    changes = tried.layout.changes()
    return {
        "layout": tried.layout.words(),
        "changes": changes,
        "step_time_s": metrics.step_time_s,
        "bound_s": tried.least_s,
        "mfu": metrics.mfu,
        "tokens_per_s": metrics.tokens_per_s,
        "peak_bytes": metrics.memory.peak_bytes,
        "memory_fraction": metrics.memory.peak_bytes / metrics.memory.capacity_bytes,
        "memory_verdict": metrics.memory.verdict,
        "step_usd": cost.step.usd if cost else None,
        "step_energy_kwh": cost.step.energy_kwh if cost else None,
        "bound_by": tried.result.bounds.sentence,
    }


def bound_line(tried: Tried) -> str:
    """Return whether a layout fits and what binds it; how short its step can be at least stands in :func:`rows`."""
    bounds, fit = tried.result.bounds, memory_verdict(tried.result.metrics)
    return f"{fit}; bound by {NAMES[bounds.binding]}: {format_quantity(bounds.binding_s, 's')} of {format_quantity(tried.step_time_s, 's')}"


def certificate_lines(search: Search, memory_margin_fraction: float) -> list[str]:
    """Return why nothing that was left out could have won."""
    replayed = len(search.tried) + len(search.failing)
    margin = f"{100 * memory_margin_fraction:g} % of the memory stays free"
    more = f" and {len(search.others)} of other kinds" if search.others else ""
    lines = [f"{search.n_layouts:,} layouts, {search.n_bounds:,} bounds, {count_text(replayed, 'replay')}{more}; {margin}"]
    for reason in REASONS:
        count = search.counts.get(reason, 0)
        if count:
            more = {REFUSED: f": {search.refusal}"} if search.refusals else {}
            if search.next_bound_s is not None:
                more[ABOVE] = f" (the least is {format_quantity(search.next_bound_s, 's', 4)})"
            lines.append(f"  {count:>9,}  {reason}{more.get(reason, '')}")
    if search.below_bound:
        lines.append("  Withdrawn: replays are shorter than their bounds, so that a layout that was left out may be faster.")
    elif not search.complete:
        unknown = search.gap_fraction is None or not search.winner
        gap = "it is not known by how much" if unknown else f"its step {100 * (search.gap_fraction or 0.0):.1f} % shorter at most"
        lines.append(f"  The search ended early: a layout that was not looked at may be faster, {gap} (--most-replays, --time-limit).")
    lines += [f"  not searched: {line}" for line in search.left_out]
    if search.cut_short:
        lines.append("  The time was over before the last replays with more or less of a resource (--time-limit).")
    return lines


def near_lines(answer: PlanAnswer) -> list[str]:
    """Return the layouts that were replayed and are within the error bars of the winner, but for those of the table.

    One that offloads is left out where the same layout is as fast without.
    """
    plainly = {each.layout: each.step_time_s for each in answer.search.replayed if not each.layout.offload}

    def needless(each: Tried) -> bool:
        without = plainly.get(replace(each.layout, offload=()), inf)
        return bool(each.layout.offload) and without <= each.step_time_s * (1.0 + TIE_FRACTION)

    near = [each for each in within_error_bars(answer.search.replayed) if each not in answer.families and not needless(each)]
    if not near:
        return []
    shown = near[:MOST_NEAR]
    times = format_alike([tried.step_time_s for tried in shown], "s")
    lines = [f"  {step}  {tried.layout.words()}" for step, tried in zip(times, shown, strict=True)]
    return [*lines, *([f"  and {len(near) - MOST_NEAR} more (--json)"] if len(near) > MOST_NEAR else [])]


def margin_lines(found: Sequence[Margin]) -> list[str]:
    """Return the gain from a tenth more of each resource."""
    lines: list[str] = []
    for margin in found:
        other = f", with {margin.layout}{'' if margin.decided else f'; {UNDECIDED}'}" if margin.layout else ""
        gains = margin.gain_fraction >= LEAST_GAIN
        lines.append(f"  10 % more {margin.resource}: {f'{percent_text(margin.gain_fraction)} shorter{other}' if gains else 'nothing'}")
    return lines


def turn_lines(answer: PlanAnswer) -> list[str]:
    """Return on what the choice turns, how many published runs the interval of the winner is made of, and how high any of them came."""
    winner = answer.search.winner
    if winner is None:
        return []
    lines = [f"  {line}" for turn in answer.turns for line in turn.lines]
    kind, interval_s = winner.result.metrics.step_time_interval_kind, winner.result.metrics.step_time_interval_s
    if kind is not None and interval_s is not None:
        n_rows, n_sources = shipped_support(kind)
        shown = interval_text(winner.result.metrics)
        of = "" if kind == ALL_RUNS else f" ({kind})"
        lines.append(f"  step of the winner: {shown} expected, from {n_rows:,} published runs of {n_sources} sources{of}")
    mfu, step_s = winner.result.metrics.mfu, winner.result.metrics.step_time_s
    # It is in inverse proportion to the step.
    span = "" if interval_s is None else " ({} to {})".format(*(percent_text(mfu * step_s / each_s) for each_s in reversed(interval_s)))
    above = ", above all that was published" if answer.published and mfu > answer.published.mfu else ""
    return [*lines, f"  MFU of the winner: {percent_text(mfu)}{span}{above}; {beside_published(answer.published)}"]


def plan(
    model: str | Mapping[str, object],
    cluster: str | None = None,
    *,
    nodes: int | None = None,
    set: str | Sequence[str] | Mapping[str, object] = (),  # noqa: A002 - named like --set
    only: str | Sequence[str] = (),
    where: str | Sequence[str] = (),
) -> PlanAnswer:
    """Find the fastest layout of a model on a cluster.

    Parameters
    ----------
    model
        A model; without a cluster, a scenario whose layout is open.
    cluster
        A shipped node or cluster.
    nodes
        Their number.
    set
        Changes such as ``"training.global_batch_size=256"``.
    only
        Values that are searched, such as ``"tp=4,8"``.
    where
        Conditions such as ``"memory_fraction <= 0.9"``.

    Returns
    -------
    PlanAnswer
        With ``headline()``, ``families`` and ``scenario``, that of the winner, which :func:`clustersim.run` takes.
    """
    texts = [override_texts(each) for each in (set, only, where)]
    asked = asked_of(model, cluster, nodes=nodes, overrides=texts[0], limits=texts[1])
    with asked.told():
        return plan_for(asked, Terms(constraints=tuple(map(parse_check, texts[2]))))


def plan_for(asked: PlanRequest, terms: Terms | None = None) -> PlanAnswer:
    """Return the best layout of a space that holds the terms, and why.

    Raises
    ------
    ScenarioError
        When something is wrong with all layouts, or no layout is legal.
    """
    terms = terms or Terms()
    with asked.told(), Replays() as replays:
        drafts = Drafts(asked.base, writes=asked.writes)
        search = fastest(drafts, asked.space, terms, replays=replays, others=True).checked()
        return answer_of(asked, drafts, search, terms, replays)


def answer_of(asked: PlanRequest, drafts: Drafts, search: Search, terms: Terms, replays: Replays) -> PlanAnswer:
    """Return the answer that a search gives, with what a tenth more of each resource buys and on what the choice turns."""
    with phase("sensitivity"):
        bought = margins(drafts, search, replays)
        turned = turns(drafts, search, replays, terms.memory_margin_fraction)
    layout = asked.own if isinstance(asked.own, ParallelLayout) else None
    own = asked.own if layout is None else replays.end(replays.begin(drafts.document(layout)))
    winner = search.winner
    built = drafts.built(winner.layout) if winner else None
    asked = asked.told_of(tried.layout for tried in search.kinds)
    return PlanAnswer(
        search=search,
        margins=bought,
        turns=turned,
        scenario=drafts.document(winner.layout) if winner else None,
        plan=built.plan if built else None,
        assumed=asked.assumed,
        cautions=asked.cautions,
        usual=asked.usual,
        own=Tried(layout=layout, bound_s=own.bounds.bound_s, result=own) if layout and isinstance(own, ReplayOutcome) else None,
        own_refusal=own if isinstance(own, str) else "",
        memory_margin_fraction=terms.memory_margin_fraction,
        published=published_beside(built) if built else None,
    )

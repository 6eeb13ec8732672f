"""Accelerators, their number and layout for a number of tokens within limits of time, budget and power."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter
from typing import Final

from clustersim.apps.plan.answer import PlanAnswer, answer_of
from clustersim.apps.plan.asking import PlanRequest, asked_of, figure_of
from clustersim.apps.plan.drafts import Drafts
from clustersim.apps.plan.findings import ABOVE, HOST, MARGIN, MEMORY, TIE_FRACTION, Search
from clustersim.apps.plan.replays import Replays
from clustersim.apps.plan.search import Terms, fastest
from clustersim.apps.plan.space import adapted_batch, usual_limits
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import load_node
from clustersim.measure.error_bars import ErrorBar, with_ends
from clustersim.progress import counted, noted, phase
from clustersim.report.text_tables import TextAnswer, TextTable, three_digits
from clustersim.units.quantity import format_quantity

MOST_NODES: Final = 2048
_BATCH: Final = "training.global_batch_size"
EIGHTHS: Final = 4
"""Binary digits in which counts of nodes differ: above 16 there are eight for each power of two."""
HINTS: Final = {
    "--budget": "add -s cost.gpu_hour='2.50 USD', or -s cost.prices=my-prices.yaml",
    "--power": "add -s cost.power.busy='700 W', of one accelerator that computes",
}
"""Ways to give unknown values, by option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Target of a training, and its limits."""

    tokens: float
    within_s: float | None = None
    budget_usd: float | None = None
    power_w: float | None = None
    """At the meter of the building."""
    nodes: tuple[str, ...] = ()
    """Kinds of nodes to choose from."""
    most_nodes: int = MOST_NODES


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """Result of one cluster with its best layout."""

    node: str
    n_nodes: int
    asked: PlanRequest
    asked_batch: int
    """The given one, which may have been adapted."""
    drafts: Drafts
    search: Search
    time_s: float = inf
    usd: float | None = None
    """None without a price."""
    power_w: float | None = None
    """None where the power of the accelerator is not known."""
    excess: float = inf
    """The largest of what it takes over what it may take; up to 1 where it reaches the goal."""

    @property
    def bar(self) -> ErrorBar | None:
        """Error bar of its step time, and so of its time."""
        return self.search.winner.result.metrics.error_bar if self.search.winner else None

    def rank(self, limit_s: float | None) -> tuple[float | bool | str, ...]:
        """Return by what clusters are ordered: costs alike in three digits are equal, and then one that is surely in time comes first."""
        usd = three_digits(self.usd) or self.n_nodes
        return max(1.0, self.excess), self.usd is None, usd, self.is_open(limit_s), self.n_nodes, self.node

    def is_open(self, limit_s: float | None) -> bool:
        """Return whether the error bars do not decide that it takes no longer than a limit."""
        ends = (self.bar.least_fraction, self.bar.most_fraction) if self.bar and limit_s else (0.0, 0.0)
        return ends[0] * self.time_s <= (limit_s or 0.0) < ends[1] * self.time_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedGoal:
    """A cluster on which no layout runs, or none is in time."""

    node: str
    n_nodes: int
    why: str
    search: Search
    time_s: float | None = None
    """Below which no layout is; None where none runs."""
    too_small: bool = False
    """Whether layouts divide it that are too slow or too large; without one it says nothing of other numbers."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GoalAnswer(TextAnswer):
    """The answer to a goal."""

    goal: Goal
    found: tuple[Reached, ...]
    """All on which a layout was replayed, best first."""
    plan: PlanAnswer | None = None
    """That of the best."""
    missed: tuple[MissedGoal, ...] = ()
    """All others that were tried, in order."""
    cut_short: bool = False
    """Whether searches ended before all numbers of nodes were decided."""

    @property
    def best(self) -> Reached | None:
        """The cheapest that reaches the goal, or what comes nearest."""
        return self.found[0] if self.found else None

    @property
    def reached(self) -> bool:
        """Whether the goal can be reached."""
        return self.best is not None and self.best.excess <= 1.0

    def headline(self) -> str:
        """Return whether the goal can be reached, and the best cluster or the nearest."""
        if self.best is not None:
            return f"{'yes' if self.reached else 'no: the nearest is'} {_words(self.best)}"
        return f"no: {'none was found before the searches ended' if self.cut_short else 'none of these clusters runs the model as asked'}"

    def tables(self) -> Sequence[TextTable]:
        """Return the clusters that were tried, how their numbers were chosen, and cautions."""
        whys: dict[tuple[str, str], list[int]] = {}
        for each in self.missed:
            whys.setdefault((each.node, each.why), []).append(each.n_nodes)
        missed = (f"{', '.join(map(str, numbers))} {node}: {why}" for (node, why), numbers in whys.items())
        looked_at = tuple(f"  {line}" for line in (*map(_words, self.found), *missed))
        numbers = (
            f"Bisected: counts to 16, and eighths between powers of two, up to {self.goal.most_nodes}; more are taken to be no slower."
        )
        told = (*([numbers] if self.goal.within_s is not None else []), *(f"{line}." for line in self.cautions()))
        return TextTable("Looked at", sentences=looked_at), TextTable("", sentences=told)

    def notes(self) -> Sequence[str]:
        """Return values that were assumed."""
        return [f"assumed: {line}" for line in (self.plan.assumed if self.plan else ())]

    def cautions(self) -> list[str]:
        """Return adapted batches, and what else is not as it was asked for."""
        best, adapted = self.best, [each for each in self.found if each.asked_batch != each.asked.space.batch]
        lines = ["searches ended before all numbers of nodes were decided (--time-limit, --most-replays): fewer may do"] * self.cut_short
        if best is not None:
            lines += ["within the error bars it is not decided whether that is in time"] * best.is_open(self.goal.within_s)
            lines += [best.search.choice] if best.search.choice else []
        lines += [adapted_line(f"{each.n_nodes} {each.node}", each.asked_batch, each.asked) for each in adapted]
        remarks: dict[str, dict[str, None]] = {}
        for each in self.found:
            for line in each.asked.told_of([each.search.winner.layout] if each.search.winner else []).cautions:
                remarks.setdefault(line, {})[each.node] = None
        return [*lines, *(f"{', '.join(nodes)}: {line}" for line, nodes in remarks.items())]

    def to_dict(self) -> dict[str, Data]:
        """Return the answer as one JSON document."""
        goal, best = self.goal, self.best
        return {
            "reached": self.reached,
            "goal": {"tokens": goal.tokens, "within_s": goal.within_s, "budget_usd": goal.budget_usd, "power_w": goal.power_w},
            "best": None if best is None or self.plan is None else {**_entry(best), "plan": self.plan.to_dict()},
            "looked_at": [_entry(each) for each in self.found],
            "missed": [{"node": each.node, "nodes": each.n_nodes, "least_time_s": each.time_s, "why": each.why} for each in self.missed],
            "assumed": list(self.plan.assumed) if self.plan else [],
            "cautions": [*self.cautions()],
        }


def goal_of(tokens: str, *, within: str | None, budget: str | None, power: str | None, nodes: str, most_nodes: int) -> Goal:
    """Return a goal from what people write.

    Raises
    ------
    ScenarioError
        When a figure has no unit, or a node is unknown.
    """
    n_tokens = figure_of("--tokens", tokens, "count")
    names = tuple(name.strip() for name in nodes.split(",") if name.strip())
    if not names:
        raise ScenarioError("a goal needs kinds of nodes to choose from", field="--accelerators", hint="write dgx-h100,dgx-b200")
    for name in names:
        load_node(name)
    if within is None and budget is None and power is None:
        raise ScenarioError("a goal needs a limit", field="--tokens", hint="add --within '60 days', --budget '12 MUSD' or --power '5 MW'")
    return Goal(
        tokens=n_tokens,
        within_s=None if within is None else figure_of("--within", within, "s"),
        budget_usd=None if budget is None else figure_of("--budget", budget, "USD"),
        power_w=None if power is None else figure_of("--power", power, "W"),
        nodes=names,
        most_nodes=most_nodes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Settings of the plan of each cluster."""

    overrides: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    terms: Terms = field(default_factory=Terms)
    framework: str | None = None
    """In whose words the winner is written."""


def reach(model: str, goal: Goal, asking: Asking | None = None) -> GoalAnswer:
    """Return the cheapest cluster that reaches a goal, or the one that comes nearest.

    Of each kind of node the fewest of ``counts`` that are in time are found by bisection. Layouts that are too slow by their bounds are not
    replayed, so that a count that cannot be in time costs no more than bounds. Where none is, the largest is planned for without a limit,
    to say how near it comes.
    """
    asking = asking or Asking()
    with Replays() as replays:
        searching = _GoalSearch(model, goal, asking, replays, perf_counter() + asking.terms.time_limit_s)
        decided = [searching.of_kind(node, len(goal.nodes) - place) for place, node in enumerate(goal.nodes)]
        tried, plan = searching.tried.values(), None
        found = [each for each in tried if isinstance(each, Reached)]
        found.sort(key=lambda each: each.rank(goal.within_s))
        if found:
            best = found[0]
            best.search.ends_s = searching.ends_s
            plan = answer_of(best.asked, best.drafts, best.search, asking.terms, replays)
    missed = sorted((each for each in tried if isinstance(each, MissedGoal)), key=lambda each: (each.node, each.n_nodes))
    return GoalAnswer(goal=goal, found=tuple(found), plan=plan, missed=tuple(missed), cut_short=not all(decided))


def counts(most: int) -> tuple[int, ...]:
    """Return the numbers of nodes to choose from: all up to 16, then eighths between powers of two, which divide batches and layers well.

    Examples
    --------
    >>> counts(40)
    (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 24, 26, 28, 30, 32, 36, 40)
    """
    return tuple(n for n in range(1, most + 1) if n % max(1, 2 ** (n.bit_length() - EIGHTHS)) == 0)


@dataclass(slots=True)
class _GoalSearch:
    """Searches of numbers of nodes until a time."""

    model: str
    goal: Goal
    asking: Asking
    replays: Replays
    ends_s: float
    """Reading of ``perf_counter`` from which on no search begins."""
    tried: dict[tuple[str, int], Reached | MissedGoal] = field(default_factory=dict[tuple[str, int], "Reached | MissedGoal"])

    def of_kind(self, node: str, n_kinds: int) -> bool:
        """Find the fewest nodes of one kind that are in time, out of those on which a layout runs, if more nodes are no slower.

        Return whether that was decided before the time was over, and by searches that were complete where more nodes were needed.

        Parameters
        ----------
        n_kinds
            Kinds of nodes that are left, this one with them.
        """
        every, tried, within_s = list(counts(self.goal.most_nodes)), self.tried, self.goal.within_s or inf
        low, high, n_counts, complete = 0, len(every), len(every), True
        with phase(f"plan for numbers of {node}"):
            while low < high and perf_counter() < self.ends_s:
                counted(f"{n_counts - (high - low)} of {n_counts} numbers decided")
                middle, n_searches = (low + high) // 2, (high - low).bit_length() + (n_kinds - 1) * n_counts.bit_length()
                one = tried[node, every[middle]] = self.of_cluster(node, every[middle], self.goal, n_searches)
                if isinstance(one, Reached):
                    noted("\n".join(f"so far: {_words(each)}" for each in tried.values() if isinstance(each, Reached)))
                if isinstance(one, Reached) and one.time_s <= within_s:
                    high = middle
                    continue
                complete = complete and one.search.complete
                if isinstance(one, Reached) or one.too_small:
                    low = middle + 1
                else:
                    del every[middle]
                    high -= 1
            decided = low == high
            if decided and every and high == len(every) and tried[node, every[-1]].time_s is not None and perf_counter() < self.ends_s:
                one = self.of_cluster(node, every[-1], replace(self.goal, within_s=None))
                tried[node, every[-1]] = _against(one, self.goal) if isinstance(one, Reached) else one
        return decided and complete

    def of_cluster(self, node: str, n_nodes: int, goal: Goal, n_searches: int = 0) -> Reached | MissedGoal:
        """Return the result of the best layout on one cluster, or the reason why no layout meets the time limit.

        Parameters
        ----------
        n_searches
            Searches that are left. Each has the same part of the time, and so have the replays behind them.
        """
        asked, asked_batch = asked_for(self.model, node, n_nodes, goal.tokens, self.asking)
        n_steps = goal.tokens / asked.tokens_per_step
        # Sums in another order may say a little more than the limit of a run that is just in time.
        longest_s = inf if goal.within_s is None else goal.within_s / n_steps * (1.0 + TIE_FRACTION)
        terms = replace(self.asking.terms, within_s=longest_s, time_limit_s=(self.ends_s - perf_counter()) / (n_searches + 1))
        with asked.told():
            drafts = Drafts(asked.base, writes=asked.writes)
            search = fastest(drafts, asked.space, terms, replays=self.replays)
        if search.winner is None:
            return _missed(MissedGoal(node=node, n_nodes=n_nodes, why="", search=search), goal, n_steps)
        one = _against(Reached(node=node, n_nodes=n_nodes, asked=asked, asked_batch=asked_batch, drafts=drafts, search=search), goal)
        # A plainer layout may miss what the fastest holds.
        search.prefers_plainer = one.excess <= 1.0
        return _against(one, goal)


def _missed(one: MissedGoal, goal: Goal, n_steps: float) -> MissedGoal:
    """Return a cluster with the reason why its search has found no layout."""
    count, least_s, complete = one.search.counts.get, one.search.next_bound_s, one.search.complete
    if one.search.failing:
        return replace(one, why=f"no layout{'' if goal.within_s is None else ' in time'} fulfils the constraints")
    if complete and not count(ABOVE):
        return replace(one, why=f"no layout runs: {one.search.commonest}", too_small=any(map(count, (MEMORY, MARGIN, HOST))))
    why = "not in time" if complete else "none in time was found before the search ended"
    if not least_s:
        return replace(one, why=why, too_small=True)
    return replace(
        one, why=f"{why}, it takes {format_quantity(n_steps * least_s, 's', 4)} at least", time_s=n_steps * least_s, too_small=True
    )


def asked_for(model: str, node: str, n_nodes: int, tokens: float, asking: Asking) -> tuple[PlanRequest, int]:
    """Return the search of a training on one cluster, and the given batch, in place of which an adapted one may be searched."""
    texts, limits = [*asking.overrides, f"training.tokens={tokens:.0f}"], usual_limits(asking.limits)
    asked = asked_of(model, node, nodes=n_nodes, overrides=texts, limits=limits, framework=asking.framework)
    batch = asked.space.batch
    adapted = adapted_batch(batch, asked.space.n_ranks)
    if adapted != batch:
        kept = [text for text in texts if text.partition("=")[0].strip() != _BATCH]
        # Its batch is given, so that it no longer says that one was assumed.
        again = asked_of(model, node, nodes=n_nodes, overrides=(*kept, f"{_BATCH}={adapted}"), limits=limits, framework=asking.framework)
        asked = replace(again, assumed=asked.assumed)
    return asked, batch


def adapted_line(name: str, asked_batch: int, asked: PlanRequest) -> str:
    """Return the note on a batch that was adapted."""
    return f"{name}: the batch is {asked.space.batch:,} and not {asked_batch:,}, which {asked.space.n_ranks:,} GPUs do not divide"


def _against(one: Reached, goal: Goal) -> Reached:
    """Return the result of a cluster, with the figures of its winner and their excess over the goal.

    Raises
    ------
    ScenarioError
        Where the goal limits what is not known.
    """
    assert one.search.winner is not None  # it was replayed
    result, cost = one.search.winner.result, one.search.winner.result.cost
    one = replace(
        one,
        time_s=result.training_s or goal.tokens / result.metrics.tokens_per_s,
        usd=cost.training.usd if cost and cost.training else None,
        power_w=cost.power.facility_w if cost else None,
    )
    limits = (("--budget", "price", one.usd, goal.budget_usd), ("--power", "power", one.power_w, goal.power_w))
    for option, what, value, limit in limits:
        if value is None and limit is not None:
            raise ScenarioError(f"no {what} of {one.node} is known", field=option, hint=HINTS[option])
    asked_for = ((one.time_s, goal.within_s), (one.usd, goal.budget_usd), (one.power_w, goal.power_w))
    excess = max((value / limit for value, limit in asked_for if value is not None and limit is not None), default=0.0)
    return replace(one, excess=excess)


def _entry(each: Reached) -> dict[str, Data]:
    winner, bar = each.search.winner, each.bar
    return {
        "node": each.node,
        "nodes": each.n_nodes,
        "global_batch_size": each.asked.space.batch,
        "layout": winner.layout.words() if winner else None,
        "time_s": each.time_s,
        "time_interval_s": [each.time_s * bar.least_fraction, each.time_s * bar.most_fraction] if bar else None,
        "usd": each.usd,
        "power_w": each.power_w,
        "excess": each.excess,
    }


def _words(each: Reached) -> str:
    layout = each.search.winner.layout.words() if each.search.winner else ""
    usd = f", {format_quantity(each.usd, 'USD')}" if each.usd is not None else ", no price"
    power = format_quantity(each.power_w, "W") if each.power_w is not None else "no power figure"
    return f"{each.n_nodes} {each.node}: {with_ends(each.time_s, 's', each.bar)}{usd}, {power}; {layout}"

"""Accelerators, their number and layout for a number of tokens within limits of time, budget and power."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from clustersim.apps.plan.answer import NoLayoutError, PlanAnswer, document, plan_for
from clustersim.apps.plan.asking import PlanRequest, asked_of
from clustersim.apps.plan.drafts import Drafts
from clustersim.apps.plan.findings import TIE_FRACTION
from clustersim.apps.plan.search import Terms
from clustersim.apps.plan.space import families, layouts, usual_limits
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import load_node
from clustersim.parallel.flops import step_flops
from clustersim.progress import advanced, noted, phase
from clustersim.units.quantity import format_quantity, parse_quantity

MOST_NODES: Final = 2048
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
    answer: PlanAnswer
    time_s: float
    usd: float | None
    """None without a price."""
    power_w: float | None
    """None where the power of the accelerator is not known."""
    excess: float
    """The largest of what it takes over what it may take; up to 1 where it reaches the goal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedGoal:
    """A cluster on which no layout is in time."""

    node: str
    n_nodes: int
    why: str
    time_s: float | None = None
    """Below which no layout is; None where none runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalAnswer:
    """The answer to a goal."""

    goal: Goal
    found: tuple[Reached, ...]
    """All on which a layout was replayed, best first."""
    missed: tuple[MissedGoal, ...] = ()
    """All others that were tried, in order."""

    @property
    def best(self) -> Reached | None:
        """The cheapest that reaches the goal, or what comes nearest."""
        return self.found[0] if self.found else None

    @property
    def reached(self) -> bool:
        """Whether the goal can be reached."""
        return self.best is not None and self.best.excess <= 1.0


def goal_of(tokens: str, *, within: str | None, budget: str | None, power: str | None, nodes: str, most_nodes: int) -> Goal:
    """Return a goal from what people write.

    Raises
    ------
    ScenarioError
        When a figure has no unit, or a node is unknown.
    """
    names = tuple(name.strip() for name in nodes.split(",") if name.strip())
    if not names:
        raise ScenarioError("a goal needs kinds of nodes to choose from", field="--accelerators", hint="write dgx-h100,dgx-b200")
    for name in names:
        load_node(name)
    if within is None and budget is None and power is None:
        raise ScenarioError("a goal needs a limit", field="--tokens", hint="add --within '60 days', --budget '12 MUSD' or --power '5 MW'")
    return Goal(
        tokens=figure_of("--tokens", tokens, "count"),
        within_s=None if within is None else figure_of("--within", within, "s"),
        budget_usd=None if budget is None else figure_of("--budget", budget, "USD"),
        power_w=None if power is None else figure_of("--power", power, "W"),
        nodes=names,
        most_nodes=most_nodes,
    )


def figure_of(option: str, text: str, unit: str) -> float:
    """Return the figure of an option, which is more than nothing.

    Raises
    ------
    ScenarioError
        When it has no unit, or is not more than nothing.
    """
    try:
        found = parse_quantity(text, unit)
    except ScenarioError as error:
        raise ScenarioError(error.message, field=option, hint=error.hint) from error
    if found <= 0.0:
        raise ScenarioError(f"{text} is not more than nothing", field=option)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Settings of the plan of each cluster."""

    overrides: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    terms: Terms = field(default_factory=Terms)


def reach(model: str, goal: Goal, asking: Asking | None = None) -> GoalAnswer:
    """Return the cheapest cluster that reaches a goal, or the one that comes nearest.

    Of each kind of node the numbers of ``counts`` are tried in turn, from the fewest that could compute the model's FLOPs in time at the
    peak of the data sheet to the first that is in time. Layouts that are too slow by their bounds are not replayed, so that a count that
    cannot be in time costs no more than bounds. Where none is, the largest is planned for without a limit, to say how near it comes.
    """
    asking = asking or Asking()
    found: list[Reached] = []
    missed: list[MissedGoal] = []
    for node in goal.nodes:
        _of_kind(model, node, goal, asking, (found, missed))
    found.sort(key=lambda each: (max(1.0, each.excess), each.usd if each.usd is not None else each.time_s, each.node, each.n_nodes))
    return GoalAnswer(goal=goal, found=tuple(found), missed=tuple(missed))


def counts(most: int) -> tuple[int, ...]:
    """Return the numbers of nodes that are tried: all up to 16, then eighths between powers of two, which divide batches and layers well.

    Examples
    --------
    >>> counts(40)
    (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 24, 26, 28, 30, 32, 36, 40)
    """
    return tuple(n for n in range(1, most + 1) if n % max(1, 2 ** (n.bit_length() - EIGHTHS)) == 0)


def _of_kind(model: str, node: str, goal: Goal, asking: Asking, into: tuple[list[Reached], list[MissedGoal]]) -> None:
    """Try the counts of one kind of node until one meets the time limit."""
    found, missed = into
    tried, longest_s = _within(model, node, goal, asking)
    with phase(f"plan for numbers of {node}"):
        for place, n_nodes in enumerate(tried):
            advanced(place, len(tried))
            asked = _asked(model, node, n_nodes, asking, goal)
            one = _of_cluster(asked, node, n_nodes, goal, replace(asking.terms, within_s=longest_s))
            if isinstance(one, MissedGoal) and n_nodes == tried[-1] and one.time_s is not None:
                one = _of_cluster(asked, node, n_nodes, goal, asking.terms)
            if isinstance(one, MissedGoal):
                missed.append(one)
                continue
            found.append(one)
            noted("\n".join(f"so far: {_words(each)}" for each in found))
            if goal.within_s is None or one.time_s <= goal.within_s:
                return


def _within(model: str, node: str, goal: Goal, asking: Asking) -> tuple[tuple[int, ...], float]:
    """Return the counts of nodes of one kind that could be in time by their FLOPs, or the largest, and the longest step in time."""
    every = counts(goal.most_nodes)
    if goal.within_s is None:
        return every, inf
    for n_nodes in every:
        asked = _asked(model, node, n_nodes, asking, goal)
        drafts = Drafts(asked.base)
        with asked.told():
            all_layouts = (layout for family in families(asked.space) for layout in layouts(asked.space, family))
            plan = next((found for found in map(drafts.plan, all_layouts) if not isinstance(found, str)), None)
        if plan is not None:
            card, n_cards = drafts.first.cluster.node.accelerator, drafts.first.cluster.node.n_accelerators
            per_step = plan.training.global_batch_size * plan.training.seq_length
            step_s = goal.within_s * per_step / goal.tokens
            flops = step_flops(plan.model, plan.training, plan.strategy).model
            least = flops / (step_s * card.peak_flops_per_s[plan.training.precision] * n_cards)
            # Sums in another order may say a little more than the limit of a run that is just in time.
            return tuple(n for n in every if n >= least) or every[-1:], step_s * (1.0 + TIE_FRACTION)
    return every[-1:], inf


def _asked(model: str, node: str, n_nodes: int, asking: Asking, goal: Goal) -> PlanRequest:
    tokens = f"training.tokens={goal.tokens:.0f}"
    return asked_of(model, node, nodes=n_nodes, overrides=(*asking.overrides, tokens), limits=usual_limits(asking.limits))


def _of_cluster(asked: PlanRequest, node: str, n_nodes: int, goal: Goal, terms: Terms) -> Reached | MissedGoal:
    """Return the result of the best layout on one cluster, or the reason why no layout meets the time limit."""
    try:
        answer = plan_for(asked, terms)
    except NoLayoutError as error:
        return MissedGoal(node=node, n_nodes=n_nodes, why=error.message)
    search, winner = answer.search, answer.search.winner
    if winner is None:
        least_s = None
        if goal.within_s is not None and search.next_bound_s is not None and not search.failing:
            least_s = goal.within_s * search.next_bound_s / terms.within_s
        why = f"no layout runs: {search.commonest}" if least_s is None else f"it takes {format_quantity(least_s, 's', 4)} at least"
        return MissedGoal(node=node, n_nodes=n_nodes, time_s=least_s, why=why)
    result, cost = winner.result, winner.result.cost
    one = Reached(
        node=node,
        n_nodes=n_nodes,
        answer=answer,
        time_s=result.training_s or goal.tokens / result.metrics.tokens_per_s,
        usd=cost.training.usd if cost and cost.training else None,
        power_w=cost.power.facility_w if cost else None,
        excess=0.0,
    )
    return _against(one, goal)


def _against(one: Reached, goal: Goal) -> Reached:
    """Return the result of a cluster, with its excess over the goal.

    Raises
    ------
    ScenarioError
        Where the goal limits what is not known.
    """
    limits = (("--budget", "price", one.usd, goal.budget_usd), ("--power", "power", one.power_w, goal.power_w))
    for option, what, value, limit in limits:
        if value is None and limit is not None:
            raise ScenarioError(f"no {what} of {one.node} is known", field=option, hint=HINTS[option])
    asked_for = ((one.time_s, goal.within_s), (one.usd, goal.budget_usd), (one.power_w, goal.power_w))
    excess = max((value / limit for value, limit in asked_for if value is not None and limit is not None), default=0.0)
    return replace(one, excess=excess)


def goal_document(found: GoalAnswer) -> dict[str, Data]:
    """Return the answer to a goal as one JSON document."""
    goal, best = found.goal, found.best
    return {
        "reached": found.reached,
        "goal": {"tokens": goal.tokens, "within_s": goal.within_s, "budget_usd": goal.budget_usd, "power_w": goal.power_w},
        "best": None if best is None else {**_entry(best), "plan": document(best.answer)},
        "looked_at": [_entry(each) for each in found.found],
        "missed": [{"node": each.node, "nodes": each.n_nodes, "least_time_s": each.time_s, "why": each.why} for each in found.missed],
        "assumed": list(best.answer.assumed) if best else [],
        "cautions": list(best.answer.cautions) if best else [],
    }


def _entry(each: Reached) -> dict[str, Data]:
    winner = each.answer.search.winner
    return {
        "node": each.node,
        "nodes": each.n_nodes,
        "layout": winner.layout.words() if winner else None,
        "time_s": each.time_s,
        "usd": each.usd,
        "power_w": each.power_w,
        "excess": each.excess,
    }


def goal_lines(found: GoalAnswer) -> list[str]:
    """Return the answer to a goal as text: the first line answers."""
    best = found.best
    if best is None:
        return ["no: the model runs on none of these clusters in any layout"]
    first = "yes" if found.reached else "no: the nearest is"
    lines = [f"{first} {_words(best)}"]
    lines += ["", "Looked at", *(f"  {_words(each)}" for each in found.found)]
    lines += [f"  {each.n_nodes} {each.node}: not in time, {each.why}" for each in found.missed]
    if found.goal.within_s is not None:
        lines += ["", f"Tried: every count to 16, and eighths between powers of two, up to {found.goal.most_nodes} and the first in time."]
    lines += [f"{each.node}: {line}." for each in {one.node: one for one in found.found}.values() for line in each.answer.cautions]
    return lines


def _words(each: Reached) -> str:
    winner = each.answer.search.winner
    layout = winner.layout.words() if winner else ""
    usd = f", {format_quantity(each.usd, 'USD')}" if each.usd is not None else ", no price"
    power = format_quantity(each.power_w, "W") if each.power_w is not None else "no power figure"
    return f"{each.n_nodes} {each.node}: {format_quantity(each.time_s, 's')}{usd}, {power}; {layout}"

"""Which accelerators, how many and in which layout, for so many tokens within time, budget and power."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from clustersim.documents.spots import Data
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import load_node
from clustersim.strategy.flops import model_flops
from clustersim.studies.planning.answer import Answer, document
from clustersim.studies.planning.asking import Asked, asked_of
from clustersim.studies.planning.drafts import Drafts
from clustersim.studies.planning.plan import plan_for
from clustersim.studies.planning.space import families, layouts
from clustersim.units.quantity import format_quantity, parse_quantity

NARROWED: Final = ("schedule=1f1b,interleaved_1f1b", "micro_batch_size=1,2", "offload=none", "zero_stage=1,3")
"""What is searched for each cluster where nobody says more: what frameworks run every day."""
MOST_NODES: Final = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What is to be reached."""

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
    """What one cluster comes to with its best layout."""

    node: str
    n_nodes: int
    answer: Answer
    time_s: float
    usd: float | None
    power_w: float
    excess: float
    """The largest of what it takes over what it may take; up to 1 where it reaches the goal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalAnswer:
    """The answer to a goal."""

    goal: Goal
    found: tuple[Reached, ...]
    """All that were looked at, best first."""

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
        tokens=_figure("--tokens", tokens, "count"),
        within_s=None if within is None else _figure("--within", within, "s"),
        budget_usd=None if budget is None else _figure("--budget", budget, "USD"),
        power_w=None if power is None else _figure("--power", power, "W"),
        nodes=names,
        most_nodes=most_nodes,
    )


def _figure(option: str, text: str, unit: str) -> float:
    try:
        found = parse_quantity(text, unit)
    except ValueError as error:
        raise ScenarioError(str(error), field=option) from error
    if found <= 0.0:
        raise ScenarioError(f"{text} is not more than nothing", field=option)
    return found


def reach(model: str, goal: Goal, *, overrides: Sequence[str] = (), limits: Sequence[str] = ()) -> GoalAnswer:
    """Return the cheapest cluster that reaches a goal, or the one that comes nearest.

    Of each kind of node powers of two are tried, from the fewest that could compute the model's FLOPs in time at the peak of the data
    sheet. More of them take less time and more power; they are tried until the time does, and one more step.
    """
    found: list[Reached] = []
    for node in goal.nodes:
        n_nodes = 1
        while n_nodes <= goal.most_nodes:
            asked = _asked(model, node, n_nodes, overrides, limits, goal)
            least = _least_nodes(asked, goal)
            if least > n_nodes:
                n_nodes *= 2
                if n_nodes <= goal.most_nodes:
                    continue
                n_nodes //= 2
            one = _of_cluster(asked, node, n_nodes, goal)
            if one is not None:
                found.append(one)
                if goal.within_s is None or one.time_s <= goal.within_s:
                    break
            n_nodes *= 2
    found.sort(key=lambda each: (max(1.0, each.excess), each.usd if each.usd is not None else each.time_s, each.node, each.n_nodes))
    return GoalAnswer(goal=goal, found=tuple(found))


def _asked(model: str, node: str, n_nodes: int, overrides: Sequence[str], limits: Sequence[str], goal: Goal) -> Asked:
    given = [text.split("=", 1)[0] for text in limits]
    narrowed = [text for text in NARROWED if text.split("=", 1)[0] not in given]
    tokens = f"training.tokens={goal.tokens:.0f}"
    return asked_of(model, node, nodes=n_nodes, overrides=(*overrides, tokens), limits=(*limits, *narrowed))


def _least_nodes(asked: Asked, goal: Goal) -> int:
    """Return how many times more nodes the FLOPs alone need, in time and at the peak."""
    if goal.within_s is None:
        return 1
    drafts = Drafts(asked.base)
    every = (layout for family in families(asked.space) for layout in layouts(asked.space, family))
    plan = next((found for found in map(drafts.plan, every) if not isinstance(found, str)), None)
    if plan is None:
        return 1
    built = drafts.first
    per_token = model_flops(plan) / (plan.training.global_batch_size * plan.training.seq_length)
    peak = built.cluster.node.accelerator.peak_flops_per_s[plan.training.precision] * built.cluster.node.n_accelerators
    return ceil(goal.tokens * per_token / (goal.within_s * peak))


def _of_cluster(asked: Asked, node: str, n_nodes: int, goal: Goal) -> Reached | None:
    answer = plan_for(asked)
    winner = answer.search.winner
    if winner is None:
        return None
    result = winner.result
    time_s = result.time_to_train_s or goal.tokens / result.metrics.tokens_per_s
    cost = result.cost
    usd = cost.training.usd if cost and cost.training else None
    power_w = cost.power.facility_w if cost else 0.0
    if usd is None and goal.budget_usd is not None:
        hint = "add -s cost.gpu_hour='2.50 USD', or -s cost.prices=my-prices.yaml"
        raise ScenarioError(f"{node} has no price in the price list", field="--budget", hint=hint)
    asked_for = ((time_s, goal.within_s), (usd, goal.budget_usd), (power_w, goal.power_w))
    excess = max((value / limit for value, limit in asked_for if value is not None and limit is not None), default=0.0)
    return Reached(node=node, n_nodes=n_nodes, answer=answer, time_s=time_s, usd=usd, power_w=power_w, excess=excess)


def goal_document(found: GoalAnswer) -> dict[str, Data]:
    """Return the answer to a goal as one JSON document."""
    goal, best = found.goal, found.best
    return {
        "reached": found.reached,
        "goal": {"tokens": goal.tokens, "within_s": goal.within_s, "budget_usd": goal.budget_usd, "power_w": goal.power_w},
        "best": None if best is None else {**_entry(best), "plan": document(best.answer)},
        "looked_at": [_entry(each) for each in found.found],
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
    return lines


def _words(each: Reached) -> str:
    winner = each.answer.search.winner
    layout = winner.layout.words() if winner else ""
    usd = f", {format_quantity(each.usd, 'USD')}" if each.usd is not None else ""
    return f"{each.n_nodes} {each.node}: {format_quantity(each.time_s, 's')}{usd}, {format_quantity(each.power_w, 'W')}; {layout}"

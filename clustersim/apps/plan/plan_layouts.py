"""A question about layouts, answered."""

from __future__ import annotations

from clustersim.apps.plan.answer import PlanAnswer
from clustersim.apps.plan.asking import PlanRequest
from clustersim.apps.plan.drafts import Drafts
from clustersim.apps.plan.findings import REFUSED, Search
from clustersim.apps.plan.margins import Margin, Turn, margins, turns
from clustersim.apps.plan.replays import Replays
from clustersim.apps.plan.search import Terms, fastest
from clustersim.errors import ScenarioError


class NoLayoutError(ScenarioError):
    """Every layout of a space is refused."""


def plan_for(asked: PlanRequest, terms: Terms | None = None) -> PlanAnswer:
    """Return the fastest layout of a space that holds the terms, and why.

    Raises
    ------
    ScenarioError
        When something is wrong with all layouts.
    NoLayoutError
        When every layout is refused.
    """
    terms = terms or Terms()
    drafts, search, bought, turned = searched(asked, terms, with_margins=True)
    winner = search.winner
    return PlanAnswer(
        search=search,
        margins=bought,
        turns=turned,
        scenario=drafts.document(winner.layout) if winner else None,
        plan=drafts.built(winner.layout).plan if winner else None,
        assumed=asked.assumed,
        unknown=asked.unknown,
        memory_margin_fraction=terms.memory_margin_fraction,
    )


def searched(
    asked: PlanRequest, terms: Terms, *, with_margins: bool = False
) -> tuple[Drafts, Search, tuple[Margin, ...], tuple[Turn, ...]]:
    """Return the search of a space and, where asked for, the gain of a tenth more of each resource, and what the choice turns on.

    Raises
    ------
    ScenarioError
        When something is wrong with all layouts.
    NoLayoutError
        When every layout is refused.
    """
    drafts = Drafts(asked.base)
    with asked.told(), Replays() as replays:
        search = fastest(drafts, asked.space, terms, replays=replays)
        bought = margins(drafts, search, replays) if with_margins else ()
        turned = turns(drafts, search, replays, terms.memory_margin_fraction) if with_margins else ()
    if search.refusal is not None and search.counts[REFUSED] == search.n_layouts:
        raise NoLayoutError(
            f"no layout is legal: {search.refusal}", hint="change what the message names with --set, or the space with --only"
        )
    return drafts, search, bought, turned

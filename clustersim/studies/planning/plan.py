"""A question about layouts, answered."""

from __future__ import annotations

from clustersim.errors import ScenarioError
from clustersim.studies.planning.answer import Answer
from clustersim.studies.planning.asking import Asked
from clustersim.studies.planning.drafts import Drafts
from clustersim.studies.planning.findings import REFUSED
from clustersim.studies.planning.margins import margins
from clustersim.studies.planning.replays import Replays
from clustersim.studies.planning.search import Terms, fastest


class NoLayoutError(ScenarioError):
    """Every layout of a space is refused."""


def plan_for(asked: Asked, terms: Terms | None = None) -> Answer:
    """Return the fastest layout of a space that holds the terms, and why.

    Raises
    ------
    ScenarioError
        When something is wrong with all layouts.
    NoLayoutError
        When every layout is refused.
    """
    terms = terms or Terms()
    drafts = Drafts(asked.base)
    with asked.told(), Replays() as replays:
        search = fastest(drafts, asked.space, terms, replays=replays)
        bought = margins(drafts, search, replays)
    if search.refusal is not None and search.counts[REFUSED] == search.n_layouts:
        raise NoLayoutError(
            f"no layout is legal: {search.refusal}", hint="change what the message names with --set, or the space with --only"
        )
    winner = search.winner
    return Answer(
        search=search,
        margins=bought,
        scenario=drafts.document(winner.layout) if winner else None,
        plan=drafts.built(winner.layout).plan if winner else None,
        assumed=asked.assumed,
        unknown=asked.unknown,
        memory_margin_fraction=terms.memory_margin_fraction,
    )

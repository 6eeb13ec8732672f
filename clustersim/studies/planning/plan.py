"""A question about layouts, answered."""

from __future__ import annotations

from collections.abc import Sequence

from clustersim.errors import ScenarioError
from clustersim.expressions.parse import Condition
from clustersim.scenario.checks import parse_check
from clustersim.studies.planning.answer import Answer
from clustersim.studies.planning.asking import Asked
from clustersim.studies.planning.drafts import Drafts
from clustersim.studies.planning.margins import margins
from clustersim.studies.planning.replays import Replays
from clustersim.studies.planning.search import REFUSED, fastest


def plan_for(asked: Asked, *, constraints: Sequence[str] = (), most_replays: int | None = None) -> Answer:
    """Return the fastest layout of a space that holds constraints, and why.

    Raises
    ------
    ScenarioError
        When a constraint is none.
    """
    conditions: list[Condition] = [parse_check(text) for text in constraints]
    drafts = Drafts(asked.base)
    with Replays() as replays:
        search = fastest(drafts, asked.space, constraints=conditions, most_replays=most_replays, replays=replays)
        if search.refusal is not None and search.counts[REFUSED] == search.n_layouts:
            raise ScenarioError(
                f"no layout is legal: {search.refusal}", hint="change what the message names with --set, or the space with --only"
            )
        bought = margins(drafts, search, replays)
    winner = search.winner
    return Answer(
        search=search,
        margins=bought,
        scenario=drafts.document(winner.layout) if winner else None,
        plan=drafts.built(winner.layout).plan if winner else None,
        assumed=asked.assumed,
    )

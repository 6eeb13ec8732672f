"""Layouts worth a try: the search of ``clustersim plan`` in a part of its space, with few replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from clustersim.apps.plan.asking import asked_of
from clustersim.apps.plan.drafts import Drafts
from clustersim.apps.plan.findings import Search, Tried, ranked
from clustersim.apps.plan.layout_table import AGAINST_FIRST, within_error_bars
from clustersim.apps.plan.replays import outcome_of
from clustersim.apps.plan.search import MEMORY_MARGIN, Terms, fastest
from clustersim.apps.plan.space import PLACEMENTS, Space, layout_of
from clustersim.apps.run.running import run_built
from clustersim.apps.ui.contained import check_contained
from clustersim.apps.ui.controls import put
from clustersim.config.build import build
from clustersim.config.load import load_scenario
from clustersim.documents.text import Data
from clustersim.measure.deciding import MARK
from clustersim.report.facts import memory_text, percent_text
from clustersim.units.quantity import format_quantity

COLUMNS: Final = ("layout", "step", "MFU", "memory")
FULL_SEARCH: Final = (
    "The full search is clustersim plan scenario.yaml, with 'The scenario as a file' below: where it names a faster layout, believe that. "
    "It gives all layouts the same settings, here each has the usual ones of its own software."
)
_MOST_REPLAYS: Final = 6
"""Most replays of each part of the search."""
_MOST_SLOWER: Final = 3
"""The same where nothing is faster than the present layout: to show what comes next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRow:
    """One layout."""

    cells: tuple[str, ...]
    changes: Mapping[str, Data]
    """Values of a scenario that set it, by dotted key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """Layouts that were looked at."""

    rows: tuple[LayoutRow, ...]
    """Fastest first, the present one among them; none where nothing fits."""
    finding: str
    """Remark on the present layout and on the mark."""
    told: str
    """Layouts that were tried, and what is proven of them."""


def layout_rows(document: Mapping[str, Data]) -> Looked:
    """Return the present layout of a scenario and others beside it.

    It is the search of ``clustersim plan`` in a part of its space, and ends after some replays: somebody waits. What cannot be faster than
    the present layout by its bound is not replayed, but for a few where nothing is faster. The order is that of the steps alone: plan
    may choose a plainer layout within the error bars.
    """
    check_contained(document)
    space = _narrowed(asked_of(document).space, document)
    built = build(load_scenario(document))
    result = run_built(built)
    layout = layout_of(built.plan.strategy, built.plan.training.micro_batch_size)
    present = Tried(layout=layout, bound_s=result.bounds.bound_s, result=outcome_of(result))
    fits = result.metrics.memory.fits
    drafts, searches, best_s = Drafts(document), list[Search](), present.step_time_s if fits else float("inf")
    for part in _parts(space):
        searches.append(fastest(drafts, part, Terms(most_replays=_MOST_REPLAYS, within_s=best_s)))
        best_s = min([best_s, *(tried.step_time_s for tried in searches[-1].tried)])
    found = _others(present, searches)
    slower = [] if found or not fits else [fastest(drafts, part, Terms(most_replays=_MOST_SLOWER)) for part in _parts(space)]
    found = found or _others(present, slower)
    place = sum(tried.step_time_s < present.step_time_s for tried in found) if fits else len(found)
    shown = [*found[:place], *([present] if found or fits else []), *found[place:]]
    near = [tried for tried in within_error_bars(shown) if tried.result.metrics.memory.fits] if shown else []
    rows = [
        LayoutRow(
            cells=_cells(tried, note="as it is: " if tried is present else "", mark=f" {MARK}" if tried in near else ""),
            changes={} if tried is present else tried.layout.changes(),
        )
        for tried in shown
    ]
    told = _told(searches, space, best_s, n_more=sum(len(search.tried) for search in slower))
    first = ["The present layout is the fastest of these."] if rows and not rows[0].changes else []
    return Looked(rows=tuple(rows), finding=" ".join([*first, *([f"{AGAINST_FIRST}."] if near else [])]), told=told)


def _others(present: Tried, searches: Sequence[Search]) -> list[Tried]:
    """Return what was replayed beside the present layout, fastest first."""
    every = ranked([tried for search in searches for tried in search.tried])
    return [tried for tried in every if tried.layout.words() != present.layout.words()]


def _told(searches: Sequence[Search], space: Space, best_s: float, *, n_more: int) -> str:
    """Return what was tried, and by how much what was not may be faster."""
    replayed = n_more + sum(len(search.tried) for search in searches)
    sizes = ", ".join(map(str, space.micro_batch_size))
    what = f"{sum(search.n_layouts for search in searches):,} layouts: {' or '.join(space.schedule)} with ZeRO 1, and ZeRO 3 without stages"
    rest = f"micro-batches of {sizes}, cp up to {max(space.cp)}, nothing offloaded, {100 * MEMORY_MARGIN:g} % of memory left free"
    tried = f"Tried: {what}; {rest}. {replayed} were replayed"
    if any(search.below_bound for search in searches):
        return f"{tried}. Nothing is proven: replays are shorter than their bounds"
    left = [search.next_bound_s for search in searches if not search.complete and search.next_bound_s is not None]
    if not left or min(left) >= best_s:
        return f"{tried}, and by its bound no other one is faster than the first"
    return f"{tried}; the step of another one may be {100 * (1.0 - min(left) / best_s):.1f} % shorter than the first at most"


def with_layout(document: Mapping[str, Data], changes: Mapping[str, Data]) -> dict[str, Data]:
    """Return a scenario with another layout; the rest of it stays."""
    data = dict(document)
    for key, value in changes.items():
        data = put(data, key.split("."), value)
    return data


def _narrowed(space: Space, document: Mapping[str, Data]) -> Space:
    strategy = document.get("strategy")
    cp = strategy.get("cp", 1) if isinstance(strategy, dict) else 1
    own = tuple(degree for degree in space.cp if degree in (1, 2, cp))
    return replace(space, micro_batch_size=(1, 2, 4), placement=PLACEMENTS[:1], offload=((),), cp=own)


def _parts(space: Space) -> tuple[Space, Space]:
    """Return what most people run: sharded optimizer states in any layout, and everything sharded without pipeline stages."""
    return replace(space, zero_stage=(1,)), replace(space, zero_stage=(3,), pp=(1,))


def _cells(tried: Tried, *, note: str, mark: str) -> tuple[str, ...]:
    metrics = tried.result.metrics
    memory = f"{memory_text(metrics.memory.peak_bytes)}, {metrics.memory.verdict}"
    return (f"{note}{tried.layout.words()}", format_quantity(tried.step_time_s, "s", 4) + mark, percent_text(metrics.mfu), memory)

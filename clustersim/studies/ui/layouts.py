"""Layouts worth a try: for each degree of tensor parallelism the fastest of a small space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from clustersim.documents.spots import Data
from clustersim.report.facts import percent_text
from clustersim.studies.planning.asking import asked_of
from clustersim.studies.planning.drafts import Drafts
from clustersim.studies.planning.search import Tried, fastest
from clustersim.studies.planning.space import PLACEMENTS, Space
from clustersim.studies.ui.contained import check_contained
from clustersim.studies.ui.controls import put
from clustersim.units.quantity import format_quantity

COLUMNS: Final = ("layout", "step", "MFU", "memory")
_MOST_REPLAYS: Final = 2
"""For each degree: somebody waits."""
_MOST_ROWS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One layout."""

    cells: tuple[str, ...]
    changes: Mapping[str, Data]
    """What a scenario says of it, by dotted key."""


def layout_rows(document: Mapping[str, Data]) -> tuple[Row, ...]:
    """Return layouts of a scenario, fastest first; none where none fits.

    ``clustersim plan`` searches all layouts; this one looks at common schedules without offloading, for an answer in seconds.

    Raises
    ------
    ScenarioError
        When the scenario cannot be used, or names a file.
    """
    check_contained(document)
    space = _narrowed(asked_of(document).space, document)
    drafts = Drafts(document)
    found: list[Tried] = []
    for tp in space.tp:
        found += fastest(drafts, replace(space, tp=(tp,)), most_replays=_MOST_REPLAYS).tried
    found.sort(key=lambda tried: (tried.step_time_s, tried.layout))
    return tuple(Row(cells=_cells(tried), changes=tried.layout.changes()) for tried in found[:_MOST_ROWS])


def with_layout(document: Mapping[str, Data], changes: Mapping[str, Data]) -> dict[str, Data]:
    """Return a scenario with another layout; the rest of it stays."""
    data = dict(document)
    for key, value in changes.items():
        data = put(data, key.split("."), value)
    return data


def _narrowed(space: Space, document: Mapping[str, Data]) -> Space:
    strategy = document.get("strategy")
    cp = strategy.get("cp", 1) if isinstance(strategy, dict) else 1
    own = tuple(degree for degree in space.cp if degree in (1, cp))
    return replace(space, micro_batch_size=(1, 2, 4), zero_stage=(1, 3), placement=PLACEMENTS[:1], offload=((),), cp=own)


def _cells(tried: Tried) -> tuple[str, ...]:
    metrics = tried.result.metrics
    memory = format_quantity(metrics.memory.peak_bytes, "B")
    return (tried.layout.words(), format_quantity(tried.step_time_s, "s", 4), percent_text(metrics.mfu), memory)

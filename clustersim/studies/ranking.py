"""Whether the layout that is predicted to be the fastest is: what a plan chosen by predictions would have cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from clustersim.report.metrics import Parallelism

FEWEST_ROWS: Final = 3
"""A group of fewer says nothing."""


class Timed(Protocol):
    """A run, measured and predicted."""

    @property
    def id(self) -> str:
        """Its name."""
        ...

    @property
    def model(self) -> str:
        """What was trained."""
        ...

    @property
    def gpus(self) -> int:
        """On how many."""
        ...

    @property
    def parallelism(self) -> Parallelism:
        """How it was divided."""
        ...

    @property
    def global_batch_size(self) -> int:
        """Samples of a step."""
        ...

    @property
    def measured_s(self) -> float:
        """Its time."""
        ...

    @property
    def predicted_s(self) -> float:
        """What was predicted."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Rows of one model on as many accelerators, which differ in layout and micro-batches."""

    model: str
    gpus: int
    n_rows: int
    best_row: str
    """Measured to be the fastest."""
    chosen_row: str
    """Predicted to be."""
    regret_fraction: float
    """By how much the chosen one was measured to be slower than the best."""


def rankings(rows: Sequence[Timed]) -> tuple[Ranking, ...]:
    """Return the groups of some rows that have more than one layout, in the order of their first rows.

    Samples per second are compared, so that batches may differ a little.
    """
    groups: dict[tuple[str, int], list[Timed]] = {}
    for row in rows:
        groups.setdefault((row.model, row.gpus), []).append(row)
    return tuple(_ranking(group) for group in groups.values() if len(group) >= FEWEST_ROWS and len({_layout(row) for row in group}) > 1)


def _ranking(rows: Sequence[Timed]) -> Ranking:
    best = max(rows, key=lambda row: row.global_batch_size / row.measured_s)
    # Rows that repeat a configuration have one prediction; the fastest of them stands for it.
    chosen = max(rows, key=lambda row: (row.global_batch_size / row.predicted_s, row.global_batch_size / row.measured_s))
    fastest, taken = (row.global_batch_size / row.measured_s for row in (best, chosen))
    return Ranking(
        model=best.model,
        gpus=best.gpus,
        n_rows=len(rows),
        best_row=best.id,
        chosen_row=chosen.id,
        regret_fraction=fastest / taken - 1.0,
    )


def _layout(row: Timed) -> tuple[int, int, int]:
    return row.parallelism.tp, row.parallelism.pp, row.parallelism.dp

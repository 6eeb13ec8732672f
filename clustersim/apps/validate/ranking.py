"""Whether the layout that is predicted to be the fastest is: what a plan chosen by predictions would have cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from typing import Final

from clustersim.apps.validate.rows import RowResult
from clustersim.units.grouping import grouped

FEWEST_ROWS: Final = 3
"""A group of fewer says nothing."""


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
    kendall_tau: float
    """Whether pairs of rows are in the right order: 1 where all are, -1 where all are exchanged."""


def rankings(rows: Sequence[RowResult]) -> tuple[Ranking, ...]:
    """Return the groups of some rows that have more than one layout, in the order of their first rows.

    Samples per second are compared, so that batches may differ a little.
    """
    groups = grouped(((row.model, row.gpus), row) for row in rows)
    layouts = {place: {(row.parallelism.tp, row.parallelism.pp, row.parallelism.dp) for row in group} for place, group in groups.items()}
    return tuple(_ranking(group) for place, group in groups.items() if len(group) >= FEWEST_ROWS and len(layouts[place]) > 1)


def _ranking(rows: Sequence[RowResult]) -> Ranking:
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
        kendall_tau=kendall_tau(
            [row.measured_s / row.global_batch_size for row in rows], [row.predicted_s / row.global_batch_size for row in rows]
        ),
    )


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Kendall's tau-b of two lists: pairs in the same order less those in the other one, over the root of pairs that are not tied.

    Zero where one of the lists holds one value only.

    References
    ----------
    .. [1] M. G. Kendall, "The Treatment of Ties in Ranking Problems", Biometrika 33 (1945).

    Examples
    --------
    >>> kendall_tau([1, 2, 3], [10, 20, 30]), kendall_tau([1, 2, 3], [3, 2, 1]), kendall_tau([1, 2], [5, 5])
    (1.0, -1.0, 0.0)
    """
    pairs = [(_sign(a - b), _sign(c - d)) for (a, c), (b, d) in combinations(zip(first, second, strict=True), 2)]
    untied = sum(abs(a) for a, _ in pairs) * sum(abs(b) for _, b in pairs)
    return sum(a * b for a, b in pairs) / sqrt(untied) if untied else 0.0


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)

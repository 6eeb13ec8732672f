"""Layouts beside each other, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from clustersim.apps.plan.findings import TIE_FRACTION, Tried, is_near
from clustersim.measure.deciding import MARK, MARKED
from clustersim.measure.error_bars import FITS, TIGHT
from clustersim.measure.metrics import Memory
from clustersim.report.facts import margin_bytes, memory_text, percent_text
from clustersim.report.text_tables import TextTable
from clustersim.units.quantity import format_alike

AGAINST_FIRST: Final = f"{MARKED} against the first"
"""Legend of the mark."""


YOURS: Final = "yours: "
BEST_OF_KINDS: Final = "The best of each kind: with and without tp, cp, pp, ep and sharded weights"
PARETO: Final = "None better in time, cost and energy at once"


def within_error_bars(tried: Sequence[Tried]) -> list[Tried]:
    """Return the layouts within the error bars of the fastest, in order."""
    return [each for each in tried[1:] if is_near(tried[0], each)]


def layout_table(found: Sequence[Tried], *, with_energy: bool = False, own: Tried | None = None) -> TextTable:
    """Return layouts as a table, each column in one unit; those within the error bars of the first have a mark.

    Parameters
    ----------
    own
        The layout that the user had; it comes last, or is named where it stands already.
    """
    if own is not None and own.layout not in [tried.layout for tried in found]:
        found = (*found, own)
    costs = [tried.result.cost for tried in found]
    steps = format_alike([tried.step_time_s for tried in found], "s")
    usd = _alike([cost.step.usd if cost else None for cost in costs], "USD")
    energy = _alike([cost.step.energy_kwh if cost else None for cost in costs], "kWh")
    table: list[tuple[str, ...]] = []
    for place, tried in enumerate(found):
        metrics, slower = tried.result.metrics, ""
        # What does not fit has no step to compare.
        if place and metrics.memory.fits:
            mark = f" {MARK}" if is_near(found[0], tried) else "  "
            share = tried.step_time_s / found[0].step_time_s - 1.0
            slower = f"{percent_text(abs(share))}{' faster' if share < -TIE_FRACTION else ''}{mark}"
        verdict = "" if metrics.memory.verdict == FITS else f", {metrics.memory.verdict}"
        memory = f"{memory_text(metrics.memory.peak_bytes)}{verdict}"
        more = (energy[place],) if with_energy else ()
        yours = YOURS if own is not None and own.layout == tried.layout else ""
        table.append((steps[place], slower, percent_text(metrics.mfu), memory, usd[place], *more, f"{yours}{tried.layout.words()}"))
    columns = (">step", ">slower  ", ">MFU", "memory", ">cost/step", *((">energy/step",) if with_energy else ()), "layout")
    return TextTable(PARETO if with_energy else BEST_OF_KINDS, columns, tuple(table))


def memory_cell(memory: Memory) -> str:
    """Return the peak of the capacity, and the rest, such as ``68.5 of 79.6 GiB, 11.1 to spare``."""
    peak, capacity, spare = (f"{size / 2**30:.1f}" for size in (memory.peak_bytes, memory.capacity_bytes, margin_bytes(memory)))
    return f"{peak} of {capacity} GiB, {spare} to spare{' (tight)' if memory.verdict == TIGHT else ''}"


def _alike(values: Sequence[float | None], unit: str) -> list[str]:
    """Return values in one unit; a dash where there is none."""
    texts = iter(format_alike([value for value in values if value is not None], unit))
    return ["-" if value is None else next(texts) for value in values]

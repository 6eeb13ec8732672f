"""Validation results as text: figures, cells and lines."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Final

from clustersim.apps.validate.error_summary import RankingSummary, Summary, summarise
from clustersim.apps.validate.published import SourceResult, Validation
from clustersim.apps.validate.quantiles import LEVEL_FRACTION
from clustersim.apps.validate.rows import RowResult
from clustersim.report.text_tables import TextTable
from clustersim.units.divisors import count_text
from clustersim.units.grouping import grouped
from clustersim.units.quantity import format_quantity

DERIVED_MARK: Final = "*"
MANY_ROWS: Final = 200
"""A source with more is shown by layouts, and in full as data only."""
DIGITS: Final = 4
"""Digits of step times; as many as the sources print."""
SUMMARY_HEADER: Final = ("rows", "mean absolute error", "median", "bias", "in interval", "worst row")
HIDDEN_MARK: Final = "°"
GIVEN_MARK: Final = "†"


def layout_text(row: RowResult) -> str:
    """Return tensor, pipeline and data-parallel degree as ``8x16x8``, and those of context and expert parallelism where there are any."""
    degrees = row.parallelism
    more = [f" {name} {degree}" for name, degree in (("cp", degrees.cp), ("ep", degrees.ep)) if degree > 1]
    return f"{degrees.tp}x{degrees.pp}x{degrees.dp}{''.join(more)}"


def measured_text(row: RowResult) -> str:
    """Return the measured step time, marked where it was derived."""
    return format_quantity(row.measured_s, "s", DIGITS) + (DERIVED_MARK if row.derived_from else "")


def predicted_text(row: RowResult) -> str:
    """Return the predicted step time, with as many digits as the measured one; a range where something that decides it is hidden."""
    ends = row.predicted_range_s or (row.predicted_s,)
    return " to ".join(dict.fromkeys(format_quantity(end_s, "s", DIGITS) for end_s in ends))


def error_text(fraction: float, digits: int = 1) -> str:
    """Return an error with its sign, in percent with so many digits behind the point.

    Examples
    --------
    >>> error_text(-0.0669), error_text(0.0, 2)
    ('-6.7 %', '+0.00 %')
    """
    # Rounded first: what rounds to nothing has no sign of its own.
    return f"{round(100.0 * fraction, digits) + 0.0:+.{digits}f} %"


def row_error_text(row: RowResult, digits: int = 1) -> str:
    """Return the error of a row, in percent; of one that hides a setting, the least and the most over all that it allows."""
    if row.predicted_range_s is None:
        return error_text(row.error_fraction, digits)
    return _range_text([end_s / row.measured_s - 1.0 for end_s in row.predicted_range_s], digits)


def _range_text(ends: Sequence[float], digits: int = 1) -> str:
    return " to ".join(dict.fromkeys(error_text(end, digits) for end in ends))


def share_text(fraction: float) -> str:
    """Return the size of an error, in percent."""
    return f"{100.0 * fraction:.1f} %"


def summary_text(summary: Summary) -> str:
    """Return how wrong some rows are, in a few words."""
    rows = count_text(summary.n_rows, "row")
    because = f": {summary.worst_explained}" if summary.worst_explained else ""
    covered = "" if summary.coverage_fraction is None else f", {share_text(summary.coverage_fraction)} in their intervals"
    return (
        f"{rows}: mean absolute error {share_text(summary.mean_absolute_error_fraction)},"
        f" median {share_text(summary.median_absolute_error_fraction)},"
        f" mean with its sign {error_text(summary.mean_error_fraction)},"
        f" worst {error_text(summary.worst_error_fraction)} ({summary.worst_row}{because}){covered}"
    )


def together_lines(validation: Validation) -> tuple[str, ...]:
    """Return what can be said of all rows together, a line for each finding."""
    coverage, hidden, rankings = validation.coverage, validation.hidden, validation.rankings
    lines = [f"{summary_text(validation.summary)}; {memory_text(validation.summary)}"]
    lines.append(f"ran out of memory, and predicted to fit: {', '.join(validation.missed_out_of_memory) or 'none'}")
    if validation.refused:
        lines.append(f"refused: {', '.join(validation.refused)}")
    if hidden is not None:
        lines.append(f"rows with a hidden setting, and how far they are from all that it allows: {summary_text(hidden)}")
    if rankings is not None:
        lines.append(rankings_text(rankings))
    if coverage is not None:
        shares = (
            f"{share_text(coverage.weighted_fraction)} where a source of n rows counts as the root of n",
            f"{share_text(coverage.rows_fraction)} of rows",
            f"{share_text(coverage.sources_fraction)} as a mean over sources",
        )
        lines.append(f"intervals of {100 * LEVEL_FRACTION:.0f} % that other sources give cover {', '.join(shares)}")
    return tuple(lines)


def rankings_text(rankings: RankingSummary) -> str:
    """Return what choosing layouts by predictions costs, in a few words."""
    groups = "1 group" if rankings.n_groups == 1 else f"{rankings.n_groups} groups"
    return (
        f"{groups} of layouts: mean regret {share_text(rankings.mean_regret_fraction)}, worst {share_text(rankings.worst_regret_fraction)},"
        f" mean Kendall tau {rankings.mean_kendall_tau:.2f}"
    )


def memory_text(summary: Summary) -> str:
    """Return how wrong predicted peaks of memory are, where they were printed, and whether any row is wrongly predicted not to fit."""
    misfits = f"wrongly predicted not to fit: {', '.join(summary.false_out_of_memory) or 'none'}"
    mean, worst = summary.mean_absolute_memory_error_fraction, summary.worst_memory_error_fraction
    if mean is None or worst is None:
        return misfits
    rows = count_text(summary.n_memory_rows, "row")
    return f"memory of {rows}: mean absolute error {share_text(mean)}, worst {error_text(worst)}; {misfits}"


def fitted_text(source: SourceResult) -> str:
    """Return what calibration has taken from the source."""
    if not source.fitted:
        return "no calibration constant was fitted to this source"
    return f"not independent: calibrated with figures of this source: {', '.join(source.fitted)}"


def layouts_table(source: SourceResult) -> TextTable:
    """Return a table of many rows: one line for each layout."""
    layouts = grouped(((row.gpus, layout_text(row)), row) for row in source.rows)
    lines: list[tuple[str, ...]] = []
    for (gpus, layout), rows in sorted(layouts.items()):
        summary = summarise(rows)
        errors = (share_text(summary.mean_absolute_error_fraction), error_text(summary.mean_error_fraction))
        lines.append((f"{gpus}", layout, f"{len(rows)}", *errors, f"{error_text(summary.worst_error_fraction)} ({summary.worst_row})"))
    columns = (">GPUs", "tp x pp x dp", ">rows", ">mean absolute error", ">mean with its sign", ">worst row")
    return TextTable("", columns, tuple(lines))


def ranking_lines(source: SourceResult) -> list[str]:
    """Return for each group of layouts of one model on as many accelerators which one would have been chosen, and what that costs."""
    return [
        f"{each.model} on {each.gpus} GPUs: of {each.n_rows} rows {each.chosen_row} is predicted to be the fastest"
        + (" and is" if each.chosen_row == each.best_row else f", {share_text(each.regret_fraction)} slower than {each.best_row}")
        + f"; Kendall tau {each.kendall_tau:.2f}"
        for each in source.rankings
    ]


def correlate_lines(source: SourceResult) -> list[str]:
    """Return what errors go with, in a line; none where that may be chance."""
    if not source.correlates:
        return []
    found = ", ".join(f"{each.feature} {each.rank_correlation:+.2f}" for each in source.correlates)
    return [f"errors go with (rank correlation): {found}"]


def misfit_lines(source: SourceResult) -> list[str]:
    """Return what is predicted of runs that ran out of memory."""
    return [
        f"{each.id} ran out of memory, and is predicted {'to fit' if each.fits else 'not to fit'}:"
        f" {format_quantity(each.peak_bytes, 'B')} of {format_quantity(each.capacity_bytes, 'B')}"
        for each in source.out_of_memory
    ]


def summary_cells(summary: Summary, quote: str = "`") -> tuple[str, ...]:
    """Return the cells below ``SUMMARY_HEADER``, with a mark around the id of a row."""
    return (
        f"{summary.n_rows}",
        share_text(summary.mean_absolute_error_fraction),
        share_text(summary.median_absolute_error_fraction),
        error_text(summary.mean_error_fraction),
        "" if summary.coverage_fraction is None else f"{100 * summary.coverage_fraction:.0f} %",
        f"{error_text(summary.worst_error_fraction)} ({quote}{summary.worst_row}{quote})",
    )


def source_text(source: SourceResult) -> str:
    """Return how wrong the rows of a source are, in a few words."""
    if mark_of(source) != HIDDEN_MARK:
        return summary_text(source.summary)
    return f"rows with a hidden setting: mean error {source_cells(source)[3]} over all that it allows"


def source_cells(source: SourceResult) -> tuple[str, ...]:
    """Return the cells of a source; where all rows hide a setting, the mean error at both ends of the range and nothing else."""
    if mark_of(source) != HIDDEN_MARK:
        return summary_cells(source.summary)
    ranges = [(row.predicted_range_s or (row.predicted_s,) * 2, row.measured_s) for row in source.rows]
    ends = [fmean(times_s[end] / measured_s - 1.0 for times_s, measured_s in ranges) for end in (0, 1)]
    return (f"{len(source.rows)}", "", "", _range_text(ends), "", "")


def mark_of(source: SourceResult) -> str:
    """Return the mark of a source whose rows all hide a setting, or have the speed of one accelerator given; empty for others."""
    if source.stated:
        return ""
    return GIVEN_MARK if source.rows[0].speed_given else HIDDEN_MARK

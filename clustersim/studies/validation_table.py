"""Validation results as text: cells for the terminal, and the table of the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from clustersim.studies.published import RowResult, SourceResult, Summary, Validation, summarise
from clustersim.units.quantity import format_quantity

DERIVED_MARK: Final = "*"
MANY_ROWS: Final = 200
"""A source with more is shown by layouts, and in full as data only."""
DIGITS: Final = 4
"""Of step times; as many as the sources print."""
_HEADER: Final = ("row", "model", "GPUs", "tp x pp x dp", "chunks", "measured", "predicted", "error", "fits", "quality", "published in")
_RIGHT: Final = ("GPUs", "chunks", "measured", "predicted", "error")


def layout_text(row: RowResult) -> str:
    """Return tensor, pipeline and data-parallel degree as ``8x16x8``, and those of context and expert parallelism where there are any."""
    degrees = row.parallelism
    more = [f" {name} {degree}" for name, degree in (("cp", degrees.cp), ("ep", degrees.ep)) if degree > 1]
    return f"{degrees.tp}x{degrees.pp}x{degrees.dp}{''.join(more)}"


def measured_text(row: RowResult) -> str:
    """Return the measured step time, marked where it was derived."""
    return format_quantity(row.measured_s, "s", DIGITS) + (DERIVED_MARK if row.derived_from else "")


def predicted_text(row: RowResult) -> str:
    """Return the predicted step time, with as many digits as the measured one."""
    return format_quantity(row.predicted_s, "s", DIGITS)


def error_text(fraction: float, digits: int = 1) -> str:
    """Return an error with its sign, in percent with so many digits behind the point.

    Examples
    --------
    >>> error_text(-0.0669), error_text(0.0, 2)
    ('-6.7 %', '+0.00 %')
    """
    # Rounded first: what rounds to nothing has no sign of its own.
    return f"{round(100.0 * fraction, digits) + 0.0:+.{digits}f} %"


def share_text(fraction: float) -> str:
    """Return the size of an error, in percent."""
    return f"{100.0 * fraction:.1f} %"


def summary_text(summary: Summary) -> str:
    """Return how wrong some rows are, in a few words."""
    rows = "1 row" if summary.n_rows == 1 else f"{summary.n_rows} rows"
    return (
        f"{rows}: mean absolute error {share_text(summary.mean_absolute_error_fraction)},"
        f" median {share_text(summary.median_absolute_error_fraction)},"
        f" mean with its sign {error_text(summary.mean_error_fraction)},"
        f" worst {error_text(summary.worst_error_fraction)} ({summary.worst_row})"
    )


def memory_text(summary: Summary) -> str:
    """Return how wrong predicted peaks of memory are, where they were printed, and whether any row is wrongly predicted not to fit."""
    misfits = f"wrongly predicted not to fit: {_misfits(summary)}"
    mean, worst = summary.mean_absolute_memory_error_fraction, summary.worst_memory_error_fraction
    if mean is None or worst is None:
        return misfits
    rows = "1 row" if summary.n_memory_rows == 1 else f"{summary.n_memory_rows} rows"
    return f"memory of {rows}: mean absolute error {share_text(mean)}, worst {error_text(worst)}; {misfits}"


def fitted_text(source: SourceResult) -> str:
    """Return what calibration has taken from the source."""
    if not source.fitted:
        return "no calibration constant was fitted to this source"
    return f"not independent: calibrated with figures of this source: {', '.join(source.fitted)}"


def summary_table(validation: Validation) -> str:
    """Return one line for each source and one for all, as a table in Markdown."""
    header = ("source", "rows", "mean absolute error", "median", "worst row", "calibration fitted to it")
    rows = [_summary_cells(f"`{source.source_id}`", source.summary, _fits(source)) for source in validation.sources]
    rows.append(_summary_cells("all", validation.summary, ""))
    return _table(header, ("rows", "mean absolute error", "median"), rows)


def markdown_page(validation: Validation) -> str:
    """Return what the documentation shows: the summary, and a table for each source with errors to three digits."""
    sources = "".join(_section(source) for source in validation.sources)
    return f"{summary_table(validation)}\nRows wrongly predicted not to fit: {_misfits(validation.summary)}.\n{sources}"


def _misfits(summary: Summary) -> str:
    return ", ".join(summary.false_out_of_memory) or "none"


def layouts_table(source: SourceResult) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the header and the cells of a table of many rows: one line for each layout."""
    layouts: dict[tuple[int, str], list[RowResult]] = {}
    for row in source.rows:
        layouts.setdefault((row.gpus, layout_text(row)), []).append(row)
    lines: list[tuple[str, ...]] = []
    for (gpus, layout), rows in sorted(layouts.items()):
        summary = summarise(rows)
        errors = (share_text(summary.mean_absolute_error_fraction), error_text(summary.mean_error_fraction))
        lines.append((f"{gpus}", layout, f"{len(rows)}", *errors, f"{error_text(summary.worst_error_fraction)} ({summary.worst_row})"))
    return ("GPUs", "tp x pp x dp", "rows", "mean absolute error", "mean with its sign", "worst row"), lines


def ranking_lines(source: SourceResult) -> list[str]:
    """Return for each group of layouts of one model on as many accelerators which one would have been chosen, and what that costs."""
    return [
        f"{each.model} on {each.gpus} GPUs: of {each.n_rows} rows {each.chosen_row} is predicted to be the fastest"
        + (" and is" if each.chosen_row == each.best_row else f", {share_text(each.regret_fraction)} slower than {each.best_row}")
        for each in source.rankings
    ]


def misfit_lines(source: SourceResult) -> list[str]:
    """Return what is predicted of runs that ran out of memory."""
    return [
        f"{each.id} ran out of memory, and is predicted {'to fit' if each.fits else 'not to fit'}:"
        f" {format_quantity(each.peak_bytes, 'B')} of {format_quantity(each.capacity_bytes, 'B')}"
        for each in source.out_of_memory
    ]


def _section(source: SourceResult) -> str:
    methods = dict.fromkeys(row.derived_from for row in source.rows if row.derived_from)
    derived = f"\n{_escaped(DERIVED_MARK)} not printed, but derived from {'; '.join(methods)}.\n" if methods else ""
    if len(source.rows) > MANY_ROWS:
        header, lines = layouts_table(source)
        table = _table(header, header[:1] + header[2:5], lines)
    else:
        table = _table(_HEADER, _RIGHT, [_cells(row) for row in source.rows])
    remarks = "".join(f"- {line}\n" for line in (*ranking_lines(source), *misfit_lines(source)))
    rest = f"{derived}\n{remarks}" if remarks else derived
    return f"\n## `{source.source_id}`\n\n{source.title}: <{source.urls[0]}>.\n\n{table}{rest}"


def _table(header: Sequence[str], right: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = "|".join("---:" if name in right else "---" for name in header)
    lines = [f"| {' | '.join(header)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "".join(f"{line}\n" for line in lines)


def _summary_cells(name: str, summary: Summary, fits: str) -> tuple[str, ...]:
    return (
        name,
        f"{summary.n_rows}",
        share_text(summary.mean_absolute_error_fraction),
        share_text(summary.median_absolute_error_fraction),
        f"{error_text(summary.worst_error_fraction)} (`{summary.worst_row}`)",
        fits,
    )


def _fits(source: SourceResult) -> str:
    return ", ".join(f"`{constant}`" for constant in source.fitted) or "none"


def _cells(row: RowResult) -> tuple[str, ...]:
    return (
        row.id,
        row.model,
        f"{row.gpus}",
        layout_text(row),
        f"{row.virtual_stages}",
        _escaped(measured_text(row)),
        predicted_text(row),
        error_text(row.error_fraction, 2),
        "yes" if row.fits else "no",
        row.quality,
        f"{row.source.table}, {row.source.row}",
    )


def _escaped(text: str) -> str:
    return text.replace(DERIVED_MARK, f"\\{DERIVED_MARK}")

"""Tables of the page on validation, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from clustersim.apps.validate.published import SourceResult, Validation
from clustersim.apps.validate.rows import RowResult
from clustersim.apps.validate.validation_table import (
    DERIVED_MARK,
    GIVEN_MARK,
    HIDDEN_MARK,
    MANY_ROWS,
    SUMMARY_HEADER,
    correlate_lines,
    layout_text,
    layouts_table,
    mark_of,
    measured_text,
    misfit_lines,
    predicted_text,
    ranking_lines,
    row_error_text,
    source_cells,
    summary_cells,
    together_lines,
)

LEGENDS: Final = {
    HIDDEN_MARK: "°: a setting that decides the result is hidden. Errors are a range, over all that the setting allows, and the rows are"
    " not in *all*.",
    GIVEN_MARK: "†: the speed of one accelerator alone is taken from the source. The error is that of communication, and the rows are not"
    " in *all*.",
}


_HEADER: Final = ("row", "model", "GPUs", "tp x pp x dp", "chunks", "measured", "predicted", "error", "fits", "quality", "published in")


_RIGHT: Final = ("GPUs", "chunks", "measured", "predicted", "error")


def summary_table(validation: Validation) -> str:
    """Return one line for each source and one for all, as a table in Markdown, with the legends of the marks that are used."""
    rows = [(f"`{source.source_id}`{mark_of(source)}", *source_cells(source), _fits(source)) for source in validation.sources]
    rows.append(("all", *summary_cells(validation.summary), ""))
    marks = {mark_of(source) for source in validation.sources}
    legend = "".join(f"\n{text}\n" for mark, text in LEGENDS.items() if mark in marks)
    return _table(("source", *SUMMARY_HEADER, "calibration fitted to it"), SUMMARY_HEADER[:-1], rows) + legend


def defaults_table(validation: Validation) -> str:
    """Return one line for each source, one for all, and one for each thing that runs make use of, by defaults alone, in Markdown."""
    rows = [(f"`{source.source_id}`", *summary_cells(source.summary)) for source in validation.sources]
    rows.append(("all", *summary_cells(validation.summary)))
    table = _table(("source", *SUMMARY_HEADER), SUMMARY_HEADER[:-1], rows)
    return f"{table}\nRefused: {len(validation.refused)} rows.\n\n{capability_table(validation)}"


def capability_table(validation: Validation) -> str:
    """Return one line for each thing that runs make use of, as a table in Markdown."""
    rows = [(each.capability, f"{each.n_sources}", *summary_cells(each.summary)) for each in validation.capabilities]
    return _table(("rows that use", "sources", *SUMMARY_HEADER), ("sources", *SUMMARY_HEADER[:-1]), rows)


def correlates_table(validation: Validation) -> str:
    """Return one line for each source whose errors go with something, as a table in Markdown."""
    rows = [
        (f"`{source.source_id}`", f"{len(source.stated)}", *(f"{each.feature} {each.rank_correlation:+.2f}" for each in source.correlates))
        for source in validation.sources
        if source.correlates
    ]
    header = ("source", "rows", "strongest", "second", "third")
    return _table(header, ("rows",), [(*row, *("",) * (len(header) - len(row))) for row in rows])


def markdown_page(validation: Validation) -> str:
    """Return what the documentation shows: the summary, and a table for each source with errors to three digits."""
    sources = "".join(_section(source) for source in validation.sources)
    remarks = "".join(f"- {line}\n" for line in together_lines(validation))
    reasons = "".join(f"- `{row.id}`: {row.explained}\n" for source in validation.sources for row in source.rows if row.explained)
    return (
        f"{summary_table(validation)}\n{remarks}\n## By what runs use\n\n{capability_table(validation)}"
        f"\n## What errors go with\n\n{correlates_table(validation)}"
        f"\n## Why rows are far off\n\n{reasons or 'None is explained.'}\n{sources}"
    )


def _place(url: str) -> str:
    """Return an address as Markdown; a source of our own has none."""
    return f"<{url}>" if "://" in url else url


def _section(source: SourceResult) -> str:
    methods = dict.fromkeys(row.derived_from for row in source.rows if row.derived_from)
    derived = f"\n{_escaped(DERIVED_MARK)} not printed, but derived from {'; '.join(methods)}.\n" if methods else ""
    if len(source.rows) > MANY_ROWS:
        layouts = layouts_table(source)
        table = _table(layouts.names, layouts.names[:1] + layouts.names[2:5], layouts.rows)
    else:
        table = _table(_HEADER, _RIGHT, [_cells(row) for row in source.rows])
    remarks = "".join(f"- {line}\n" for line in (*correlate_lines(source), *ranking_lines(source), *misfit_lines(source)))
    rest = f"{derived}\n{remarks}" if remarks else derived
    return f"\n## `{source.source_id}`\n\n{source.title}: {_place(source.urls[0])}.\n\n{table}{rest}"


def _table(header: Sequence[str], right: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = "|".join("---:" if name in right else "---" for name in header)
    lines = [f"| {' | '.join(header)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "".join(f"{line}\n" for line in lines)


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
        row_error_text(row, 2),
        "yes" if row.fits else "no",
        row.quality,
        f"{row.source.table}, {row.source.row}",
    )


def _escaped(text: str) -> str:
    return text.replace(DERIVED_MARK, f"\\{DERIVED_MARK}")

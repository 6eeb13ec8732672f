"""``clustersim validate``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from clustersim.apps.run.intervals import MEMORY
from clustersim.apps.serve.served_intervals import ServedBand, ServedFold
from clustersim.apps.validate.cross import cross_validate, folds_table, folds_text
from clustersim.apps.validate.published import (
    SourceResult,
    Validation,
    check_complete,
    memory_error_bars,
    parse_error_limit,
    step_time_error_bars,
    validate,
    validate_defaults,
)
from clustersim.apps.validate.residuals import PEAKS, STEP_TIMES, write_residuals
from clustersim.apps.validate.rows import RowResult
from clustersim.apps.validate.served import METRICS, ServedResult, ServedSource, ServedSummary, summaries, validate_served
from clustersim.apps.validate.served_cross import cross_validate_served, residuals_document
from clustersim.apps.validate.sources import QUALITIES, Quality
from clustersim.apps.validate.validation_table import (
    DERIVED_MARK,
    MANY_ROWS,
    SUMMARY_HEADER,
    correlate_lines,
    fitted_text,
    layout_text,
    layouts_table,
    measured_text,
    memory_text,
    misfit_lines,
    predicted_text,
    ranking_lines,
    row_error_text,
    source_text,
    summary_cells,
    summary_text,
    together_lines,
)
from clustersim.cli.options import JobsOption, JsonOption, named_file
from clustersim.cli.terminal import notice, print_table, print_tables, write_json, write_lines, write_out
from clustersim.cli.watching import watched
from clustersim.config.yaml_text import plain, yaml_text
from clustersim.documents.files import check_folder, write_text
from clustersim.documents.near_names import choices_hint
from clustersim.errors import EXIT_NO, EXIT_OK, ScenarioError
from clustersim.report.plots.write import write_drawn
from clustersim.report.text_tables import TextTable
from clustersim.units.grouping import grouped
from clustersim.units.quantity import format_quantity

_COLUMNS: Final = ("row", ">GPUs", ">layout", ">v", ">measured", ">predicted", ">error", "fits", "q")
SCHEMA_VERSION: Final = 1
_LEGEND: Final = (
    "layout: tp x pp x dp, and cp and ep above 1; v: chunks of layers on each stage; q: quality, A where nothing had to be assumed."
)


def validate_command(
    sources: Annotated[list[str] | None, typer.Argument(metavar="SOURCE", help="Shipped sources, or paths; all if left out.")] = None,
    *,
    json: JsonOption = False,
    quality: Annotated[str, typer.Option(metavar="A|B", help="Lowest quality of rows; A: rows without assumptions.")] = "B",
    fail_over: Annotated[
        str | None, typer.Option(metavar="PERCENT", help="End with 1 if the mean absolute error exceeds this, such as '8 %'.")
    ] = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw the errors of each source: a .png or .svg file.")] = None,
    write_residuals: Annotated[str | None, typer.Option(metavar="FILE", help="Write the error bars of all rows; in a checkout.")] = None,
    cross_validate: Annotated[
        str | None, typer.Option(metavar="FILE", help="Leave out each source, refit and predict it; print tables and write a file. Slow.")
    ] = None,
    defaults: Annotated[
        bool, typer.Option("--defaults", help="Predict from model, machine, batch, degrees and recomputation alone.")
    ] = False,
    serving: Annotated[
        bool, typer.Option("--serving", help="Compare served runs: time to first token, time per token, throughput.")
    ] = False,
    jobs: JobsOption = None,
) -> int:
    """Compare predictions with published measurements."""
    if serving:
        return _validate_served(tuple(sources or ()), as_json=json, jobs=jobs, cross_validate=cross_validate)
    named = tuple(sources or ())
    if cross_validate is not None:
        return _cross_validate(named, Path(cross_validate))
    limit_fraction = None if fail_over is None else parse_error_limit(fail_over)
    picture = None if plot is None else named_file(plot, (".png", ".svg"), "--plot")
    least = _quality(quality)
    if write_residuals is not None:
        check_complete(named, least)
    for given, option in ((write_residuals, "--write-residuals"), (least != QUALITIES[-1], "--quality")):
        if defaults and given:
            raise ScenarioError("is not for defaults alone", field=option, hint="leave it out, or --defaults")
    with watched():
        if defaults:
            validation = validate_defaults(named, jobs=jobs, bounds=json)
        else:
            validation = validate(named, quality=least, jobs=jobs, bounds=json)
    if json:
        write_json(_document(validation))
    else:
        _print(validation)
    if picture is not None:
        from clustersim.apps.plot.plots import drawn_errors

        write_drawn(lambda: drawn_errors(validation), picture, "--plot")
        notice(f"wrote {picture}")
    if write_residuals is not None:
        _write_residuals(validation, Path(write_residuals), jobs)
    if limit_fraction is None or validation.better_than(limit_fraction):
        return EXIT_OK
    notice(f"no: {summary_text(validation.summary)}; {memory_text(validation.summary)}; the limit is {fail_over}")
    return EXIT_NO


def _write_residuals(validation: Validation, file: Path, jobs: int | None) -> None:
    """Write the error bars of step times into a file, and those of memory beside it."""
    with watched():
        defaults = validate_defaults(jobs=jobs, bounds=False)
    for bars, path, what in (
        (step_time_error_bars(validation, defaults), file, STEP_TIMES),
        (memory_error_bars(validation), file.with_name(MEMORY), PEAKS),
    ):
        write_residuals(bars, path, what)
        notice(f"wrote {path}")


def _cross_validate(sources: tuple[str, ...], path: Path) -> int:
    """Leave each source and each generation out, print how they are predicted without, and write a table."""
    check_folder(path, field="--cross-validate", hint="choose another file")
    with watched():
        folds = cross_validate(sources)
    write_text(path, folds_text(folds), field="--cross-validate", hint="choose another file")
    for kind in dict.fromkeys(fold.kind for fold in folds):
        write_out(f"{folds_table(folds, kind)}\n")
    notice(f"wrote {path}")
    return EXIT_OK


def _document(validation: Validation) -> dict[str, object]:
    return {
        "schema_version": SCHEMA_VERSION,
        "sources": plain(validation.sources),
        "summary": plain(validation.summary),
        "hidden": plain(validation.hidden),
        "capabilities": plain(validation.capabilities),
        "rankings": plain(validation.rankings),
        "missed_out_of_memory": plain(validation.missed_out_of_memory),
        "refused": plain(validation.refused),
        "interval_coverage": plain(validation.coverage),
    }


def _quality(text: str) -> Quality:
    for quality in QUALITIES:
        if quality == text:
            return quality
    raise ScenarioError(f"'{text}' is not a quality", field="--quality", hint=choices_hint(text, QUALITIES))


def _print(validation: Validation) -> None:
    for source in validation.sources:
        write_lines(source.source_id, *(f"  {line}" for line in (source.title, *source.urls)), piped=True)
        print_tables(_tables(source))
        write_out("\n")
    beaten = tuple(
        f"{row.id} took {format_quantity(row.measured_s, 's')} and cannot take less than {format_quantity(row.peak_s, 's')} at the peak"
        for row in validation.faster_than_peak()
    )
    used = tuple((each.capability, f"{each.n_sources}", *summary_cells(each.summary, "")) for each in validation.capabilities)
    columns = ("rows that use", ">sources", *(f">{name}" for name in SUMMARY_HEADER[:-1]), SUMMARY_HEADER[-1])
    first, *others = together_lines(validation)
    print_tables(
        [
            TextTable("Measured faster than the peak of the data sheet, so that an input is wrong", sentences=beaten),
            TextTable("", sentences=(_LEGEND,)),
            TextTable("", columns, used),
            TextTable("", sentences=(f"All together, {first}", *others)),
        ]
    )


def _tables(source: SourceResult) -> list[TextTable]:
    """Return the rows of a source, its errors, and what is said of it; each assumption once with the rows that it holds for."""
    methods = dict.fromkeys(row.derived_from for row in source.rows if row.derived_from)
    derived = (f"{DERIVED_MARK} not printed, but derived from {'; '.join(methods)}",) if methods else ()
    first = f"{source_text(source)}; {fitted_text(source)}"
    told = (first, *derived, *correlate_lines(source), *ranking_lines(source), *misfit_lines(source))
    rows_of = grouped((assumption, row.id) for row in source.rows for assumption in row.assumed)
    sections = {
        "": told,
        "Notes": source.notes,
        "Conventions": (f"{f'{each.key}: {each.value}'.removesuffix(': ')} - {each.reason}" for each in source.conventions),
        "Assumed, where the source does not say": (
            f"{'all rows' if len(rows) == len(source.rows) else ', '.join(rows)}: {assumption}" for assumption, rows in rows_of.items()
        ),
    }
    many = len(source.rows) > MANY_ROWS
    return [
        layouts_table(source) if many else TextTable("", _COLUMNS, tuple(map(_cells, source.rows))),
        *(TextTable(heading, sentences=tuple(f"  {line}" for line in lines)) for heading, lines in sections.items()),
    ]


def _cells(row: RowResult) -> tuple[str, ...]:
    return (
        row.id,
        f"{row.gpus}",
        layout_text(row),
        f"{row.virtual_stages}",
        measured_text(row),
        predicted_text(row),
        row_error_text(row),
        "yes" if row.fits else "NO",
        row.quality,
    )


_TITLES: Final[Mapping[str, str]] = {"ttft_s": "TTFT", "ttft_p99_s": "TTFT p99", "tpot_s": "TPOT", "output_tokens_per_s": "output tokens/s"}
_SERVED_ROWS: Final = ("row", "model", "node", "engine", "precision", ">GPUs", ">in/out", ">metric", ">measured", ">predicted", ">error")
_SERVED_FOLDS: Final = ("left out", "", "metric", ">rows", ">median error", ">90 % below", "constants fitted to the others")
_SERVED_BANDS: Final = ("metric", ">rows", ">least", ">most", ">ratio of two", ">coverage of a source by the others")
_SERVED_HEADER: Final = (
    "# Where measured latencies and throughputs of served runs lie, as shares of predicted ones. Made by\n"
    '# "clustersim validate --serving --cross-validate FILE"; docs/theory/serving.md explains it. Not to be edited.\n'
)
_SERVED_SUMMARY: Final = ("metric", ">rows", ">median error", ">90 % below", ">bias", ">closed form: median", ">90 % below")


def _validate_served(sources: tuple[str, ...], *, as_json: bool, jobs: int | None, cross_validate: str | None = None) -> int:
    """Compare predictions of served runs with published measurements, print them, and return the exit code."""
    if cross_validate is not None:
        return _cross_validate_served(sources, Path(cross_validate), jobs)
    with watched():
        found = validate_served(sources, jobs=jobs)
    if as_json:
        documents = [{"source": source.document(), "summary": plain(source.summaries)} for source in found]
        write_json({"schema_version": SCHEMA_VERSION, "sources": documents, "summary": plain(_served_together(found))})
        return EXIT_OK
    for source in found:
        write_out(f"{source.source_id}\n  {source.spec.title}\n  {source.spec.url}\n  licence: {source.spec.licence}\n\n")
        print_table(_SERVED_ROWS, [cells for result in source.results for cells in _served_cells(result)])
        for title, lines in (("Assumed", source.spec.assumed), ("Fitted to rows of this source", source.spec.fitted)):
            if lines:
                write_out("\n".join(("", f"  {title}", *(f"    {line}" for line in lines), "")))
        write_out("\n")
        print_table(_SERVED_SUMMARY, [_served_summary_cells(each) for each in source.summaries])
        write_out("\n")
    if len(found) > 1:
        write_out("All together\n")
        print_table(_SERVED_SUMMARY, [_served_summary_cells(each) for each in _served_together(found)])
    return EXIT_OK


def _cross_validate_served(sources: tuple[str, ...], path: Path, jobs: int | None) -> int:
    """Leave each source and each accelerator out, print how they are predicted without, and write folds and error bars."""
    check_folder(path, field="--cross-validate", hint="choose another file")
    with watched():
        found = cross_validate_served(sources, jobs=jobs)
    print_table(_SERVED_FOLDS, [_fold_cells(fold) for fold in found.folds])
    write_out("\n")
    print_table(_SERVED_BANDS, [_band_cells(band) for band in found.bands])
    text = _SERVED_HEADER + yaml_text(residuals_document(found))
    write_text(path, text, field="--cross-validate", hint="choose another file")
    notice(f"wrote {path}")
    return EXIT_OK


def _fold_cells(fold: ServedFold) -> tuple[str, ...]:
    constants = " ".join(f"{name}={value:g}" for name, value in fold.constants.items())
    errors = f"{fold.median:.1%}", f"{fold.p90:.1%}"
    return fold.kind, fold.left_out, _TITLES[fold.metric], f"{fold.rows}", *errors, constants


def _band_cells(band: ServedBand) -> tuple[str, ...]:
    return (
        _TITLES[band.metric],
        f"{band.rows}",
        f"{band.least:.2f}",
        f"{band.most:.2f}",
        f"{band.ratio:.2f}",
        f"{band.coverage:.0%}",
    )


def _served_together(sources: tuple[ServedSource, ...]) -> tuple[ServedSummary, ...]:
    return summaries([result for source in sources for result in source.results])


def _served_cells(result: ServedResult) -> Iterator[tuple[str, ...]]:
    errors = result.errors
    for metric in METRICS:
        if metric in errors:
            measured, predicted = result.measured[metric], result.predicted[metric]
            values = [
                format_quantity(each, "s") if metric.endswith("_s") and "per" not in metric else f"{each:,.0f}"
                for each in (measured, predicted)
            ]
            head = (result.id, result.model, result.node, result.engine, result.precision, f"{result.accelerators}", result.load)
            yield *head, _TITLES[metric], *values, f"{errors[metric]:+.1%}"


def _served_summary_cells(summary: ServedSummary) -> tuple[str, ...]:
    plain = tuple("-" if each is None else f"{each:.1%}" for each in (summary.baseline_median, summary.baseline_p90))
    return _TITLES[summary.metric], f"{summary.n_rows}", f"{summary.median:.1%}", f"{summary.p90:.1%}", f"{summary.bias:+.1%}", *plain

"""``clustersim validate --serving``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from clustersim.apps.serve.served_intervals import ServedBand, ServedFold
from clustersim.apps.validate.served import METRICS, ServedResult, ServedSource, ServedSummary, summaries, validate_served
from clustersim.apps.validate.served_cross import cross_validate_served, residuals_document
from clustersim.cli.terminal import notice, print_table, write_json, write_out
from clustersim.cli.watching import watched
from clustersim.config.yaml_text import plain, yaml_text
from clustersim.documents.files import check_folder, write_text
from clustersim.errors import EXIT_OK
from clustersim.units.quantity import format_quantity

SCHEMA_VERSION: Final = 1
_TITLES: Final[Mapping[str, str]] = {"ttft_s": "TTFT", "ttft_p99_s": "TTFT p99", "tpot_s": "TPOT", "output_tokens_per_s": "output tokens/s"}
_ROWS: Final = ("row", "model", "node", "engine", "precision", ">GPUs", ">in/out", ">metric", ">measured", ">predicted", ">error")
_FOLDS: Final = ("left out", "", "metric", ">rows", ">median error", ">90 % below", "constants fitted to the others")
_BANDS: Final = ("metric", ">rows", ">least", ">most", ">ratio of two", ">coverage of a source by the others")
_HEADER: Final = (
    "# Where measured latencies and throughputs of served runs lie, as shares of predicted ones. Made by\n"
    '# "clustersim validate --serving --cross-validate FILE"; docs/theory/serving.md explains it. Not to be edited.\n'
)
_SUMMARY: Final = ("metric", ">rows", ">median error", ">90 % below", ">bias", ">closed form: median", ">90 % below")


def validate_served_command(sources: tuple[str, ...], *, as_json: bool, jobs: int | None, cross_validate: str | None = None) -> int:
    """Compare predictions of served runs with published measurements, print them, and return the exit code."""
    if cross_validate is not None:
        return _cross_validate(sources, Path(cross_validate), jobs)
    with watched():
        found = validate_served(sources, jobs=jobs)
    if as_json:
        documents = [{"source": source.document(), "summary": plain(source.summaries)} for source in found]
        write_json({"schema_version": SCHEMA_VERSION, "sources": documents, "summary": plain(_together(found))})
        return EXIT_OK
    for source in found:
        write_out(f"{source.source_id}\n  {source.spec.title}\n  {source.spec.url}\n  licence: {source.spec.licence}\n\n")
        print_table(_ROWS, [cells for result in source.results for cells in _cells(result)])
        for title, lines in (("Assumed", source.spec.assumed), ("Fitted to rows of this source", source.spec.fitted)):
            if lines:
                write_out("\n".join(("", f"  {title}", *(f"    {line}" for line in lines), "")))
        write_out("\n")
        print_table(_SUMMARY, [_summary_cells(each) for each in source.summaries])
        write_out("\n")
    if len(found) > 1:
        write_out("All together\n")
        print_table(_SUMMARY, [_summary_cells(each) for each in _together(found)])
    return EXIT_OK


def _cross_validate(sources: tuple[str, ...], path: Path, jobs: int | None) -> int:
    """Leave each source and each accelerator out, print how they are predicted without, and write folds and error bars."""
    check_folder(path, field="--cross-validate", hint="choose another file")
    with watched():
        found = cross_validate_served(sources, jobs=jobs)
    print_table(_FOLDS, [_fold_cells(fold) for fold in found.folds])
    write_out("\n")
    print_table(_BANDS, [_band_cells(band) for band in found.bands])
    text = _HEADER + yaml_text(residuals_document(found))
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


def _together(sources: tuple[ServedSource, ...]) -> tuple[ServedSummary, ...]:
    return summaries([result for source in sources for result in source.results])


def _cells(result: ServedResult) -> Iterator[tuple[str, ...]]:
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


def _summary_cells(summary: ServedSummary) -> tuple[str, ...]:
    plain = tuple("-" if each is None else f"{each:.1%}" for each in (summary.baseline_median, summary.baseline_p90))
    return _TITLES[summary.metric], f"{summary.n_rows}", f"{summary.median:.1%}", f"{summary.p90:.1%}", f"{summary.bias:+.1%}", *plain

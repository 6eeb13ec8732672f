"""``clustersim validate --serving``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from clustersim.cli.terminal import print_table, write_json, write_out
from clustersim.cli.watching import watched
from clustersim.errors import EXIT_OK
from clustersim.scenario.plain import plain
from clustersim.studies.validation.served import METRICS, ServedResult, ServedSource, ServedSummary, summaries, validate_served
from clustersim.units.quantity import format_quantity

SCHEMA_VERSION: Final = 1
_TITLES: Final[Mapping[str, str]] = {"ttft_s": "TTFT", "tpot_s": "TPOT", "output_tokens_per_s": "output tokens/s"}
_ROWS: Final = ("row", "model", "node", "engine", "precision", ">GPUs", ">in/out", ">metric", ">measured", ">predicted", ">error")
_SUMMARY: Final = ("metric", ">rows", ">median error", ">90 % below", ">bias")


def validate_served_command(sources: tuple[str, ...], *, as_json: bool, jobs: int | None) -> int:
    """Compare predictions of served runs with published measurements, print them, and return the exit code."""
    with watched():
        found = validate_served(sources, jobs=jobs)
    if as_json:
        documents = [{"source": plain(source), "summary": plain(source.summaries)} for source in found]
        write_json({"schema_version": SCHEMA_VERSION, "sources": documents, "summary": plain(_together(found))})
        return EXIT_OK
    for source in found:
        write_out(f"{source.source_id}\n  {source.title}\n  {source.url}\n  licence: {source.licence}\n\n")
        print_table(_ROWS, [cells for result in source.results for cells in _cells(result)])
        for title, lines in (("Assumed", source.assumed), ("Fitted to rows of this source", source.fitted)):
            if lines:
                write_out("\n".join(("", f"  {title}", *(f"    {line}" for line in lines), "")))
        write_out("\n")
        print_table(_SUMMARY, [_summary_cells(each) for each in source.summaries])
        write_out("\n")
    if len(found) > 1:
        write_out("All together\n")
        print_table(_SUMMARY, [_summary_cells(each) for each in _together(found)])
    return EXIT_OK


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
    return _TITLES[summary.metric], f"{summary.n_rows}", f"{summary.median:.1%}", f"{summary.p90:.1%}", f"{summary.bias:+.1%}"

"""``clustersim compare`` and ``clustersim runs``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from clustersim.apps.calibrate.trace_file import is_trace
from clustersim.apps.compare.compared_runs import check_kinds, load_run, measured_run, predicted_run, side_by_side
from clustersim.apps.compare.run_directories import COLUMNS, kept_runs, tag_run
from clustersim.apps.compare.side_by_side import ComparedRun, SideBySide
from clustersim.apps.compare.trace_comparison import TraceComparison, TraceRequest, compare_traces
from clustersim.apps.importing.importing import foreign_source
from clustersim.apps.importing.opening import open_measured
from clustersim.cli.options import JsonOption, OutOption, SeedOption, SetOption, refuse_given
from clustersim.cli.terminal import notice, print_answer, print_table, write_json, write_out
from clustersim.cli.watching import watched
from clustersim.documents.files import check_folder, write_text
from clustersim.documents.json_text import json_text
from clustersim.documents.near_names import did_you_mean
from clustersim.errors import EXIT_OK, ScenarioError
from clustersim.units.divisors import count_text

MOST: Final = 20
"""Runs that one table holds."""
FORMATS: Final = ("md", "csv", "json")


def compare_command(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN", help="Run directories, scenario files or shipped examples; or one of them and traces."),
    ],
    *,
    set_: SetOption = None,
    md: Annotated[bool, typer.Option("--md", help="Write Markdown.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Write a table of all figures.")] = False,
    json: JsonOption = False,
    out: OutOption = None,
    seed: SeedOption = 0,
    device: Annotated[str | None, typer.Option(metavar="NAME", help="Device of the traces; default: the one they name.")] = None,
    names: Annotated[str | None, typer.Option(metavar="FILE", help="Classes of additional kernel names in traces.")] = None,
) -> int:
    """Compare runs with the first, and show what differs.

    Show the keys that differ and all figures side by side; with traces, kernels and collectives by class.
    """
    formats = tuple(name for name, asked in (("md", md), ("csv", csv), ("json", json)) if asked)
    overrides, sources = tuple(set_ or ()), tuple(runs)
    chosen = _format(formats, out)
    traces = [source for source in sources if is_trace(source)]
    if traces:
        others = [source for source in sources if source not in traces]
        if len(others) != 1:
            named = f"{len(others)} are named" if others else "none is named"
            raise ScenarioError(f"traces are compared with one run, and {named}", hint="try: clustersim compare RUN TRACE...")
        request = TraceRequest(run=others[0], traces=traces, overrides=overrides, device=device, names=names, seed=seed)
        with watched():
            found = compare_traces(request)
        _tell(found, chosen, out)
        return EXIT_OK
    given = next((name for name, value in (("--device", device), ("--names", names)) if value is not None), None)
    if given is not None:
        raise ScenarioError(f"{given} says how a trace is read, and none is named", hint="try: clustersim compare RUN TRACE")
    if len(sources) > MOST:
        raise ScenarioError(f"{len(sources)} runs do not fit side by side", hint=f"name at most {MOST}")
    with watched():
        compared = side_by_side(_loaded(sources, overrides, seed))
    _tell(compared, chosen, out)
    return EXIT_OK


def _loaded(sources: Sequence[str], overrides: Sequence[str], seed: int) -> list[ComparedRun]:
    """Return runs in the order that they are named; a log alone is held against its own prediction."""
    if len(sources) == 1:
        logged = open_measured(sources[0], overrides)
        if logged is None:
            hint = "name two or more run directories, scenario files or shipped examples"
            raise ScenarioError("one run alone cannot be compared", hint=hint)
        predicted = predicted_run(sources[0], logged[0], seed=seed)
        return [measured_run(sources[0], predicted, logged[1]), predicted]
    check_kinds(sources)
    loaded: dict[str, ComparedRun] = {}
    # A log may name no accelerators: a prediction that it is held against says the machine.
    for source in sorted(dict.fromkeys(sources), key=foreign_source):
        predicted = next((run for run in loaded.values() if not run.measured), None)
        loaded[source] = load_run(source, overrides, seed=seed, beside=predicted)
    return [loaded[source] for source in sources]


def _format(formats: Sequence[str], out: str | None) -> str | None:
    """Return the output format, from the name of the file by default; before any simulation."""
    if out is not None:
        check_folder(Path(out))
    if len(formats) > 1:
        asked = " and ".join(f"--{each}" for each in formats)
        raise ScenarioError(f"{asked} exclude each other", hint="ask for one of them")
    if formats or out is None:
        return formats[0] if formats else None
    suffix = Path(out).suffix.removeprefix(".")
    if suffix not in FORMATS:
        near = did_you_mean(suffix, FORMATS) if suffix else None
        raise ScenarioError(f"'{out}' does not say its format", hint=near or "name a file that ends in .md, .csv or .json")
    return suffix


def _tell(found: SideBySide | TraceComparison, chosen: str | None, out: str | None) -> None:
    if chosen is None:
        print_answer(found)
        return
    text = json_text(found.to_dict()) if chosen == "json" else found.markdown() if chosen == "md" else found.csv_text()
    if out is None:
        write_out(text)
    else:
        write_text(Path(out), text)
        notice(f"wrote {out}")


def runs_command(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Folder of run directories, or one of them.")] = "runs",
    *,
    tagged: Annotated[str | None, typer.Option(metavar="TAG", help="Only runs with this tag.")] = None,
    tag: Annotated[str | None, typer.Option(metavar="TAG", help="Tag the listed runs.")] = None,
    untag: Annotated[str | None, typer.Option(metavar="TAG", help="Remove a tag from the listed runs.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Compare the listed runs with the earliest, as 'compare' does.")] = False,
    json: JsonOption = False,
) -> int:
    """List, tag or compare earlier runs, the latest first."""
    found = kept_runs(Path(folder), notice)
    if tagged is not None:
        found = [run for run in found if tagged in run.tags]
    if tag is not None or untag is not None:
        found = [tag_run(run, add=tag, remove=untag) for run in found]
        if len(found) > 1:
            notice(f"{'tagged' if tag is not None else 'untagged'} {count_text(len(found), 'run')} below {folder}")
    if compare:
        refuse_given({"--json": json}, beside="--compare", hint="try: clustersim compare RUN... --json")
        if len(found) < 2:
            raise ScenarioError(f"{len(found)} of the runs can be compared, and two are needed", hint="name a folder with several runs")
        print_answer(side_by_side([load_run(run.folder) for run in reversed(found)]))
    elif json:
        write_json([asdict(run) for run in found])
    elif found:
        print_table(COLUMNS, [run.cells for run in found])
    else:
        notice(f"{folder} keeps no run" + ("" if tagged is None else f" tagged {tagged}"))
    return EXIT_OK

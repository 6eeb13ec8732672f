"""A picture by its kind, or a page: of runs of training or of serving, of a table, of published sources or of a what-if."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from clustersim.apps.compare.compared_runs import run_of, side_by_side
from clustersim.apps.compare.run_directories import is_served, load_result
from clustersim.apps.explain.explanation import measured_changes
from clustersim.apps.run.page import draw_images, image_of, page_of, served_subject_of, subject_of
from clustersim.apps.run.result import MeasuredRun, Result
from clustersim.apps.run.running import run_scenario
from clustersim.apps.serve.serving_result import ServingResult
from clustersim.apps.study.point import reason_of
from clustersim.apps.study.pools import in_order
from clustersim.collection import collection_paused
from clustersim.config.load import ScenarioText
from clustersim.config.overriding import parse_override
from clustersim.documents.check import validate_document
from clustersim.documents.files import read_bytes
from clustersim.documents.near_names import choices_hint
from clustersim.documents.text import read_document
from clustersim.errors import InfeasibleError, Place, ScenarioError
from clustersim.progress import phase
from clustersim.report.page.content import Image, Page, PageSection, has_plotly, render
from clustersim.report.pictures import Tornado
from clustersim.report.subject import ServedSubject, Subject
from clustersim.report.text_tables import TextTable
from clustersim.units.divisors import count_text

if TYPE_CHECKING:
    import pandas

    from clustersim.apps.validate.published import Validation
    from clustersim.report.plots.canvas import Axes
    from clustersim.report.plots.kinds import Plots, RunPlot


_S = TypeVar("_S", Subject, ServedSubject, Subject | ServedSubject)

TABLES: Final = (".csv", ".parquet")
_SWEPT: Final = "results.csv"
"""Table in the directory of a sweep."""
FORMATS: Final = (".png", ".svg")
_MOST_BYTES: Final = 256 * 2**20
"""Largest table, in bytes: a hundred thousand points of a sweep with all figures fit in."""
N_SIZES: Final = 4
"""Sizes of a cluster that one scenario is run on, each twice the one before."""
LOADS: Final = (0.25, 0.5, 2.0, 4.0)
"""Further loads of a service for one scenario, as multiples of its own."""
SHARES: Final = (0.25, 0.5, 0.75, 0.9, 1.1)
"""The same where requests come at a rate, as shares of what full batches answer."""


def draw_plot(
    kind: str, sources: Sequence[str], overrides: Sequence[str] = (), *, figure: str = "", seed: int = 0, jobs: int | None = 1
) -> Axes:
    """Return a picture.

    Parameters
    ----------
    kind
        A name of :data:`clustersim.report.plots.kinds.KINDS`; a hyphen will do for an underscore.
    sources
        Run directories, scenario files or shipped names; a CSV or Parquet file for a picture of a table; published sources for that of
        predictions, all of them where none is named; for a tornado one scenario, or one what-if or its answer.
    overrides
        ``key=value`` texts for scenarios.
    figure
        The column that a picture of a sweep shows; its own choice when empty.
    jobs
        Processes for runs, None for one for each processor.

    Raises
    ------
    ScenarioError
        When there is no such picture, or it cannot be made from these.
    """
    from clustersim.report.plots.canvas import style
    from clustersim.report.plots.kinds import ANSWER_PLOTS, KINDS, RUN_PLOTS, SERVED_PLOTS, TABLE_PLOTS

    name = kind.replace("-", "_")
    if name not in KINDS:
        raise ScenarioError(f"there is no picture '{kind}'", hint=choices_hint(kind, KINDS))
    table = TABLE_PLOTS.get(name)
    if figure and (table is None or table.draw_figure is None):
        able = " or ".join(each for each, plot in TABLE_PLOTS.items() if plot.draw_figure)
        raise ScenarioError(f"'{name}' shows no figure of a table", hint=f"leave --figure out, or draw {able}")
    with style():
        if table is not None and table.of_sources:
            from clustersim.apps.validate.published import validate

            return drawn_errors(validate(sources, jobs=jobs, bounds=False))
        if table is not None and (name not in RUN_PLOTS or are_tables(sources)):
            points = read_points(name, sources)
            return table.draw_figure(points, figure) if figure and table.draw_figure else table.draw(points, None)
        if name in ANSWER_PLOTS:
            return ANSWER_PLOTS[name](asked_tornado(sources, overrides, seed=seed, jobs=jobs), None)
        serves = name not in RUN_PLOTS or (name in SERVED_PLOTS and bool(sources) and is_served(sources[0], overrides))
        plot: RunPlot[Any] = SERVED_PLOTS[name] if serves else RUN_PLOTS[name]
        _check_number(name, plot, sources)
        if plot.grows and len(sources) == 1:
            return _drawn(name, plot, load_result(sources[0], overrides, seed=seed), jobs=jobs)
        asked = [_Asked(source, tuple(overrides), seed) for source in sources]
        return plot.draw([_kind(name, each, serves=serves) for each in _named_apart(list(_runs(asked, jobs)))], None)


def plots_of(result: MeasuredRun[Any]) -> Plots:
    """Return all pictures of one result; those of several sizes or loads run its scenario again."""
    from clustersim.report.plots.kinds import RUN_PLOTS, SERVED_PLOTS, Plots

    shelf: Mapping[str, RunPlot[Any]] = SERVED_PLOTS if isinstance(result, ServingResult) else RUN_PLOTS
    shown = {name: partial(_drawn, name, plot, jobs=1) for name, plot in shelf.items() if plot.n_least == 1 or plot.grows}
    return Plots(shown, lambda: result)


def _drawn(name: str, plot: RunPlot[Any], result: MeasuredRun[Any], ax: Axes | None = None, *, jobs: int | None) -> Axes:
    """Return a picture of one result."""
    if not plot.grows:
        return plot.draw([_subject(result)], ax)
    _kind(name, _subject(result), serves=plot.grows == "load")
    return plot.draw(_loaded(result, jobs) if isinstance(result, ServingResult) else _growing(result, plot.grows, jobs), ax)


def _check_number(name: str, plot: RunPlot[Subject] | RunPlot[ServedSubject], sources: Sequence[str]) -> None:
    if not sources:
        raise ScenarioError(f"'{name}' shows runs, and none is named", hint="name a run directory, a scenario file or a shipped example")
    if len(sources) > plot.n_most:
        from clustersim.report.plots.kinds import RUN_PLOTS, SERVED_PLOTS

        shelves = (each for each in (RUN_PLOTS, SERVED_PLOTS) if plot in each.values())
        several = [other for shelf in shelves for other, each in shelf.items() if each.n_most >= len(sources)]
        most = "name one of them" if plot.n_most == 1 else f"name at most {plot.n_most}"
        hint = f"{most}, or draw {', '.join(several)}" if several else most
        raise ScenarioError(f"'{name}' does not show {len(sources)} runs at once", hint=hint)
    if len(sources) < plot.n_least and not plot.grows:
        raise ScenarioError(f"'{name}' shows {plot.n_least} runs or more", hint="name more runs")


def _kind(name: str, subject: Subject | ServedSubject, *, serves: bool) -> Subject | ServedSubject:
    """Return a run of the kind that a picture shows."""
    from clustersim.report.plots.kinds import RUN_PLOTS, SERVED_PLOTS

    if isinstance(subject, ServedSubject) == serves:
        return subject
    shows, does, drawn = ("serving", "trains", RUN_PLOTS) if serves else ("training", "serves requests", SERVED_PLOTS)
    raise ScenarioError(f"'{name}' shows {shows}, and {subject.label} {does}", hint=f"draw {', '.join(drawn)}")


class _Asked(NamedTuple):
    """A run for a picture."""

    source: str | ScenarioText
    overrides: tuple[str, ...]
    seed: int


def _run(asked: _Asked) -> tuple[Subject | ServedSubject, str]:
    """Return a run as pictures see it, and the digits of its hash."""
    source, texts, seed = asked
    read = isinstance(source, ScenarioText)
    result = run_scenario(source, [*map(parse_override, texts)], seed=seed) if read else load_result(source, texts, seed=seed)
    return _subject(result), result.scenario_hash


def _subject(result: MeasuredRun[Any]) -> Subject | ServedSubject:
    if isinstance(result, ServingResult):
        return served_subject_of(result)
    assert isinstance(result, Result)
    return subject_of(result)


def _runs(asked: Sequence[_Asked], jobs: int | None) -> Iterator[tuple[Subject | ServedSubject, str]]:
    with phase("simulate"):
        yield from in_order(_run, asked, jobs=jobs)


def _named_apart(runs: Sequence[tuple[_S, str]]) -> list[_S]:
    """Return runs with the digits of their hash where two have the same name."""
    names = [subject.label for subject, _ in runs]
    return [subject if names.count(subject.label) == 1 else replace(subject, label=f"{subject.label} {digits}") for subject, digits in runs]


def _loaded(first: ServingResult, jobs: int | None) -> list[Subject | ServedSubject]:
    """Return one serving scenario with its own load and others: of the rate of full batches, or multiples of its clients or speed."""
    requests = first.built.scenario.spec.requests
    if requests.rate is not None:
        full = first.metrics.full_load_output_tokens_per_s / float(first.run.requests.output_tokens.mean())
        own, load, others = requests.rate, "rate={:g} /s", [float(f"{share * full:.3g}") for share in SHARES]
    elif requests.concurrency is not None:
        own, load = requests.concurrency, "concurrency={}"
        others = [max(1, round(factor * own)) for factor in LOADS]
    elif requests.trace is not None:
        own, load = requests.speed or 1.0, "speed={:.6g}"
        others = [factor * own for factor in LOADS]
    else:
        raise ScenarioError(f"arrival: {requests.arrival} has no load to vary", hint="name several runs, or a scenario with a rate")
    values = sorted({own, *others})
    changed = [_Asked(first.built.scenario, (f"requests.{load.format(value)}",), first.seed) for value in values if value != own]
    found = [subject for subject, _ in _runs(changed, jobs)]
    found.insert(values.index(own), served_subject_of(first))
    return found


def _growing(first: MeasuredRun[Any], grows: str, jobs: int | None) -> list[Subject | ServedSubject]:
    """Return one scenario on clusters of several sizes, from its own size on, each twice the one before, with as many replicas as fit."""
    assert isinstance(first, Result)
    n_nodes, batch = first.built.cluster.n_nodes, first.built.plan.training.global_batch_size
    larger = list[_Asked]()
    for factor in (2**doubling for doubling in range(1, N_SIZES)):
        more = [f"cluster.nodes={n_nodes * factor}", "strategy.dp=auto"]
        more += [f"training.global_batch_size={batch * factor}"] if grows == "weak" else []
        larger.append(_Asked(first.built.scenario, tuple(more), first.seed))
    found, refused = [_subject(first)], ""
    try:
        for subject, _ in _runs(larger, jobs):
            found.append(subject)
    except (ScenarioError, InfeasibleError) as error:
        refused = reason_of(error) if isinstance(error, ScenarioError) else str(error)
    if len(found) < 2:
        raise ScenarioError(
            f"{first.built.name} does not run on twice the nodes: {refused}", hint="sweep cluster.nodes, or draw runs of sizes that fit"
        )
    return [replace(subject, label=count_text(subject.metrics.gpus, "GPU")) for subject in found]


def are_tables(sources: Sequence[str]) -> bool:
    """Return whether tables are named: files of their kind, or directories of sweeps."""
    return bool(sources) and all(Path(source).suffix.lower() in TABLES or (Path(source) / _SWEPT).is_file() for source in sources)


def read_points(name: str, sources: Sequence[str]) -> pandas.DataFrame:
    """Return the one table that is named, or that of a sweep's directory, for a picture or a page of some name."""
    import pandas

    if len(sources) == 1 and (Path(sources[0]) / _SWEPT).is_file():
        sources = [str(Path(sources[0]) / _SWEPT)]
    if len(sources) != 1 or not are_tables(sources):
        raise ScenarioError(
            f"'{name}' shows one table", hint=f"name the directory of a sweep, or a file that ends in {' or '.join(TABLES)}"
        )
    path = Path(sources[0])
    try:
        raw = BytesIO(read_bytes(path, _MOST_BYTES))
        return pandas.read_csv(raw) if path.suffix.lower() == ".csv" else pandas.read_parquet(raw)
    except ImportError as error:
        raise ScenarioError("a Parquet file needs another package", place=Place(file=sources[0]), hint="write the table as CSV") from error
    except (OSError, ValueError) as error:
        raise ScenarioError(f"is not a table: {error}", place=Place(file=sources[0]), hint="a header, and a row for each point") from error


def drawn_errors(validation: Validation) -> Axes:
    """Return the picture of the errors of published runs, a strip for each source; of whole steps where there are any.

    Raises
    ------
    ScenarioError
        When every run hides a setting, so that none has an error of its own.
    """
    import pandas

    from clustersim.report.plots.canvas import note
    from clustersim.report.plots.validation import COLUMNS, validation_errors

    runs = [(source.source_id, row) for source in validation.sources for row in source.rows if row.predicted_range_s is None]
    if not runs:
        raise ScenarioError("there is no error to draw: every run hides a setting", hint="name a source whose runs state all")
    whole = [(name, row) for name, row in runs if row.scored] or runs
    rows = [(name, row.id, row.measured_s, row.predicted_s) for name, row in whole]
    ax = validation_errors(pandas.DataFrame(rows, columns=list(COLUMNS)))
    n_hiding = sum(row.predicted_range_s is not None for source in validation.sources for row in source.rows)
    note(ax, f"{n_hiding:,} left out: a hidden setting" if n_hiding else "", below_px=28)
    return ax


MOST_RUNS: Final = 12
MOST_POINTS: Final = 2000
"""Rows of a table on a page."""


@collection_paused()
def report_page(sources: Sequence[str], overrides: Sequence[str] = (), *, seed: int = 0, zooms: bool | None = None) -> str:
    """Return a page as HTML: of one run, of several side by side, or of the points of a sweep.

    Parameters
    ----------
    sources
        Run directories, scenario files or shipped names; or one CSV or Parquet file with a row for each point.
    overrides
        ``key=value`` texts for scenarios.
    zooms
        Whether readers can zoom into the timeline; if None, where the extra ``html`` is installed.

    Raises
    ------
    ScenarioError
        When a source cannot be used.
    """
    if any(are_tables([source]) for source in sources):
        if len(sources) > 1:
            raise ScenarioError("a page shows one table, or runs", hint="name the table alone")
        return render(_points_page(sources[0], read_points("report", sources)))
    if len(sources) > MOST_RUNS:
        raise ScenarioError(f"a page does not show {len(sources)} runs", hint=f"name at most {MOST_RUNS}")
    results = [load_result(source, overrides, seed=seed) for source in sources]
    if len(results) == 1:
        if isinstance(results[0], ServingResult):
            return page_of(results[0])
        measured = measured_changes(sources[0], overrides, results[0])
        return page_of(results[0], zooms=has_plotly() if zooms is None else zooms, changes=(*measured.changes, *measured.remarks))
    return render(_comparison_page(sources, results))


def _comparison_page(sources: Sequence[str], results: Sequence[Result | ServingResult]) -> Page:
    from clustersim.report.plots.kinds import RUN_PLOTS, SERVED_PLOTS, drawings

    compared = side_by_side([run_of(result, source) for source, result in zip(sources, results, strict=True)])
    subjects = _named_apart([(subject_of(result), result.scenario_hash) for result in results if isinstance(result, Result)])
    served = [served_subject_of(result) for result in results if isinstance(result, ServingResult)]
    found = compared.verdicts
    together = drawings(RUN_PLOTS, subjects) if subjects else drawings(SERVED_PLOTS, served)
    images = draw_images(together, ("breakdown", "pareto", "throughput_latency"))
    sections = [PageSection(name="summary", heading="Summary", lines=tuple(found), images=tuple(images.values()))]
    for place, table in enumerate(compared.tables(short=False)):
        sections.append(PageSection(name=f"table-{place}", heading=table.heading, tables=(table,)))
    for place, subject in enumerate(subjects):
        pictures = draw_images(drawings(RUN_PLOTS, [subject]), ("pipeline", "memory"))
        sections.append(PageSection(name=f"run-{place}", heading=subject.label, images=tuple(pictures.values())))
    for place, each in enumerate(served):
        pictures = draw_images(drawings(SERVED_PLOTS, [each]), ("latency", "timeline"))
        sections.append(PageSection(name=f"served-{place}", heading=each.label, images=tuple(pictures.values())))
    return Page(title=f"{len(results)} runs side by side", finding=found[0] if found else "", sections=tuple(sections))


def _points_page(source: str, frame: pandas.DataFrame) -> Page:
    from clustersim.report.plots.canvas import style
    from clustersim.report.plots.heatmap import sweep_heatmap

    if frame.empty:
        raise ScenarioError("has no points", place=Place(file=source))
    images: tuple[Image, ...] = ()
    with style(), suppress(ScenarioError):  # one key alone, or no figures: the table has to do
        images = (image_of(sweep_heatmap(frame), svg=True),)
    n_points = count_text(len(frame), "point")
    rows = tuple(tuple(_cell(value) for value in row) for row in frame.head(MOST_POINTS).itertuples(index=False, name=None))
    left_out = f", the first {MOST_POINTS:,} of {len(frame):,}" if len(frame) > MOST_POINTS else ""
    columns = tuple(f"{'>' if frame[name].dtype.kind in 'fi' else ''}{name}" for name in frame.columns)
    table = TextTable(f"All points{left_out}", columns, rows)
    sections = (
        PageSection(name="summary", heading="Summary", paragraphs=(f"{n_points} of {Path(source).name}.",), images=images),
        PageSection(name="points", heading="Points", tables=(table,)),
    )
    finding = images[0].title if images else n_points
    return Page(title=f"Sweep {Path(source).stem}", finding=finding, sections=sections)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else ""
    return "" if value is None else str(value)


def asked_tornado(sources: Sequence[str], overrides: Sequence[str] = (), *, seed: int = 0, jobs: int | None = 1) -> Tornado:
    """Return the picture of a scenario, of a what-if, or of what ``what-if --json`` has written into a file that ends in ``.json``."""
    from clustersim.apps.study.sensitivity import HARDWARE, inputs_of
    from clustersim.apps.study.study_file import StudyRequest
    from clustersim.apps.study.what_if import WhatIfOptions, answered, asked_what_if

    if len(sources) != 1:
        raise ScenarioError("'tornado' shows one what-if", hint="name a scenario, a file with cases, or what 'what-if --json' has written")
    (source,) = sources
    if Path(source).suffix.lower() == ".json":
        return _written_tornado(source, overrides)
    question, options = asked_what_if(source, StudyRequest(changes=tuple(overrides), seed=seed))
    answer = answered(question, WhatIfOptions(inputs=options.inputs or inputs_of(question, (HARDWARE,)), jobs=jobs))
    if answer.sensitivity is None:
        raise InfeasibleError(answer.headline())
    return answer.tornado


def _written_tornado(source: str, overrides: Sequence[str]) -> Tornado:
    from clustersim.apps.study.what_if import not_varied

    if overrides:
        raise ScenarioError("is an answer, in which nothing can be set", place=Place(file=source), hint="name the scenario instead")
    file = read_document(Path(source))
    if file.data.get("sensitivity") is None:
        raise not_varied(file.place(("sensitivity",)))
    return validate_document(Tornado, file)

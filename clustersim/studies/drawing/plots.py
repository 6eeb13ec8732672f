"""A picture by its kind, from runs, from a table, from published sources or from a what-if."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clustersim.documents.check import choices_hint
from clustersim.errors import InfeasibleError, Place, ScenarioError
from clustersim.scenario.result import Result
from clustersim.scenario.subject import subject_of
from clustersim.studies.drawing.results import load_result

if TYPE_CHECKING:
    import pandas

    from clustersim.report.plots.canvas import Axes
    from clustersim.report.subject import Subject

TABLES: Final = (".csv", ".parquet")
FORMATS: Final = (".png", ".svg")
N_SIZES: Final = 4
"""Sizes of a cluster that one scenario is run on, each twice the one before."""


def draw_plot(kind: str, sources: Sequence[str], overrides: Sequence[str] = (), *, seed: int = 0) -> Axes:
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

    Raises
    ------
    ScenarioError
        When there is no such picture, or it cannot be made from these.
    """
    from clustersim.report.plots.canvas import style
    from clustersim.report.plots.kinds import ANSWER_PLOTS, KINDS, RUN_PLOTS, TABLE_PLOTS

    name = kind.replace("-", "_")
    if name not in KINDS:
        raise ScenarioError(f"there is no picture '{kind}'", hint=choices_hint(kind, KINDS))
    table = TABLE_PLOTS.get(name)
    with style():
        if table is not None and table.of_sources:
            return table.draw(_validation(sources), None)
        if table is not None and (name not in RUN_PLOTS or _are_tables(sources)):
            return table.draw(read_points(name, sources), None)
        if name in ANSWER_PLOTS:
            from clustersim.studies.what_if.picture import asked_tornado

            return ANSWER_PLOTS[name].draw(asked_tornado(sources, overrides, seed=seed), None)
        plot = RUN_PLOTS[name]
        if not sources:
            raise ScenarioError(
                f"'{name}' shows runs, and none is named", hint="name a run directory, a scenario file or a shipped example"
            )
        if len(sources) > plot.n_most:
            hint = "name one of them" if plot.n_most == 1 else f"name at most {plot.n_most}"
            raise ScenarioError(f"'{name}' does not show {len(sources)} runs at once", hint=hint)
        if plot.grows and len(sources) == 1:
            return plot.draw(_growing(sources[0], overrides, plot.grows, seed=seed), None)
        if len(sources) < plot.n_least:
            raise ScenarioError(f"'{name}' shows {plot.n_least} runs or more", hint="name more runs")
        return plot.draw(subjects_of([load_result(source, overrides, seed=seed) for source in sources]), None)


def subjects_of(results: Sequence[Result]) -> list[Subject]:
    """Return runs as pictures see them, with the digits of their hash where two have the same name."""
    names = [result.metrics.scenario for result in results]
    labels = [name if names.count(name) == 1 else f"{name} {result.scenario_hash}" for name, result in zip(names, results, strict=True)]
    return [subject_of(result, label) for result, label in zip(results, labels, strict=True)]


def _growing(source: str, overrides: Sequence[str], grows: str, *, seed: int) -> list[Subject]:
    """Return one scenario on clusters of several sizes, from its own size on, each twice the one before, with as many replicas as fit."""
    first = load_result(source, overrides, seed=seed)
    n_nodes, batch = first.built.cluster.n_nodes, first.built.plan.training.global_batch_size
    found, refused = [first], ""
    for doubling in range(1, N_SIZES):
        factor = 2**doubling
        more = [*overrides, f"cluster.nodes={n_nodes * factor}", "strategy.dp=auto"]
        more += [f"training.global_batch_size={batch * factor}"] if grows == "weak" else []
        try:
            found.append(load_result(source, more, seed=seed))
        except (ScenarioError, InfeasibleError) as error:
            refused = str(error)
            break
    if len(found) < 2:
        raise ScenarioError(f"{source} does not run on twice the nodes: {refused}", hint="name several runs of several sizes")
    return [subject_of(result, f"{result.metrics.gpus} GPUs") for result in found]


def _are_tables(sources: Sequence[str]) -> bool:
    return bool(sources) and all(Path(source).suffix.lower() in TABLES for source in sources)


def read_points(name: str, sources: Sequence[str]) -> pandas.DataFrame:
    """Return the one table that is named, for a picture or a page of some name."""
    import pandas

    if len(sources) != 1 or not _are_tables(sources):
        raise ScenarioError(
            f"'{name}' shows one table", hint=f"name a file that ends in {' or '.join(TABLES)}, such as the result of a sweep"
        )
    path = Path(sources[0])
    try:
        if path.suffix.lower() == ".csv":
            return pandas.read_csv(path)
        return pandas.read_parquet(path)
    except FileNotFoundError as error:
        raise ScenarioError("there is no such file", place=Place(file=sources[0])) from error
    except ImportError as error:
        raise ScenarioError("a Parquet file needs another package", place=Place(file=sources[0]), hint="write the table as CSV") from error
    except (OSError, ValueError) as error:
        raise ScenarioError(f"is not a table: {error}", place=Place(file=sources[0]), hint="a header, and a row for each point") from error


def _validation(sources: Sequence[str]) -> pandas.DataFrame:
    """Return measured and predicted step times of published runs."""
    import pandas

    from clustersim.report.plots.validation import COLUMNS
    from clustersim.studies.published import validate

    validation = validate(sources)
    rows = [(source.source_id, row.id, row.measured_s, row.predicted_s) for source in validation.sources for row in source.rows]
    return pandas.DataFrame(rows, columns=list(COLUMNS))

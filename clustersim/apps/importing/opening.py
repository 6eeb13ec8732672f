"""Scenarios of commands that also take files of training frameworks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from clustersim.apps.importing.entries import ImportOptions, LoggedSteps
from clustersim.apps.importing.import_report import summary
from clustersim.apps.importing.importing import Imported, checked_job, foreign_source, import_files
from clustersim.apps.importing.reading import read_contents, read_raw
from clustersim.config.load import Scenario, ScenarioText, load_scenario, read_source
from clustersim.config.overriding import Override, parse_override
from clustersim.config.serving_scenario import ServingScenario
from clustersim.documents.text import parse_document
from clustersim.errors import Place, ScenarioError
from clustersim.progress import told


def open_scenario(source: str, overrides: Sequence[str] = (), machine: tuple[str, int | None] | None = None) -> Scenario:
    """Return a checked scenario, imported where the file is one of a training framework.

    Parameters
    ----------
    source
        As for ``load_scenario``, or such a file.
    overrides
        ``key=value`` texts.
    machine
        Shipped node or cluster, and number of nodes, of a foreign file that is to be run there.

    Raises
    ------
    ScenarioError
        With the first mistake, or with all that the file leaves open.
    """
    if not foreign_source(source):
        return load_scenario(source, overrides)
    scenario = _imported(source, overrides, machine)
    if isinstance(scenario, ServingScenario):
        raise ScenarioError("is a serving deployment, not a training job", place=Place(file=source), hint=f"try: clustersim run {source}")
    return scenario


def open_job(source: str, overrides: Sequence[str] = ()) -> Scenario | ServingScenario:
    """Return a checked scenario of training or of serving, as ``open_scenario`` does."""
    if foreign_source(source):
        return _imported(source, overrides)
    return checked_job(read_source(source), [parse_override(text) for text in overrides])


def open_written(source: str | Path | Mapping[str, object], overrides: Sequence[str] = ()) -> tuple[ScenarioText, tuple[Override, ...]]:
    """Return a scenario as it was written, and the changes to it; an imported one has them in it."""
    if not isinstance(source, str | Path) or not foreign_source(str(source)):
        return read_source(source), tuple(parse_override(text) for text in overrides)
    scenario = _imported(str(source), overrides)
    return ScenarioText(document=parse_document(scenario.text, str(source)), text=scenario.text, folder=scenario.folder), ()


def open_measured(source: str, overrides: Sequence[str] = (), lent: Sequence[str] = ()) -> tuple[Scenario, LoggedSteps, bool] | None:
    """Return the scenario and the measurements of a log, and whether its cluster is a lent one; None for any other source."""
    if not Path(source).exists() or not foreign_source(source):
        return None
    imported = _reported(source, ImportOptions(overrides=tuple(overrides), lent=tuple(lent), by_option=False))
    if imported.measured is None or not isinstance(imported.scenario, Scenario):
        return None
    return imported.scenario, imported.measured, imported.lent


def open_steps(source: str) -> LoggedSteps | None:
    """Return the measurements of a log that holds nothing else; None for any other source."""
    if not Path(source).is_file() or not foreign_source(source):
        return None
    contents = read_contents(read_raw(source), source)
    return contents.measured if contents.only_measured else None


def _imported(source: str, overrides: Sequence[str], machine: tuple[str, int | None] | None = None) -> Scenario | ServingScenario:
    cluster, nodes = machine or (None, None)
    return _job(_reported(source, ImportOptions(cluster=cluster, nodes=nodes, overrides=tuple(overrides), by_option=False)))


def imported_job(source: str, overrides: Sequence[str]) -> Scenario | ServingScenario:
    """Return the checked scenario of a framework's file, without a report."""
    return _job(import_files([source], ImportOptions(overrides=tuple(overrides), by_option=False)))


def _job(imported: Imported) -> Scenario | ServingScenario:
    assert imported.scenario is not None  # a description of a machine is no source of a job
    return imported.scenario


def _reported(source: str, asked: ImportOptions) -> Imported:
    """Return an import, and pass a short report of it to observers."""
    imported = import_files([source], asked)
    for line in summary(imported):
        told(line)
    return imported

"""Scenarios of commands that also take files of training frameworks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clustersim.scenario.load import Scenario, checked_scenario, load_scenario, read_source
from clustersim.scenario.overriding import parse_override
from clustersim.scenario.serving.load import ServingScenario, checked_serving, is_serving
from clustersim.studies.importing.asked import Asked
from clustersim.studies.importing.importing import foreign_source, import_files
from clustersim.studies.importing.report import summary


def open_scenario(source: str, overrides: Sequence[str] = (), *, tell: Callable[[str], None] | None = None) -> Scenario:
    """Return a checked scenario, imported where the file is one of a training framework.

    Parameters
    ----------
    source
        As for ``load_scenario``, or such a file.
    overrides
        ``key=value`` texts.
    tell
        Takes a short report of an import, line by line.

    Raises
    ------
    ScenarioError
        With the first mistake, or with all that the file leaves open.
    """
    if not foreign_source(source):
        return load_scenario(source, overrides)
    return _imported(source, overrides, tell)


def open_job(source: str, overrides: Sequence[str] = (), *, tell: Callable[[str], None] | None = None) -> Scenario | ServingScenario:
    """Return a checked scenario of training or of serving; parameters and errors as for ``open_scenario``."""
    if foreign_source(source):
        return _imported(source, overrides, tell)
    written, changes = read_source(source), [parse_override(text) for text in overrides]
    return checked_serving(written, changes) if is_serving(written) else checked_scenario(written, changes)


def _imported(source: str, overrides: Sequence[str], tell: Callable[[str], None] | None) -> Scenario:
    imported = import_files([source], Asked(overrides=tuple(overrides), by_option=False))
    if tell is not None:
        for line in summary(imported):
            tell(line)
    return imported.scenario

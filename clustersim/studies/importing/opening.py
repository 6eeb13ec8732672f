"""Scenarios of commands that also take files of training frameworks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clustersim.scenario.load import Scenario, load_scenario
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
    imported = import_files([source], Asked(overrides=tuple(overrides), by_option=False))
    if tell is not None:
        for line in summary(imported):
            tell(line)
    return imported.scenario

"""The tornado of a what-if: asked anew, or read from what was written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clustersim.apps.study.sensitivity import HARDWARE, inputs_of
from clustersim.apps.study.study_file import StudyRequest
from clustersim.apps.study.what_if import WhatIfOptions, answered, asked_what_if, not_varied
from clustersim.documents.check import validate_document
from clustersim.documents.text import read_document
from clustersim.errors import InfeasibleError, Place, ScenarioError
from clustersim.report.pictures import Tornado


def asked_tornado(sources: Sequence[str], overrides: Sequence[str] = (), *, seed: int = 0, jobs: int | None = 1) -> Tornado:
    """Return the picture of a what-if that is named.

    Parameters
    ----------
    sources
        One name: of what ``what-if --json`` has written, which ends in ``.json``; or of a what-if or a scenario, whose figures are
        varied one at a time, those of the hardware where it names none.
    overrides
        ``key=value`` texts for a scenario.
    seed
        Of everything random in a scenario.
    jobs
        Processes, None for one for each processor.

    Raises
    ------
    ScenarioError
        When it cannot be read, or nothing was varied in it.
    InfeasibleError
        When no case can be chosen.
    """
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
    if overrides:
        raise ScenarioError("is an answer, in which nothing can be set", place=Place(file=source), hint="name the scenario instead")
    file = read_document(Path(source))
    if file.data.get("sensitivity") is None:
        raise not_varied(file.place(("sensitivity",)))
    return validate_document(Tornado, file)

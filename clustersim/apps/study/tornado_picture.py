"""The tornado of a what-if: asked anew, or read from what was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict

from clustersim.apps.study.sensitivity import HARDWARE, inputs_of
from clustersim.apps.study.study_file import StudyRequest
from clustersim.apps.study.what_if import WhatIfOptions, answered, asked_what_if
from clustersim.documents.check import validate_document
from clustersim.documents.text import read_document
from clustersim.errors import InfeasibleError, Place, ScenarioError
from clustersim.measure.deciding import standing_text
from clustersim.report.facts import figure_text

if TYPE_CHECKING:
    from clustersim.report.plots.tornado import Tornado, TornadoBar


class _PicturePart(BaseModel):
    """Leaves what it does not know to others."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore", frozen=True)


class VariedDocument(_PicturePart):
    """One figure, as ``what-if --json`` has it."""

    input: str
    low: str
    high: str
    values_at_low: dict[str, float | None]
    values_at_high: dict[str, float | None]
    best_at_low: str | None
    best_at_high: str | None


class SensitivityDocument(_PicturePart):
    """All figures."""

    case: str
    value: float
    inputs: list[VariedDocument]


class WhatIfDocument(_PicturePart):
    """Part of ``what-if --json`` that a picture needs."""

    scenario: str
    metric: str
    best: str | None = None
    undecided: list[str] = []
    sensitivity: SensitivityDocument | None


def tornado_of(document: Mapping[str, object]) -> Tornado:
    """Return the picture of what each figure does to the number of the best case, from the document of ``what-if --json``."""
    return _tornado(WhatIfDocument.model_validate(document), None)


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
    return tornado_of(answer.to_dict())


def _written_tornado(source: str, overrides: Sequence[str]) -> Tornado:
    place = Place(file=source)
    if overrides:
        raise ScenarioError("is an answer, in which nothing can be set", place=place, hint="name the scenario instead")
    document = validate_document(WhatIfDocument, read_document(Path(source)))
    return _tornado(document, place)


def _tornado(document: WhatIfDocument, place: Place | None) -> Tornado:
    from clustersim.report.plots.tornado import Tornado

    metric, found = figure_text(document.metric), document.sensitivity
    if found is None:
        hint = "ask again with --sensitivity hardware, without --method"
        raise ScenarioError("no figure was varied one at a time", field="sensitivity", place=place, hint=hint)
    bars = [(each, _swing(each, found.case)) for each in found.inputs]
    largest = next(((each, swing) for each, swing in bars if swing is not None), None)
    of = f" of {found.case}" if len(found.inputs[0].values_at_low if found.inputs else ()) > 1 else ""
    finding = f"{metric}{of} does not depend on any of these figures"
    if largest is not None and largest[1]:
        share = 100 * largest[1] / abs(found.value)
        finding = f"{metric}{of} depends most on {largest[0].input}: {share:.1f} % from end to end"
    deciding = [each for each in found.inputs if {each.best_at_low, each.best_at_high} != {found.case}]
    turns = f"; the choice turns on {deciding[0].input}" if deciding else ""
    return Tornado(
        finding=finding,
        subtitle=f"{document.scenario}: one figure varied at a time; blue: low, orange: high; the line: as it is{turns}",
        axis=metric,
        base=found.value,
        bars=[_bar(each, found.case) for each in found.inputs],
        note=standing_text(document.best, document.undecided) if document.best and document.undecided else "",
    )


def _swing(varied: VariedDocument, case: str) -> float | None:
    """Return how far the number of a case moves; None where an end has none."""
    low, high = varied.values_at_low.get(case), varied.values_at_high.get(case)
    return None if low is None or high is None else abs(high - low)


def _bar(varied: VariedDocument, case: str) -> TornadoBar:
    from clustersim.report.plots.tornado import TornadoBar

    changes = [best or "no case" for best in (varied.best_at_low, varied.best_at_high) if best != case]
    return TornadoBar(
        name=varied.input,
        low_text=varied.low,
        high_text=varied.high,
        low=varied.values_at_low.get(case),
        high=varied.values_at_high.get(case),
        note=f"{' or '.join(dict.fromkeys(changes))} becomes best" if changes else "",
    )

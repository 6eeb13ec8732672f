"""A what-if as it is asked for: on the command line, from Python, or in a YAML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue

from clustersim.apps.sweep.axis import parse_span
from clustersim.apps.sweep.calling import texts_of
from clustersim.apps.sweep.point import Base
from clustersim.apps.sweep.study_file import scenario_of_study, study_document
from clustersim.apps.what_if.answer import Probe, WhatIfAnswer, answered
from clustersim.apps.what_if.break_even import check_span
from clustersim.apps.what_if.cases import BASE, METRIC, Case, Matter, matter_of, parse_case
from clustersim.apps.what_if.sampled import Method, check_method
from clustersim.apps.what_if.sensitivity import inputs_of
from clustersim.config.load import read_source
from clustersim.config.overriding import parse_override
from clustersim.documents.check import validate_document
from clustersim.documents.text import Document
from clustersim.errors import Place, ScenarioError
from clustersim.hardware.profile_schema import Checked

KEYS: Final = ("cases",)
"""Keys that make a file a what-if, and no scenario."""
ONE_AT_A_TIME: Final = "one"


class WhatIfSpec(Checked):
    """A scenario, cases, and what is asked about them."""

    version: Literal[1] = 1
    description: str | None = None
    scenario: str | dict[str, JsonValue]
    cases: dict[str, Annotated[dict[str, JsonValue], Field(min_length=1)]]
    where: list[str] = Field(default=[])
    metric: str = METRIC
    break_even: str | None = None
    sensitivity: list[str] = Field(default=[])


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfRequest:
    """Arguments of the command line, or of a call."""

    cases: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    metric: str | None = None
    break_even: str | None = None
    sensitivity: tuple[str, ...] = ()
    method: str = ONE_AT_A_TIME
    samples: int | None = None
    jobs: int | None = 1
    seed: int = 0


def asked_matter(source: str | Path | Mapping[str, object], asked: WhatIfRequest) -> tuple[Matter, Probe]:
    """Return what is to be decided, and what else is asked, from a file and the command line together.

    Raises
    ------
    ScenarioError
        With the first mistake, its place and what would be right.
    """
    method: Method | None = None if asked.method == ONE_AT_A_TIME else check_method(asked.method)
    document = study_document(source, KEYS)
    spec = None if document is None else validate_document(WhatIfSpec, document)
    scenario = read_source(source) if spec is None or document is None else scenario_of_study(spec.scenario, document)
    base = Base(source=scenario, changes=tuple(parse_override(text) for text in asked.changes), seed=asked.seed)
    written: Sequence[Case] = [] if spec is None or document is None else _cases(spec, document)
    matter = matter_of(
        base,
        [*written, *(parse_case(text) for text in asked.cases)],
        metric=asked.metric or (METRIC if spec is None else spec.metric),
        where=(*(() if spec is None else spec.where), *asked.where),
    )
    return matter, _probe(matter, spec, asked, method)


def _cases(spec: WhatIfSpec, document: Document) -> Sequence[Case]:
    if BASE in spec.cases:
        place = document.place(("cases", BASE), key=True)
        raise ScenarioError("the scenario itself is the base", field=f"cases.{BASE}", hint="choose another name", place=place)
    data = document.data["cases"]
    assert isinstance(data, dict)
    return [Case(name=name, changes=changes) for name, changes in data.items() if isinstance(changes, dict)]


def _probe(matter: Matter, spec: WhatIfSpec | None, asked: WhatIfRequest, method: Method | None) -> Probe:
    even = asked.break_even or (None if spec is None else spec.break_even)
    span = None if even is None else parse_span(even, "--break-even")
    if span is not None:
        if len(matter.cases) < 2:
            raise ScenarioError("the base alone breaks even with nothing", field="--break-even", hint="add a --case")
        check_span(matter, span, "--break-even")
        for case in matter.cases:
            if span.key in case.changes:
                place = Place(file=f"--break-even {even}")
                raise ScenarioError(f"case {case.name} sets '{span.key}' itself", hint="vary another key", place=place)
    texts = asked.sensitivity or (() if spec is None else tuple(spec.sensitivity))
    if method is not None and not texts:
        texts = ("hardware",)
    return Probe(span=span, inputs=inputs_of(matter, texts), method=method, samples=asked.samples, jobs=asked.jobs)


def what_if(
    source: str | Path | Mapping[str, object],
    cases: str | Sequence[str] = (),
    *,
    set: str | Sequence[str] = (),  # noqa: A002 - named like --set
    where: str | Sequence[str] = (),
    break_even: str | None = None,
    sensitivity: str | Sequence[str] = (),
) -> WhatIfAnswer:
    """Say which of some changes to a scenario is best, where that changes, and what it depends on.

    Parameters
    ----------
    source
        A scenario as for :func:`clustersim.run`, or a file with cases.
    cases
        As on the command line: ``"wide:strategy.tp=8,strategy.pp=2"``.
    set
        Changes that hold for the base and all cases.
    where
        Conditions that a case must meet, such as ``"memory_fraction <= 0.9"``.
    break_even
        A key between two values, such as ``"cluster.nics.bandwidth=10..100 GB/s"``.
    sensitivity
        Figures to vary one at a time, likewise; ``"hardware"`` stands for those of the hardware.

    Returns
    -------
    Answer
        With ``headline()``, ``best``, ``numbers``, ``break_even``, ``sensitivity`` and ``to_dict()``.

    Raises
    ------
    ScenarioError
        When something of it cannot be used; says what, where, and what would be right.

    Examples
    --------
    >>> what_if("llama3-8b-8xh100", ["wide:strategy.tp=8"]).best
    'base'
    """
    asked = WhatIfRequest(
        cases=texts_of(cases), changes=texts_of(set), where=texts_of(where), break_even=break_even, sensitivity=texts_of(sensitivity)
    )
    return answered(*asked_matter(source, asked))

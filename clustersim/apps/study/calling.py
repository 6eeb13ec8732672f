"""``clustersim.sweep`` and ``clustersim.what_if``: studies from Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from pathlib import Path, PurePath
from typing import Final, Protocol, TypeGuard, runtime_checkable

from clustersim.apps.study.axis import Axis, Values, axis_from_data, axis_of
from clustersim.apps.study.design import MOST_POINTS
from clustersim.apps.study.point import Point
from clustersim.apps.study.pools import LOCAL, make_pool
from clustersim.apps.study.results import ALL
from clustersim.apps.study.study_file import StudyRequest
from clustersim.apps.study.sweep import SweepResult, run_sweep
from clustersim.apps.study.sweep_question import asked_sweep
from clustersim.apps.study.what_if import WhatIfAnswer, answered, asked_what_if
from clustersim.apps.study.what_if_cases import case_of
from clustersim.config.load import read_source
from clustersim.config.overriding import from_here, override_texts
from clustersim.documents.text import Data, is_mapping
from clustersim.errors import Place, ScenarioError


def sweep(
    source: str | Path | Mapping[str, object],
    over: str | Sequence[str] | Mapping[str, object] = (),
    *,
    set: str | Sequence[str] | Mapping[str, object] = (),  # noqa: A002 - named like --set
    where: str | Sequence[str] = (),
    workers: int = 1,
    out: str | Path | None = None,
) -> SweepResult:
    """Run a scenario for all combinations of some values.

    Parameters
    ----------
    source
        A scenario as for :func:`clustersim.run`, or a study: a path, or the name of a shipped one.
    over
        What is varied: values by key, such as ``{"strategy.tp": [2, 4, 8]}``, ``{"strategy.pp": range(1, 5)}`` or
        ``{"cluster.nics.bandwidth": "100..400 Gbit/s step 100"}``; or texts as on the command line: ``"strategy.tp=1..8 times 2"``.
    set
        Changes such as ``"training.micro_batch_size=2"``, the same at all points.
    where
        Conditions that an answer must meet, such as ``"memory_fraction <= 0.9"``.
    workers
        Processes. With more than one, a script must have ``if __name__ == "__main__":`` around what it does.
    out
        Folder in which everything is kept, so that the same call goes on where it was stopped; nothing is kept when left out.

    Returns
    -------
    SweepResult
        With ``best``, ``answers``, ``rows`` and ``to_frame()``.

    Raises
    ------
    ScenarioError
        When something of it cannot be used; says what, where, and what would be right.

    Examples
    --------
    >>> found = sweep("llama3-8b-8xh100", {"strategy.tp": [1, 2, 4, 8]})
    >>> found.best.point.values
    {'strategy.tp': 1}
    """
    asked = StudyRequest(over=axes_of(over), changes=override_texts(set), where=texts_of(where), metrics=(ALL,))
    question = asked_sweep(source, asked)
    folder = None if out is None else Path(out)
    return run_sweep(question, lambda n_points: make_pool(LOCAL, workers, n_points), folder=folder)


def what_if(
    source: str | Path | Mapping[str, object],
    cases: str | Sequence[str] | Mapping[str, Mapping[str, object]] = (),
    *,
    set: str | Sequence[str] | Mapping[str, object] = (),  # noqa: A002 - named like --set
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
        Settings by name, such as ``{"wide": {"strategy.tp": 8}}``; or as on the command line: ``"wide:strategy.tp=8,strategy.pp=2"``.
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
    WhatIfAnswer
        With ``headline()``, ``best``, ``numbers``, ``break_even``, ``sensitivity`` and ``to_dict()``.

    Raises
    ------
    ScenarioError
        When something of it cannot be used; says what, where, and what would be right.

    Examples
    --------
    >>> what_if("llama3-8b-8xh100", {"wide": {"strategy.tp": 8}}).best
    'base'
    """
    asked = StudyRequest(
        cases=cases_of(cases), changes=override_texts(set), where=texts_of(where), break_even=break_even, sensitivity=texts_of(sensitivity)
    )
    return answered(*asked_what_if(source, asked))


_PLACE: Final = Place(file="over")


@runtime_checkable
class _Array(Protocol):
    """An array or a number of numpy, a column of pandas."""

    def tolist(self) -> object: ...


def texts_of(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return a list of texts; a single one becomes a list."""
    return (given,) if isinstance(given, str) else tuple(given)


def axes_of(over: str | Sequence[str] | Mapping[str, object]) -> tuple[str | Axis, ...]:
    """Return the axes: values by key, or texts as on the command line.

    Examples
    --------
    >>> [axis.values() for axis in axes_of({"strategy.tp": range(1, 4), "strategy.pp": "1..8 times 2"})]
    [[1, 2, 3], [1, 2, 4, 8]]
    """
    if isinstance(over, Mapping):
        return tuple(_axis(key, values) for key, values in over.items())
    return texts_of(over)


def _axis(key: str, values: object) -> Axis:
    if isinstance(values, range) and values:
        return axis_of(key, [Values(first=values.start, count=len(values), by=Decimal(values.step))], _PLACE)
    return axis_from_data(key, _data(key, values, _PLACE), _PLACE)


def cases_of(cases: str | Sequence[str] | Mapping[str, Mapping[str, object]]) -> tuple[str | Point, ...]:
    """Return the cases: settings by name, or texts as on the command line; files count from the current directory in both.

    Examples
    --------
    >>> [case.values for case in cases_of({"tp: 8": {"strategy.tp": 8}, "as it is": {}})]
    [{'strategy.tp': 8}, {}]
    """
    if not isinstance(cases, Mapping):
        return texts_of(cases)
    found: list[Point] = []
    for name, case in cases.items():
        place = Place(file=f"case {name}")
        found.append(case_of(name, {key: from_here(_data(key, value, place), key) for key, value in case.items()}, place))
    return tuple(found)


def _data(key: str, value: object, place: Place) -> Data:
    try:
        # Read like a scenario, which refuses what is no data.
        return read_source({key: _plain(value)}).document.data[key]
    except ScenarioError as error:
        raise error.at(place) from error


def _plain(value: object) -> object:
    """Return a value with arrays, paths, decimals and other iterables as lists, texts and numbers."""
    if isinstance(value, _Array):
        return value.tolist()
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Decimal):
        return int(value) if value.is_finite() and value == int(value) else float(value)
    if is_mapping(value):
        return {key: _plain(below) for key, below in value.items()}
    if _is_iterable(value) and not isinstance(value, str | bytes | set | frozenset):
        # As many as can be too many: an iterator need not end.
        return [_plain(each) for each in islice(value, MOST_POINTS + 1)]
    return value


def _is_iterable(value: object) -> TypeGuard[Iterable[object]]:
    return isinstance(value, Iterable)

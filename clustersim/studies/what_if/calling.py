"""``clustersim.what_if``: cases against a base, from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from clustersim.studies.sweeps.python_values import texts_of
from clustersim.studies.what_if.answer import Answer, answered
from clustersim.studies.what_if.question_file import Asked, asked_matter


def what_if(
    source: str | Path | Mapping[str, object],
    cases: str | Sequence[str] = (),
    *,
    set: str | Sequence[str] = (),  # noqa: A002 - named like --set
    where: str | Sequence[str] = (),
    break_even: str | None = None,
    sensitivity: str | Sequence[str] = (),
) -> Answer:
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
    asked = Asked(
        cases=texts_of(cases), changes=texts_of(set), where=texts_of(where), break_even=break_even, sensitivity=texts_of(sensitivity)
    )
    return answered(*asked_matter(source, asked))

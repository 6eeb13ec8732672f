"""``clustersim.sweep``: a sweep from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from clustersim.studies.sweeps.executors import LOCAL, make_pool
from clustersim.studies.sweeps.python_values import axes_of, texts_of
from clustersim.studies.sweeps.results import ALL
from clustersim.studies.sweeps.study_file import Asked, asked_question
from clustersim.studies.sweeps.sweep import SweepResult, run_sweep


def sweep(
    source: str | Path | Mapping[str, object],
    over: str | Sequence[str] | Mapping[str, object] = (),
    *,
    set: str | Sequence[str] = (),  # noqa: A002 - named like --set
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
    asked = Asked(over=axes_of(over), changes=texts_of(set), where=texts_of(where), metrics=(ALL,))
    question = asked_question(source, asked)
    folder = None if out is None else Path(out)
    return run_sweep(question, lambda n_points: make_pool(LOCAL, workers, n_points), folder=folder)

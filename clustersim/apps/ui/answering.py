"""From what controls hold to a result, or to one mistake and the control that it is shown at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clustersim.apps.ui.contained import check_contained, check_limits
from clustersim.apps.ui.controls import changed, control_of
from clustersim.apps.ui.workers import LimitError
from clustersim.config.load import load_scenario
from clustersim.documents.text import Data
from clustersim.errors import DeadlockError, InfeasibleError, ScenarioError

if TYPE_CHECKING:
    from clustersim.apps.run.result import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """Description of a mistake, in words."""

    text: str
    key: str | None
    """Key of the control that it is shown at; None for the whole page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A scenario that runs, and its result."""

    document: Mapping[str, Data]
    result: Result


def answer(document: Mapping[str, Data], values: Sequence[str | None]) -> Answered | Mistake:
    """Return the result of a scenario with what controls hold.

    Raises
    ------
    LimitError
        When it is too large for the page.
    """
    try:
        data = changed(document, values)
        return Answered(document=data, result=result_of(data))
    except LimitError:
        raise
    except (ScenarioError, InfeasibleError, DeadlockError) as error:
        return mistake(error)


def mistake(error: ScenarioError | InfeasibleError | DeadlockError) -> Mistake:
    """Return an error as the page shows it."""
    if not isinstance(error, ScenarioError):
        return Mistake(text=str(error), key=None)
    control = control_of(error.field)
    said = f"{error.message}; {error.hint}" if error.hint else error.message
    return Mistake(text=said if control or not error.field else f"{error.field}: {said}", key=control.key if control else None)


def result_of(document: Mapping[str, Data]) -> Result:
    """Return the result of a scenario that reads no file."""
    from clustersim.apps.run.running import run_built
    from clustersim.config.build import build

    check_contained(document)
    scenario = load_scenario(document)
    check_limits(scenario)
    return run_built(build(scenario))

"""Pictures of one result, by name: ``result.plot.breakdown()``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from clustersim.apps.run.pictured_run import subject_of
from clustersim.documents.check import choices_hint

if TYPE_CHECKING:
    from clustersim.apps.run.result import Result
    from clustersim.report.plots.canvas import Axes


class Plots:
    """Every picture that is made from one run: a method each, with the axes to draw on, or none for a figure of its own.

    Examples
    --------
    >>> import clustersim
    >>> result = clustersim.run("llama3-8b-8xh100")
    >>> result.plot.breakdown().get_xlabel()
    'mean over ranks, s'
    """

    def __init__(self, result: Result) -> None:
        """Take the result; nothing is drawn yet."""
        self._result = result

    def __dir__(self) -> list[str]:
        """Return the names of the pictures."""
        return _names()

    def __getattr__(self, name: str) -> Callable[..., Axes]:
        """Return what draws a picture.

        Raises
        ------
        AttributeError
            When there is no such picture of one run.
        """
        if name.startswith("_") or name not in _names():
            raise AttributeError(f"there is no picture '{name}' of one run; {choices_hint(name, _names())}")

        def draw(ax: Axes | None = None) -> Axes:
            from clustersim.report.plots.canvas import style
            from clustersim.report.plots.kinds import RUN_PLOTS

            with style():
                return RUN_PLOTS[name].draw([subject_of(self._result)], ax)

        return draw


def _names() -> list[str]:
    from clustersim.report.plots.kinds import RUN_PLOTS

    return [name for name, plot in RUN_PLOTS.items() if plot.n_least == 1]

"""Pictures of a result as methods, such as ``result.plot.breakdown()``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from matplotlib.axes import Axes

from clustersim.documents.near_names import choices_hint
from clustersim.report.plots.canvas import style

T = TypeVar("T")


class Plots(Generic[T]):
    """All pictures of one result: a method each, which draws on given axes or on a figure of its own, and returns the axes.

    Examples
    --------
    >>> import clustersim
    >>> result = clustersim.run("llama3-8b-8xh100")
    >>> result.plot.breakdown().get_xlabel()
    'mean over ranks, s'
    """

    def __init__(self, pictures: Mapping[str, Callable[..., Axes]], drawn: Callable[[], T]) -> None:
        """Take what draws each picture, and what gives the thing to draw; nothing is drawn yet."""
        self._pictures, self._drawn = pictures, drawn

    def __dir__(self) -> list[str]:
        """Return the names of the pictures."""
        return list(self._pictures)

    def __getattr__(self, name: str) -> Callable[..., Axes]:
        """Return what draws a picture.

        Raises
        ------
        AttributeError
            When there is no such picture.
        """
        if name.startswith("_") or name not in self._pictures:
            raise AttributeError(f"there is no picture '{name}'; {choices_hint(name, list(self._pictures))}")

        def draw(ax: Axes | None = None, **options: str) -> Axes:
            with style():
                return self._pictures[name](self._drawn(), ax, **options)

        return draw

"""Which part of the model is on which stage: around in a loop, down and up in a V, or once in each direction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

Stop = tuple[int, int]
"""Stage, and chunk of that stage."""


@dataclass(frozen=True, slots=True)
class Places:
    """The ways of micro-batches through the model.

    The layers are divided into as many parts as a way has stops. Every chunk of every stage is a stop of one way. Several ways are copies
    of the model, each for some of the micro-batches.
    """

    routes: tuple[tuple[Stop, ...], ...]

    @property
    def n_parts(self) -> int:
        """Parts that the layers are divided into."""
        return len(self.routes[0])

    @property
    def n_copies(self) -> int:
        """Number of copies of the model."""
        return len(self.routes)

    @property
    def n_stages(self) -> int:
        """Pipeline stages."""
        return 1 + max(stage for route in self.routes for stage, _ in route)

    def stops(self, stage: int) -> Iterator[tuple[int, int, int]]:
        """Yield chunk, part of the model and route number for each chunk of a stage, by their number."""
        found = [(chunk, part, way) for way, route in enumerate(self.routes) for part, (at, chunk) in enumerate(route) if at == stage]
        yield from sorted(found)

    def neighbours(self) -> dict[Stop, tuple[Stop | None, Stop | None]]:
        """Return for each stop of a route the previous and the next one."""
        return {
            stop: (route[at - 1] if at else None, route[at + 1] if at + 1 < len(route) else None)
            for route in self.routes
            for at, stop in enumerate(route)
        }

    def micro_batches(self, way: int, n_micro_batches: int) -> range:
        """Return the micro-batches of a route: equal parts, in order."""
        return range(n_micro_batches * way // self.n_copies, n_micro_batches * (way + 1) // self.n_copies)


Layout = Callable[[int, int], Places]
"""(stages, chunks per stage) -> places."""


def looped(n_stages: int, n_chunks: int) -> Places:
    """Return places around the stages, as often as each has chunks; with one chunk, one after the other.

    Examples
    --------
    >>> looped(2, 2).routes
    (((0, 0), (1, 0), (0, 1), (1, 1)),)
    """
    return Places((tuple((stage, chunk) for chunk in range(n_chunks) for stage in range(n_stages)),))


def v_shaped(n_stages: int, n_chunks: int) -> Places:
    """Return places down the stages and up again, so that the first stage has both ends of the model.

    Examples
    --------
    >>> v_shaped(2, 2).routes
    (((0, 0), (1, 0), (1, 1), (0, 1)),)
    """
    down, up = range(n_stages), range(n_stages - 1, -1, -1)
    return Places((tuple((stage, chunk) for chunk in range(n_chunks) for stage in (up if chunk % 2 else down)),))


def bidirectional(n_stages: int, n_chunks: int) -> Places:
    """Return two copies of the model, one down the stages and one up; half of the micro-batches go through each.

    Examples
    --------
    >>> bidirectional(2, 1).routes
    (((0, 0), (1, 0)), ((1, 1), (0, 1)))
    """
    del n_chunks
    return Places((tuple((stage, 0) for stage in range(n_stages)), tuple((stage, 1) for stage in reversed(range(n_stages)))))

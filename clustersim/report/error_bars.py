"""The interval that a step time is expected in: kinds of runs, and what was measured of each beside its prediction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

RunKind = tuple[str, ...]
"""Family of models, reach, and whether the accelerator itself was measured; leading words only for a wider kind, none for all runs."""

DENSE: Final = "dense"
EXPERTS: Final = "experts"
CONVOLUTIONAL: Final = "convolutional"
SERVED: Final = "parameter servers"
ONE_NODE: Final = "one node"
MANY_NODES: Final = "many nodes"
MEASURED_ACCELERATOR: Final = "measured accelerator"
OTHER_ACCELERATOR: Final = "accelerator not measured"

WORDS: Final[tuple[tuple[str, ...], ...]] = (
    (DENSE, EXPERTS, CONVOLUTIONAL, SERVED),
    (ONE_NODE, MANY_NODES),
    (MEASURED_ACCELERATOR, OTHER_ACCELERATOR),
)
"""What each place of a kind may say."""

ALL_RUNS: Final = "all runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Where measured step times of one kind of runs lie, as shares of the predicted ones."""

    kind: RunKind
    least_fraction: float
    most_fraction: float

    def interval_s(self, predicted_s: float) -> tuple[float, float]:
        """Return the least and the most that a step is expected to take, in seconds."""
        return self.least_fraction * predicted_s, self.most_fraction * predicted_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """Bands of all kinds that enough sources have rows of."""

    level_fraction: float
    """Of runs, how many are expected in their intervals."""
    by_kind: Mapping[RunKind, Band]
    held_out: Mapping[tuple[str, RunKind], Band]
    """By the name of a source and a kind of its rows: what the other sources alone would say."""

    def band(self, kind: RunKind) -> Band:
        """Return the band of a kind, or of the narrowest wider one that has any."""
        return next(self.by_kind[each] for each in wider(kind) if each in self.by_kind)


def wider(kind: RunKind) -> Iterator[RunKind]:
    """Yield a kind, and then those that it is part of, up to all runs.

    Examples
    --------
    >>> list(wider(("dense", "one node")))
    [('dense', 'one node'), ('dense',), ()]
    """
    for n_words in range(len(kind), -1, -1):
        yield kind[:n_words]


def kind_text(kind: RunKind) -> str:
    """Return a kind in words.

    Examples
    --------
    >>> kind_text(("dense", "one node")), kind_text(())
    ('dense, one node', 'all runs')
    """
    return ", ".join(kind) or ALL_RUNS

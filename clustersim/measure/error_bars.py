"""The interval that a step time is expected in: kinds of runs, and what was measured of each beside its prediction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf, sqrt
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
"""Words allowed at each place of a kind."""

ALL_RUNS: Final = "all runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Range of measured step times of one kind of runs, as shares of the predicted ones."""

    kind: RunKind
    least_fraction: float
    most_fraction: float

    def interval_s(self, predicted_s: float) -> tuple[float, float]:
        """Return the least and the most that a step is expected to take, in seconds."""
        return self.least_fraction * predicted_s, self.most_fraction * predicted_s

    def wider(self, factor: float) -> Band:
        """Return a band that is so many times as wide, by logarithms, about the same middle."""
        middle = sqrt(self.least_fraction * self.most_fraction)
        half = sqrt(self.most_fraction / self.least_fraction) ** factor
        return replace(self, least_fraction=middle / half, most_fraction=middle * half)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBar:
    """Error bar of the step time of one run, alone and beside others."""

    machine: str
    """Eight hexadecimal digits of the hardware and its constants, whatever the number of nodes."""
    least_fraction: float
    """Least expected share of the predicted time."""
    most_fraction: float
    ratio_most_fraction: float
    """Largest expected error of the ratio of two times on the same machine, as a factor."""


BAR: Final = "error_bar."
BAR_COLUMNS: Final = tuple(f"{BAR}{field.name}" for field in fields(ErrorBar))
"""Columns of an error bar in a table of runs."""


FITS: Final = "fits"
TIGHT: Final = "tight"
DOES_NOT_FIT: Final = "does not fit"


def memory_verdict_of(peak_bytes: float, capacity_bytes: float, band: Band) -> str:
    """Return whether a predicted peak of memory fits, in one of three verdicts.

    It does not fit where it is above the capacity, and is tight where the upper end of its interval is.

    Examples
    --------
    >>> band = Band(kind=(), least_fraction=0.9, most_fraction=1.25)
    >>> [memory_verdict_of(peak, 80e9, band) for peak in (60e9, 70e9, 81e9)]
    ['fits', 'tight', 'does not fit']
    """
    if peak_bytes > capacity_bytes:
        return DOES_NOT_FIT
    return TIGHT if band.most_fraction * peak_bytes > capacity_bytes else FITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """Bands of all kinds that enough sources have rows of."""

    level_fraction: float
    """Share of runs that is expected in their intervals."""
    by_kind: Mapping[RunKind, Band]
    held_out: Mapping[tuple[str, RunKind], Band]
    """By the name of a source and a kind of its rows: what the other sources alone would say."""
    ratios: Mapping[RunKind, float] = field(default_factory=lambda: {(): inf})
    """By kind: how far the measured ratio of two step times on one machine is from the predicted one at most, as a factor."""
    accelerators: tuple[str, ...] = ()
    """Those that the rows ran on."""
    unmeasured_widening: float = 1.0
    """Widening of the band of an accelerator that is not among them."""

    def ratio(self, kind: RunKind) -> float:
        """Return the factor of a kind, or of the narrowest wider one that has any."""
        return next(self.ratios[each] for each in wider(kind) if each in self.ratios)

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

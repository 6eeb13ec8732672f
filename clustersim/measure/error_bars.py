"""The interval that a step time is expected in: what makes errors larger, and by how much, from measured runs beside predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import inf, prod, sqrt
from typing import Annotated, Final, Literal

from pydantic import Field, with_config

from clustersim.units.fields import PositiveInt, PositiveRatio
from clustersim.units.quantity import format_quantity, format_range

RunKind = tuple[str, ...]
"""Words that make the error of a run larger, in the order of ``WORDS``; none for most runs."""

Word = Literal["experts", "usual settings", "short step"]
EXPERTS: Final = "experts"
USUAL_SETTINGS: Final = "usual settings"
SHORT_STEP: Final = "short step"

WORDS: Final[tuple[Word, ...]] = (EXPERTS, USUAL_SETTINGS, SHORT_STEP)
"""Features of a run for its error bar: experts, settings left at defaults, and short steps."""

ALL_RUNS: Final = "all runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Range of measured step times of one kind of runs, as shares of the predicted ones."""

    least_fraction: float
    most_fraction: float

    def interval_s(self, predicted_s: float) -> tuple[float, float]:
        """Return the least and the most that a step is expected to take, in seconds."""
        return self.least_fraction * predicted_s, self.most_fraction * predicted_s

    def wider(self, factor: float) -> Band:
        """Return a band a factor wider in logarithms, about the same middle."""
        middle = sqrt(self.least_fraction * self.most_fraction)
        half = sqrt(self.most_fraction / self.least_fraction) ** factor
        return replace(self, least_fraction=middle / half, most_fraction=middle * half)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBar:
    """Error bar of the step time of one run, alone and in comparisons."""

    machine: str
    """Eight hexadecimal digits of the hardware and its constants, whatever the number of nodes."""
    least_fraction: float
    """Least expected share of the predicted time."""
    most_fraction: float
    ratio_most_fraction: float
    """Largest expected error of the ratio of two times on the same machine, as a factor."""


def with_ends(value: float, unit: str, bar: ErrorBar | None) -> str:
    """Return a figure that grows with the step time as text, and its ends over the interval of the step time where there is one.

    Examples
    --------
    >>> bar = ErrorBar(machine="", least_fraction=0.8, most_fraction=1.2, ratio_most_fraction=1.1)
    >>> with_ends(81.4 * 86400, "s", bar), with_ends(32.27e6, "count", bar), with_ends(4.0, "USD", None)
    ('81.4 days (65.1 to 97.7 days)', '32.3M (25.8M to 38.7M)', '4 USD')
    """
    middle = format_quantity(value, unit).strip()
    if bar is None:
        return middle
    ends = bar.least_fraction * value, bar.most_fraction * value
    if " " in middle:
        return f"{middle} ({format_range(*ends, unit, as_of=value)})"
    return f"{middle} ({' to '.join(format_quantity(end, unit).strip() for end in ends)})"


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
    >>> band = Band(least_fraction=0.9, most_fraction=1.25)
    >>> [memory_verdict_of(peak, 80e9, band) for peak in (60e9, 70e9, 81e9)]
    ['fits', 'tight', 'does not fit']
    """
    if peak_bytes > capacity_bytes:
        return DOES_NOT_FIT
    return TIGHT if band.most_fraction * peak_bytes > capacity_bytes else FITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Width of the intervals of all kinds: that of most runs, times a factor for each word of a kind."""

    middle_fraction: float
    """Middle of the interval, as a share of the predicted step time."""
    most_fraction: float
    """Upper end over middle, and middle over lower end, of runs of which no word is true."""
    factors: Mapping[str, float] = field(default_factory=dict[str, float])
    """By word: the factor of the logarithm of ``most_fraction``; 1 where a word is missing."""

    def factor(self, kind: RunKind) -> float:
        """Return how many times as large the errors of a kind are as those of most runs."""
        return prod(self.factors.get(word, 1.0) for word in kind)

    def band(self, kind: RunKind) -> Band:
        """Return the interval of a kind.

        Examples
        --------
        >>> spread = Spread(middle_fraction=1.0, most_fraction=1.1, factors={"experts": 2.0})
        >>> round(spread.band(()).most_fraction, 3), round(spread.band(("experts",)).most_fraction, 3)
        (1.1, 1.21)
        """
        most = self.most_fraction ** self.factor(kind)
        return Band(least_fraction=self.middle_fraction / most, most_fraction=self.middle_fraction * most)


Widening = Annotated[PositiveRatio, Field(ge=1.0)]


@with_config({"extra": "forbid"})
@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Farthest that measured runs go; errors beyond are larger by a factor."""

    accelerators: Annotated[tuple[str, ...], Field(min_length=1)]
    n_accelerators: PositiveInt
    seq_length: PositiveInt
    """In tokens."""
    widening: Widening
    """Factor of the logarithm of the width of an interval."""
    borrowed_widening: Widening
    """The same for accelerators with constants of another generation."""
    borrowed_ratio_widening: Widening
    """The same for the errors of ratios of two of their times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """Intervals of all kinds of runs."""

    level_fraction: float
    """Share of runs that is expected in their intervals."""
    spread: Spread
    held_out: Mapping[str, Spread] = field(default_factory=dict[str, Spread])
    """By source of measurements: the error bar from the other sources alone."""
    ratio_most_fraction: float = inf
    """Largest expected error of the ratio of two times on one machine, as a factor, of runs of which no word is true."""
    reach: Reach | None = None

    def ratio(self, kind: RunKind) -> float:
        """Return the largest expected error of the ratio of two times on one machine, as a factor."""
        return self.ratio_most_fraction ** self.spread.factor(kind)


def kind_text(kind: RunKind) -> str:
    """Return a kind in words.

    Examples
    --------
    >>> kind_text(("experts", "short step")), kind_text(())
    ('experts, short step', 'all runs')
    """
    return ", ".join(kind) or ALL_RUNS


def kind_of(words: Sequence[str]) -> RunKind:
    """Return the kind of which some words are true."""
    return tuple(word for word in WORDS if word in words)

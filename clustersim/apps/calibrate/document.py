"""A fitted calibration as a file, with a source for each measured file, and reasons to doubt it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

from clustersim.apps.calibrate.fitting import PER_CONSTANT
from clustersim.apps.calibrate.measurements import MeasuredFile
from clustersim.config.yaml_text import yaml_text
from clustersim.documents.check import value_at
from clustersim.documents.text import Data
from clustersim.hardware.calibrations import TILES
from clustersim.hardware.provenance import is_within
from clustersim.hardware.source import MEASURED
from clustersim.units.quantity import exact_quantity, format_quantity

SECONDS: Final = ("launch.", "network.families.")
"""Begin the names of constants that are times."""
FRACTION_DIGITS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Errors of predicted times over some measurements, relative to the measured time."""

    n_measurements: int
    mean_absolute_error_fraction: float
    median_absolute_error_fraction: float
    mean_error_fraction: float
    """With its sign: below zero, predictions are too fast."""

    @classmethod
    def of(cls, errors: Sequence[float]) -> Errors:
        """Return the statistics of at least one error."""
        sizes = [abs(error) for error in errors]
        return cls(
            n_measurements=len(sizes),
            mean_absolute_error_fraction=fmean(sizes),
            median_absolute_error_fraction=median(sizes),
            mean_error_fraction=fmean(errors),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFit:
    """Fit to one measured file, and its errors before and after."""

    part: str
    file: MeasuredFile
    covers: tuple[str, ...]
    """Names of the constants that were fitted to it."""
    before: Errors | None
    """None where constants were read off it, and no time is predicted."""
    after: Errors | None
    note: str


def calibration_text(
    name: str, base: Mapping[str, Data], values: Mapping[str, float], fits: Sequence[FileFit], described: Mapping[str, Data]
) -> str:
    """Return the text of a calibration file; equal arguments give equal bytes.

    Parameters
    ----------
    name
        Of the file, without ``.yaml``.
    base
        The document that is fitted from.
    values
        What was fitted, by name, in SI units.
    described
        ``title``, ``generation``, ``accelerators`` and ``notes`` of the new calibration.
    """
    data = deepcopy(dict(base))
    for constant, value in values.items():
        _put(data, constant, value)
    sources = base["sources"]
    assert isinstance(sources, list)
    fitted = [cover for fit in fits for cover in fit.covers]
    kept = [_without(source, fitted, data) for source in sources]
    # An earlier fit to something else does not tell how well the new constants meet it.
    measured: list[Data] = [_source(fit) for fit in fits if fit.covers]
    return yaml_text({"name": name, **_ordered(data, described), "sources": [*measured, *(each for each in kept if each)]})


def _ordered(data: Mapping[str, Data], described: Mapping[str, Data]) -> dict[str, Data]:
    rest = {key: value for key, value in data.items() if key not in ("name", "sources", *described)}
    return {**{key: value for key, value in described.items() if value}, **rest}


def _put(data: dict[str, Data], name: str, value: float) -> None:
    if name.startswith(TILES):
        gemm = data["gemm"]
        assert isinstance(gemm, dict)
        tiles = gemm["tiles"]
        assert isinstance(tiles, list)
        for tile in tiles:
            if isinstance(tile, dict) and str(int(str(tile["rows"])) * int(str(tile["columns"]))) == name.removeprefix(TILES):
                tile["share"] = value
        return
    *parents, last = name.split(".")
    at: Data = data
    for parent in parents:
        assert isinstance(at, dict)
        at = at[parent]
    assert isinstance(at, dict)
    at[last] = exact_quantity(value, "s") if name.startswith(SECONDS) else value


def _source(fit: FileFit) -> dict[str, Data]:
    covers: list[Data] = [*fit.covers]
    found: dict[str, Data] = {"title": f"{fit.part}: {fit.file.name}", "url": MEASURED, "sha256": fit.file.sha256, "covers": covers}
    if fit.after is not None and fit.before is not None:
        found["fit"] = {
            "rows": fit.after.n_measurements,
            "mean_error_fraction": _short(fit.after.mean_absolute_error_fraction),
            "median_error_fraction": _short(fit.after.median_absolute_error_fraction),
            "mean_error_before_fraction": _short(fit.before.mean_absolute_error_fraction),
        }
    return {**found, "note": fit.note}


def _without(source: Data, fitted: Sequence[str], data: Mapping[str, Data]) -> dict[str, Data]:
    """Return a source of the base without what was fitted; nothing where nothing is left of it."""
    assert isinstance(source, dict)
    covers = source["covers"]
    assert isinstance(covers, list)
    left: list[Data] = []
    for cover in map(str, covers):
        if not any(is_within(name, cover) or is_within(cover, name) for name in fitted):
            left.append(cover)
            continue
        left += [leaf for leaf in leaves(data, cover) if not any(is_within(leaf, name) for name in fitted)]
    return {**source, "covers": left} if left else {}


def leaves(data: Mapping[str, Data], cover: str) -> list[str]:
    """Return the names of all numbers at and below a name."""
    at = value_at(dict(data), cover.split("."))
    if not isinstance(at, dict):
        return [cover]
    return [leaf for key, value in at.items() if not _is_word(value) for leaf in leaves(data, f"{cover}.{key}")]


def _is_word(value: Data) -> bool:
    return isinstance(value, str) and not value[:1].isdigit()


def _short(fraction: float) -> float:
    return round(fraction, FRACTION_DIGITS)


def covers_of(names: Sequence[str]) -> tuple[str, ...]:
    """Return the coverage of a source for some fitted constants: shares of tiles stand in one table.

    Examples
    --------
    >>> covers_of(["gemm.depth_overhead", "gemm.tiles.16384", "gemm.tiles.4096"])
    ('gemm.depth_overhead', 'gemm.tiles')
    """
    return tuple(dict.fromkeys(TILES.removesuffix(".") if name.startswith(TILES) else name for name in names))


LARGEST_SHARE: Final = 1.0
"""Bound of fitted shares of a peak."""
FAR: Final = 3.0
"""Factor up or down. Constants read from a trace differ by at most 1.2 times between the shipped calibrations."""
FEW: Final = 100
"""Samples of a trace; one step of a small model launches more kernels."""
POOR: Final = 0.2
"""Mean error of predicted times, relative: twice that of the shipped fits."""


def is_far(before: float, after: float) -> bool:
    """Return whether a constant moved by more than ``FAR`` times; one that begins or ends at zero has no such ratio.

    Examples
    --------
    >>> is_far(2.5e-6, 48.9e-6), is_far(9e-8, 3.9e-8), is_far(0.0, 1.0)
    (True, False, False)
    """
    return min(before, after) > 0.0 and max(before, after) > FAR * min(before, after)


def move(name: str, before: float, after: float) -> str:
    """Return a move of a constant in words.

    Examples
    --------
    >>> move("launch.kernel", 2.5e-6, 48.88e-6)
    'launch.kernel from 2.5 us to 48.88 us (19.6 times)'
    """
    times = f"{after / before:.1f} times" if after > before else f"1/{before / after:.1f}"
    return f"{name} from {worded(name, before)} to {worded(name, after)} ({times})"


def worded(name: str, value: float) -> str:
    """Return the value of a constant with its unit."""
    return format_quantity(value, "s", 4) if name.startswith(SECONDS) else f"{value:.4g}"


def doubts_of(after: Errors, moves: Mapping[str, tuple[float, float]], held: Sequence[str] = (), n_unlike: int = 0) -> list[str]:
    """Return the reasons to doubt a fit.

    Parameters
    ----------
    after
        How well the fit meets what it was fitted to.
    moves
        Value before and after of each fitted constant.
    held
        Constants that keep their values, because there are fewer unlike measurements than constants with an effect on them; several
        that keep their proportions are one.
    n_unlike
        Number of unlike measurements; 0 where they are not counted.
    """
    found: list[str] = []
    if after.mean_absolute_error_fraction > POOR:
        bias = f"{100 * after.mean_error_fraction:+.0f} %"
        found.append(f"predictions stay {100 * after.mean_absolute_error_fraction:.0f} % off the measured times (on average {bias})")
    if held:
        stays = f"{', '.join(held)} {'keep their values' if held[1:] else 'keeps its value'}"
        n_all = max(n_unlike // PER_CONSTANT, 1) + len(held)
        few = f"too few different measurements ({n_unlike}) for {n_all} constants"
        found.append(f"{few}: {stays}; {PER_CONSTANT * n_all - n_unlike} more would fit {'them' if held[1:] else 'it'}")
    if moves and 0 < n_unlike < PER_CONSTANT:
        found.append(f"fitted to a single measurement: {', '.join(moves)}")
    far = [move(name, *values) for name, values in moves.items() if is_far(*values)]
    if far:
        found.append(f"moved more than {FAR:.0f} times: {', '.join(far)}")
    bound = [name for name, (before, after) in moves.items() if before != after == LARGEST_SHARE]
    if bound:
        found.append(f"at the bound of the fit, a share of {LARGEST_SHARE:g}: {', '.join(bound)}; the measurements ask for more")
    return found

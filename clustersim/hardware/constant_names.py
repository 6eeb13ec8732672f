"""Constants of a calibration by the names that its file has for them, so that studies can ask what others would predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Final, get_args

from clustersim.documents.form import attribute_of
from clustersim.documents.spots import is_mapping
from clustersim.errors import ScenarioError
from clustersim.hardware.calibration import BEST_ATTENTION, Calibration
from clustersim.hardware.profile_schema import PeakPrecision

TILES: Final = "gemm.tiles."
"""Begins the name of the share of all tiles of one area, such as ``gemm.tiles.16384``."""
DEFAULT: Final = "default"
PRECISIONS: Final[tuple[str, ...]] = get_args(PeakPrecision)


def constant(calibration: Calibration, name: str) -> float:
    """Return a constant by its dotted name, in SI units.

    Names are those of the file: ``gemm.under_load.default``, ``attention.flash_2.forward.fraction``, ``launch.dispatch``,
    ``network.families.ring.start``. ``gemm.tiles.<rows times columns>`` is the share of all tiles of one area. A precision that has no
    share of its own has that of ``default``.

    Raises
    ------
    ScenarioError
        There is no such constant.

    Examples
    --------
    >>> from clustersim.hardware.calibrations import calibration_of_generation
    >>> constant(calibration_of_generation("hopper"), "network.multiprocessors")
    24.0
    """
    if name.startswith(TILES):
        shares = [share for rows, columns, share in calibration.gemm.tiles if f"{rows * columns}" == name.removeprefix(TILES)]
        if not shares:
            raise _unknown(name)
        return shares[0]
    value: object = calibration
    for part in name.split("."):
        value = _part(value, part, name)
    if not isinstance(value, int | float):
        raise _unknown(name)
    return float(value)


def changed(calibration: Calibration, values: Mapping[str, float]) -> Calibration:
    """Return a calibration with other values of some constants; names are those of :func:`constant`."""
    for name, value in values.items():
        constant(calibration, name)
        calibration = _tiled(calibration, name, value) if name.startswith(TILES) else _changed(calibration, name, value)
    return calibration


def tile_areas(calibration: Calibration) -> tuple[int, ...]:
    """Return the areas of the tiles of a calibration, the largest first."""
    return tuple(sorted({rows * columns for rows, columns, _ in calibration.gemm.tiles}, reverse=True))


def _tiled(calibration: Calibration, name: str, value: float) -> Calibration:
    area = name.removeprefix(TILES)
    tiles = tuple(each._replace(share=value) if f"{each.rows * each.columns}" == area else each for each in calibration.gemm.tiles)
    return replace(calibration, gemm=replace(calibration.gemm, tiles=tiles))


def _changed(calibration: Calibration, name: str, value: float) -> Calibration:
    parts = name.split(".")
    if parts[0] != "attention":
        return _put_in(calibration, parts, value)
    # The best generation stands there twice, under its own name and as the best.
    best = calibration.attention[BEST_ATTENTION]
    twins = [parts[1], BEST_ATTENTION] if calibration.attention[parts[1]] == best else [parts[1]]
    for twin in twins:
        calibration = _put_in(calibration, ["attention", twin, *parts[2:]], value)
    return calibration


def _put_in(calibration: Calibration, parts: Sequence[str], value: float) -> Calibration:
    found = _put(calibration, parts, value)
    assert isinstance(found, Calibration)
    return found


def _put(whole: object, parts: Sequence[str], value: float) -> object:
    if not parts:
        return value
    if is_mapping(whole):
        return {**whole, parts[0]: _put(whole.get(parts[0]), parts[1:], value)}
    assert is_dataclass(whole)  # the name was read before
    assert not isinstance(whole, type)
    field = attribute_of(whole, parts[0])
    assert field is not None
    return replace(whole, **{field: _put(getattr(whole, field), parts[1:], value)})


def _part(whole: object, part: str, name: str) -> object:
    if is_mapping(whole):
        if part in whole:
            return whole[part]
        if part in PRECISIONS and DEFAULT in whole:
            return whole[DEFAULT]
    elif is_dataclass(whole):
        field = attribute_of(whole, part)
        if field is not None:
            return getattr(whole, field)
    raise _unknown(name)


def _unknown(name: str) -> ScenarioError:
    hint = "names are those of a calibration file, such as gemm.under_load.default or launch.dispatch"
    return ScenarioError(f"there is no constant '{name}'", hint=hint)

"""Plain data with SI suffixes to plain data that people read: ``memory_bytes: 8e10`` becomes ``memory: 80 GB``."""

from __future__ import annotations

from typing import Final

from clustersim.documents.spots import Data
from clustersim.units.quantity import format_quantity

SUFFIXES: Final = (("_bytes_per_s", "B/s"), ("_flops_per_s", "FLOP/s"), ("_bytes", "B"), ("_s", "s"), ("_w", "W"))
"""Endings of names and their units, longer ones first."""


def readable(value: Data, unit: str = "") -> Data:
    """Return data with its quantities as text, without what is empty; a unit reaches down into a mapping of numbers.

    Examples
    --------
    >>> readable({"memory_bytes": 8e10, "peak_flops_per_s": {"bf16": 989e12}, "n_layers": 32})
    {'memory': '80 GB', 'peak': {'bf16': '989 TFLOP/s'}, 'n_layers': 32}
    """
    if isinstance(value, dict):
        pairs = [(*_split(key), item) for key, item in value.items() if item is not None and item != ""]
        return {name: readable(item, own or unit) for name, own, item in pairs}
    if isinstance(value, list):
        return [readable(item, unit) for item in value]
    if unit and isinstance(value, int | float):
        return format_quantity(value, unit, 4)
    return value


def _split(key: str) -> tuple[str, str]:
    for suffix, unit in SUFFIXES:
        if key.endswith(suffix):
            return key.removesuffix(suffix), unit
    return key, ""

"""Source of figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Source of figures."""

    title: str
    url: str
    """Address, or ``memory`` for a figure that was only remembered and not seen in a source."""
    accessed: str
    covers: tuple[str, ...]
    note: str = ""

"""Notices: assumptions, extrapolations and omissions of a result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """Something that was assumed, extrapolated or not calibrated."""

    code: str
    message: str

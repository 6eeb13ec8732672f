"""Notices: what a result assumes, extrapolates or leaves out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """Something that was assumed, extrapolated or not calibrated."""

    code: str
    message: str

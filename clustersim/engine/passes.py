"""The passes that make a replay shorter, and leave its result as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Passes that a replay may use; each can be switched off."""

    fold: bool = True
    """One rank class represents all ranks, groups and links that behave alike."""
    collapse: bool = True
    """Uncontended tasks take their known duration without an event."""
    repeat: bool = True
    """A period of micro-batches or of steps that repeats is replayed once."""


ALL_PASSES: Final = Passes()
"""All passes, the default of a replay."""

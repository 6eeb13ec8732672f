"""Find the data files that ship with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).resolve().parent.parent


def data_path(kind: str) -> Path:
    """Return the folder of ``hardware_profiles`` or ``scenarios``, in an installed wheel or in a checkout."""
    shipped = _PACKAGE / "_data" / kind
    return shipped if shipped.is_dir() else _PACKAGE.parent / kind

"""Values of scenarios that importing makes."""

from __future__ import annotations

from clustersim.documents.text import Data


def at(data: Data, key: str) -> Data:
    """Return what stands at a dotted key, None where nothing does."""
    for part in key.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return data

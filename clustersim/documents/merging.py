"""Lay one mapping over another."""

from __future__ import annotations

from clustersim.documents.spots import Data


def merged(below: dict[str, Data], above: dict[str, Data]) -> dict[str, Data]:
    """Return two mappings as one, the second on top, mapping by mapping.

    Examples
    --------
    >>> merged({"cluster": {"name": "selene-a100"}, "checks": []}, {"cluster": {"nodes": 4}})
    {'cluster': {'name': 'selene-a100', 'nodes': 4}, 'checks': []}
    """
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        both[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return both

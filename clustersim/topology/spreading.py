"""Division of a flow among its paths."""

from __future__ import annotations

from typing import Final

import numpy as np

from clustersim.topology.cluster import FloatArray, IntArray
from clustersim.topology.hashing import KeyArray, picked_among

GRAIN: Final = 2.0**-44
"""Shares are multiples of it, so that sums of some hundred flows are exact, in whatever order they are taken."""


def narrowest(paths: IntArray, left: FloatArray) -> FloatArray:
    """Return what is left of each path: the least share of the bandwidth as built along it; nothing of a path without links.

    Parameters
    ----------
    paths
        Link numbers along the last axis, filled up with -1.
    left
        Share of its bandwidth that each link has.
    """
    open_ended = np.append(left, np.inf)
    least: FloatArray = np.min(open_ended[paths], axis=-1)
    return np.where(np.isinf(least), 0.0, least)


def shares(left: FloatArray, keys: KeyArray | None, stage: int) -> FloatArray:
    """Return the share of each pair's bytes on each of its paths: in proportion to what is left of them, or all on one by its hash.

    Parameters
    ----------
    left
        Shape (n_pairs, n_paths): share that is left of each path; 0 for one that is cut or not among the choices.
    """
    if keys is not None:
        chosen = picked_among(keys, stage, left > 0.0)
        paths = np.arange(left.shape[1], dtype=np.int64)
        return np.where((paths == chosen[:, None]) & (left > 0.0), 1.0, 0.0)
    whole = np.asarray(left.sum(axis=1), dtype=np.float64)
    return np.rint(left / np.where(whole > 0.0, whole, 1.0)[:, None] / GRAIN) * GRAIN

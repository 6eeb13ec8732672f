"""Share link bandwidth among what is in flight: max-min fairness, exact."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

ROUND_OFF = 1e-12
"""Relative slack within which a link counts as full; a link is full to the last bit only by luck."""


def max_min_rates(flows: FloatArray, capacity_bytes_per_s: FloatArray) -> FloatArray:
    """Return the max-min fair rate of each coupled flow, by progressive filling.

    All rates grow together from zero. A link is full when ``sum over v of flows[l, v] * rate[v]`` reaches its capacity; then
    the rates of everything that crosses it are final, and the rest grow on.

    Parameters
    ----------
    flows
        Shape (n_links, n_variables): how many flows of variable v cross link l; zero or more.
    capacity_bytes_per_s
        Shape (n_links,).

    Returns
    -------
    ndarray of shape (n_variables,)
        Rates in bytes per second; infinite for a variable that crosses no link.

    References
    ----------
    .. [1] D. Bertsekas and R. Gallager, *Data Networks*, 2nd ed., section 6.5.2.

    Examples
    --------
    >>> max_min_rates(np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), np.array([10.0, 4.0])).tolist()
    [8.0, 2.0, 2.0]
    """
    n_variables = flows.shape[1]
    rates = np.full(n_variables, np.inf)
    growing = flows.any(axis=0)
    left = capacity_bytes_per_s.astype(np.float64)
    while growing.any():
        demand = flows[:, growing].sum(axis=1)
        used = demand > 0.0
        fill = np.full(len(left), np.inf)
        fill[used] = np.maximum(left[used], 0.0) / demand[used]
        level = float(fill.min())
        full = fill <= level * (1.0 + ROUND_OFF)
        frozen = growing & flows[full].any(axis=0)
        rates[frozen] = level
        left = left - flows[:, frozen].sum(axis=1) * level
        growing &= ~frozen
    return rates

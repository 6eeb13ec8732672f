"""Spread of tokens over experts by a router: the share of all rows that each expert gets."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor
from typing import Final, Literal

import numpy as np

from clustersim.workloads.shapes import balanced_rows

LoadKind = Literal["balanced", "zipf", "dirichlet", "file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLoad:
    """Share of the tokens that goes to each expert, layer by layer."""

    kind: LoadKind = "balanced"
    skew: float = 1.0
    """Exponent of Zipf's law, or concentration of the Dirichlet distribution: the smaller, the more uneven."""
    seed: int = 0
    shares: tuple[tuple[float, ...], ...] = ()
    """Shares from a file: for each layer, those of all experts."""
    file: str = ""
    text: str = ""
    """Its name, and what stands in it."""
    capacity_factor: float | None = None
    """An expert takes at most this multiple of the mean, and the rest is dropped; None: it takes all."""

    @property
    def by_layer(self) -> bool:
        """Whether layers differ."""
        return self.kind in ("dirichlet", "file")


EVEN_LOAD: Final = ExpertLoad()
"""Every expert gets as much, and nothing is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """Rows that each expert of a layer takes, and rows that none takes."""

    rows: tuple[int, ...]
    dropped: int


def routed(load: ExpertLoad, n_experts: int, *, n_tokens: int, top_k: int, layer: int) -> Routed:
    """Return the rows of each expert for a number of tokens, each sent to ``top_k`` different experts.

    No expert gets more rows than there are tokens; what its share would give beyond that goes to the others in proportion. Rows are whole:
    shares are rounded down, and the rows that are left go to the largest remainders.

    Examples
    --------
    >>> routed(ExpertLoad(), 4, n_tokens=8, top_k=2, layer=0).rows
    (4, 4, 4, 4)
    >>> routed(ExpertLoad(kind="zipf"), 4, n_tokens=24, top_k=1, layer=0).rows
    (11, 6, 4, 3)
    >>> routed(ExpertLoad(kind="zipf", capacity_factor=1.5), 4, n_tokens=24, top_k=1, layer=0)
    Routed(rows=(9, 6, 4, 3), dropped=2)
    """
    total = n_tokens * top_k
    if load.kind == "balanced":
        rows = balanced_rows(total, n_experts)
    else:
        rows = _whole(_capped(_shares(load, n_experts, layer), 1.0 / top_k) * total, total)
    if load.capacity_factor is None:
        return Routed(rows=rows, dropped=0)
    most = ceil(load.capacity_factor * total / n_experts)
    kept = tuple(min(each, most) for each in rows)
    return Routed(rows=kept, dropped=total - sum(kept))


def _shares(load: ExpertLoad, n_experts: int, layer: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    match load.kind:
        case "zipf":
            weights = 1.0 / np.arange(1, n_experts + 1, dtype=np.float64) ** load.skew
        case "dirichlet":
            weights = np.random.default_rng([load.seed, layer]).dirichlet(np.full(n_experts, load.skew))
        case _:
            weights = np.array(load.shares[layer], dtype=np.float64)
    return weights / weights.sum()


def _capped(shares: np.ndarray[tuple[int], np.dtype[np.float64]], most: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return shares none of which is above a limit, the others raised in proportion."""
    full = np.zeros(len(shares), dtype=np.bool_)
    while bool((shares[~full] > most * (1.0 + 1e-12)).any()):
        full |= shares > most
        shares = shares.copy()
        shares[full] = most
        left = 1.0 - most * int(full.sum())
        rest = shares[~full].sum()
        # Where nobody else has a share, those that are left share evenly.
        shares[~full] = shares[~full] * (left / rest) if rest > 0.0 else left / max(1, int((~full).sum()))
    return shares


def _whole(wanted: np.ndarray[tuple[int], np.dtype[np.float64]], total: int) -> tuple[int, ...]:
    rows = [floor(each + 1e-9) for each in wanted.tolist()]
    order = sorted(range(len(rows)), key=lambda place: (rows[place] - wanted[place], place))
    for place in order[: total - sum(rows)]:
        rows[place] += 1
    return tuple(rows)

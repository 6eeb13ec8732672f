"""Which rows the experts of each rank process, and which rank has most to do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb

from clustersim.workloads.shapes import ExpertShare, balanced_rows
from clustersim.workloads.token_routing import ExpertLoad, Routed, routed
from clustersim.workloads.transformer_shape import Experts


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """Rows that the ranks which hold all experts of a layer together send each other in one micro-batch."""

    rows: tuple[int, ...]
    """Rows of each expert, sent by all of these ranks."""
    dropped: int
    n_ranks: int
    """Ranks among which experts are divided: ep."""
    copies: int
    """Ranks that each send as much and divide each expert among them: etp."""

    def of(self, place: int) -> tuple[int, ...]:
        """Return the rows of the experts at one place of expert parallelism."""
        n_local = len(self.rows) // self.n_ranks
        return self.rows[place * n_local : (place + 1) * n_local]

    @property
    def received(self) -> tuple[int, ...]:
        """Rows at each place."""
        return tuple(sum(self.of(place)) for place in range(self.n_ranks))

    @property
    def hottest(self) -> int:
        """The place with most rows, the first of several."""
        received = self.received
        return received.index(max(received))

    @property
    def skew(self) -> float:
        """Rows of the hottest place over the mean; 1 where all have as many."""
        received = self.received
        return max(received) * self.n_ranks / sum(received) if sum(received) else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertSpread:
    """Spread of the tokens of one micro-batch over the experts of a layer.

    The ``ep * etp`` ranks of an expert group each have ``b s / (cp tp)`` tokens, under sequence parallelism wherever there is tensor
    parallelism, and send each to ``top_k`` experts.
    """

    experts: Experts
    load: ExpertLoad
    n_tokens: int
    """Tokens of one rank."""
    n_ranks: int
    """Ranks among which experts are divided: ep."""
    copies: int
    """Ranks that divide each expert among them: etp."""
    counts_first: bool
    """Whether ranks tell each other how many rows they send."""

    def dispatch(self, layer: int = 0) -> Dispatch:
        """Return the rows that the ranks of an expert group send each other in a layer."""
        senders, own = self.n_ranks * self.copies, layer if self.load.by_layer else 0
        found = _routed(self.load, self.experts.n_experts, self.n_tokens * senders, self.experts.top_k, own)
        return Dispatch(rows=found.rows, dropped=found.dropped, n_ranks=self.n_ranks, copies=self.copies)

    def share(self, layer: int = 0, place: int | None = None) -> ExpertShare:
        """Return the experts of one place of expert parallelism with their rows; without a place, as the mean of all has them."""
        spread = self.dispatch(layer)
        n_local = self.experts.n_experts // self.n_ranks
        # One rank that has all experts has the rows of each as they are.
        mean = place is None and self.n_ranks > 1
        rows = balanced_rows(round(sum(spread.rows) / self.n_ranks), n_local) if mean else spread.of(place or 0)
        return ExpertShare(
            rows=rows,
            intermediate_size=self.experts.intermediate_size // self.copies,
            dispatched_rows=round(sum(spread.rows) / (self.n_ranks * self.copies)),
            n_ranks=self.n_ranks,
            counts_first=self.counts_first,
            fixed_rows=self.load.kind == "balanced" and self.load.capacity_factor is not None and self.load.capacity_factor <= 1,
        )


@lru_cache(maxsize=512)
def _routed(load: ExpertLoad, n_experts: int, n_tokens: int, top_k: int, layer: int) -> Routed:
    return routed(load, n_experts, n_tokens=n_tokens, top_k=top_k, layer=layer)


def expected_nodes(n_nodes: int, experts: Experts) -> float:
    """Return how many of some nodes, among which experts are divided evenly, hold one of a token's experts at least, in the mean.

    A router that takes T of N groups of experts takes them evenly, and some expert of each: a node that holds several groups is reached
    unless none of them is taken, ``g (1 - C(N - N/g, T) / C(N, T))`` of g nodes. Where groups span several nodes, and where there is one
    group only, the k experts are drawn evenly, without putting back, from the M that the groups taken have:
    ``G (1 - C(M - E/g, k) / C(M, k))`` of the ``G = g T / N`` nodes of these.

    Examples
    --------
    >>> from clustersim.workloads.transformer_shape import Experts
    >>> v3 = Experts(n_experts=256, top_k=8, intermediate_size=2048, n_groups=8, topk_groups=4)
    >>> [round(expected_nodes(nodes, v3), 2) for nodes in (1, 2, 4, 8, 16, 32)]
    [1.0, 1.97, 3.14, 4.0, 5.34, 6.6]
    """
    groups, taken = experts.n_groups, experts.topk_groups
    if n_nodes == 1:
        return 1.0
    if n_nodes <= groups:
        held = groups // n_nodes
        return min(float(experts.top_k), n_nodes * (1.0 - comb(groups - held, taken) / comb(groups, taken)))
    reachable, here = experts.n_experts * taken // groups, experts.n_experts // n_nodes
    return n_nodes * taken / groups * (1.0 - comb(max(0, reachable - here), experts.top_k) / comb(reachable, experts.top_k))

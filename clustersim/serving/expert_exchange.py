"""Exchange of tokens between ranks that hold different experts: a dispatch before them and a combine behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from clustersim.hardware.models import Node
from clustersim.hardware.serving_constants import Borrowed, ExchangeConstants, exchange_constants

FABRIC_FLOOR_S: Final = 35e-6
"""Time that adapters add to the smallest exchange.

deepseek-ai/DeepEP, README.md @ b8d90fb7: with 16 to 256 ranks a dispatch of 128 tokens takes 118 to 194 us and a combine 195 to 369 us,
which is 42 to 50 us and 47 to 94 us beyond the bytes that leave a node of H800, at the 50 GB/s of its adapters. Less the floor inside a
node, 12 us (``expert_exchange.csv``), these are 30 to 38 us and 35 to 82 us; 35 us lies in both."""
MOST_LOW_LATENCY_TOKENS: Final = 256
"""Tokens of a rank for which engines set memory of the low-latency kernels aside (deepseek-ai/DeepEP, README.md @ b8d90fb7)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertExchange:
    """All-to-all exchange among the ranks of one replica.

    There are two kinds of kernels. ``low_latency``, for few tokens, sends a copy of a token for each of its experts straight to the rank
    of each. ``normal`` sends one copy to each node with experts of the token, which passes it on to their ranks over the wires inside.
    Adapters and wires work at the same time.
    """

    n_ranks: int
    ranks_per_node: int
    nic_bytes_per_s: float
    """Bandwidth of the adapters for each accelerator."""
    constants: tuple[ExchangeConstants, ...]
    """Constants of each kind of kernels."""
    borrowed: Borrowed | None
    """The loan, where they were measured on another accelerator."""
    n_multiprocessors: int
    """Multiprocessors of one accelerator."""
    most_nodes: float
    """Nodes that have experts of one token at most, where the model limits the groups of experts."""

    def sorts(self, tokens: int) -> bool:
        """Return whether so many tokens on each rank arrive sorted by expert: where the kernels for few tokens exchange them."""
        return tokens <= MOST_LOW_LATENCY_TOKENS

    def seconds(self, tokens: int, top_k: int, hidden: int, dispatched_bytes: float, combined_bytes: float) -> tuple[float, float]:
        """Return the time of dispatch and combine of so many tokens on each rank, and the share of the multiprocessors that they take.

        Parameters
        ----------
        dispatched_bytes, combined_bytes
            Bytes of one number on the way to the experts, and back.
        """
        mode = "low_latency" if self.sorts(tokens) else "normal"
        kind = next(each for each in self.constants if each.mode == mode)
        ways = (
            (dispatched_bytes, kind.dispatch_floor_s, kind.dispatch_bytes_per_s),
            (combined_bytes, kind.combine_floor_s, kind.combine_bytes_per_s),
        )
        time_s = sum(self._one_way_s(kind, tokens * hidden * element, top_k, floor_s, rate) for element, floor_s, rate in ways)
        return time_s, kind.n_multiprocessors / self.n_multiprocessors

    def _one_way_s(self, kind: ExchangeConstants, size_bytes: float, top_k: int, floor_s: float, bytes_per_s: float) -> float:
        n_nodes = max(1.0, self.n_ranks / self.ranks_per_node)
        here = min(self.ranks_per_node, self.n_ranks)
        if kind.mode == "low_latency":
            out, inside = top_k * (1.0 - 1.0 / n_nodes), top_k / n_nodes
        else:
            nodes = min(_hit(n_nodes, top_k), self.most_nodes)
            out, inside = nodes * (1.0 - 1.0 / n_nodes), _hit(self.n_ranks, top_k)
        inside_s = size_bytes * inside * (1.0 - 1.0 / here) / bytes_per_s
        if n_nodes == 1.0:
            return floor_s + inside_s
        return floor_s + FABRIC_FLOOR_S + max(inside_s, size_bytes * out / self.nic_bytes_per_s)


def _hit(n_places: float, top_k: int) -> float:
    """Return how many of some places have experts of one token, whose experts are spread over them at random."""
    return n_places * (1.0 - (1.0 - 1.0 / n_places) ** top_k)


def expert_exchange(node: Node, n_ranks: int, groups: tuple[int, int]) -> ExpertExchange:
    """Return the exchange among the accelerators of a replica.

    Parameters
    ----------
    groups
        Groups of experts, and of those the groups that a token takes.
    """
    domain = node.domain_size
    n_groups, taken = groups
    n_nodes = max(1.0, n_ranks / domain)
    constants, borrowed = exchange_constants(node.accelerator)
    return ExpertExchange(
        n_ranks=n_ranks,
        ranks_per_node=domain,
        nic_bytes_per_s=node.n_nics / node.n_accelerators * node.nic.bandwidth_bytes_per_s,
        constants=constants,
        borrowed=borrowed,
        n_multiprocessors=node.accelerator.n_multiprocessors,
        most_nodes=taken * max(1.0, n_nodes / n_groups) if n_groups > 1 else n_nodes,
    )

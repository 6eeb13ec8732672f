"""All-to-all that stays on its rails: data for another domain go over NVLink first, to the member on the rail of their destination."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from clustersim.collectives.collective_flows import in_batches, joined, separate_flow_sets
from clustersim.collectives.pattern import Algorithm, Flows, FlowSet, Grouping, Pattern
from clustersim.topology.cluster import IntArray
from clustersim.topology.wired import Cluster


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Places:
    """Positions of the members of each group, all by number within the group."""

    domain: IntArray
    """Domain of each member, shape (n_groups, size): the first domain of the group is 0."""
    place: IntArray
    """Index of each member in its domain."""
    sizes: IntArray
    """Members in each domain, shape (n_groups, n_domains); 0 where a group has fewer domains."""
    firsts: IntArray
    """The first member of each domain."""


def lay_relay(cluster: Cluster, group: Grouping) -> Pattern:
    """Return both concurrent flows: inside the domains, and on the rails between them.

    A domain with p members sends each rank of another domain one message of ``p S / n``, which its member at the same place has
    collected. Where a domain has no member at that place, the places start again at the first.

    References
    ----------
    .. [1] NVIDIA, "Doubling all2all performance with NVIDIA Collective Communication Library 2.12", 2022: PXN.
    .. [2] DeepSeek, *DeepEP*: the relay stands at the destination there, which loads the links alike.
    """
    at = _places(group)
    rails, relayed = _on_rails(group, at)
    flow_sets: list[FlowSet] = []
    for flows, leave in ((_to_relays(group, at, relayed), False), (rails, True)):
        most = float(flows.counts.max(initial=1.0))
        flow_sets += separate_flow_sets(
            cluster, in_batches(flows.times(1.0 / most), leave=leave), share=most / group.size, itemised=len(group.members) > 1
        )
    if len(flow_sets) == 2:
        # The first part that a rail carries has come over NVLink.
        flow_sets[1] = replace(flow_sets[1], intra_steps=1, intra_latency_s=flow_sets[0].intra_latency_s)
    return Pattern(phases=(tuple(flow_sets),), uniform=group.per_domain > 0)


def _places(group: Grouping) -> _Places:
    n_groups, size = group.members.shape
    domain = np.zeros((n_groups, size), dtype=np.int64)
    np.cumsum(group.domains[:, 1:] != group.domains[:, :-1], axis=1, out=domain[:, 1:])
    rows = np.arange(n_groups, dtype=np.int64)[:, None]
    counted = np.bincount((rows * group.n_domains + domain).reshape(-1), minlength=n_groups * group.n_domains)
    sizes = counted.reshape(n_groups, group.n_domains)
    firsts = np.cumsum(sizes, axis=1) - sizes
    return _Places(domain=domain, place=np.arange(size, dtype=np.int64) - firsts[rows, domain], sizes=sizes, firsts=firsts)


def _on_rails(group: Grouping, at: _Places) -> tuple[Flows, IntArray]:
    """Return the flows between domains, in messages, and for how many destinations each member relays, shape (n_groups, size)."""
    domains = np.arange(group.n_domains, dtype=np.int64)[:, None]
    foreign = (at.domain[:, None, :] != domains) & (at.sizes[:, :, None] > 0)
    row, domain, destination = np.nonzero(foreign)
    sizes = at.sizes[row, domain]
    relay = at.firsts[row, domain] + at.place[row, destination] % sizes
    relayed = np.bincount(row * group.size + relay, minlength=group.members.size).reshape(group.members.shape)
    flows = Flows(sources=group.members[row, relay], destinations=group.members[row, destination], counts=sizes.astype(np.float64))
    return flows, relayed


def _to_relays(group: Grouping, at: _Places, relayed: IntArray) -> Flows:
    """Return the flows inside domains, in messages: those to relay, and those for the member itself."""
    rows = np.arange(len(group.members), dtype=np.int64)[:, None]
    sizes, firsts = at.sizes[rows, at.domain], at.firsts[rows, at.domain]
    parts: list[Flows] = []
    for distance in range(1, int(sizes.max())):
        row, source = np.nonzero(distance < sizes)
        there = firsts[row, source] + (at.place[row, source] + distance) % sizes[row, source]
        parts.append(
            Flows(
                sources=group.members[row, source],
                destinations=group.members[row, there],
                counts=relayed[row, there].astype(np.float64) + 1,
            )
        )
    return joined(parts)


RELAY: Final = Algorithm(name="hierarchical", lay=lay_relay)

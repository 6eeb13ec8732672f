"""Sends from one rank to another, many pairs at once: what passes between pipeline stages."""

from __future__ import annotations

import numpy as np

from clustersim.collectives.collective_flows import crossings, gathered
from clustersim.collectives.pattern import Pattern, Wave
from clustersim.topology.cluster import Cluster, IntArray
from clustersim.topology.link_demand import Crossings, Footprint


def lay_transfers(cluster: Cluster, sources: IntArray, destinations: IntArray) -> Pattern:
    """Return flows from each source to the destination at the same place; the tensor is what one pair moves.

    What stays on its rank crosses no link. The step counts as one inside a domain only if no pair leaves its domain.
    """
    flows = crossings(cluster.routes(sources, destinations), sources, np.ones(len(sources)))
    leaves = bool((cluster.domain_of(sources) != cluster.domain_of(destinations)).any())
    return sends(flows, gathered([flows]), leaves=leaves)


def sends(flows: Crossings, footprint: Footprint, *, leaves: bool) -> Pattern:
    """Return sends that put these flows on the links.

    Parameters
    ----------
    leaves
        Whether any of them leaves its domain.
    """
    n_links, latency_s = np.diff(flows.starts), float(flows.latency_s.max())
    wave = Wave(
        footprint=footprint,
        share=1.0 if len(flows.link_ids) else 0.0,
        intra_steps=0 if leaves else 1,
        inter_steps=1 if leaves else 0,
        intra_latency_s=0.0 if leaves else latency_s,
        inter_latency_s=latency_s if leaves else 0.0,
        crossings=(flows,),
    )
    return Pattern(phases=((wave,),), uniform=bool((n_links == n_links[0]).all()))

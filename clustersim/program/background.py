"""Traffic of others on the same links: no part of the program, and without an end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """A load on some links, on each of them separately, constant or in bursts.

    It shares the links like any other traffic: it never takes more than its rate, and less where a link is full.
    """

    name: str
    link_ids: tuple[int, ...]
    """Links of the cluster, each of which carries the rate; one that stands here twice carries it twice."""
    rate_bytes_per_s: float
    n_flows: int = 1
    """Number of flows of the load: on a full link it gets the share of this number of flows."""
    start_s: float = 0.0
    """Start of the load or its first burst, in seconds."""
    period_s: float = 0.0
    """From the start of one burst to the next; 0 for a load that never stops."""
    burst_s: float = 0.0
    """Duration of a burst, in seconds; less than the period."""

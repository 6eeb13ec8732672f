"""The ``background`` of a scenario: loads on links that are found by name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clustersim.errors import DomainError, inside
from clustersim.program.background import Background
from clustersim.scenario.link_names import links_named
from clustersim.scenario.schema import BackgroundSpec
from clustersim.topology.wired import WiredCluster
from clustersim.units.quantity import format_quantity


def background_of(specs: Sequence[BackgroundSpec], cluster: WiredCluster) -> tuple[tuple[Background, ...], ...]:
    """Return for each entry its loads on the links of a cluster: one for each rate, which a share gives for each bandwidth.

    Raises
    ------
    DomainError
        A name means no link, a link cannot carry the load, or the bursts contradict themselves.
    """
    unnamed = [index for index, spec in enumerate(specs) if spec.name is None]
    names = {index: "background" if len(unnamed) == 1 else f"background {place}" for place, index in enumerate(unnamed)}
    loads: list[tuple[Background, ...]] = []
    for index, spec in enumerate(specs):
        with inside("background", index):
            loads.append(_loads(spec, cluster, spec.name or names[index]))
    return tuple(loads)


def _loads(spec: BackgroundSpec, cluster: WiredCluster, name: str) -> tuple[Background, ...]:
    period_s, burst_s = _bursts(spec)
    links: dict[int, None] = {}
    for place, text in enumerate(spec.links):
        with inside("links", place):
            links.update(dict.fromkeys(_working(cluster, text)))
    by_rate: dict[float, list[int]] = {}
    for link_id in sorted(links):
        bandwidth_bytes_per_s = float(cluster.bandwidth_bytes_per_s[link_id])
        rate_bytes_per_s = spec.load.on(bandwidth_bytes_per_s)
        if rate_bytes_per_s > bandwidth_bytes_per_s:
            message = f"{cluster.link_name(link_id)} carries {format_quantity(bandwidth_bytes_per_s, 'B/s')} at most"
            raise DomainError(message, path=("load",), hint="write a smaller rate, or a share such as 100 %")
        by_rate.setdefault(rate_bytes_per_s, []).append(link_id)
    return tuple(
        Background(
            name=name,
            link_ids=_shared(cluster, link_ids),
            rate_bytes_per_s=rate_bytes_per_s,
            n_flows=spec.flows,
            start_s=spec.start,
            period_s=period_s,
            burst_s=burst_s,
        )
        for rate_bytes_per_s, link_ids in by_rate.items()
    )


def _working(cluster: WiredCluster, text: str) -> tuple[int, ...]:
    found = links_named(cluster, text)
    works = found if cluster.works is None else tuple(link_id for link_id in found if cluster.works[link_id])
    if not works:
        raise DomainError(f"'{text}' is down", hint="leave it out")
    return works


def _shared(cluster: WiredCluster, link_ids: Sequence[int]) -> tuple[int, ...]:
    """Return the links whose capacity some links take: both directions of a half-duplex link are one."""
    if cluster.shared is None:
        return tuple(link_ids)
    return tuple(cluster.shared[np.array(link_ids, dtype=np.int64)].tolist())


def _bursts(spec: BackgroundSpec) -> tuple[float, float]:
    """Return the period and the burst; zeros for a load without end."""
    if spec.period is None and spec.burst is None:
        return 0.0, 0.0
    if spec.period is None or spec.burst is None:
        given, missing = ("burst", "period") if spec.period is None else ("period", "burst")
        raise DomainError(f"a {given} without a {missing}", path=(given,), hint=f"add {missing}, or leave out both")
    if spec.burst >= spec.period:
        message = f"a burst of {format_quantity(spec.burst, 's')} does not end within a period of {format_quantity(spec.period, 's')}"
        raise DomainError(message, path=("burst",), hint="write less than the period, or leave out both for a load without end")
    return spec.period, spec.burst

"""The ``background`` of a scenario: loads on links that are found by name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clustersim.errors import ScenarioError
from clustersim.program.background import Background
from clustersim.scenario.link_names import links_named
from clustersim.scenario.schema import BackgroundSpec
from clustersim.topology.wired import WiredCluster
from clustersim.units.quantity import format_quantity


def background_of(specs: Sequence[BackgroundSpec], cluster: WiredCluster) -> tuple[tuple[Background, ...], ...]:
    """Return for each entry its loads on the links of a cluster: one for each rate, which a share gives for each bandwidth.

    Raises
    ------
    ScenarioError
        A name means no link, a link cannot carry the load, or the bursts contradict themselves.
    """
    unnamed = [index for index, spec in enumerate(specs) if spec.name is None]
    names = {index: "background" if len(unnamed) == 1 else f"background {place}" for place, index in enumerate(unnamed)}
    return tuple(_loads(spec, cluster, spec.name or names[index], f"background.{index}") for index, spec in enumerate(specs))


def _loads(spec: BackgroundSpec, cluster: WiredCluster, name: str, field: str) -> tuple[Background, ...]:
    period_s, burst_s = _bursts(spec, field)
    links: dict[int, None] = {}
    for place, text in enumerate(spec.links):
        links.update(dict.fromkeys(_working(cluster, text, f"{field}.links.{place}")))
    by_rate: dict[float, list[int]] = {}
    for link_id in sorted(links):
        bandwidth_bytes_per_s = float(cluster.bandwidth_bytes_per_s[link_id])
        rate_bytes_per_s = spec.load.on(bandwidth_bytes_per_s)
        if rate_bytes_per_s > bandwidth_bytes_per_s:
            message = f"{cluster.link_name(link_id)} carries {format_quantity(bandwidth_bytes_per_s, 'B/s')} at most"
            raise ScenarioError(message, field=f"{field}.load", hint="write a smaller rate, or a share such as 100 %")
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


def _working(cluster: WiredCluster, text: str, field: str) -> tuple[int, ...]:
    found = links_named(cluster, text, field=field)
    works = found if cluster.works is None else tuple(link_id for link_id in found if cluster.works[link_id])
    if not works:
        raise ScenarioError(f"'{text}' is down", field=field, hint="leave it out")
    return works


def _shared(cluster: WiredCluster, link_ids: Sequence[int]) -> tuple[int, ...]:
    """Return the links whose capacity some links take: both directions of a half-duplex link are one."""
    if cluster.shared is None:
        return tuple(link_ids)
    return tuple(cluster.shared[np.array(link_ids, dtype=np.int64)].tolist())


def _bursts(spec: BackgroundSpec, field: str) -> tuple[float, float]:
    """Return the period and the burst; zeros for a load without end."""
    if spec.period is None and spec.burst is None:
        return 0.0, 0.0
    if spec.period is None or spec.burst is None:
        given, missing = ("burst", "period") if spec.period is None else ("period", "burst")
        raise ScenarioError(f"a {given} without a {missing}", field=f"{field}.{given}", hint=f"add {missing}, or leave out both")
    if spec.burst >= spec.period:
        message = f"a burst of {format_quantity(spec.burst, 's')} does not end within a period of {format_quantity(spec.period, 's')}"
        raise ScenarioError(message, field=f"{field}.burst", hint="write less than the period, or leave out both for a load without end")
    return spec.period, spec.burst

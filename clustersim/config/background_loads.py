"""The ``background`` of a scenario: loads on links that are found by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Final

import numpy as np

from clustersim.config.scenario_schema import BackgroundSpec
from clustersim.documents.near_names import did_you_mean
from clustersim.errors import DomainError, inside
from clustersim.program.program import Background
from clustersim.topology.names import name_expression
from clustersim.topology.wired import Cluster
from clustersim.units.quantity import format_quantity

_MOST_NAMES: Final = 2000
"""Number of known names among which the nearest is searched."""

_MOST_SHOWN: Final = 6


def background_of(specs: Sequence[BackgroundSpec], cluster: Cluster) -> tuple[tuple[Background, ...], ...]:
    """Return for each entry its loads on the links of a cluster: one for each rate, which a share gives for each bandwidth."""
    unnamed = [index for index, spec in enumerate(specs) if spec.name is None]
    names = {index: "background" if len(unnamed) == 1 else f"background {place}" for place, index in enumerate(unnamed)}
    loads: list[tuple[Background, ...]] = []
    for index, spec in enumerate(specs):
        with inside("background", index):
            loads.append(_loads(spec, cluster, spec.name or names[index]))
    return tuple(loads)


def _loads(spec: BackgroundSpec, cluster: Cluster, name: str) -> tuple[Background, ...]:
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


def _working(cluster: Cluster, text: str) -> tuple[int, ...]:
    found = links_named(cluster, text)
    works = found if cluster.works is None else tuple(link_id for link_id in found if cluster.works[link_id])
    if not works:
        raise DomainError(f"'{text}' is down", hint="leave it out")
    return works


def _shared(cluster: Cluster, link_ids: Sequence[int]) -> tuple[int, ...]:
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


def links_named(cluster: Cluster, text: str) -> tuple[int, ...]:
    """Return the ids of the links that a name means, ascending.

    Parameters
    ----------
    text
        Such as ``leaf0/up`` or ``node[0-3]/nic*/tx``: ``*`` stands for anything up to the next slash, brackets for some of the numbers.

    Raises
    ------
    DomainError
        No link goes by such a name.
    """
    expression = name_expression(text)
    found = tuple(link_id for link_id in range(len(cluster.links)) if expression.fullmatch(cluster.link_name(link_id)))
    if not found:
        raise DomainError(f"there is no link '{text}'", hint=_nearest(cluster, text))
    return found


def _nearest(cluster: Cluster, text: str) -> str:
    first = cluster.first_fabric_link
    names = [cluster.link_name(link_id) for link_id in (*range(first, len(cluster.links)), *range(first))]
    place = text.split("/", maxsplit=1)[0]
    here = [name for name in names if name.split("/", maxsplit=1)[0] == place]
    digits = re.findall(r"\d+", text)
    alike = [name for name in names if re.findall(r"\d+", name) == digits]
    near = did_you_mean(text, here) or did_you_mean(text, alike[:_MOST_NAMES]) or did_you_mean(text, names[:_MOST_NAMES])
    if near is not None:
        return near
    shown = dict.fromkeys(re.sub(r"\d+", "*", name) for name in names)
    return f"there are such as {', '.join(islice(shown, _MOST_SHOWN))}; all stand in links.csv of a run or use *"

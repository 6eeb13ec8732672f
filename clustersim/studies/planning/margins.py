"""What a tenth more of each resource would buy for the layout that won."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from clustersim.hardware.models import Node
from clustersim.scenario.build import Built
from clustersim.scenario.machine import link_changes
from clustersim.scenario.run import run_built
from clustersim.studies.planning.drafts import Drafts
from clustersim.studies.planning.search import Search, Tried
from clustersim.topology.lately import cluster_of

MORE: Final = 1.1


def _products(node: Node) -> Node:
    peaks = {precision: MORE * rate for precision, rate in node.accelerator.peak_flops_per_s.items()}
    return replace(node, accelerator=replace(node.accelerator, peak_flops_per_s=MappingProxyType(peaks)))


def _memory(node: Node) -> Node:
    card = node.accelerator
    return replace(node, accelerator=replace(card, memory_bandwidth_bytes_per_s=MORE * card.memory_bandwidth_bytes_per_s))


def _scale_up(node: Node) -> Node:
    card = node.accelerator
    return replace(node, accelerator=replace(card, scale_up_bandwidth_bytes_per_s=MORE * card.scale_up_bandwidth_bytes_per_s))


RESOURCES: Final[Mapping[str, Callable[[Node], Node]]] = MappingProxyType(
    {"rate of matrix products": _products, "memory bandwidth": _memory, "scale-up bandwidth": _scale_up}
)
"""What is made a tenth larger, by what people call it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """What a tenth more of something would buy."""

    resource: str
    step_time_s: float
    gain_fraction: float
    """Of the step time."""
    layout: str | None = None
    """Another layout that becomes possible; None where it is the same one."""


def margins(drafts: Drafts, search: Search) -> tuple[Margin, ...]:
    """Return what a tenth more of each resource buys, largest gain first.

    The layout stays as it is, but for memory: there the layouts count that were faster by their bound and fit only then.
    """
    winner = search.winner
    if winner is None:
        return ()
    built = drafts.built(winner.layout)
    found = [_faster(built, winner, name, change) for name, change in RESOURCES.items()]
    found.append(_larger(drafts, search, winner))
    return tuple(sorted(found, key=lambda margin: (-margin.gain_fraction, margin.resource)))


def _faster(built: Built, winner: Tried, name: str, change: Callable[[Node], Node]) -> Margin:
    kinds = tuple((change(node), count) for node, count in built.cluster.kinds)
    cluster = cluster_of(kinds, built.cluster.fabric, changes=link_changes(built.scenario.spec.cluster))
    after = run_built(replace(built, cluster=cluster)).step_time_s
    return Margin(resource=name, step_time_s=after, gain_fraction=1.0 - after / winner.step_time_s)


def _larger(drafts: Drafts, search: Search, winner: Tried) -> Margin:
    best_s, layout = winner.step_time_s, None
    for large in sorted(search.too_large, key=lambda each: (each.bound_s, each.layout)):
        if large.bound_s >= best_s:
            break
        step_time_s = run_built(drafts.built(large.layout)).step_time_s
        if step_time_s < best_s:
            best_s, layout = step_time_s, large.layout.words()
    return Margin(resource="memory", step_time_s=best_s, gain_fraction=1.0 - best_s / winner.step_time_s, layout=layout)

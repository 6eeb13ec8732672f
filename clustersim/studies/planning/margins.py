"""What a tenth more of each resource would buy for the layout that won."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from clustersim.hardware.models import Fabric, Node
from clustersim.scenario.build import Built
from clustersim.scenario.machine import link_changes
from clustersim.scenario.run import run_built
from clustersim.studies.planning.drafts import Drafts
from clustersim.studies.planning.search import Search, TooLarge, Tried
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


def _network(node: Node) -> Node:
    return replace(node, nic=replace(node.nic, bandwidth_bytes_per_s=MORE * node.nic.bandwidth_bytes_per_s))


def _as_it_is(node: Node) -> Node:
    return node


RESOURCES: Final[Mapping[str, Callable[[Node], Node]]] = MappingProxyType(
    {"rate of matrix products": _products, "memory bandwidth": _memory, "scale-up bandwidth": _scale_up, "network bandwidth": _network}
)
"""What is made a tenth larger, by what people call it; the switches grow with the adapters."""
UPLINKS: Final = "uplinks of leaf switches"
"""These too, where they are fewer than what hangs below them."""

MOST_LARGER: Final = 2
"""Layouts that are replayed because they would fit into a tenth more memory: those that could be fastest."""


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
    fabric = built.cluster.fabric
    several = built.cluster.n_nodes > 1
    found = [_faster(built, winner, name, (change, fabric)) for name, change in RESOURCES.items() if several or change is not _network]
    if several and fabric.oversubscription > 1.0:
        wider = replace(fabric, oversubscription=max(1.0, fabric.oversubscription / MORE))
        found.append(_faster(built, winner, UPLINKS, (_as_it_is, wider)))
    found.append(_larger(drafts, search, winner))
    return tuple(sorted(found, key=lambda margin: (-margin.gain_fraction, margin.resource)))


def _faster(built: Built, winner: Tried, name: str, after: tuple[Callable[[Node], Node], Fabric]) -> Margin:
    change, fabric = after
    kinds = tuple((change(node), count) for node, count in built.cluster.kinds)
    cluster = cluster_of(kinds, fabric, changes=link_changes(built.scenario.spec.cluster))
    step_time_s = run_built(replace(built, cluster=cluster)).step_time_s
    return Margin(resource=name, step_time_s=step_time_s, gain_fraction=1.0 - step_time_s / winner.step_time_s)


def _larger(drafts: Drafts, search: Search, winner: Tried) -> Margin:
    best_s, layout = winner.step_time_s, None
    could = [(_least_s(drafts, large), large.layout) for large in search.too_large if large.bound_s < best_s]
    for least_s, each in sorted(could)[:MOST_LARGER]:
        if least_s >= best_s:
            break
        step_time_s = run_built(drafts.built(each)).step_time_s
        if step_time_s < best_s:
            best_s, layout = step_time_s, each.words()
    return Margin(resource="memory", step_time_s=best_s, gain_fraction=1.0 - best_s / winner.step_time_s, layout=layout)


def _least_s(drafts: Drafts, large: TooLarge) -> float:
    plan = drafts.whole_plan(large.layout)
    assert not isinstance(plan, str)  # it has a bound
    return max(large.bound_s, drafts.bench().in_order_s(plan))

"""Flow classes on link classes: who crosses what, and who can ever meet whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from clustersim.network.alike import links_alike
from clustersim.network.filling import Filling, spans
from clustersim.topology.cluster import FloatArray, IntArray
from clustersim.topology.link_demand import Footprint

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlowClass:
    """Coupled flows that differ in nothing but their bytes and their start."""

    footprint: Footprint
    weight: float
    """Under progressive filling the rate grows as this times the level."""
    cap_bytes_per_s: float
    """The rate never exceeds it."""

    @property
    def limit(self) -> float:
        """The highest level."""
        return self.cap_bytes_per_s / self.weight

    @property
    def key(self) -> tuple[float, ...]:
        """Key that two flow classes share when they are one, and mostly not otherwise."""
        links, flows = self.footprint.link_ids, self.footprint.flows
        ends = (int(links[0]), int(links[-1])) if len(links) else ()
        return (self.weight, self.cap_bytes_per_s, len(links), *ends, int(links.sum()), float(flows.sum()))

    def is_like(self, other: FlowClass) -> bool:
        """Return whether two flow classes are one."""
        if self.weight != other.weight or self.cap_bytes_per_s != other.cap_bytes_per_s:
            return False
        mine, its = self.footprint, other.footprint
        return mine is its or (np.array_equal(mine.link_ids, its.link_ids) and np.array_equal(mine.flows, its.flows))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wiring:
    """All flow classes on link classes, in compressed rows: flow class v crosses ``link_classes[starts[v]:starts[v + 1]]``.

    A link class is a set of links that no flow class tells apart. They have the same capacity, the same label, and as many flows of
    every class, so that they are full at the same moment and one of them stands for all.
    """

    starts: IntArray
    link_classes: IntArray
    flows: FloatArray
    """Number of flows of the class that cross each link of the link class."""
    loads: FloatArray
    """Demand of one flow of the class on each link of the link class at level 1: coefficient times weight."""
    limits: FloatArray
    """Highest level of each flow class."""
    components: IntArray
    """For each flow class the first of those that it is connected with, through links that others use too."""
    capacity_bytes_per_s: FloatArray
    """Bandwidth of each link of a link class."""
    first_link: IntArray
    """The lowest link of each link class."""
    class_of_link: IntArray
    """For each link of the cluster; -1 for those that no flow class crosses."""

    @property
    def n_links(self) -> IntArray:
        """Number of links in each link class."""
        return np.bincount(self.class_of_link[self.class_of_link >= 0], minlength=len(self.first_link))

    def meets(self) -> BoolArray:
        """Return a matrix that says which flow classes share a link with which."""
        n_flow_classes = len(self.limits)
        flow_classes = np.repeat(np.arange(n_flow_classes), np.diff(self.starts))
        by_link_class = np.argsort(self.link_classes, kind="stable")
        bounds = np.searchsorted(self.link_classes[by_link_class], np.arange(len(self.first_link) + 1)).tolist()
        together = np.zeros((n_flow_classes, n_flow_classes), dtype=np.bool_)
        # One link class after the other: a table of all would not fit in memory where every group is a flow class of its own.
        for here in {flow_classes[by_link_class[first:last]].tobytes() for first, last in pairwise(bounds)}:
            crossing = np.frombuffer(here, dtype=flow_classes.dtype)
            together[crossing[:, None], crossing] = True
        return together

    def problem(self, flow_classes: IntArray, counts: FloatArray) -> tuple[Filling, IntArray, IntArray]:
        """Return the max-min problem of some flow classes alone, with its entries and its link classes as numbered here.

        Parameters
        ----------
        flow classes
            Ascending and distinct.
        counts
            Flows in flight of each of them.
        """
        entries = spans(self.starts, flow_classes)
        lengths = self.starts[flow_classes + 1] - self.starts[flow_classes]
        link_classes, numbers = np.unique(self.link_classes[entries], return_inverse=True)
        problem = Filling(
            starts=np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths))),
            link_classes=numbers,
            loads=self.loads[entries] * np.repeat(counts, lengths),
            limits=self.limits[flow_classes],
            capacity_bytes_per_s=self.capacity_bytes_per_s[link_classes],
        )
        return problem, entries, link_classes


def wiring_of(flow_classes: Sequence[FlowClass], capacity_bytes_per_s: FloatArray, labels: IntArray) -> Wiring:
    """Return the flow classes on the link classes of their links.

    Parameters
    ----------
    capacity_bytes_per_s
        Of every link of the cluster.
    labels
        One number for each link of the cluster; links with different labels are kept apart.
    """
    alike = links_alike([flow_class.footprint for flow_class in flow_classes], capacity_bytes_per_s, labels)
    link_classes, class_of, flows = alike.entries.places, alike.entries.flow_classes, alike.entries.flows
    return Wiring(
        starts=np.searchsorted(class_of, np.arange(len(flow_classes) + 1)),
        link_classes=link_classes,
        flows=flows,
        loads=flows * np.array([flow_class.weight for flow_class in flow_classes])[class_of],
        limits=np.array([flow_class.limit for flow_class in flow_classes]),
        components=_components(link_classes, class_of, len(flow_classes), len(alike.first_link)),
        capacity_bytes_per_s=capacity_bytes_per_s[alike.first_link].astype(np.float64),
        first_link=alike.first_link,
        class_of_link=alike.class_of_link,
    )


def _components(link_classes: IntArray, class_of: IntArray, n_flow_classes: int, n_link_classes: int) -> IntArray:
    """Return for each flow class the lowest that it is connected with: names spread to link classes and back until none changes."""
    names = np.arange(n_flow_classes)
    while True:
        link_names = np.full(n_link_classes, n_flow_classes)
        np.minimum.at(link_names, link_classes, names[class_of])
        spread = names.copy()
        np.minimum.at(spread, class_of, link_names[link_classes])
        # Whoever a flow class is named after may have a lower name by now.
        spread = spread[spread]
        if (spread == names).all():
            return names
        names = spread

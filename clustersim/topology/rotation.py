"""Rotations of a cluster: in every node each accelerator takes the place of one a few further on, and nothing else changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clustersim.topology.cluster import IntArray, Rotation
from clustersim.topology.cluster_layout import ClusterLayout
from clustersim.topology.node_wiring import PathTable
from clustersim.topology.trees import BundledTree


def rotation_of(layout: ClusterLayout, kinds: Sequence[NDArray[np.int32]], step: int) -> Rotation | None:
    """Return the rotation by a number of accelerators; None where routes between ranks or link properties change with it.

    Only nodes of one kind that all have links of the same values, without dedicated servers, and joined by one domain or by bundles of
    cables, are looked at.

    Parameters
    ----------
    kinds
        Of each link; several where links are of kinds in several respects.
    """
    group, scale_out = layout.groups[0], layout.scale_out
    per_node, n_rotations = group.n_accelerators, group.n_accelerators // step
    if len(layout.groups) > 1 or len(layout.tables.adapter_of) > 1 or per_node % step or n_rotations == 1:
        return None
    rotated = (np.arange(per_node, dtype=np.int64) + step) % per_node
    n_wires, end = len(group.wiring.wires), layout.first_fabric_link
    wires = _lowest(*_moved_wires(layout, rotated), size=n_wires, n_rotations=n_rotations)
    if wires is None or any(bool((of_links[:end].reshape(-1, n_wires) != of_links[wires[0]]).any()) for of_links in kinds):
        return None
    lowest_link, n_alike = np.empty(layout.n_links, dtype=np.int32), np.ones(layout.n_links, dtype=np.int8)
    np.add(layout.numbering.first_wire[:-1, None], wires[0], out=lowest_link[:end].reshape(-1, n_wires), casting="same_kind")
    lowest_link[end:] = np.arange(end, layout.n_links)
    n_alike[:end].reshape(-1, n_wires)[:] = wires[1]
    if scale_out is not None:
        if not isinstance(scale_out, BundledTree) or not layout.numbering.all_have(layout.n_rails):
            return None
        fabric = _lowest_in_fabric(scale_out, layout.tables.adapter_of[0, :per_node], rotated, n_rotations=n_rotations)
        if fabric is None:
            return None
        between = slice(end, layout.first_memory_link)
        if any(bool((of_links[between][fabric[0]] != of_links[between]).any()) for of_links in kinds):
            return None
        lowest_link[between], n_alike[between] = end + fabric[0], fabric[1]
    firsts = layout.numbering.first_rank[:-1, None]
    return Rotation(
        n_rotations=n_rotations,
        per_node=per_node,
        rotated_rank=(firsts + rotated).reshape(-1),
        lowest_rank=(firsts + np.arange(per_node, dtype=np.int64) % step).reshape(-1),
        lowest_link=lowest_link,
        n_alike=n_alike,
    )


def _moved_wires(layout: ClusterLayout, rotated: IntArray) -> tuple[IntArray, IntArray]:
    """Return the wires of a node on all routes between ranks, and those on the routes between rotated ranks."""
    tables, here = layout.tables, np.arange(len(rotated), dtype=np.int64)
    adapters = tables.adapter_of[0, : len(rotated)]
    ways: list[tuple[PathTable, IntArray, IntArray]] = [(tables.inside, np.repeat(here, len(here)), np.tile(here, len(here)))]
    if layout.scale_out is not None:
        ways += [(tables.outward, here, adapters), (tables.inward, here, adapters)]
    if layout.groups[0].wiring.ports:
        ways += [(tables.to_switch, here, here), (tables.from_switch, here, here)]
    before: list[IntArray] = []
    after: list[IntArray] = []
    for table, rows, columns in ways:
        peers = adapters[rotated[rows]] if table in (tables.outward, tables.inward) else rotated[columns]
        before.append(table.wires[0, rows, columns].reshape(-1))
        after.append(table.wires[0, rotated[rows], peers].reshape(-1))
    return np.concatenate(before), np.concatenate(after)


def _lowest_in_fabric(tree: BundledTree, rails: IntArray, rotated: IntArray, *, n_rotations: int) -> tuple[IntArray, IntArray] | None:
    """Return the lowest equivalent link of each link of a tree, and their number; None where a rotation leads to other pods."""
    leaves = tree.leaves
    own = leaves.leaf_of(np.zeros_like(rails), rails)
    found = _lowest(own, own[rotated], size=leaves.leaves_per_unit, n_rotations=n_rotations)
    if found is None:
        return None
    numbers = np.arange(leaves.n_leaves, dtype=np.int64)
    within = numbers % leaves.leaves_per_unit
    lowest = numbers - within + found[0][within]
    if (leaves.pod_of(lowest) != leaves.pod_of(numbers)).any():
        return None
    links, n_alike = np.arange(len(tree.tier_index), dtype=np.int64), np.ones(len(tree.tier_index), dtype=np.int64)
    if leaves.n_leaves > 1:
        both = slice(0, 2 * leaves.n_leaves)
        links[both] = np.repeat(2 * lowest, 2) + np.tile(np.arange(2), leaves.n_leaves)
        n_alike[both] = np.repeat(found[1][within], 2)
    return links, n_alike


def _lowest(before: IntArray, after: IntArray, *, size: int, n_rotations: int) -> tuple[IntArray, IntArray] | None:
    """Return the lowest of the things that take the place of each, and how many do.

    None where what takes the place of a thing depends on the way that it is on, or where it comes back after some of the rotations.

    Parameters
    ----------
    before, after
        Things on ways, and those on the same ways after the rotation; -1 where a way is over. What is on none stays where it is.
    size
        Number of things.
    """
    numbers = np.arange(size, dtype=np.int64)
    places = numbers.copy()
    if ((before < 0) != (after < 0)).any():
        return None
    used = before >= 0
    places[before[used]] = after[used]
    if (places[before[used]] != after[used]).any() or (np.bincount(places, minlength=size) != 1).any():
        return None
    moves = places != numbers
    lowest, image = numbers.copy(), places
    for _ in range(n_rotations - 1):
        if (image[moves] == numbers[moves]).any():
            return None
        lowest, image = np.minimum(lowest, image), places[image]
    if (image != numbers).any():
        return None
    return lowest, np.where(moves, n_rotations, 1)

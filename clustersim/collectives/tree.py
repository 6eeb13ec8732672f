"""All-reduce over two complementary binary trees among the domains, and chains through each domain."""

from __future__ import annotations

from typing import Final

import numpy as np

from clustersim.collectives.collective_flows import flow_set, joined
from clustersim.collectives.group_layout import GroupLayout, chains, largest_block, layouts, most_rails
from clustersim.collectives.pattern import Algorithm, Flows, Grouping, Pattern
from clustersim.topology.cluster import IntArray
from clustersim.topology.wired import Cluster


def lay_tree(cluster: Cluster, group: Grouping) -> Pattern:
    """Return a double binary tree all-reduce.

    Each rail carries its share of the tensor, half of it over either tree: up to the root to be added, and down again. In
    every domain a chain from the head of the rail through all members collects and hands out; a group inside one domain
    is chains alone. Chunks follow each other, so that everything flows at once; the first takes ``2 (g - 1)`` steps inside
    domains and ``2 floor(log2 N)`` between them.

    References
    ----------
    .. [1] P. Sanders, J. Speck and J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
       *Parallel Computing* 35(12), 2009.
    .. [2] NVIDIA NCCL 2.30, ``src/graph/tuning.cc``: the steps of the tree algorithm.
    """
    found = layouts(group)
    n_rails = most_rails(found)
    inside: list[Flows] = []
    between: list[Flows] = []
    for layout in found:
        factor = n_rails / layout.n_rails
        chain = chains(cluster, layout).times(2 * factor)
        inside += [chain, chain.back()]
        between.append(trees_over_domains(layout).times(factor))
    steps = (2 * (largest_block(found) - 1), 2 * depth(group.n_domains))
    tree = flow_set(cluster, inside=joined(inside), between=joined(between), share=1 / (2 * n_rails), steps=steps)
    return Pattern(phases=((tree,),), uniform=group.per_domain > 0)


def trees_over_domains(layout: GroupLayout) -> Flows:
    """Return both trees on each rail, one flow up and one down on each edge; a flow has half of the rail's bytes."""
    heads = layout.heads()
    parts: list[Flows] = []
    for parents in two_trees(layout.n_domains):
        children = np.flatnonzero(parents >= 0)
        sources = heads[:, children].reshape(-1)
        up = Flows(sources=sources, destinations=heads[:, parents[children]].reshape(-1), counts=np.ones(len(sources)))
        parts += [up, up.back()]
    return joined(parts)


def two_trees(n: int) -> tuple[IntArray, IntArray]:
    """Return the parent of each of n places in two binary trees, -1 at the root.

    The first is the tree whose nodes are numbered in order: the further a number from 1 divides by two, the higher its node stands,
    and odd ones are leaves. The second is its mirror image, or with an odd n the first moved on by one place, so
    that no place has children in both [1]_.

    References
    ----------
    .. [1] P. Sanders, J. Speck and J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
       *Parallel Computing* 35(12), 2009, sections 2 and 3.

    Examples
    --------
    >>> two_trees(5)
    (array([ 1,  3,  1, -1,  3]), array([ 4,  2,  4,  2, -1]))
    """
    numbers = np.arange(1, n + 1, dtype=np.int64)
    height = numbers & -numbers
    joins = (numbers ^ height) | 2 * height
    # At the right edge the parent may be missing; the next that is there is found by dropping the lowest bit.
    parents = np.where(joins <= n, joins, numbers ^ height) - 1
    turned = np.where(parents >= 0, n - 1 - parents, -1)[::-1] if n % 2 == 0 else np.roll(np.where(parents >= 0, (parents + 1) % n, -1), 1)
    return parents, turned


def depth(n: int) -> int:
    """Return the edges from the root to the deepest of n places."""
    return n.bit_length() - 1


TREE: Final = Algorithm(name="tree", lay=lay_tree)

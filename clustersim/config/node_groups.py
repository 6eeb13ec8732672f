"""Groups of nodes of one kind each, as ``cluster.nodes`` lists them, and the hardware that they amount to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import Annotated

from pydantic import AfterValidator, Field

from clustersim.config.own_constants import ConstantsFile
from clustersim.errors import ScenarioError
from clustersim.hardware.models import Fabric, Node
from clustersim.hardware.profile_schema import NodeChange
from clustersim.units.fields import Degree, mistake


class NodeGroupSpec(NodeChange):
    """So many nodes of one kind: a shipped one, with any of its parts changed in place, or one described in full."""

    node: str | NodeChange = Field(description="A shipped node, or one described in full.")
    count: Degree = Field(description="How many there are of it.")


def _check_some(groups: list[NodeGroupSpec]) -> list[NodeGroupSpec]:
    if not groups:
        raise mistake("no node is named", "write such as [{node: dgx-h100, count: 4}, {node: dgx-a100-80g, count: 4}]")
    return groups


NodeGroups = Annotated[list[NodeGroupSpec], AfterValidator(_check_some)]
"""A field that holds groups of nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Nodes and fabric of a cluster, before it is wired."""

    kinds: tuple[tuple[Node, int], ...]
    """Each kind of node and how many there are; nodes and ranks count in this order."""
    fabric: Fabric
    unseen: tuple[str, ...]
    """Figures that nobody has seen in a source."""
    constants: ConstantsFile | None = None
    """Measured constants of the user's own; None for the shipped ones."""

    @property
    def node(self) -> Node:
        """The node, or that of the first kind."""
        return self.kinds[0][0]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Node at each place, in order."""
        return tuple(chain.from_iterable(repeat(node, count) for node, count in self.kinds))

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return sum(count for _, count in self.kinds)


def check_alike(nodes: Sequence[Node]) -> None:
    """Refuse kinds of nodes among which the ranks of a plan cannot be laid evenly.

    Raises
    ------
    ScenarioError
        Naming two kinds that have different numbers of accelerators, or unlike accelerators under one name.
    """
    first = nodes[0]
    accelerators = {node.accelerator.name: node.accelerator for node in reversed(nodes)}
    for index, node in enumerate(nodes):
        if replace(node.accelerator, sources=()) != replace(accelerators[node.accelerator.name], sources=()):
            message = f"two accelerators with other figures have the name '{node.accelerator.name}'"
            raise ScenarioError(message, field=f"cluster.nodes.{index}.accelerator", hint="give one of them another 'name'")
        if node.n_accelerators != first.n_accelerators:
            both = f"{node.name} has {node.n_accelerators} accelerators, and {first.name} has {first.n_accelerators}"
            raise ScenarioError(
                both,
                field=f"cluster.nodes.{index}.accelerators_per_node",
                hint=f"nodes of one cluster have equally many: choose another kind, or write accelerators_per_node: {first.n_accelerators}",
            )

"""Groups of nodes of one kind each, their hardware, and measured constants in place of the shipped ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from clustersim.documents.files import named_file, read_text
from clustersim.documents.near_names import choices_hint
from clustersim.documents.text import MOST_BYTES
from clustersim.errors import ScenarioError
from clustersim.hardware.calibration import Calibration
from clustersim.hardware.calibrations import read_calibration
from clustersim.hardware.catalog import profile_names
from clustersim.hardware.models import Fabric, Node
from clustersim.hardware.profile_schema import NodeChange
from clustersim.units.fields import Degree, mistake

FIELD: Final = "cluster.calibration"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantsFile:
    """A calibration file of the user's own."""

    name: str
    """Name of the file, without its folder; a run directory has a copy under it."""
    text: str
    calibration: Calibration


def read_constants(asked: str, scenario: str) -> ConstantsFile:
    """Return the calibration that a scenario names.

    Parameters
    ----------
    asked
        A path, counted from the folder of the scenario or else from the working directory.
    scenario
        The file of the scenario.

    Raises
    ------
    ScenarioError
        When there is no such file, it cannot be used, or names an accelerator that nobody knows.
    """
    otherwise = "write the path of a file of `clustersim calibrate`, counted from the scenario"
    path = named_file(asked, Path(scenario).parent, field=FIELD, otherwise=otherwise)
    calibration = read_calibration(path)
    for name in calibration.accelerators:
        if name not in profile_names("accelerators"):
            message = f"{path.name} was measured on '{name}', which is no known accelerator"
            raise ScenarioError(message, field=FIELD, hint=choices_hint(name, profile_names("accelerators")))
    return ConstantsFile(name=path.name, text=read_text(path, MOST_BYTES), calibration=calibration)


def in_place(calibration: Calibration, kinds: tuple[tuple[Node, int], ...]) -> tuple[tuple[Node, int], ...]:
    """Return kinds of nodes with constants for those of their generation; where none is of it, for all, and results say so."""
    generations = dict.fromkeys(node.accelerator.generation for node, _ in kinds)
    chosen = [calibration.generation] if calibration.generation in generations else generations
    return with_constants(dict.fromkeys(chosen, calibration), kinds)


def with_constants(constants: Mapping[str, Calibration], kinds: tuple[tuple[Node, int], ...]) -> tuple[tuple[Node, int], ...]:
    """Return kinds of nodes whose accelerators have user-supplied constants.

    Parameters
    ----------
    constants
        By generation of accelerators; what is not named stays as it is.
    """
    return tuple((_with(constants, node), count) for node, count in kinds)


def _with(constants: Mapping[str, Calibration], node: Node) -> Node:
    own = constants.get(node.accelerator.generation)
    return node if own is None else replace(node, accelerator=replace(node.accelerator, calibration=own))


class NodeGroupSpec(NodeChange):
    """So many nodes of one kind: a shipped one, with any of its parts changed in place, or one described in full."""

    node: str | NodeChange = Field(description="A shipped node, or one described in full.")
    count: Degree = Field(description="Number of these nodes.")


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
    """Figures without a source."""
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
    """Refuse kinds of nodes among which the ranks of a plan do not divide evenly.

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

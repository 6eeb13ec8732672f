"""What is compared in a study of parameter servers and rings: ``scenarios/studies/parameter-server-or-ring.yaml`` and files like it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field, StringConstraints, model_validator

from clustersim.documents.check import located, validate_document
from clustersim.documents.data import data_path
from clustersim.documents.text import Document, read_document
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import load_nic, load_node, load_switch, named
from clustersim.hardware.models import Fabric, Node
from clustersim.hardware.overrides import node_from_mapping
from clustersim.hardware.schema import Checked, NodeChange
from clustersim.scenario.schema import NAME_PATTERN
from clustersim.units.fields import Bytes, PositiveInt, PositiveRatio

if TYPE_CHECKING:
    from clustersim.documents.spots import Data

COMPARISON: Final = "parameter-server-or-ring"
"""The study that is shipped."""
MOST_WORKERS: Final = 1024
"""More take minutes."""

Name = Annotated[str, StringConstraints(pattern=f"^{NAME_PATTERN}$")]
Sentence = Annotated[str, StringConstraints(min_length=1)]
PositiveBytes = Annotated[Bytes, Field(gt=0)]
Workers = Annotated[PositiveInt, Field(ge=2, le=MOST_WORKERS)]
Servers = Annotated[PositiveInt, Field(le=MOST_WORKERS)]
Oversubscription = Annotated[PositiveRatio, Field(ge=1)]


class ComparedNodeSpec(NodeChange):
    """The node, with any of its parts changed."""

    node: Name


class AdapterSpec(Checked):
    """An adapter and the leaf switch that it is plugged into."""

    nic: Name
    leaf: Name


class CrossoverSizesSpec(Checked):
    """Between which sizes one is sought at which parameter servers and ring take equally long."""

    smallest: PositiveBytes
    largest: PositiveBytes


class ShownSpec(Checked):
    """What tables and pictures show where they cannot show everything."""

    workers: Workers
    servers: list[Servers] = Field(min_length=1)
    size: PositiveBytes


class ComparisonSpec(Checked):
    """A question, the clusters it is asked of, and what is varied; all combinations are compared."""

    name: Name
    question: Sentence
    cluster: ComparedNodeSpec
    adapters: list[AdapterSpec] = Field(min_length=1)
    oversubscription: list[Oversubscription] = Field(min_length=1)
    workers: list[Workers] = Field(min_length=1)
    servers: list[Servers] = Field(min_length=1)
    sizes: list[PositiveBytes] = Field(min_length=1)
    crossover_sizes: CrossoverSizesSpec
    shown: ShownSpec

    @model_validator(mode="after")
    def _check(self) -> ComparisonSpec:
        shown = self.shown
        for field, values in (
            ("oversubscription", self.oversubscription),
            ("workers", self.workers),
            ("servers", self.servers),
            ("sizes", self.sizes),
            ("shown.servers", shown.servers),
        ):
            _check_order(field, values)
        if self.crossover_sizes.smallest >= self.crossover_sizes.largest:
            message = "the largest size is not larger than the smallest"
            raise ScenarioError(message, field="crossover_sizes.largest", hint="write the smaller one first")
        if self.servers[0] > self.workers[0]:
            message = f"{self.servers[0]} servers are more than {self.workers[0]} workers"
            raise ScenarioError(message, field="servers.0", hint="begin with no more servers than workers")
        _check_among("shown.workers", [shown.workers], self.workers)
        _check_among("shown.servers", shown.servers, [count for count in self.servers if count <= shown.workers])
        if shown.size not in self.sizes:
            raise ScenarioError("the size that is shown is not compared", field="shown.size", hint="write one of sizes")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A checked study, with the machines it is about."""

    spec: ComparisonSpec
    nodes: tuple[Node, ...]
    """One for each adapter; the fabric of each is without oversubscription."""

    def fabric(self, node: Node, oversubscription: float) -> Fabric:
        """Return the network of a node with less bandwidth at the top of its leaves."""
        return replace(node.fabric, oversubscription=oversubscription)

    def server_counts(self, workers: int) -> tuple[int, ...]:
        """Return how many servers are compared with a ring of so many workers; as many as workers are always among them."""
        return (*(count for count in self.spec.servers if count < workers), workers)


def read_comparison(path: Path | None = None) -> Comparison:
    """Return a study from a file; the shipped one when none is given.

    Raises
    ------
    ScenarioError
        When the file cannot be used, with the place of the mistake.
    """
    return checked_comparison(read_document(path or data_path("scenarios") / "studies" / f"{COMPARISON}.yaml"))


def checked_comparison(document: Document) -> Comparison:
    """Return the study that a document describes.

    Raises
    ------
    ScenarioError
        When it cannot be used, with the place of the mistake.
    """
    spec = validate_document(ComparisonSpec, document)
    named(load_node, spec.cluster.node, document, ("cluster", "node"))
    node = node_from_mapping(spec.cluster.node, _changes(document), document, ("cluster",))
    try:
        _check_node(node)
    except ScenarioError as error:
        raise located(error, document) from error
    return Comparison(spec=spec, nodes=tuple(_with_adapter(node, adapter, document, index) for index, adapter in enumerate(spec.adapters)))


def _changes(document: Document) -> dict[str, object]:
    given: Data = document.data.get("cluster")
    return {key: given[key] for key in NodeChange.model_fields if key in given} if isinstance(given, dict) else {}


def _check_node(node: Node) -> None:
    # The closed forms are those of workers with one accelerator and one adapter.
    if node.n_accelerators != 1:
        message = f"a worker is a node with one accelerator, not {node.n_accelerators}"
        raise ScenarioError(message, field="cluster.accelerators_per_node", hint="write 1")
    if node.n_nics != 1:
        raise ScenarioError(f"a worker has one adapter, not {node.n_nics}", field="cluster.nics.count", hint="write 1")
    if node.fabric.topology != "leaf_spine":
        raise ScenarioError(
            f"the network is a leaf_spine, not {node.fabric.topology}", field="cluster.fabric.topology", hint="write leaf_spine"
        )


def _with_adapter(node: Node, adapter: AdapterSpec, document: Document, index: int) -> Node:
    leaf = named(load_switch, adapter.leaf, document, ("adapters", index, "leaf"))
    nic = named(load_nic, adapter.nic, document, ("adapters", index, "nic"))
    return replace(node, nic=nic, fabric=replace(node.fabric, leaf=leaf, oversubscription=1.0))


def _check_order(field: str, values: Sequence[float]) -> None:
    for place, (one, other) in enumerate(pairwise(values)):
        if other <= one:
            raise ScenarioError("not in ascending order", field=f"{field}.{place + 1}", hint="write each value once, smaller ones first")


def _check_among(field: str, shown: Sequence[int], compared: Sequence[int]) -> None:
    for count in shown:
        if count not in compared:
            hint = f"write one of {', '.join(str(one) for one in compared)}"
            raise ScenarioError(f"{count} is not compared", field=field, hint=hint)

"""Mistakes of a scenario beside the first: its sections and the parts of its cluster are read without each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from clustersim.config.keys import placed
from clustersim.documents.check import validate_part, value_at
from clustersim.errors import DomainError, ScenarioError

if TYPE_CHECKING:
    from clustersim.documents.text import Document
    from clustersim.parallel.training_plan import StrategySettings

Reader = Callable[[], object]


def with_others(error: ScenarioError, document: Document, *readers: Reader) -> ScenarioError:
    """Return an error, to which is added what else is wrong: the model, the cluster and its parts, and what some readers find."""
    told = {str(each): each for each in _whole(error.beside(error.further))}
    for read in (*readers, *_sections(document)):
        try:
            read()
        except DomainError as other:
            told |= {text: each for each in _whole(placed(other, document)) if (text := str(each)) not in told}
    return error.beside(list(told.values())[1:])


def refusals(document: Document, strategy: StrategySettings) -> Iterator[Reader]:
    """Yield a reader for each technique that may not go with the model."""
    from clustersim.parallel.contributors import CONTRIBUTORS
    from clustersim.workloads.reading.model_spec import load_model

    for each in CONTRIBUTORS:
        yield lambda each=each: each.refuse_model(load_model(document.data.get("model"), document=document).model, strategy)


def _whole(error: ScenarioError) -> list[ScenarioError]:
    others = error.further
    return [error.beside(()), *others]


def _sections(document: Document) -> Iterator[Reader]:
    """Yield a reader for each part of a scenario that no other one changes."""
    from clustersim.config.machine import hardware_of
    from clustersim.config.scenario_schema import ClusterSpec
    from clustersim.workloads.reading.model_spec import load_model

    if "model" in document.data:
        yield lambda: load_model(document.data["model"], document=document)
    cluster = document.data.get("cluster")
    if isinstance(cluster, dict):
        yield lambda: hardware_of(validate_part(ClusterSpec, cluster, document, ("cluster",)), document)
        groups = cluster.get("nodes")
        for index in range(len(groups)) if isinstance(groups, list) else ():
            yield from _parts(document, ("cluster", "nodes", index))
        yield from _parts(document, ("cluster",))


def _parts(document: Document, at: Sequence[str | int]) -> Iterator[Reader]:
    """Yield a reader for the node at a path, and for each part of it that has a name or a file of its own."""
    from clustersim.hardware.catalog import load_node, named
    from clustersim.hardware.own_parts import ACCELERATOR, HOST, NIC, SWITCH, Kind, part_of, read_beside

    def part(key: str, kind: Kind[Any, Any]) -> Iterator[Reader]:
        keys = (*at, *key.split("."))
        asked = value_at(document.data, keys)
        if isinstance(asked, str | dict):
            yield partial(part_of, kind, asked, document, keys)

    node = value_at(document.data, (*at, "node"))
    if isinstance(node, dict):
        yield from _parts(document, (*at, "node"))
    elif isinstance(node, str) and node.endswith(".yaml"):
        yield from _parts(read_beside(node, document, (*at, "node")), ())
    elif isinstance(node, str):
        yield partial(named, load_node, node, document, (*at, "node"))
    yield from part("accelerator", ACCELERATOR)
    yield from part("host", HOST)
    yield from part("nics.model", NIC)
    yield from part("fabric.leaf", SWITCH)
    yield from part("fabric.spine", SWITCH)

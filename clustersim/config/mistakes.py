"""Mistakes of a scenario beside the first: its sections and the parts of its cluster are read without each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustersim.config.keys import placed
from clustersim.documents.check import validate_part, value_at
from clustersim.errors import DomainError, Place, ScenarioError

if TYPE_CHECKING:
    from clustersim.config.machine import Hardware
    from clustersim.config.scenario_schema import ScenarioSpec
    from clustersim.documents.text import Document
    from clustersim.parallel.training_plan import StrategySettings
    from clustersim.topology.changes import LinkChange
    from clustersim.topology.wired import Cluster
    from clustersim.workloads.model import Model

Reader = Callable[[], object]


def with_others(error: ScenarioError, document: Document, *readers: Reader, more: bool = False) -> ScenarioError:
    """Return all mistakes by their lines: an error, those of the model, the cluster and its parts, and what some readers find.

    Of each key one mistake is told. The last of several says that there is ``more`` to check, if so.
    """
    told = _whole(error)
    for read in (*readers, *_sections(document)):
        try:
            read()
        except DomainError as other:
            keys = set(map(_key, told))
            told += [each for each in _whole(placed(other, document)) if _key(each) not in keys]

    def order(each: ScenarioError) -> tuple[bool, bool, int, int]:
        place = each.place or Place(file=document.name)
        return place.line is None, place.file != document.name, place.line or 0, place.column or 0

    first, *others = sorted(told, key=order)
    if more and others:
        others[-1].hint = "; ".join(filter(None, (others[-1].hint, "more is checked once these are mended")))
    return first.beside(others)


def refusals(spec: ScenarioSpec, document: Document, folder: Path) -> Iterator[Reader]:
    """Yield readers for what may not go together: stages and techniques with the model, degrees with the GPUs, the rest with the nodes."""
    from clustersim.config.background_loads import background_of
    from clustersim.config.constraints import check_size, resolve_dp
    from clustersim.config.cost_section import priced_nodes
    from clustersim.config.job_settings import allocate_nodes
    from clustersim.config.machine import hardware_of, link_changes
    from clustersim.config.planning import data_parallel, server_hosts
    from clustersim.config.stragglers import slowdowns_of
    from clustersim.parallel.contributors import CONTRIBUTORS
    from clustersim.parallel.contributors.pipeline_parallel import check_layers
    from clustersim.parallel.training_plan import StrategySettings
    from clustersim.topology.cluster_wiring import cluster_of
    from clustersim.workloads.reading.model_spec import load_model

    def model() -> Model:
        return load_model(document.data.get("model"), document=document).model

    def own_nodes() -> tuple[Hardware, int]:
        hardware = hardware_of(spec.cluster, document)
        check_size(hardware.n_nodes, hardware.node.n_accelerators)
        return hardware, len(allocate_nodes(spec.jobs, hardware.n_nodes).own)

    def fill(strategy: StrategySettings) -> None:
        hardware, n_nodes = own_nodes()
        resolve_dp(strategy, n_nodes * hardware.node.n_accelerators)

    def wire(changes: tuple[LinkChange, ...]) -> Cluster:
        hardware, n_nodes = own_nodes()
        servers = server_hosts(data_parallel(spec.strategy, hardware.node, n_nodes), hardware.node, n_nodes)
        return cluster_of(hardware.kinds, hardware.fabric, servers=servers, changes=changes)

    for each in CONTRIBUTORS:
        yield lambda each=each: each.refuse_model(model(), spec.strategy)
    yield lambda: check_layers(model().n_layers, StrategySettings().changed(pp=spec.strategy.pp), spec.strategy.pp)
    for name in ("tp", "pp", "cp"):
        yield partial(fill, StrategySettings().changed(**{name: getattr(spec.strategy, name)}))
    yield from (partial(fill, spec.strategy), lambda: wire(link_changes(spec.cluster)))
    yield lambda: slowdowns_of(spec.cluster.stragglers, [node.n_accelerators for node in own_nodes()[0].nodes])
    if spec.background:
        yield lambda: background_of(spec.background, wire(()))
    if (cost := spec.cost) is not None:
        yield lambda: priced_nodes(cost, own_nodes()[0].nodes, folder)


def _key(error: ScenarioError) -> tuple[str | None, str]:
    return error.place and error.place.file, error.field or str(error)


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

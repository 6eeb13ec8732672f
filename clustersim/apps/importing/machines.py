"""Machines of an import: descriptions that are read, and the cluster that they give."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Final

from clustersim.apps.importing.deriving import shipped_node
from clustersim.apps.importing.entries import Contents, Entry, ImportOptions
from clustersim.apps.importing.fabric import laid_fabric
from clustersim.apps.importing.fabric_files import (
    read_ibnetdiscover,
    read_kubernetes_nodes,
    read_slurm,
    read_topograph,
)
from clustersim.apps.importing.imported_settings import Draft, Setting, read_settings
from clustersim.apps.importing.infragraph_files import read_infragraph
from clustersim.apps.importing.machine_files import Described, ListedFabric
from clustersim.apps.importing.node_files import read_hostfile, read_hwloc, read_nccl_topology, read_nvidia_smi
from clustersim.apps.importing.recognise import foreign_kind
from clustersim.apps.importing.table import machine_table
from clustersim.config.overriding import CLUSTER_FILES
from clustersim.documents.text import Data, read_document
from clustersim.errors import Place, ScenarioError
from clustersim.hardware.calibrations import calibration_for
from clustersim.hardware.catalog import profile_names
from clustersim.hardware.models import Node
from clustersim.units.quantity import line_rate, parse_quantity

_READERS: Final[Mapping[str, Callable[[str, str], Described]]] = MappingProxyType(
    {
        "nccl_topology": read_nccl_topology,
        "nvidia_smi": read_nvidia_smi,
        "hwloc": read_hwloc,
        "hostfile": read_hostfile,
        "ibnetdiscover": read_ibnetdiscover,
        "slurm": read_slurm,
        "topograph": read_topograph,
        "infragraph": read_infragraph,
        "kubernetes_nodes": read_kubernetes_nodes,
    }
)
_OF_THE_JOB: Final = ("job.nodes", "job.ranks_per_node", "job.accelerator", "job.nearest", "job.instance")
"""Facts of machines that a job may say itself."""
_OF_SLURM: Final = (".gres", ".gpus_per_node", ".gpus_per_task", ".gpus", ".G")
_GENERIC_RESOURCE: Final = re.compile(r"(?:gpu:)?([A-Za-z][\w.-]*):(\d{1,9})")
"""Accelerators by type and number, as in gpu:h100:8."""


def clusters_apart(sources: Sequence[str], asked: ImportOptions) -> tuple[Sequence[str], ImportOptions]:
    """Return the sources without the files of clusters beside them, which are settings like any other, and the options with those."""
    clusters = [source for source in sources if len(sources) > 1 and cluster_of(source) is not None]
    if asked.cluster is not None and asked.cluster.endswith(CLUSTER_FILES):
        clusters.append(asked.cluster)
        asked = replace(asked, cluster=None)
    if len(clusters) > 1:
        raise ScenarioError(f"is a second cluster beside {clusters[0]}", place=Place(file=clusters[1]), hint="give one of them")
    rest = [source for source in sources if source not in clusters]
    if not clusters or not rest:
        return sources, asked
    nodes = () if asked.nodes is None else (f"cluster.nodes={asked.nodes}",)
    return rest, replace(asked, overrides=(*(f"cluster={json.dumps(source)}" for source in clusters), *nodes, *asked.overrides))


def cluster_of(source: str) -> dict[str, Data] | None:
    """Return the cluster in a file that holds nothing else, as an import of a machine writes it; None for any other source."""
    try:
        data = read_document(Path(source)).data if source.endswith(CLUSTER_FILES) else {}
    except ScenarioError:
        return None
    cluster = data.get("cluster")
    return cluster if isinstance(cluster, dict) and set(data) <= {"version", "name", "cluster"} else None


def machine_contents(text: str, file: str) -> Contents | None:
    """Return the content of a machine description; None for any other file.

    Raises
    ------
    ScenarioError
        When it is of a known format, and cannot be read.
    """
    kind = foreign_kind(text)
    if kind is None or kind.reader is None:
        return None
    described = _READERS[kind.reader](text, file)
    entries = tuple(Entry(key=key, value=value, file=file, line=line) for key, value, line in described.facts)
    if not entries and not (described.fabric is not None and described.fabric.nodes):
        raise ScenarioError("names no node and no accelerator", place=Place(file=file), hint=f"name the whole output of {described.title}")
    return Contents(file=file, format="machine", entries=entries, fabric=described.fabric)


def _named_machine(entries: Iterable[Entry]) -> Iterator[Entry]:
    labels = machine_table().file.labels
    for entry in entries:
        key = next((key for key in (entry.key, entry.name.rpartition(".")[2]) if key in labels), None)
        generic = _GENERIC_RESOURCE.fullmatch(str(entry.value)) if entry.name.endswith(_OF_SLURM) else None
        if key is not None and isinstance(entry.value, str | int):
            yield replace(entry, key=labels[key])
        elif generic is not None:
            yield replace(entry, key="accelerators.product", value=generic[1])
            yield replace(entry, key="accelerators.count", value=int(generic[2]))


def labelled_machines(jobs: Sequence[Contents]) -> list[Contents]:
    """Return what the labels of nodes that pods ask for, and the accelerators that Slurm is asked for, say of the machine."""
    found = [(each, tuple(_named_machine((*each.labels, *each.entries)))) for each in jobs]
    return [Contents(file=each.file, format="machine", entries=entries) for each, entries in found if entries]


def join_machines(draft: Draft, machines: Sequence[Contents]) -> None:
    """Add machine descriptions to a draft; process counts of the job take precedence."""
    if not machines:
        return
    found = read_settings(machine_table(), machines)
    said = any(draft.get(key) is not None for key in ("job.ranks", "job.nodes"))
    labels = machine_table().file.labels
    taken = {(key.file, key.line, key.key) for key in found.keys}
    own = (key for key in draft.keys if key.how != "no_effect" or (key.file, key.line, labels.get(key.key.rpartition(".")[2])) not in taken)
    draft.keys = list(own)
    for key in found.keys:
        other = said and key.to == "job.nodes" and key.value != draft.get("job.nodes")
        draft.keys.append(replace(key, note="not taken: the job says its own nodes or ranks") if other else key)
    for key, setting in found.settings.items():
        if key.startswith("cluster.") or (key in _OF_THE_JOB and draft.get(key) is None and not (said and key == "job.nodes")):
            draft.settings[key] = setting
    fabric = fabric_of(machines)
    if fabric is not None and not said and draft.get("job.nodes") is None:
        draft.derive("job.nodes", len(fabric.nodes), "nodes that the file names")


def fabric_of(machines: Sequence[Contents]) -> ListedFabric | None:
    """Return the switches of the last file that lists any."""
    return next((each.fabric for each in reversed(machines) if each.fabric is not None and each.fabric.nodes), None)


def cluster_with(cluster: dict[str, Data], draft: Draft, machines: Sequence[Contents]) -> dict[str, Data]:
    """Return a cluster with the adapters and the fabric of the files, where they differ from the shipped node.

    Raises
    ------
    ScenarioError
        When the fabric has fewer nodes than the job.
    """
    node = _shipped(cluster)
    if node is None or not machines:
        return cluster
    per_node, nodes = cluster.get("accelerators_per_node"), cluster.get("nodes")
    count, bandwidth = draft.whole("cluster.nics.count"), draft.get("cluster.nics.bandwidth")
    nics: dict[str, Data] = {}
    if count is not None and count != node.n_nics:
        nics["count"] = count
    if isinstance(bandwidth, str) and bandwidth != line_rate(node.nic.bandwidth_bytes_per_s):
        nics["bandwidth"] = bandwidth
    same = {f"cluster.nics.{key}" for key in ("count", "bandwidth") if key not in nics}
    draft.drop(*same)
    draft.keys = [replace(each, note=each.note or "that of the shipped node") if each.to in same else each for each in draft.keys]
    found = dict(cluster)
    accelerator, chosen = draft.get("job.accelerator"), draft.settings.get("cluster.node")
    nearest = chosen is not None and chosen.how == "default" and cluster.get("node") == chosen.value
    if nearest and accelerator in profile_names("accelerators") and accelerator != node.accelerator.name:
        found["accelerator"] = accelerator
    if nics:
        found["nics"] = nics
    nic = replace(node.nic, bandwidth_bytes_per_s=parse_quantity(bandwidth, "B/s")) if isinstance(bandwidth, str) else node.nic
    node = replace(
        node, nic=nic, n_nics=count or node.n_nics, n_accelerators=per_node if isinstance(per_node, int) else node.n_accelerators
    )
    fabric = fabric_of(machines)
    if fabric is None:
        return found
    n_nodes = nodes if isinstance(nodes, int) else 1
    if n_nodes > len(fabric.nodes):
        raise ScenarioError(
            f"names {len(fabric.nodes)} nodes, and the job has {n_nodes}",
            place=Place(file=next(each.file for each in machines if each.fabric is fabric)),
            hint="give fewer --nodes, or leave the file out",
        )
    return found | _domain(fabric, node, draft) | _laid(fabric, node, n_nodes, draft)


def _laid(fabric: ListedFabric, node: Node, n_nodes: int, draft: Draft) -> dict[str, Data]:
    laid = laid_fabric(fabric, node, n_nodes) if n_nodes > 1 else None
    if laid is None:
        return {}
    draft.settings["cluster.fabric.topology"] = Setting(
        value=laid.keys["topology"], how="derived", note="; ".join(laid.notes) or "from the switches and cables of the file"
    )
    return {"fabric": laid.keys}


def _domain(fabric: ListedFabric, node: Node, draft: Draft) -> dict[str, Data]:
    """Return the size of a scale-up domain, where the node has one that spans servers."""
    sizes = {len(nodes) for nodes in fabric.domains.values()}
    if node.scale_up.nodes_per_domain == 1 or len(sizes) != 1:
        return {}
    (size,) = sizes
    if size == node.scale_up.nodes_per_domain:
        return {}
    draft.derive("cluster.scale_up.nodes_per_domain", size, "nodes of a block")
    return {"scale_up": {"nodes_per_domain": size}}


def _shipped(cluster: Mapping[str, Data]) -> Node | None:
    name = cluster.get("node", cluster.get("name"))
    return shipped_node(name) if isinstance(name, str) else None


def shipped_machine(name: str) -> str:
    """Return the shipped node that an instance of a cloud is; any other name as it is.

    Examples
    --------
    >>> shipped_machine("p5.48xlarge"), shipped_machine("dgx-h100")
    ('aws-p5', 'dgx-h100')
    """
    row = next(row for row in machine_table().rows if "instance" in row.keys)
    known = next((node for pattern, node in (row.values or {}).items() if pattern != "*" and fnmatchcase(name.lower(), pattern)), None)
    return known if isinstance(known, str) else name


def take_known_attention(draft: Draft, name: str) -> None:
    """Take the fastest attention of a machine without constants for the generation that a file names."""
    accelerator, asked = shipped_node(name).accelerator, draft.settings.get("training.attention")
    if asked is None or asked.how == "given" or asked.value in ("unfused", *calibration_for(accelerator).attention):
        return
    draft.derive("training.attention", "flash", f"nothing is known of {asked.value} on {accelerator.name}: the fastest there")


_MATRIX: Final = "perf_matrix"
"""Table of Megatron-Bridge: accelerator, number of them, precision."""
_COMMON: Final = "common"
_COUNT: Final = "num_gpus_"


def chosen_variant(contents: Contents, cluster: str | None, nodes: int | None, precision: str) -> Contents:
    """Return a file with the layout of one machine, below ``perf``; a file without layouts as it is.

    Raises
    ------
    ScenarioError
        When several layouts fit, or none.
    """
    listed = [(entry, entry.key.split(".")) for entry in contents.entries if entry.key.startswith(f"{_MATRIX}.")]
    held = list(dict.fromkeys((words[1], words[2]) for _, words in listed if len(words) > 3))
    if not held:
        return contents
    fits = [each for each in held if _fits(*each, cluster, nodes)]
    if len(fits) != 1:
        layouts = ", ".join(f"{count.removeprefix(_COUNT)} {name}" for name, count in fits or held)
        raise ScenarioError(
            f"holds layouts of several machines: {layouts}",
            place=Place(file=contents.file),
            hint="choose one with --cluster NAME, such as dgx-h100, and --nodes N",
        )
    ((name, count),) = fits
    kept = [(entry, words[3:]) for entry, words in listed if words[1:3] == [name, count]]
    others = list(dict.fromkeys(words[0] for _, words in kept if words[0] != _COMMON))
    wanted = next((each for each in others if each.startswith(precision)), None)
    entries = [*_below([each for each in kept if each[1][0] == _COMMON]), *_below([each for each in kept if each[1][0] == wanted])]
    line = kept[0][0].line
    facts = {"gpu": name, "num_gpus": int(count.removeprefix(_COUNT)), "compute_dtype": wanted or precision}
    entries += [Entry(key=key, value=value, file=contents.file, line=line) for key, value in facts.items()]
    rest = [entry for entry in contents.entries if not entry.key.startswith(f"{_MATRIX}.")]
    return replace(contents, entries=(*rest, *entries))


def _below(entries: Sequence[tuple[Entry, list[str]]]) -> list[Entry]:
    return [replace(entry, key=f"perf.{words[1]}") for entry, words in entries if len(words) == 2]


def _fits(name: str, count: str, cluster: str | None, nodes: int | None) -> bool:
    if cluster not in (*profile_names("clusters"), *profile_names("nodes")):
        return cluster is None
    node = shipped_node(cluster)
    asked = None if nodes is None else f"{_COUNT}{nodes * node.n_accelerators}"
    return node.accelerator.name.startswith(name) and asked in (None, count)

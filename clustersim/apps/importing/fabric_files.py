"""Descriptions of fabrics and of schedulers' clusters: ibnetdiscover, Slurm, topograph, labels of Kubernetes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from clustersim.apps.importing.machine_files import (
    Described,
    Fact,
    ListedFabric,
    ListedSwitch,
    counted,
    expanded,
    mapping_of,
    mappings_in,
    texts_in,
)
from clustersim.apps.importing.table import machine_table
from clustersim.documents.composing import read_yaml
from clustersim.documents.text import Data
from clustersim.errors import Place, ScenarioError

_SWITCH: Final = re.compile(r'Switch\s+\d+\s+"(S-[^"]+)"\s*#\s*"([^"]*)"')
_PORT: Final = re.compile(
    r'\[(\d+)\](?:\[ext \d+\])?\s+"([SH]-[^"]+)"\[\d+\](?:\[ext \d+\])?(?:\([^)]*\))?\s*#\s*"([^"]*)".*?\b(\d{1,2})x([A-Z]+)'
)
_LISTED_PORT: Final = re.compile(
    r"SW\s+\d+\s+(\d+)\s+0x(\w+)\s+(\d{1,2})x\s+([A-Z]+)\s+-\s+(SW|CA)\s+\d+\s+\d+\s+0x(\w+)\s+\(\s*'([^']*)'\s+-\s+'([^']*)'\s*\)"
)
_LANES: Final = {"SDR": 2.5, "DDR": 5.0, "QDR": 10.0, "FDR": 14.0, "EDR": 25.0, "HDR": 50.0, "NDR": 100.0, "XDR": 200.0}
"""Gigabits per second of one lane of InfiniBand, as its generations are named."""
_AGGREGATION: Final = "Aggregation Node"
_UNNAMED: Final = re.compile(r"ConnectX|Mellanox Technologies|^MT\d")
_SLURM: Final = re.compile(r"(\w+)=(\S+)")
_GPUS: Final = re.compile(r"\bgpu\b(?::([A-Za-z][\w.-]*))?(?::(\d{1,4}))?")
_TRACKED: Final = re.compile(r"\bgres/gpu(?::([A-Za-z][\w.-]*))?=(\d{1,7})\b")
"""Accelerators among what Slurm tracks."""
_SLURM_YAML: Final = re.compile(r"^\s*-\s*(?:topology|cluster_default):", re.MULTILINE)
_LISTED: Final = re.compile(r"^NAME\s+STATUS\s.*\bLABELS\s*$", re.MULTILINE)
"""Head of what ``kubectl get nodes --show-labels`` prints."""
_TOLD: Final = re.compile(r"^Name: +(?=\S+$)", re.MULTILINE)
"""Head of a node as ``kubectl describe node`` prints it."""
_DOMAIN_LABEL: Final = re.compile(r"^accelerat(?:or|ed)\.topology|topology\.nvidia\.com/accelerator$")


class _Port(NamedTuple):
    """A line about a switch: one of its ports, or, without a peer, that it is there."""

    line: int
    switch: str
    """GUID and name: either may be taken out of a file that is shown to others."""
    number: str = ""
    peer: str = ""
    described: str = ""
    gigabits: float = 0.0


def read_ibnetdiscover(text: str, file: str) -> Described:
    """Return the switches and cables in the output of ``ibnetdiscover``, with ``-p`` too; adapter names identify nodes.

    Raises
    ------
    ScenarioError
        When a port is listed twice, since two switches have the same GUID and name.
    """
    fabric, names, ports, lines = ListedFabric(), dict[str, str](), [*_ports(text)], dict[tuple[str, str], int]()
    for port in ports:
        if port.switch not in names:
            guid, _, label = port.switch.partition(" ")
            names[port.switch] = _free(label.partition(";")[2].partition(":")[0] or label, guid, names)
        first = lines.setdefault((port.switch, port.number), port.line)
        if port.number and first != port.line:
            hint = f"line {first} lists it too: two switches have the same GUID and the same name; keep one of these apart"
            raise ScenarioError(f"port {port.number} of {port.switch} is listed twice", hint=hint, place=Place(file=file, line=port.line))
    adapters = [port for port in ports if port.peer.startswith("H-") and _AGGREGATION not in port.described]
    unnamed = [port for port in adapters if _UNNAMED.search(port.described)]
    adapters_of = Counter(port.described.split(" ")[0] for port in adapters if port not in unnamed)
    # Beside nodes of several adapters, single ones would be nodes of another kind, and so are a manager and storage.
    left_out = unnamed if len(adapters_of) < adapters_of.total() else []
    nodes_of = Counter(adapters_of.values())
    usual = max(nodes_of, key=lambda number: (nodes_of[number], number), default=0)
    others = [name for name, number in adapters_of.items() if number < usual]
    for port in ports:
        if port not in left_out and port.described.split(" ")[0] not in others:
            _cable(fabric.at(names[port.switch], port.line), port, names)
    fabric.bandwidth, bandwidth = (_commonest(port.gigabits for port in ports if port.peer.startswith(kind)) for kind in "SH")
    first = next((port.line for port in ports if port.peer.startswith("H")), None)
    facts: list[Fact] = [] if bandwidth is None else [("adapters.bandwidth", bandwidth, first)]
    if others:
        facts.append(("nodes.others", ", ".join(others), None))
    if unnamed:
        facts.append(("adapters.left_out" if left_out else "adapters.unnamed", len(unnamed), unnamed[0].line))
    return Described(title="ibnetdiscover", facts=tuple(facts), fabric=fabric)


def _commonest(gigabits: Iterable[float]) -> str | None:
    return next((f"{width} Gbit/s" for width in counted(f"{each:g}" for each in gigabits if each > 0.0)), None)


def _ports(text: str) -> Iterator[_Port]:
    here: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if (listed := _LISTED_PORT.match(line)) is not None:
            at, guid, lanes, speed, kind, peer, label, described = listed.groups()
            there = f"S-{peer} {described}" if kind == "SW" else f"H-{peer}"
            yield _Port(number, f"S-{guid} {label}", at, there, described, int(lanes) * _LANES.get(speed, 0.0))
        elif (switch := _SWITCH.match(line)) is not None:
            here = f"{switch[1]} {switch[2]}"
            yield _Port(number, here)
        elif not line.startswith("["):
            here = None if line.startswith(("Ca", "Rt")) else here
        elif here is not None and (port := _PORT.match(line)) is not None:
            there = f"{port[2]} {port[3]}" if port[2].startswith("S-") else port[2]
            yield _Port(number, here, port[1], there, port[3], int(port[4]) * _LANES.get(port[5], 0.0))


def _cable(switch: ListedSwitch, port: _Port, names: Mapping[str, str]) -> None:
    if port.peer.startswith("S-"):
        other = names.get(port.peer, port.peer)
        # Both ends list a cable; the one that comes first by name counts it, or the only one that is in the file.
        if port.peer not in names or names[port.switch] < other:
            switch.links[other] = switch.links.get(other, 0) + 1
    elif port.peer and _AGGREGATION not in port.described:
        # An adapter without a name is taken as a node of its own.
        name = port.peer if _UNNAMED.search(port.described) else port.described.split(" ")[0]
        switch.hosts[name] = switch.hosts.get(name, 0) + 1


def _free(name: str, guid: str, taken: Mapping[str, str]) -> str:
    return f"{name}-{guid}" if name in taken.values() else name


def read_slurm(text: str, file: str) -> Described:
    """Return the switches, blocks and nodes of a ``topology.conf``, ``topology.yaml`` or ``slurm.conf``, or of ``scontrol show``.

    Raises
    ------
    ScenarioError
        When a node hangs at two switches.
    """
    fabric, named, leaf_of, default, others = ListedFabric(), dict[str, list[str]](), dict[str, str](), "", list[str]()
    facts, beside = list[Fact](), list[str]()
    for number, fields in _slurm_records(text, file):
        resources = fields.get("gres", default)
        others += [fields["topology"]] if "topology" in fields else []
        if fields.get("nodename") == "DEFAULT":
            default = resources
        else:
            accelerators = _GPUS.search(resources)
            named.setdefault(accelerators[0] if accelerators else "", []).extend(expanded(fields.get("nodename", ""), file))
        # Of a switch above others, scontrol lists all nodes below it too.
        nodes = () if "switches" in fields else expanded(fields.get("nodes", ""), file)
        if "switchname" in fields:
            switch = fabric.at(fields["switchname"], number)
            for node in nodes:
                if (other := leaf_of.setdefault(node, fields["switchname"])) != fields["switchname"]:
                    line = fabric.at(other).line
                    hint = "name it below one leaf" + (f"; line {line} names it too" if line is not None else "")
                    raise ScenarioError(
                        f"node {node} hangs at {other} and at {fields['switchname']}", hint=hint, place=Place(file=file, line=number)
                    )
            switch.hosts |= dict.fromkeys(nodes, 0)
            for below in expanded(fields.get("switches", ""), file):
                fabric.at(below).links[fields["switchname"]] = 0
        elif "blockname" in fields:
            fabric.domains[fields["blockname"]] = [*nodes]
        elif asked := [*_allocated(fields, number)]:
            beside += [fields.get("jobid") or fields.get("partitionname", "")] if facts else []
            facts = facts or asked
    facts += [*_most_nodes(named, counts=not fabric.nodes)]
    facts += [(key, ", ".join(names), None) for key, names in (("topologies.others", others), ("allocations.others", beside)) if names]
    return Described(title="topology.conf of Slurm", facts=tuple(facts), fabric=fabric)


def _allocated(fields: Mapping[str, str], line: int | None) -> Iterator[Fact]:
    """Yield the nodes and accelerators of a job or a partition, as scontrol shows them."""
    nodes = fields.get("numnodes", fields.get("totalnodes", "")).partition("-")[0]
    told: list[list[tuple[str, str]]] = [_TRACKED.findall(fields.get(key, "")) for key in ("tres", "alloctres", "reqtres")]
    tracked = told[0] or told[1] or told[2]
    if not nodes.isdecimal() or not int(nodes[:9]) > 0 or not tracked:
        return
    yield "nodes.count", int(nodes[:9]), line
    yield "accelerators.count", max(1, max(int(count) for _, count in tracked) // int(nodes[:9])), line
    product = next((product for product, _ in tracked if product), None) or next(
        (match[1] for key in ("trespernode", "gres") if (match := _GPUS.search(fields.get(key, "")))), None
    )
    if product:
        yield "accelerators.product", product, line


def _most_nodes(named: Mapping[str, list[str]], *, counts: bool) -> Iterator[Fact]:
    """Yield the accelerators that most nodes have, the number of these nodes, and the nodes that are left out."""
    most = max((each for each in named if each), key=lambda each: len(named[each]), default="")
    if (accelerators := _GPUS.search(most)) is not None:
        if accelerators[1]:
            yield "accelerators.product", accelerators[1], None
        yield "accelerators.count", int(accelerators[2] or 1), None
    if counts and named.get(most):
        yield "nodes.count", len(named[most]), None
        others = [f"{len(nodes)} of {each or 'no accelerator'}" for each, nodes in named.items() if nodes and each != most]
        if others:
            yield "nodes.others", ", ".join(others), None


def _slurm_records(text: str, file: str) -> Iterator[tuple[int | None, dict[str, str]]]:
    """Yield the fields of each switch, block, node, job or partition with its first line."""
    if _SLURM_YAML.search(text) is None:
        first, fields = 1, dict[str, str]()
        for number, line in enumerate(text.splitlines(), start=1):
            own = {key.lower(): value for key, value in _SLURM.findall(line.partition("#")[0])}
            # Fields of a node follow on further lines in the output of scontrol.
            if own.keys() & {"switchname", "blockname", "nodename", "jobid"} or line.lower().startswith("partitionname"):
                yield first, fields
                first, fields = number, {}
            fields |= own
        yield first, fields
        return
    read = read_yaml(text, file, text.splitlines(), lenient=True)
    topologies = [*mappings_in(read[0] if read is not None else None)]
    # The default comes first; tree and blocks of the same nodes are read together.
    topologies.sort(key=lambda each: each.get("cluster_default") is not True)
    for kind, plural in (("tree", "switches"), ("block", "blocks")):
        held, *others = [each for each in topologies if isinstance(each.get(kind), dict)] or [{}]
        yield from ((None, {"topology": str(each.get("topology"))}) for each in others)
        section = held.get(kind)
        for each in mappings_in(section.get(plural) if isinstance(section, dict) else None):
            names = {"switch": "switchname", "block": "blockname", "children": "switches"}
            yield None, {names.get(key, key): value for key, value in each.items() if isinstance(value, str)}


def read_topograph(text: str, file: str) -> Described:
    """Return the switches and blocks of a model of topograph."""
    data = mapping_of(text, file)
    fabric, facts = ListedFabric(), list[Fact]()
    switch_of: dict[str, str] = {}
    for name, switch in _named(data.get("switches")):
        fabric.at(name)
        for other in texts_in(switch.get("switches")):
            fabric.at(other).links[name] = 0
        fabric.at(name).hosts |= {node: 0 for item in texts_in(switch.get("nodes")) for node in expanded(item, file)}
        switch_of |= dict.fromkeys(texts_in(switch.get("capacity_blocks")), name)
    for key in ("blocks", "capacity_blocks"):
        for name, block in _named(data.get(key)):
            _block({"switch": switch_of.get(name), **block}, name, fabric, file)
            if isinstance(product := block.get("type"), str):
                facts = [("accelerators.product", product, None)]
    placed = {node for switch in fabric.switches.values() for node in switch.hosts}
    if placed and (others := [node for node in fabric.nodes if node not in placed]):
        # Beside nodes at switches, those at none have no fabric: a pool of CPUs.
        fabric.domains = {name: [node for node in nodes if node in placed] for name, nodes in fabric.domains.items()}
        facts.append(("nodes.others", ", ".join(others), None))
    return Described(title="topograph of NVIDIA", facts=tuple(facts), fabric=fabric)


def _named(data: Data) -> Iterator[tuple[str, dict[str, Data]]]:
    """Yield mappings with their names: values of a mapping, or items of a list."""
    items = data.items() if isinstance(data, dict) else enumerate(data if isinstance(data, list) else [])
    for key, each in items:
        if isinstance(each, dict):
            yield str(each.get("name", key)), each


def _block(block: Mapping[str, Data], name: str, fabric: ListedFabric, file: str) -> None:
    nodes = [node for item in texts_in(block.get("nodes")) for node in expanded(item, file)]
    switch, domain = block.get("switch"), block.get("nvlink") or name
    if isinstance(switch, str):
        fabric.at(switch).hosts |= dict.fromkeys(nodes, 0)
    for labels in (block.get("annotations"), block.get("labels")):
        for key, value in labels.items() if isinstance(labels, dict) else ():
            domain = value if _DOMAIN_LABEL.search(key) else domain
    fabric.domains.setdefault(str(domain), []).extend(nodes)


def read_kubernetes_nodes(text: str, file: str) -> Described:
    """Return the nodes of ``kubectl get nodes``, with ``-o yaml``, ``-o json`` or ``--show-labels``, by their labels.

    The instances of ``aws ec2 describe-instance-topology`` are nodes with labels of AWS.

    Raises
    ------
    ScenarioError
        When no node has labels of accelerators.
    """
    listed = _listed_labels(text) if _LISTED.search(text) else _described_labels(text) if _TOLD.search(text) else None
    labels = list(listed if listed is not None else _node_labels(mapping_of(text, file)))
    # Nodes without accelerators run the scheduler, or storage.
    labels = [each for each in labels if any("gpu" in key or "accelerator" in key for key in each)] or labels
    known = {key: counted(each[key] for each in labels if each.get(key)) for key in machine_table().file.labels}
    facts: list[Fact] = [(machine_table().file.labels[key], next(iter(values)), None) for key, values in known.items() if values]
    if not facts:
        raise ScenarioError(
            "is an object of Kubernetes without labels of accelerators",
            place=Place(file=file),
            hint="name what kubectl get nodes -o yaml writes, or the file with the job's command",
        )
    if sliced := next((str(value) for key, value, _ in facts if key == "accelerators.product" and "-MIG-" in str(value)), None):
        # With one size of slices, the product names it, and the count is that of the slices.
        facts = [("accelerators.slices", sliced, None), *(each for each in facts if each[0] != "accelerators.count")]
    if "accelerators.count" in {key for key, _, _ in facts}:
        facts = [
            (key, int(str(value)[:4]) if key == "accelerators.count" and str(value).isdecimal() else value, at) for key, value, at in facts
        ]
    facts.append(("nodes.count", len(labels), None))
    return Described(title="nodes of Kubernetes", facts=tuple(facts), fabric=_labelled(labels))


def _node_labels(data: Mapping[str, Data]) -> Iterator[dict[str, str]]:
    for number, node in enumerate(mappings_in(data.get("Instances"))):
        levels = dict(zip(machine_table().file.levels[-1], reversed([*texts_in(node.get("NetworkNodes"))]), strict=False))
        yield {"node.kubernetes.io/instance-type": str(node.get("InstanceType")), **levels, "": str(node.get("InstanceId", number))}
    items = data.get("items", [] if "Instances" in data else None)
    for number, node in enumerate(mappings_in(items) if isinstance(items, list) else [data]):
        metadata = node.get("metadata")
        found = metadata.get("labels") if isinstance(metadata, dict) else None
        if node.get("kind", "Node") == "Node" and isinstance(found, dict):
            name = metadata.get("name") if isinstance(metadata, dict) else None
            yield {**{key: str(value) for key, value in found.items()}, "": str(name or f"node-{number}")}


def _described_labels(text: str) -> Iterator[dict[str, str]]:
    for part in _TOLD.split(text)[1:]:
        name, _, rest = part.partition("\n")
        labels = re.split(r"^\w", rest.partition("Labels:")[2], maxsplit=1, flags=re.MULTILINE)[0]
        pairs = (line.strip().partition("=") for line in labels.splitlines() if "=" in line)
        yield {**{key: value for key, _, value in pairs}, "": name.strip()}


def _listed_labels(text: str) -> Iterator[dict[str, str]]:
    for words in (line.split() for line in text.splitlines()):
        if len(words) > 4 and "=" in words[-1]:
            pairs = (part.partition("=") for part in words[-1].split(","))
            yield {**{key: value for key, _, value in pairs}, "": words[0]}


def _labelled(labels: list[dict[str, str]]) -> ListedFabric | None:
    levels = next((levels for levels in machine_table().file.levels if all(levels[0] in each for each in labels)), None)
    fabric = ListedFabric()
    for each in labels:
        for key in machine_table().file.domains:
            if key in each:
                fabric.domains.setdefault(each[key], []).append(each[""])
                break
        if levels is None:
            continue
        fabric.at(each[levels[0]]).hosts[each[""]] = 0
        for below, above in pairwise(levels):
            if below in each and above in each:
                fabric.at(each[below]).links[each[above]] = 0
                fabric.at(each[above])
    return fabric if fabric.switches or fabric.domains else None

"""Descriptions of one node: topologies of NCCL, ``nvidia-smi topo -m``, and XML of hwloc."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.parsers.expat import ExpatError, ParserCreate

from clustersim.apps.importing.machine_files import Described, Fact, counted
from clustersim.errors import Place, ScenarioError

_GPU_CLASSES: Final = ("0x0302", "0x0300", "0x1200", "0x0380")
_ADAPTER_CLASSES: Final = ("0x0200", "0x0207", "0x0280")
_CLOUDS: Final = {"0x1d0f": "efa", "0x1ae0": "gvnic"}
"""Adapters of AWS and Google by their vendors."""
_DEEPEST: Final = 100
_SPEED: Final = re.compile(r"[1-9][0-9]{2,6}")
"""Megabits per second of an adapter."""
_PCI: Final = re.compile(r"([0-9a-fA-F]{4}) \[([0-9a-fA-F]{4}):([0-9a-fA-F]{4})\]")
_GENERATIONS: Final = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}
"""Generation of PCIe by its gigatransfers per second."""
_MOST_LINKS: Final = 18
"""Links of NVLink that any accelerator has."""
_ESCAPE: Final = re.compile(r"\x1b\[[0-9;]*m")
"""Colours and underlines of a terminal."""
_NAMED: Final = re.compile(
    r"^(?:GPU (\d{1,3}(?:,\d{1,3})*): (.+?)(?: \(UUID:.*)?$|\| +(\d{1,3}) +((?:NVIDIA|Tesla|GeForce|Quadro) .+?) +(?:On|Off|N/A) +\|"
    r"|GPU\[(\d{1,3})\]\s*: Card [Ss]eries:\s*(\S.*?)\s*$|(?:\d{1,3}, )?(NVIDIA [^,]+), | +Product Name +: (NVIDIA .*\S)"
    r"| +MARKET_NAME: (\S.*))"
)
"""A line of ``nvidia-smi -L``, ``-q``, ``--query-gpu=name,...`` or its table, of rocm-smi or amd-smi, or of an environment's report."""
_SLICE: Final = re.compile(r"\s+MIG \d{1,2}[cg]\.|\| +\d+ +\d+ +\d+ +\d+ +\|.*MiB")
"""A slice of an accelerator, as ``nvidia-smi -L`` and the table of ``nvidia-smi`` list them."""
_SLOTS: Final = re.compile(r"^[\w.-]+[ \t]+slots=(\d{1,3})\b", re.MULTILINE)
_OF_AWS: Final = re.compile(r"\b(rdmap|efa_?)\d+")
"""Names of the adapters of AWS."""
_BONDED: Final = re.compile(r"NV\d{1,2}")
_CELL: Final = re.compile(r"X|NV\d{1,2}|SYS|NODE|PHB|PXB|PIX|XGMI|SOC|0")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Element:
    tag: str
    attributes: Mapping[str, str]
    line: int
    path: tuple[int, ...]
    """Numbers of the elements that hold it."""


def read_nccl_topology(text: str, file: str) -> Described:
    """Return the node of a topology as ``NCCL_TOPO_DUMP_FILE`` writes it.

    Raises
    ------
    ScenarioError
        When it is a graph of channels, is not XML, or has no accelerators.
    """
    elements = tuple(_elements(text, file))
    if any(each.tag in ("graph", "graphs") for each in elements):
        raise ScenarioError(
            "is a graph of NCCL, the channels that it chose, and not a topology",
            place=Place(file=file),
            hint="name what NCCL_TOPO_DUMP_FILE writes",
        )
    devices = [each for each in elements if each.tag == "pci"]
    gpus = [each for each in devices if each.attributes.get("class", "")[:6] in _GPU_CLASSES]
    if not gpus:
        raise ScenarioError("has no accelerators", place=Place(file=file), hint="name what NCCL_TOPO_DUMP_FILE writes on a node")
    nets = [each for each in elements if each.tag == "net"]
    cards = [each for each in devices if each.attributes.get("class", "")[:6] in _ADAPTER_CLASSES]
    facts = [*_accelerators(gpus), *_generation(gpus)]
    # Beside cards that accelerators share a switch with, a network without a device is that of the host.
    adapters = _near(nets, gpus) or _near(cards, gpus) or nets or cards
    if adapters:
        facts.append(("adapters.count", len(adapters), adapters[0].line))
        speeds = [int(speed) for speed in counted(each.attributes.get("speed", "") for each in adapters) if _SPEED.fullmatch(speed)]
        if speeds:
            facts.append(("adapters.bandwidth", f"{speeds[0] / 1000:g} Gbit/s", adapters[0].line))
    of_cloud = [(kind, each) for each in (*cards, *nets) if (kind := _adapter_kind(each)) is not None]
    facts += [("adapters.kind", kind, each.line) for kind, each in of_cloud[:1]]
    facts += _links(elements)
    return Described(title="topology of NCCL", facts=tuple(facts))


def _adapter_kind(element: _Element) -> str | None:
    return _CLOUDS.get(element.attributes.get("vendor", ""), "efa" if _OF_AWS.match(element.attributes.get("name", "")) else None)


def _elements(text: str, file: str) -> Iterator[_Element]:
    if "<!ENTITY" in text:
        raise ScenarioError("declares entities, which are not read", place=Place(file=file))
    found: list[_Element] = []
    path: list[int] = []
    parser = ParserCreate("utf-8")

    def start(tag: str, attributes: dict[str, str]) -> None:
        if len(path) >= _DEEPEST:
            raise ScenarioError("is nested too deeply", place=Place(file=file))
        found.append(_Element(tag=tag, attributes=attributes, line=parser.CurrentLineNumber, path=tuple(path)))
        path.append(len(found) - 1)

    def end(_: str) -> None:
        path.pop()

    parser.StartElementHandler, parser.EndElementHandler = start, end
    try:
        parser.Parse(text.encode("utf-8", errors="replace"), True)
    except ExpatError as error:
        line = min(error.lineno, text.count("\n") + 1)
        raise ScenarioError("is not XML", place=Place(file=file, line=line), hint="name the whole file") from error
    yield from found


def _accelerators(gpus: Sequence[_Element]) -> Iterator[Fact]:
    yield "accelerators.count", len(gpus), gpus[0].line
    devices = counted(
        f"{each.attributes['vendor'].removeprefix('0x')}:{each.attributes['device'].removeprefix('0x')}"
        for each in gpus
        if each.attributes.get("device", "0x0000") not in ("0x0000", "0xffff") and "vendor" in each.attributes
    )
    if devices:
        yield "accelerators.device", next(iter(devices)).lower(), gpus[0].line


def _generation(gpus: Sequence[_Element]) -> Iterator[Fact]:
    speed = gpus[0].attributes.get("link_speed", "").split(" ")[0]
    generation = _GENERATIONS.get(speed.removesuffix(".0"))
    if generation is not None:
        yield "accelerators.pcie", generation, gpus[0].line


def _near(adapters: Sequence[_Element], gpus: Sequence[_Element]) -> list[_Element]:
    """Return the adapters that share a PCIe switch with accelerators; the others serve storage."""
    # Below the root and the CPU comes the bridge of each device.
    bridges = {each.path[2] for each in gpus if len(each.path) > 2}
    return [each for each in adapters if len(each.path) > 2 and each.path[2] in bridges]


def _links(elements: Sequence[_Element]) -> Iterator[Fact]:
    links = [each for each in elements if each.tag == "nvlink"]
    owners = {each.path[-1] for each in links}
    counts = [each.attributes.get("count", "") for each in links]
    if owners and all(count.isdecimal() and len(count) < 4 for count in counts):
        yield "accelerators.links", sum(int(count) for count in counts) // len(owners), links[0].line


def read_nvidia_smi(text: str, file: str) -> Described:
    """Return the node of what ``nvidia-smi``, ``nvidia-smi -L`` and ``nvidia-smi topo -m`` print.

    Raises
    ------
    ScenarioError
        When it has no rows of accelerators.
    """
    rows = list(enumerate(_ESCAPE.sub("", text).splitlines(), start=1))
    matches = [(number, [group for group in match.groups() if group]) for number, line in rows if (match := _NAMED.match(line)) is not None]
    named = {each: (number, name) for number, (*index, name) in matches for each in (index or [str(number)])[0].split(",")}
    cells = [(number, words) for number, line in rows if len(words := line.split()) > 1 and _CELL.fullmatch(words[1])]
    # The last table of several counts, which is that of the links in rocm-smi.
    gpus = list({words[0]: (number, words) for number, words in cells if re.fullmatch(r"GPU\d{1,3}", words[0])}.values())
    if not gpus and not named:
        raise ScenarioError("has no rows of accelerators", place=Place(file=file), hint="name the whole table of nvidia-smi topo -m")
    facts: list[Fact] = []
    if named:
        line, name = next(iter(named.values()))
        facts = [("accelerators.product", name, line), ("accelerators.count", len(named), line)]
    slices = [number for number, line in rows if _SLICE.match(line)]
    if slices:
        facts.append(("accelerators.slices", f"{len(slices)} of MIG", slices[0]))
    if gpus:
        at, pair = gpus[0][0], max((int(cell[2:]) for cell in gpus[0][1][1:] if _BONDED.fullmatch(cell)), default=0)
        counts: list[Fact] = [("accelerators.count", len(gpus), at), ("accelerators.links", _nvlinks(gpus), at)]
        facts = [*facts[:1], *counts, *facts[2:], *([("accelerators.pair_links", pair, at)] if pair else [])]
    nics = [each for each in cells if len(each[1]) > len(gpus) and re.fullmatch(r"NIC\d{1,3}|mlx5_\w+|rdmap\w+|efa\w*", each[1][0])]
    near = [each for each in nics if {"PIX", "PXB"} & set(each[1][1 : len(gpus) + 1])] or nics
    if near:
        facts.append(("adapters.count", len(near), near[0][0]))
    if of_aws := _OF_AWS.search(text):
        facts.append(("adapters.kind", "efa", text.count("\n", 0, of_aws.start()) + 1))
    return Described(title="nvidia-smi", facts=tuple(facts))


def _nvlinks(gpus: Sequence[tuple[int, list[str]]]) -> int:
    """Return the links of NVLink of one accelerator; 0 also for bridges between pairs of boards."""
    count = len(gpus)
    links = [int(cell[2:]) for _, words in gpus for cell in words[1 : count + 1] if _BONDED.fullmatch(cell)]
    if not links or (len(links) == count and count > 2):
        return 0
    even = len(set(links)) == 1 and len(links) == count * (count - 1)
    # Through a switch each pair has all links; without, the links to all others add up.
    return links[0] if even and sum(links) // count > _MOST_LINKS else sum(links) // count


def read_hostfile(text: str, _file: str) -> Described:
    """Return the nodes of a file of hosts with slots, as DeepSpeed and Open MPI take it."""
    slots = [(int(match[1]), text.count("\n", 0, match.start()) + 1) for match in _SLOTS.finditer(text)]
    most, line = max(slots, default=(1, 1))
    return Described(title="hostfile", facts=(("nodes.count", len(slots), line), ("accelerators.count", most, line)))


def read_hwloc(text: str, file: str) -> Described:
    """Return the node of a file of ``lstopo``.

    Raises
    ------
    ScenarioError
        When it is not XML, or has no accelerators.
    """
    elements = tuple(_elements(text, file))
    objects = [(each, match) for each in elements if each.tag == "object" and (match := _PCI.match(each.attributes.get("pci_type", "")))]
    gpus = [(each, match) for each, match in objects if f"0x{match[1]}".lower() in _GPU_CLASSES and match[2].lower() in ("10de", "1002")]
    if not gpus:
        raise ScenarioError("has no accelerators", place=Place(file=file), hint="name the XML of lstopo on a node with them")
    devices = counted(f"{match[2]}:{match[3]}".lower() for _, match in gpus)
    device = next(iter(devices))
    facts: list[Fact] = [("accelerators.count", devices[device], gpus[0][0].line), ("accelerators.device", device, gpus[0][0].line)]
    ports = [each for each in elements if each.tag == "object" and each.attributes.get("osdev_type") in ("3", "OpenFabrics")]
    if ports:
        facts.append(("adapters.count", len(ports), ports[0].line))
    if of_aws := next((each for each in ports if _OF_AWS.match(each.attributes.get("name", ""))), None):
        facts.append(("adapters.kind", "efa", of_aws.line))
    names = [each for each in elements if each.tag == "info" and each.attributes.get("name") == "DMIProductName"]
    facts += [("instance", each.attributes.get("value", ""), each.line) for each in names]
    return Described(title="lstopo of hwloc", facts=tuple(facts))

"""Descriptions of infrastructure as a graph: InfraGraph, with connections written out (0.x) or as edges between slices (1.0 on)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice, product
from typing import Final

from clustersim.apps.importing.machine_files import Described, Fact, ListedFabric, counted, mapping_of, mappings_in, texts_in
from clustersim.documents.text import Data
from clustersim.errors import Place, ScenarioError

_SWITCHES: Final = re.compile(r"sw(itch)?\d*$|switch|leaf|spine|tor|core", re.IGNORECASE)
_SLICE: Final = re.compile(r"([^.\[\]]+)(?:\[((?:-?\d{1,6})?(?::(?:-?\d{1,6})?){0,2})\])?")
_DEEPEST: Final = 4
"""Devices in devices."""
_MOST: Final = 200_000
"""Connections."""

End = tuple[str, bool]
"""Name of an instance, and whether it is a switch."""


def read_infragraph(text: str, file: str) -> Described:
    """Return the nodes and switches of an InfraGraph, and the accelerators of its devices.

    Raises
    ------
    ScenarioError
        When it has neither.
    """
    data = mapping_of(text, file)
    inner = data.get("infrastructure")
    infrastructure = inner if isinstance(inner, dict) else data
    devices = {str(each.get("name")): each for each in mappings_in(infrastructure.get("devices") or infrastructure.get("device"))}
    fabric, facts = ListedFabric(), list[Fact]()
    widths = {str(link.get("name")): _width(link) for link in mappings_in(infrastructure.get("links"))}
    between, to_hosts = list[str](), list[str]()
    for end, other, link in islice(_connections(infrastructure, devices, file), _MOST):
        (between if end[1] and other[1] else to_hosts).append(link)
        for (name, is_switch), (peer, peer_is_switch) in ((end, other), (other, end)):
            if is_switch and not peer_is_switch:
                hosts = fabric.at(name).hosts
                hosts[peer] = hosts.get(peer, 0) + 1
        if end[1] and other[1]:
            links = fabric.at(end[0]).links
            links[other[0]] = links.get(other[0], 0) + 1
    fabric.bandwidth = next((width for link in counted(between) if (width := widths.get(link))), None)
    adapters = {sum(switch.hosts.get(node, 0) for switch in fabric.switches.values()) for node in fabric.nodes}
    if len(adapters) == 1:
        facts += [("adapters.count", adapters.pop(), None)]
        facts += [("adapters.bandwidth", width, None) for link in counted(to_hosts) if (width := widths.get(link))][:1]
    inside = {str(part.get("name")) for device in devices.values() for part in mappings_in(device.get("components"))}
    for name, device in devices.items():
        facts += () if name in inside else _device(device, devices)
    if not fabric.switches and not facts:
        raise ScenarioError(
            "has no connections between nodes and switches, and no device with accelerators",
            place=Place(file=file),
            hint="write connections as server.0.nic.0.eth.leaf.0.port.0, or edges between host[0].nic[0] and leaf[0].port[0]",
        )
    return Described(title="InfraGraph", facts=tuple(facts), fabric=fabric if fabric.switches else None)


def _connections(
    infrastructure: Mapping[str, Data], devices: Mapping[str, Mapping[str, Data]], file: str
) -> Iterator[tuple[End, End, str]]:
    """Yield both ends of each connection, and the name of its link.

    Raises
    ------
    ScenarioError
        When an edge has an end at nothing that the file lists.
    """
    instances = {str(each.get("name")): each for each in mappings_in(infrastructure.get("instances"))}
    switches = {name: _SWITCHES.search(f"{name} {each.get('device')}") is not None for name, each in instances.items()}
    for text in texts_in(infrastructure.get("connections")):
        parts = text.split(".")
        if len(parts) == 9 and parts[0] in switches and parts[5] in switches:
            first, second = ((_numbered(parts[at], parts[at + 1]), switches[parts[at]]) for at in (0, 5))
            yield first, second, parts[4]
    for number, edge in enumerate(mappings_in(infrastructure.get("edges"))):
        first, second = (_ends(edge.get(end), instances, switches, devices) for end in ("ep1", "ep2"))
        if not first or not second:
            raise ScenarioError(
                "is at no component of an instance in the file",
                place=Place(file=file),
                field=f"edges[{number}].{'ep2' if first else 'ep1'}",
                hint="name an instance under instances and a component of its device; indices begin at 0",
            )
        pairs = product(first, second) if edge.get("scheme") == "many2many" else zip(first, second, strict=False)
        yield from ((end, other, str(edge.get("link"))) for end, other in pairs)


def _ends(
    end: Data, instances: Mapping[str, Mapping[str, Data]], switches: Mapping[str, bool], devices: Mapping[str, Mapping[str, Data]]
) -> list[End]:
    """Return the instance at each end of an edge, as often as it has components there."""
    if not isinstance(end, dict) or (whole := _SLICE.match(str(end.get("instance")))) is None or whole[1] not in instances:
        return []
    instance, count = instances[whole[1]], 1
    device = str(instance.get("device"))
    for part in _SLICE.finditer(str(end.get("component"))):
        parts = {str(each.get("name")): each for each in mappings_in(devices.get(device, {}).get("components"))}
        count, device = count * len(_sliced(part[2], parts.get(part[1], {}).get("count"))), part[1]
    chosen = _sliced(whole[2], instance.get("count"))
    return [(_numbered(whole[1], str(index)), switches[whole[1]]) for index in islice(chosen, _MOST) for _ in range(min(count, _MOST))][
        :_MOST
    ]


def _numbered(name: str, index: str) -> str:
    return f"{name}.{index}" if name[-1:].isdigit() else f"{name}{index}"


def _sliced(text: str | None, count: Data) -> range:
    """Return the indices of a slice of Python among so many; one where their number is not said."""
    bounds = [int(bound) if bound else None for bound in (text or "").split(":")]
    whole = range(min(count, _MOST) if isinstance(count, int) and count > 0 else _MOST if text else 1)
    if len(bounds) == 1:
        at = bounds[0]
        return whole if at is None else whole[at : at + 1 or None]
    return range(0) if bounds[2:] == [0] else whole[slice(*bounds)]


def _width(link: Mapping[str, Data]) -> str | None:
    physical = link.get("physical")
    given = physical.get("bandwidth") if isinstance(physical, dict) else link.get("bandwidth")
    if not isinstance(given, dict):
        return None
    given = {key.replace("_bytes", "bytes").replace("_bits", "bits"): value for key, value in given.items()}
    for key, unit in (("gigabytes_per_second", "GB/s"), ("gigabits_per_second", "Gbit/s"), ("megabytes_per_second", "MB/s")):
        value = given.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9:
            return f"{value:g} {unit}"
    return None


def _parts(
    device: Mapping[str, Data], devices: Mapping[str, Mapping[str, Data]], times: int = 1, depth: int = 0
) -> Iterator[tuple[dict[str, Data], Mapping[str, Data], int]]:
    """Yield each component of a device, and of devices in it, with the device that has it and its number; 0 where none is said."""
    for part in mappings_in(device.get("components")):
        count = part.get("count")
        number = times * min(count, _MOST) if isinstance(count, int) and count > 0 else 0
        held = devices.get(str(part.get("name"))) if (part.get("choice") or part.get("type")) == "device" else None
        if held is None:
            yield part, device, number
        elif depth < _DEEPEST:
            yield from _parts(held, devices, number or times, depth + 1)


def _device(device: Mapping[str, Data], devices: Mapping[str, Mapping[str, Data]]) -> Iterator[Fact]:
    """Yield the accelerators and adapters of a device that has them."""
    parts = [(str(part.get("choice") or part.get("type")), part, holder, number) for part, holder, number in _parts(device, devices)]
    found = next((each for each in parts if each[0] in ("xpu", "gpu", "npu")), None)
    if found is None:
        return
    _, accelerator, holder, number = found
    yield "accelerators.count", number or _named(holder, {str(accelerator.get("name"))}), None
    yield "accelerators.product", str(accelerator.get("description") or device.get("name")), None
    nics = [(str(part.get("name")), number) for kind, part, _, number in parts if kind == "nic"]
    outside = {str(each.get("name")) for each in mappings_in(device.get("instances"))}
    adapters = sum(number for _, number in nics) or _named(device, outside | {name for name, _ in nics})
    if adapters:
        yield "adapters.count", adapters, None


def _named(device: Mapping[str, Data], names: set[str]) -> int:
    """Return the components of some names that the connections of a device number."""
    numbered = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\.\d{{1,4}}\b")
    return len({match[0] for text in texts_in(device.get("connections")) for match in numbered.finditer(text)}) if names else 0

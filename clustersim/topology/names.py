"""Find links by the names of their ends, with wildcards, and change them: degraded, down, or half-duplex."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field, StrictBool, model_validator

from clustersim.documents.near_names import did_you_mean
from clustersim.errors import DomainError, inside
from clustersim.hardware.profile_schema import Checked
from clustersim.topology.cluster import BoolArray, FloatArray, IntArray
from clustersim.topology.cluster_layout import ClusterLayout
from clustersim.units.fields import MOST_RATIO, BytesPerSecond, Seconds, mistake

_WILD: Final = re.compile(r"(\*|\[[^\]]*\])")
_RANGES: Final = re.compile(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*")
_LARGEST_RANGE: Final = 1_000_000


def name_expression(text: str) -> re.Pattern[str]:
    """Return the regular expression of a name with wildcards.

    Parameters
    ----------
    text
        Such as ``leaf0/up`` or ``node[0-3]/nic*/tx``: ``*`` stands for anything up to the next slash, brackets for some of the numbers.

    Examples
    --------
    >>> bool(name_expression("node[0-3]/nic*").fullmatch("node2/nic7"))
    True
    """
    return re.compile("".join(_read(part) if _WILD.fullmatch(part) else re.escape(part) for part in _WILD.split(text)))


def _read(part: str) -> str:
    if part == "*":
        return "[^/]*"
    ranges = part[1:-1].replace(" ", "")
    bounds = [(int(low), int(high or low)) for low, high in re.findall(r"(\d+)(?:-(\d+))?", ranges)]
    if not _RANGES.fullmatch(ranges) or any(not low <= high <= low + _LARGEST_RANGE for low, high in bounds):
        raise DomainError(f"'{part}' is not a range of numbers", hint="write such as [0-3] or [0,2,5]")
    return f"(?:{'|'.join(str(number) for low, high in bounds for number in range(low, high + 1))})"


Links = dict[tuple[str, str], list[int]]
"""Ids of parallel links, by where they lead from and to."""

_MOST_NAMES: Final = 1000
"""Most known names among which the nearest is searched."""
_MOST_SHOWN: Final = 8
_SINGLE: Final = re.compile(r"(?:^|/)(?:spine(?!s$)|core(?!$))[^/]*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class BothWays:
    """Links between two ends, in both directions."""

    forward: Links
    backward: Links


@dataclass(frozen=True, slots=True, kw_only=True)
class _Name:
    """One end as it was written."""

    text: str
    path: tuple[str | int, ...]
    expression: re.Pattern[str]

    def means(self, names: Iterable[str]) -> bool:
        return any(self.expression.fullmatch(name) is not None for name in names)


def names_a_spine(name: str) -> bool:
    """Return whether a name is that of a single spine or core switch, so that bundles of uplinks will not do.

    Examples
    --------
    >>> [names_a_spine(name) for name in ("pod0/spine1", "spine*", "core3", "pod0/spines", "core", "leaf1")]
    [True, True, True, False, False, False]
    """
    return _SINGLE.search(name) is not None


def links_between(layout: ClusterLayout, between: tuple[str, str]) -> BothWays:
    """Return the links between two ends.

    Raises
    ------
    DomainError
        A name means nothing in this cluster, or no link joins the two.
    """
    low, high = (_name(text, ("between", index)) for index, text in enumerate(between))
    places = [places for places in (_places(layout, name) for name in (low, high)) if places is not None]
    first = layout.first_fabric_link
    link_ids: Iterable[int] = _wires(layout, places[0]) if places else range(first, layout.first_memory_link)
    found = BothWays(forward={}, backward={})
    known: dict[str, None] = {}
    neighbours: dict[str, None] = {}
    for link_id in link_ids:
        tail, head = layout.ends(link_id)
        tails, heads = _aliases(layout, link_id, tail), _aliases(layout, link_id, head)
        known.update(dict.fromkeys((*tails, *heads)))
        if low.means(tails):
            neighbours[head] = None
            if high.means(heads):
                found.forward.setdefault((tail, head), []).append(link_id)
        if low.means(heads) and high.means(tails):
            found.backward.setdefault((tail, head), []).append(link_id)
    if not found.forward and not found.backward:
        for name in (low, high):
            _check_known(layout, name, known)
        raise _not_joined(low, high, list(neighbours))
    return found


def _name(text: str, path: tuple[str | int, ...]) -> _Name:
    with inside(*path):
        return _Name(text=text, path=path, expression=name_expression(text))


def _places(layout: ClusterLayout, name: _Name) -> list[int] | None:
    """Return the nodes and servers whose parts a name means; None for a name of something between them."""
    if not name.text.startswith(("node", "server")):
        return None
    first = _name(name.text.split("/", maxsplit=1)[0], name.path)
    if first.text == name.text:
        adapter = f"{layout.place_name(layout.n_nodes - 1)}/nic0"
        raise DomainError("a node is not one end of a link", path=name.path, hint=f"name an adapter such as {adapter}")
    places = [place for place in range(layout.n_hosts) if first.means((layout.place_name(place),))]
    if not places:
        servers = f", servers server0 to server{layout.n_servers - 1}" if layout.n_servers else ""
        hint = f"nodes are node0 to node{layout.n_nodes - 1}{servers}"
        raise DomainError(f"there is no '{first.text}'", path=name.path, hint=hint)
    return places


def _wires(layout: ClusterLayout, places: list[int]) -> Iterable[int]:
    for place in places:
        yield from range(int(layout.numbering.first_wire[place]), int(layout.numbering.first_wire[place + 1]))


def _aliases(layout: ClusterLayout, link_id: int, end: str) -> tuple[str, ...]:
    """Return all names of one end of a link."""
    place, _, part = end.rpartition("/")
    if part.startswith("spine"):
        return end, f"{place or 'pod0'}/spines", "spines"
    if part.startswith("core"):
        return end, "core"
    if part == "nvswitch":
        return end, part
    name = layout.link_name(link_id).split("/")
    is_adapter = len(name) > 2 and name[1].startswith("nic")
    return (end, f"{name[0]}/{name[1]}") if is_adapter and place == name[0] else (end,)


def _check_known(layout: ClusterLayout, name: _Name, known: dict[str, None]) -> None:
    """Refuse a name without a match."""
    if name.means(known):
        return
    places = _places(layout, name)
    everything = _names_between_places(layout) if places is None else _names_at(layout, places[0])
    if name.means(everything):
        return
    digits = re.findall(r"\d+", name.text)
    alike = [choice for choice in everything if re.findall(r"\d+", choice) == digits]
    near = did_you_mean(name.text, alike) or did_you_mean(name.text, islice(everything, _MOST_NAMES))
    shown = ", ".join(islice(everything, _MOST_SHOWN))
    if layout.n_hosts == 1 and re.match(r"leaf|spine|core|pod|node0/nic", name.text):
        near = "a cluster of one node has no network links"
    hint = near or (
        f"there are {shown}{', ...' if len(everything) > _MOST_SHOWN else ''}" if shown else "nothing is laid between the nodes"
    )
    raise DomainError(f"there is no '{name.text}'", path=name.path, hint=hint)


def _names_at(layout: ClusterLayout, place: int) -> dict[str, None]:
    names = (alias for link_id in _wires(layout, [place]) for end in layout.ends(link_id) for alias in _aliases(layout, link_id, end))
    return dict.fromkeys(name for name in names if name.startswith(f"{layout.place_name(place)}/"))


def _names_between_places(layout: ClusterLayout) -> dict[str, None]:
    names: dict[str, None] = {}
    scale_out = layout.scale_out
    if scale_out is not None:
        names.update(dict.fromkeys(scale_out.leaf_name(leaf) for leaf in range(scale_out.n_leaves)))
        for link_id in range(layout.first_fabric_link, layout.first_memory_link):
            for end in layout.ends(link_id):
                names.update(dict.fromkeys(_aliases(layout, link_id, end)))
    domains = layout.numbering.domain_of
    switched = np.array([bool(group.wiring.ports) for group in layout.groups])
    names.update(dict.fromkeys(f"domain{domain}/nvswitch" for domain in np.unique(domains[switched[layout.numbering.group_of]])))
    return names


def _not_joined(low: _Name, high: _Name, neighbours: list[str]) -> DomainError:
    shown = ", ".join(neighbours[:_MOST_SHOWN]) + (", ..." if len(neighbours) > _MOST_SHOWN else "")
    hint = f"'{low.text}' is joined to {shown}" if shown else "name two neighbours"
    return DomainError(f"no link joins '{low.text}' and '{high.text}'", path=("between",), hint=hint)


class LinkChange(Checked):
    """Change of the links between two parts of the cluster, read as bytes per second and seconds."""

    between: tuple[str, str] = Field(
        description="Two neighbours, such as [node3/nic1, leaf1] or ['node[0-3,7]/nic0', 'leaf*']: * is anything up to the next slash, "
        "brackets are some of the numbers."
    )
    bandwidth: BytesPerSecond | None = Field(default=None, description="Bandwidth of all links between the two together, one direction.")
    fraction: Annotated[float, Field(strict=True, le=MOST_RATIO, allow_inf_nan=False)] | None = Field(
        default=None, description="Share that is left."
    )
    latency: Seconds | None = Field(default=None, description="Latency of the link.")
    state: Literal["up", "down"] = Field(default="up", description="down takes the link away.")
    half_duplex: StrictBool = Field(default=False, description="Both directions share the bandwidth of one.")
    direction: Literal["both", "forward"] = Field(default="both", description="Forward: only from the first to the second.")

    @model_validator(mode="after")
    def _check_says_something(self) -> LinkChange:
        if self.model_fields_set <= {"between", "direction"}:
            raise mistake("the links stay as they are", "add bandwidth, fraction, latency, half_duplex: true or state: down")
        return self


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Changed:
    """Links after all changes."""

    works: BoolArray
    """Whether each link is up."""
    bandwidth_bytes_per_s: FloatArray
    """Bandwidth; of a link that is down, that of the undamaged link, since no route contains it and no division by zero may occur."""
    latency_s: FloatArray
    shared: IntArray | None
    """The link whose capacity each link takes: itself, or the other direction of a half-duplex link. None without any such."""
    links: tuple[IntArray, ...]
    """Those of each change."""


def change_links(layout: ClusterLayout, bandwidth_bytes_per_s: FloatArray, latency_s: FloatArray, changes: Sequence[LinkChange]) -> Changed:
    """Return links after some changes, the later ones on top of the earlier."""
    bandwidth, latency = bandwidth_bytes_per_s.copy(), latency_s.copy()
    works = np.ones(layout.n_links, dtype=np.bool_)
    shared = np.arange(layout.n_links, dtype=np.int64)
    changed: list[IntArray] = []
    for index, change in enumerate(changes):
        with inside("changes", index):
            found = links_between(layout, change.between)
        for links in (found.forward,) if change.direction == "forward" else (found.forward, found.backward):
            _change(change, links, bandwidth, bandwidth_bytes_per_s, latency)
            for ids in links.values():
                works[ids] = change.state == "up"
        changed.append(np.array([link for ids in (*found.forward.values(), *found.backward.values()) for link in ids], dtype=np.int64))
        if change.half_duplex:
            _share(found, shared)
    alike = bool((shared == np.arange(layout.n_links)).all())
    return Changed(works=works, bandwidth_bytes_per_s=bandwidth, latency_s=latency, shared=None if alike else shared, links=tuple(changed))


def _change(change: LinkChange, links: Links, bandwidth: FloatArray, as_built: FloatArray, latency: FloatArray) -> None:
    for parallel in links.values():
        ids = np.array(parallel, dtype=np.int64)
        if change.fraction is not None:
            bandwidth[ids] = as_built[ids] * change.fraction
        elif change.bandwidth is not None:
            bandwidth[ids] = change.bandwidth * as_built[ids] / as_built[ids].sum()
        if change.latency is not None:
            latency[ids] = change.latency


def _share(found: BothWays, shared: IntArray) -> None:
    for (tail, head), ids in found.forward.items():
        back = found.backward.get((head, tail), [])
        shared[back] = shared[ids[: len(back)]]

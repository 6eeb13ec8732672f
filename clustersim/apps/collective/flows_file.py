"""A file of links and flows for the network model alone."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BeforeValidator, FailFast, JsonValue

from clustersim.documents.check import located, shown, validate_document
from clustersim.documents.json_text import JsonDocument, place_in, read_json
from clustersim.documents.near_names import choices_hint
from clustersim.errors import ScenarioError
from clustersim.hardware.profile_schema import Checked
from clustersim.network.flow_times import INF, Flow, Pipe
from clustersim.units.divisors import shortened
from clustersim.units.fields import MOST_RATIO, mistake

_LONGEST: Final = 40


def _number(hint: str, least: float, most: float = sys.float_info.max) -> BeforeValidator:
    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise mistake(f"{shown(value)} is not a number", hint)
        if not least <= value <= most:
            raise mistake(f"{shown(value)} is out of range", hint)
        return value

    return BeforeValidator(read)


def _name(value: object) -> object:
    if not isinstance(value, str) or not value:
        raise mistake(f"{shown(value)} is not a name", "write the name of a link in quotes")
    return value


_SI: Final = "in SI units, without quotes, such as 5e10"
Name = Annotated[str, BeforeValidator(_name)]
Number = Annotated[float, _number(f"write a finite number, 0 or more, {_SI}", 0.0)]
Rate = Annotated[float, _number(f"write a finite number, more than 0, {_SI}", math.ulp(0.0))]
Weight = Annotated[float, _number(f"write a number from {1 / MOST_RATIO:g} to {MOST_RATIO:g}", 1 / MOST_RATIO, MOST_RATIO)]


class LinkEntry(Checked):
    """A link of the file."""

    name: Name
    bandwidth_bytes_per_s: Rate
    latency_s: Number = 0.0


class FlowEntry(Checked):
    """A flow of the file."""

    route: list[Name]
    """Links between two different ends, by name."""
    bytes: Number
    start_s: Number = 0.0
    weight: Weight = 1.0
    """Beyond these limits a light flow gets what round-off leaves of a link."""
    cap_bytes_per_s: Rate | None = None


class FlowEntries(Checked):
    """The file; of a list with many mistakes the first is told."""

    links: Annotated[list[LinkEntry], FailFast()]
    flows: Annotated[list[FlowEntry], FailFast()]
    name: JsonValue = None
    finish_s: JsonValue = None
    """End of the case; neither this nor its name is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowsFile:
    """Links by name, and flows along them."""

    link_names: tuple[str, ...]
    links: tuple[Pipe, ...]
    flows: tuple[Flow, ...]


def load_flows(source: str) -> FlowsFile:
    """Return the links and flows of a JSON file.

    Parameters
    ----------
    source
        A path, also of a file packed by gzip, or ``-`` for stdin.

    Raises
    ------
    ScenarioError
        With the first mistake: its place, its field, and what would be right.
    """
    name, text, data = read_json(source)
    if not isinstance(data, dict):
        raise ScenarioError("is not a mapping", place=place_in(text, name, ()), hint='write {"links": [...], "flows": [...]}')
    document = JsonDocument(name=name, data=data, text=text)
    file = validate_document(FlowEntries, document)
    try:
        link_ids = _link_ids(file.links)
        flows = tuple(_flow(flow, f"flows.{index}", link_ids) for index, flow in enumerate(file.flows))
    except ScenarioError as error:
        raise located(error, document) from error
    links = tuple(Pipe(bandwidth_bytes_per_s=link.bandwidth_bytes_per_s, latency_s=link.latency_s) for link in file.links)
    return FlowsFile(link_names=tuple(link_ids), links=links, flows=flows)


def _link_ids(links: list[LinkEntry]) -> Mapping[str, int]:
    link_ids: dict[str, int] = {}
    for index, link in enumerate(links):
        if (first := link_ids.setdefault(link.name, index)) != index:
            message = f"link '{shortened(link.name, _LONGEST)}' is there already: links.{first}"
            raise ScenarioError(message, field=f"links.{index}.name", hint="give each link a name of its own")
    return link_ids


def _flow(flow: FlowEntry, field: str, link_ids: Mapping[str, int]) -> Flow:
    route: dict[int, int] = {}
    if not flow.route:
        hint = "name the links between two different ends, or leave the flow out"
        raise ScenarioError("a route without links is a flow to itself", field=f"{field}.route", hint=hint)
    for place, name in enumerate(flow.route):
        link, at, shown = link_ids.get(name), f"{field}.route.{place}", shortened(name, _LONGEST)
        if link is None:
            raise ScenarioError(f"unknown link '{shown}'", field=at, hint=choices_hint(name, link_ids))
        if route.setdefault(link, place) != place:
            raise ScenarioError(f"link '{shown}' is in the route twice", field=at, hint="a route crosses each link once")
    cap = INF if flow.cap_bytes_per_s is None else flow.cap_bytes_per_s
    return Flow(route=tuple(route), size_bytes=flow.bytes, start_s=flow.start_s, weight=flow.weight, cap_bytes_per_s=cap)

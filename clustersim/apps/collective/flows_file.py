"""A file of links and flows for the network model alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clustersim.documents.json_text import place_in, read_json
from clustersim.documents.near_names import choices_hint
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.network.flow_times import INF, Flow, Pipe
from clustersim.units.divisors import shortened

FILE_KEYS: Final = ("links", "flows", "name", "finish_s")
"""The last two may say what the case is called and how it ends; they are not read."""
LINK_KEYS: Final = ("name", "bandwidth_bytes_per_s", "latency_s")
FLOW_KEYS: Final = ("route", "bytes", "start_s", "weight", "cap_bytes_per_s")
MOST_WEIGHT: Final = 1e6
"""And its inverse is the least: where weights differ more, a light flow gets what round-off leaves of a link."""
_LONGEST: Final = 40

Path = tuple[str | int, ...]


class _FlowMistake(Exception):  # noqa: N818 - never leaves this file
    """Mistake at a path of the file."""

    def __init__(self, path: Path, message: str, hint: str | None = None, *, at_key: bool = False) -> None:
        self.path, self.message, self.hint, self.at_key = path, message, hint, at_key
        super().__init__(message)


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
    try:
        return _file(data)
    except _FlowMistake as mistake:
        place = place_in(text, name, mistake.path, key=mistake.at_key)
        raise ScenarioError(mistake.message, field=_dotted(mistake.path) or None, hint=mistake.hint, place=place) from mistake


def _file(data: Data) -> FlowsFile:
    file = _mapping(data, (), FILE_KEYS, needed=("links", "flows"))
    link_ids: dict[str, int] = {}
    links: list[Pipe] = []
    for index, item in enumerate(_list(file["links"], ("links",))):
        path: Path = ("links", index)
        link = _mapping(item, path, LINK_KEYS, needed=LINK_KEYS[:2])
        name = _text(link["name"], (*path, "name"))
        if link_ids.setdefault(name, index) != index:
            raise _FlowMistake(
                (*path, "name"), f"link '{name}' is there already: links[{link_ids[name]}]", "give each link a name of its own"
            )
        links.append(
            Pipe(
                bandwidth_bytes_per_s=_number(link, path, "bandwidth_bytes_per_s", above=0.0),
                latency_s=_number(link, path, "latency_s", default=0.0),
            )
        )
    flows = tuple(_flow(item, ("flows", index), link_ids) for index, item in enumerate(_list(file["flows"], ("flows",))))
    return FlowsFile(link_names=tuple(link_ids), links=tuple(links), flows=flows)


def _flow(item: Data, path: Path, link_ids: Mapping[str, int]) -> Flow:
    flow = _mapping(item, path, FLOW_KEYS, needed=FLOW_KEYS[:2])
    return Flow(
        route=_route(_list(flow["route"], (*path, "route")), (*path, "route"), link_ids),
        size_bytes=_number(flow, path, "bytes"),
        start_s=_number(flow, path, "start_s", default=0.0),
        weight=_weight(flow, path),
        cap_bytes_per_s=_number(flow, path, "cap_bytes_per_s", default=INF, above=0.0),
    )


def _weight(flow: Mapping[str, Data], path: Path) -> float:
    weight = _number(flow, path, "weight", default=1.0, above=0.0)
    if not 1.0 / MOST_WEIGHT <= weight <= MOST_WEIGHT:
        raise _FlowMistake(
            (*path, "weight"), f"{weight!r} is out of range", f"write a number from {1.0 / MOST_WEIGHT:g} to {MOST_WEIGHT:g}"
        )
    return weight


def _route(names: Sequence[Data], path: Path, link_ids: Mapping[str, int]) -> tuple[int, ...]:
    if not names:
        raise _FlowMistake(
            path, "a route without links is a flow to itself", "name the links between two different ends, or leave the flow out"
        )
    route: dict[int, int] = {}
    for place, item in enumerate(names):
        name = _text(item, (*path, place))
        link = link_ids.get(name)
        if link is None:
            raise _FlowMistake((*path, place), f"unknown link '{shortened(name, _LONGEST)}'", choices_hint(name, link_ids))
        if route.setdefault(link, place) != place:
            message = f"link '{shortened(name, _LONGEST)}' is in the route twice"
            raise _FlowMistake((*path, place), message, "a route crosses each link once")
    return tuple(route)


def _mapping(data: Data, path: Path, known: Sequence[str], *, needed: Sequence[str]) -> Mapping[str, Data]:
    if not isinstance(data, dict):
        keys = ", ".join(f'"{key}": ...' for key in needed)
        raise _FlowMistake(path, f"{_shown(data)} is not a mapping", f"write {{{keys}}}")
    for key in data:
        if key not in known:
            raise _FlowMistake((*path, key), f"unknown field '{shortened(key, _LONGEST)}'", choices_hint(key, known), at_key=True)
    for key in needed:
        if key not in data:
            raise _FlowMistake((*path, key), f"'{key}' is missing", f'add "{key}": ...')
    return data


def _list(data: Data, path: Path) -> Sequence[Data]:
    if not isinstance(data, list):
        raise _FlowMistake(path, f"{_shown(data)} is not a list", "write [...]")
    return data


def _text(data: Data, path: Path) -> str:
    if not isinstance(data, str) or not data:
        raise _FlowMistake(path, f"{_shown(data)} is not a name", "write the name of a link in quotes")
    return data


def _number(data: Mapping[str, Data], path: Path, key: str, *, default: float | None = None, above: float | None = None) -> float:
    """Return a finite number: more than ``above``, or else zero or more."""
    if default is not None and key not in data:
        return default
    value = data[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _FlowMistake((*path, key), f"{_shown(value)} is not a number", "write it in SI units, without quotes, such as 5e10")
    try:
        number = float(value)
    except OverflowError:
        number = INF
    if not math.isfinite(number) or number < 0.0 or number == above:
        least = "0 or more" if above is None else f"more than {above:g}"
        raise _FlowMistake((*path, key), f"{number!r} is out of range", f"write a finite number, {least}")
    return number


def _shown(data: Data) -> str:
    if isinstance(data, str):
        return f"'{shortened(data, _LONGEST)}'" if data else "an empty text"
    if isinstance(data, dict | list):
        return "a mapping" if isinstance(data, dict) else "a list"
    return "an empty value" if data is None else str(data).lower()


def _dotted(path: Path) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")

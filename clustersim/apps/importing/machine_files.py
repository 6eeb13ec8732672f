"""Descriptions of machines: properties of a node, and listed switches."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from clustersim.documents.composing import read_yaml
from clustersim.documents.text import Data
from clustersim.errors import Place, ScenarioError

_RANGE: Final = re.compile(r"([^\[\],]*)\[([\d,\s-]+)\]([^,]*)|([^,\[\]\s]+)")
_MOST_NODES: Final = 100_000


@dataclass(slots=True)
class ListedSwitch:
    """A switch of a file."""

    hosts: dict[str, int] = field(default_factory=dict[str, int])
    """Names of nodes, with the number of cables to each; 0 where the file does not count them."""
    links: dict[str, int] = field(default_factory=dict[str, int])
    """Other switches, in the same way; each cable at one of its ends."""
    line: int | None = None


@dataclass(slots=True)
class ListedFabric:
    """Switches and nodes of a file."""

    switches: dict[str, ListedSwitch] = field(default_factory=dict[str, ListedSwitch])
    domains: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Nodes of each scale-up domain."""
    bandwidth: str | None = None
    """Bandwidth of one cable between switches, one direction."""

    def at(self, name: str, line: int | None = None) -> ListedSwitch:
        """Return a switch, added if it is new."""
        found = self.switches.setdefault(name, ListedSwitch(line=line))
        found.line = found.line if found.line is not None else line
        return found

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of all nodes, switch by switch, with numbers in their order."""
        order = sorted(self.switches, key=natural)
        at_switches = (node for name in order for node in sorted(self.switches[name].hosts, key=natural))
        in_domains = (node for name in sorted(self.domains, key=natural) for node in sorted(self.domains[name], key=natural))
        return tuple(dict.fromkeys((*at_switches, *in_domains)))


Fact = tuple[str, Data, int | None]
"""Key of the table of machines, value and line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A machine, as far as a file describes it."""

    title: str
    facts: tuple[Fact, ...] = ()
    fabric: ListedFabric | None = None


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts names with numbers by the numbers.

    Examples
    --------
    >>> sorted(["leaf10", "leaf9"], key=natural)
    ['leaf9', 'leaf10']
    """
    return tuple((int(digits[:18]) if digits else -1, text) for text, digits in re.findall(r"(\D*)(\d*)", name) if text or digits)


def expanded(text: str, file: str) -> tuple[str, ...]:
    """Return the names in a list with ranges, as Slurm writes them.

    Raises
    ------
    ScenarioError
        When it stands for more names than any cluster has nodes.

    Examples
    --------
    >>> expanded("n[01-03,7]x,m1", "file")
    ('n01x', 'n02x', 'n03x', 'n7x', 'm1')
    """
    found: list[str] = []
    for match in _RANGE.finditer(text):
        if match[4] is not None:
            found.append(match[4])
        else:
            found += [f"{match[1].strip()}{number}{match[3].strip()}" for number in _numbers(match[2], file)]
        if len(found) > _MOST_NODES:
            raise _too_many(file)
    return tuple(found)


def _numbers(text: str, file: str) -> Iterator[str]:
    for part in text.split(","):
        first, dash, last = (each.strip() for each in part.partition("-"))
        if not first.isdecimal() or len(first) > 9 or len(last) > 9:
            continue
        if not dash or not last.isdecimal():
            yield first
        elif int(last) - int(first) > _MOST_NODES:
            raise _too_many(file)
        else:
            yield from (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))


def _too_many(file: str) -> ScenarioError:
    return ScenarioError(f"names more than {_MOST_NODES} nodes", place=Place(file=file))


def counted(values: Iterable[str]) -> Mapping[str, int]:
    """Return how often each value comes, the most frequent first."""
    return MappingProxyType(dict(Counter(values).most_common()))


def mapping_of(text: str, file: str) -> dict[str, Data]:
    """Return the mapping that a text of YAML or JSON holds.

    Raises
    ------
    ScenarioError
        When it holds anything else.
    """
    read = read_yaml(text.replace("\t", "  "), file, text.splitlines(), lenient=True)
    if read is None or not isinstance(read[0], dict):
        raise ScenarioError("is not a mapping of keys to values", place=Place(file=file))
    return read[0]


def mappings_in(data: Data) -> Iterator[dict[str, Data]]:
    """Yield the mappings in a list; none of anything else."""
    return (item for item in (data if isinstance(data, list) else []) if isinstance(item, dict))


def texts_in(data: Data) -> Iterator[str]:
    """Yield the texts in a list; none of anything else."""
    return (item for item in (data if isinstance(data, list) else []) if isinstance(item, str))

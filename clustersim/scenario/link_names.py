"""Find links by their names, as ``links.csv`` shows them."""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

from clustersim.documents.check import did_you_mean
from clustersim.errors import ScenarioError
from clustersim.topology.wired import WiredCluster

_WILD: Final = re.compile(r"(\*|\[[^\]]*\])")
_RANGES: Final = re.compile(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*")
_LARGEST_RANGE: Final = 1_000_000
_MOST_NAMES: Final = 2000
"""Of how many known names the nearest is looked for."""
_MOST_SHOWN: Final = 6


def links_named(cluster: WiredCluster, text: str, *, field: str) -> tuple[int, ...]:
    """Return the ids of the links that a name means, ascending.

    Parameters
    ----------
    text
        Such as ``leaf0/up`` or ``node[0-3]/nic*/tx``: ``*`` stands for anything up to the next slash, brackets for some of the numbers.
    field
        Of the scenario, for messages.

    Raises
    ------
    ScenarioError
        No link goes by such a name.
    """
    expression = re.compile("".join(_read(part, field) if _WILD.fullmatch(part) else re.escape(part) for part in _WILD.split(text)))
    found = tuple(link_id for link_id in range(len(cluster.links)) if expression.fullmatch(cluster.link_name(link_id)))
    if not found:
        raise ScenarioError(f"there is no link '{text}'", field=field, hint=_nearest(cluster, text))
    return found


def _read(part: str, field: str) -> str:
    if part == "*":
        return "[^/]*"
    inside = part[1:-1].replace(" ", "")
    bounds = [(int(low), int(high or low)) for low, high in re.findall(r"(\d+)(?:-(\d+))?", inside)]
    if not _RANGES.fullmatch(inside) or any(not low <= high <= low + _LARGEST_RANGE for low, high in bounds):
        raise ScenarioError(f"'{part}' is not a range of numbers", field=field, hint="write such as [0-3] or [0,2,5]")
    return f"(?:{'|'.join(str(number) for low, high in bounds for number in range(low, high + 1))})"


def _nearest(cluster: WiredCluster, text: str) -> str:
    first = cluster.layout.first_fabric_link
    names = [cluster.link_name(link_id) for link_id in (*range(first, len(cluster.links)), *range(first))]
    place = text.split("/", maxsplit=1)[0]
    here = [name for name in names if name.split("/", maxsplit=1)[0] == place]
    digits = re.findall(r"\d+", text)
    alike = [name for name in names if re.findall(r"\d+", name) == digits]
    near = did_you_mean(text, here) or did_you_mean(text, alike[:_MOST_NAMES]) or did_you_mean(text, names[:_MOST_NAMES])
    if near is not None:
        return near
    shown = dict.fromkeys(re.sub(r"\d+", "*", name) for name in names)
    return f"there are such as {', '.join(islice(shown, _MOST_SHOWN))}; all stand in links.csv of a run or use *"

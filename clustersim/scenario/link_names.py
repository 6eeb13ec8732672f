"""Find links by their names, as ``links.csv`` shows them."""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

from clustersim.documents.check import did_you_mean
from clustersim.errors import DomainError
from clustersim.topology.wildcards import name_expression
from clustersim.topology.wired import WiredCluster

_MOST_NAMES: Final = 2000
"""Of how many known names the nearest is looked for."""
_MOST_SHOWN: Final = 6


def links_named(cluster: WiredCluster, text: str) -> tuple[int, ...]:
    """Return the ids of the links that a name means, ascending.

    Parameters
    ----------
    text
        Such as ``leaf0/up`` or ``node[0-3]/nic*/tx``: ``*`` stands for anything up to the next slash, brackets for some of the numbers.

    Raises
    ------
    DomainError
        No link goes by such a name.
    """
    expression = name_expression(text)
    found = tuple(link_id for link_id in range(len(cluster.links)) if expression.fullmatch(cluster.link_name(link_id)))
    if not found:
        raise DomainError(f"there is no link '{text}'", hint=_nearest(cluster, text))
    return found


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

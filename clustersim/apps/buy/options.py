"""Clusters to choose from, as people write them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import gcd
from typing import Final

from clustersim.apps.plan.asking import nodes_with
from clustersim.apps.plan.goal import figure_of
from clustersim.documents.near_names import choices_hint
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import node_names

_OPTION: Final = re.compile(r"(?P<count>[1-9]\d*)\s*[x×]?\s+(?P<node>\S+)(\s+at\s+(?P<price>.+))?")
_EXAMPLE: Final = "write a number, a node and perhaps a price, such as '64 dgx-h100' or '64 dgx-h100 at 2.10 USD/h'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """Nodes of one kind."""

    node: str
    """A shipped one, or a file that ends in ``.yaml``."""
    n_nodes: int
    usd_per_gpu_hour: float | None = None
    """Rent of one accelerator; None takes that of a price list."""

    @property
    def name(self) -> str:
        """Number and node, such as ``64 dgx-h100``."""
        return f"{self.n_nodes} {self.node}"


def read_option(text: str) -> Option:
    """Return an option from its text.

    Raises
    ------
    ScenarioError
        When there is no such node, or a price has no unit.

    Examples
    --------
    >>> read_option("64 dgx-h100 at 2.10 USD/h")
    Option(node='dgx-h100', n_nodes=64, usd_per_gpu_hour=2.1)
    """
    found = _OPTION.fullmatch(text.strip())
    if found is None:
        raise ScenarioError(f"'{text}' is no option", field="--option", hint=_EXAMPLE)
    node = found["node"]
    if node not in node_names() and not node.endswith(".yaml"):
        raise ScenarioError(
            f"there is no node '{node}'", field="--option", hint=nodes_with(node, node_names()) or choices_hint(node, node_names())
        )
    price = None if found["price"] is None else figure_of("--option", found["price"], "USD/h")
    return Option(node=node, n_nodes=int(found["count"]), usd_per_gpu_hour=price)


def read_nics(text: str) -> tuple[str, ...]:
    """Return bandwidths of adapters from a list, as text for a scenario.

    Raises
    ------
    ScenarioError
        When one has no unit, or stands twice.
    """
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    rates = [figure_of("--nic", each, "B/s") for each in found]
    if len(set(rates)) < len(rates):
        raise ScenarioError(f"'{text}' names a bandwidth twice", field="--nic", hint="write each once, such as 200Gbit/s,400Gbit/s")
    return found


def adapted_batch(batch: int, n_ranks: int) -> int:
    """Return the batch nearest to a given one that divides among the ranks as well as powers of two do.

    Data parallelism divides the batch, and takes the odd factors of the ranks wherever tensor and pipeline parallelism do not. A batch that
    has these factors stays as it is. Any other becomes the nearest multiple of them and of the power of two that batch and ranks share.

    Examples
    --------
    >>> adapted_batch(1024, 512), adapted_batch(1024, 384), adapted_batch(1000, 384)
    (1024, 1152, 1008)
    """
    odd = n_ranks // (n_ranks & -n_ranks)
    if batch % odd == 0:
        return batch
    unit = odd * gcd(batch & -batch, n_ranks & -n_ranks)
    return unit * max(1, round(batch / unit))

"""A small comparison of parameter servers and rings that every test can change a little."""

from __future__ import annotations

from dataclasses import replace

from clustersim.documents.text import parse_document
from clustersim.studies.comparison_file import Comparison, checked_comparison
from tests.unit.engine.factories import instant

TEXT = """\
name: small
question: Who is faster?
cluster:
  node: pcie-a100-80g
  accelerators_per_node: 1
  fabric: {topology: leaf_spine, nodes_per_leaf: 4, routing: adaptive}
adapters:
  - {nic: eth-10g, leaf: eth-10g-tor}
  - {nic: eth-100g, leaf: eth-100g-64p}
oversubscription: [1, 8]
workers: [2, 8]
servers: [1, 2, 4]
sizes: [1 KB, 100 MB]
crossover_sizes: {smallest: 1 KB, largest: 1 GB}
shown: {workers: 8, servers: [1, 2], size: 100 MB}
"""


def comparison(text: str = TEXT) -> Comparison:
    return checked_comparison(parse_document(text, "small.yaml"))


def without_latency(of: Comparison) -> Comparison:
    """Return the same comparison on wires and switches without latency."""
    return replace(of, nodes=tuple(instant(node) for node in of.nodes))

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.documents.check import validate_document
from clustersim.documents.spots import Data
from clustersim.documents.text import plain_document
from clustersim.hardware.catalog import load_node
from clustersim.scenario.machine import hardware_of
from clustersim.scenario.node_groups import Hardware
from clustersim.scenario.resolved_hardware import resolved_hardware
from clustersim.scenario.schema import ClusterSpec, Part

INLINE: dict[str, Data] = {
    "accelerator": "l40s",
    "accelerators_per_node": 8,
    "host": "dgx-a100",
    "nics": {"count": 2, "bandwidth": "100 Gbit/s", "latency": "1.5 us"},
    "scale_up": {"kind": "pcie", "latency": "1 us"},
    "fabric": {"topology": "leaf_spine", "leaf": "qm9700-ndr", "nodes_per_leaf": 8},
}
GROUPS: list[Data] = [
    {"node": "dgx-h100", "count": 2, "accelerator": "h200-sxm", "power": "11 kW"},
    {"node": "dgx1-v100-32g", "count": 1, "nics": {"bandwidth": "100 Gbit/s"}},
    {"node": INLINE, "count": 3},
]


class Setting(Part):
    cluster: ClusterSpec


def hardware(cluster: dict[str, Data]) -> Hardware:
    document = plain_document({"cluster": cluster}, "test.yaml")
    return hardware_of(validate_document(Setting, document).cluster, document)


def figures(found: Hardware) -> list[object]:
    """Return all but the sources: a figure that is written out is one that the user gave."""
    nodes = [replace(node, sources=(), fabric=found.fabric, nic=replace(node.nic, sources=())) for node, _ in found.kinds]
    nodes = [replace(node, accelerator=replace(node.accelerator, sources=())) for node in nodes]
    return [nodes, [count for _, count in found.kinds], found.fabric]


def part(data: Data, *path: str | int) -> Data:
    for step in path:
        assert isinstance(data, dict | list)
        data = data[str(step)] if isinstance(data, dict) else data[int(step)]
    return data


@pytest.mark.parametrize(
    "cluster",
    [
        {"node": "dgx-h100", "nodes": 4, "fabric": {"routing": "ecmp", "seed": 3}},
        {"node": INLINE, "nodes": 2},
        {"nodes": GROUPS, "fabric": {"topology": "leaf_spine"}},
        {"nodes": GROUPS[::-1]},
        {"name": "superpod-h100"},
    ],
    ids=["one kind", "from nothing", "groups", "groups from nothing first", "a shipped cluster"],
)
def test_what_is_written_reads_as_the_same_hardware(cluster: dict[str, Data]) -> None:
    found = hardware(cluster)

    written = resolved_hardware(found.kinds, found.fabric)

    assert figures(hardware(written)) == figures(found)
    again = hardware(written)
    assert resolved_hardware(again.kinds, again.fabric) == written


def test_groups_are_written_in_order_with_all_figures_and_one_fabric() -> None:
    found = hardware({"nodes": GROUPS})

    written = resolved_hardware(found.kinds, found.fabric)

    assert list(written) == ["nodes", "fabric"]
    keys = ("node", "count", "accelerator", "power")
    assert [part(written, "nodes", 0, key) for key in keys] == ["dgx-h100", 2, "h200-sxm", "11 kW"]
    assert part(written, "nodes", 1, "nics", "bandwidth") == "12.5 GB/s"
    assert "fabric" not in str(part(written, "nodes", 0))
    assert part(written, "nodes", 2, "node", "accelerator") == "l40s"
    assert part(written, "nodes", 2, "node", "fabric", "topology") == "leaf_spine"


def test_a_lone_group_is_written_as_a_cluster_of_one_kind() -> None:
    group = hardware({"nodes": [{"node": "dgx-h100", "count": 4}]})
    plain = hardware({"node": "dgx-h100", "nodes": 4})

    assert resolved_hardware(group.kinds, group.fabric) == resolved_hardware(plain.kinds, plain.fabric)


def test_shipped_parts_stay_named() -> None:
    node = load_node("dgx-h100")

    written = resolved_hardware(((node, 1),), node.fabric)

    assert [part(written, "node"), part(written, "host"), part(written, "nics", "model")] == ["dgx-h100", "dgx-h100", node.nic.name]

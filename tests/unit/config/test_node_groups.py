from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.config.machine import hardware_of
from clustersim.config.node_groups import Hardware, check_alike
from clustersim.config.scenario_schema import ClusterSpec, ScenarioPart
from clustersim.documents.check import located, validate_document
from clustersim.documents.spots import Data
from clustersim.documents.text import plain_document
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import load_node

H100: dict[str, Data] = {"node": "dgx-h100", "count": 2}
A100: dict[str, Data] = {"node": "dgx-a100-80g", "count": 3}
INLINE: dict[str, Data] = {
    "accelerator": "a100-sxm4-80g",
    "accelerators_per_node": 8,
    "host": "dgx-a100",
    "nics": {"count": 8, "bandwidth": "100 Gbit/s", "latency": "1.5 us"},
    "scale_up": {"kind": "full_mesh", "bandwidth": "300 GB/s", "latency": "1 us"},
    "fabric": {"topology": "single_switch", "leaf": "qm9700-ndr", "nodes_per_leaf": 8},
}


class Setting(ScenarioPart):
    cluster: ClusterSpec


def hardware(*groups: Data, **others: Data) -> Hardware:
    document = plain_document({"cluster": {"nodes": list(groups), **others}}, "test.yaml")
    try:
        return hardware_of(validate_document(Setting, document).cluster, document)
    except ScenarioError as error:
        raise error if error.place else located(error, document) from error


def refusal(*groups: Data, **others: Data) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        hardware(*groups, **others)
    return caught.value


def test_groups_stand_in_the_order_in_which_they_are_written() -> None:
    found = hardware(H100, A100)

    assert [(node.name, count) for node, count in found.kinds] == [("dgx-h100", 2), ("dgx-a100-80g", 3)]
    assert (found.node.name, found.n_nodes) == ("dgx-h100", 5)
    assert [node.name for node in found.nodes] == ["dgx-h100"] * 2 + ["dgx-a100-80g"] * 3


def test_the_fabric_is_that_of_the_first_kind_unless_one_is_given() -> None:
    given: Data = {"topology": "leaf_spine", "oversubscription": 2}

    assert hardware(A100, H100).fabric == load_node("dgx-a100-80g").fabric
    changed = hardware(A100, H100, fabric=given).fabric
    assert changed == replace(load_node("dgx-a100-80g").fabric, topology="leaf_spine", oversubscription=2.0)


def test_parts_are_replaced_in_the_group_that_names_them() -> None:
    found = hardware({**H100, "accelerator": "h200-sxm"}, {**A100, "nics": {"bandwidth": "100 Gbit/s"}})

    first, second = (node for node, _ in found.kinds)
    assert (first.accelerator.name, second.accelerator.name) == ("h200-sxm", "a100-sxm4-80g")
    assert (second.nic.bandwidth_bytes_per_s, second.nic.latency_s) == (12.5e9, load_node("dgx-a100-80g").nic.latency_s)
    assert first.nic == load_node("dgx-h100").nic


def test_a_node_of_a_group_may_be_described_in_full() -> None:
    (_, (inline, count)) = hardware(H100, {"node": INLINE, "count": 4, "power": "6 kW"}).kinds

    assert (inline.name, inline.scale_up.kind, inline.power_w, count) == ("inline", "full_mesh", 6000.0, 4)


def test_one_group_is_a_cluster_of_one_kind() -> None:
    assert hardware(H100).kinds == ((load_node("dgx-h100"), 2),)


def test_figures_that_nobody_has_seen_are_named_for_every_kind_but_not_for_fabrics_that_are_not_used() -> None:
    def alone(group: dict[str, Data]) -> tuple[str, ...]:
        return hardware(group).unseen

    found = hardware(H100, A100).unseen

    assert set(alone(H100)) <= set(found) <= set(alone(H100)) | set(alone(A100))
    assert not any(name.startswith("dgx-a100-80g.fabric") for name in found)


@pytest.mark.parametrize(
    ("groups", "others", "field", "message", "hint"),
    [
        ([], {}, "cluster.nodes", "no node is named", "write such as [{node: dgx-h100, count: 4}"),
        ([H100], {"node": "dgx-h100"}, "cluster.node", "node and groups of nodes both say", "delete it, or write a number"),
        ([H100], {"name": "superpod-h100"}, "cluster.name", "name and groups of nodes both say", "delete it, or write a number"),
        ([H100], {"nics": {"count": 4}}, "cluster.nics", "nics stands beside groups of nodes", "into the groups"),
        ([H100, {**A100, "fabric": {"seed": 1}}], {}, "cluster.nodes.1.fabric", "no fabric of its own", "beside nodes"),
        ([H100, {"node": "dgx-a100-80g"}], {}, "cluster.nodes.1.count", "'count' is missing", "add"),
        ([{"count": 3}], {}, "cluster.nodes.0.node", "'node' is missing", "add"),
        ([{**H100, "count": 0}], {}, "cluster.nodes.0.count", "0 is out of range", "more than 0"),
        ([H100, {**A100, "node": "dgx-a100"}], {}, "cluster.nodes.1.node", "unknown node 'dgx-a100'", "dgx-a100-80g"),
        ([H100, {**A100, "nic": {}}], {}, "cluster.nodes.1.nic", "unknown field 'nic'", "did you mean 'nics'?"),
        ([H100, {**A100, "nics": {"cuont": 3}}], {}, "cluster.nodes.1.nics.cuont", "unknown field 'cuont'", "did you mean 'count'?"),
        ([H100, {**A100, "host": "dgx"}], {}, "cluster.nodes.1.host", "unknown host 'dgx'", "did you mean"),
    ],
)
def test_a_mistake_is_named_at_its_place(groups: list[Data], others: dict[str, Data], field: str, message: str, hint: str) -> None:
    error = refusal(*groups, **others)

    assert error.field == field
    assert message in error.message
    assert hint in str(error.hint)


@pytest.mark.parametrize("nodes", ["four", {"count": 3}, 2.5])
def test_nodes_are_a_number_or_groups(nodes: Data) -> None:
    document = plain_document({"cluster": {"nodes": nodes, "node": "dgx-h100"}}, "test.yaml")

    with pytest.raises(ScenarioError, match="is not a whole number or a list") as caught:
        validate_document(Setting, document)

    assert caught.value.field == "cluster.nodes"


def test_kinds_with_different_numbers_of_accelerators_are_refused() -> None:
    error = refusal(H100, {"node": "dgx2-v100-32g", "count": 1})

    assert error.message == "dgx2-v100-32g has 16 accelerators, and dgx-h100 has 8"
    assert error.field == "cluster.nodes.1.accelerators_per_node"
    assert "accelerators_per_node: 8" in str(error.hint)


def test_kinds_with_different_numbers_of_adapters_are_alike() -> None:
    check_alike([load_node("dgx-h100"), load_node("aws-p4d")])

    assert hardware(H100, {"node": "aws-p4d", "count": 1}).n_nodes == 3

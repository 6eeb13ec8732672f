from __future__ import annotations

import pytest

from clustersim.documents.text import Data, Document, parse_document
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import load_accelerator, load_host, load_nic, load_node, load_switch
from clustersim.hardware.models import Node
from clustersim.hardware.overrides import fabric_from_mapping, node_from_mapping
from clustersim.hardware.provenance import remembered_fields

INLINE = """\
cluster:
  accelerator: h100-sxm5-80g
  accelerators_per_node: 4
  host: dgx-h100
  nics: {bandwidth: 200 Gbit/s, latency: 1 us, count: 2}
  scale_up: {kind: nvswitch, latency: 0.5 us}
  fabric: {topology: leaf_spine, leaf: qm9700-ndr, nodes_per_leaf: 16, oversubscription: 3}
"""


def scenario(text: str) -> tuple[dict[str, Data], Document]:
    document = parse_document(text, "run.yaml")
    part = document.data["cluster"]
    assert isinstance(part, dict)
    return part, document


def changed(base: str | None, text: str) -> Node:
    overrides, document = scenario(text if text.startswith("cluster:") else f"cluster:\n  {text}\n")
    return node_from_mapping(base, overrides, document, ("cluster",))


def test_another_accelerator_is_put_in() -> None:
    node = changed("dgx-h100", "accelerator: h200-sxm")

    assert node.accelerator is load_accelerator("h200-sxm")
    assert node.host is load_node("dgx-h100").host


def test_fewer_accelerators_share_no_more_than_there_are() -> None:
    node = changed("pcie-l40s", "accelerators_per_node: 2")

    assert node.n_accelerators == 2
    assert node.accelerators_per_pcie_switch == 2


def test_adapters_are_changed_in_part() -> None:
    node = changed("dgx-h100", "nics: {count: 4, bandwidth: 200 Gbit/s}")

    assert node.n_nics == 4
    assert node.nic.bandwidth_bytes_per_s == 25e9
    assert node.nic.latency_s == load_nic("cx7-ndr").latency_s


def test_another_model_of_adapter_is_put_in() -> None:
    node = changed("dgx-h100", "nics: {model: cx8-800g}")

    assert node.nic == load_nic("cx8-800g")
    assert node.n_nics == 8


def test_the_wires_inside_are_changed_in_part() -> None:
    node = changed("dgx-h100", "scale_up: {bandwidth: 200 GB/s, latency: 2 us, in_network_reduction: false}")

    assert node.accelerator.scale_up_bandwidth_bytes_per_s == 200e9
    assert node.accelerator.scale_up_links == 18
    assert node.scale_up.kind == "nvswitch"
    assert node.scale_up.latency_s == 2e-6
    assert not node.scale_up.in_network_reduction


def test_a_card_without_links_gets_one_when_a_bandwidth_is_given() -> None:
    node = changed("pcie-l40s", "scale_up: {kind: bridge_pairs, bandwidth: 50 GB/s}")

    assert node.accelerator.scale_up_links == 1
    assert node.scale_up.kind == "bridge_pairs"


def test_a_domain_can_span_nodes() -> None:
    assert changed("dgx-h100", "scale_up: {nodes_per_domain: 32}").scale_up.nodes_per_domain == 32


def test_host_and_power_are_replaced() -> None:
    node = changed("dgx-h100", "{host: dgx-b200, power: 11 kW}")

    assert node.host is load_host("dgx-b200")
    assert node.power_w == 11e3


def test_the_fabric_is_changed_in_part() -> None:
    before = load_node("dgx-h100").fabric

    fabric = changed("dgx-h100", "fabric: {topology: leaf_spine, oversubscription: 4, routing: ecmp, leaf: tomahawk4-400g}").fabric

    assert (fabric.topology, fabric.oversubscription, fabric.routing) == ("leaf_spine", 4.0, "ecmp")
    assert fabric.leaf is load_switch("tomahawk4-400g")
    assert (fabric.spine, fabric.nodes_per_leaf, fabric.cable_latency_s) == (before.spine, before.nodes_per_leaf, before.cable_latency_s)


def test_a_third_tier_can_be_given() -> None:
    fabric = changed("dgx-h100", "fabric: {topology: fat_tree, leaves_per_pod: 8, core_oversubscription: 7, cable_latency: 50 ns}").fabric

    assert (fabric.leaves_per_pod, fabric.core_oversubscription, fabric.cable_latency_s) == (8, 7.0, 50e-9)


def test_switches_of_a_fabric_can_be_told_to_add_and_not_to() -> None:
    adding = changed("dgx-h100", "fabric: {in_network_reduction: true}").fabric

    assert adding.in_network_reduction
    assert not load_node("dgx-h100").fabric.in_network_reduction
    assert not changed("dgx-h100", "fabric: {in_network_reduction: false}").fabric.in_network_reduction


def test_fabrics_without_spines_and_hashed_routes_have_keys_of_their_own() -> None:
    torus = changed("dgx-h100", "fabric: {topology: torus, dimensions: [4, 2], link_bandwidth: 100 Gbit/s}").fabric
    dragonfly = changed("dgx-h100", "fabric: {topology: dragonfly, leaves_per_group: 4, global_links: 2, routing: ecmp, seed: 7}").fabric

    assert (torus.dimensions, torus.link_bandwidth_bytes_per_s) == ((4, 2), 12.5e9)
    assert (dragonfly.leaves_per_group, dragonfly.global_links, dragonfly.seed) == (4, 2, 7)


def test_a_torus_from_nothing_needs_no_nodes_below_a_leaf() -> None:
    text = INLINE.replace("topology: leaf_spine, ", "topology: torus, dimensions: [2], ").replace("nodes_per_leaf: 16, ", "")

    assert changed(None, text).fabric.topology == "torus"


def test_a_fabric_alone_can_be_changed() -> None:
    base = load_node("dgx-h100").fabric
    document = parse_document("fabric: {spine: tomahawk4-400g}\n", "run.yaml")

    fabric = fabric_from_mapping(base, {"spine": "tomahawk4-400g"}, document, ("fabric",))

    assert fabric.spine is load_switch("tomahawk4-400g")
    assert fabric.leaf is base.leaf


def test_a_node_can_be_described_from_nothing() -> None:
    node = changed(None, INLINE)

    assert node.name == "inline"
    assert (node.n_accelerators, node.n_nics, node.nic.bandwidth_bytes_per_s, node.nic.latency_s) == (4, 2, 25e9, 1e-6)
    assert node.scale_up.latency_s == 0.5e-6
    assert (node.fabric.leaf, node.fabric.spine) == (load_switch("qm9700-ndr"), load_switch("qm9700-ndr"))
    assert node.fabric.oversubscription == 3.0
    assert node.power_w is None


def test_a_node_from_nothing_may_name_an_adapter() -> None:
    node = changed(None, INLINE.replace("{bandwidth: 200 Gbit/s, latency: 1 us, count: 2}", "{model: cx7-ndr, count: 2}"))

    assert node.nic == load_nic("cx7-ndr")


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("  accelerator: h100-sxm5-80g\n", "cluster.accelerator"),
        ("  accelerators_per_node: 4\n", "cluster.accelerators_per_node"),
        ("  host: dgx-h100\n", "cluster.host"),
        ("  nics: {bandwidth: 200 Gbit/s, latency: 1 us, count: 2}\n", "cluster.nics"),
        (", count: 2", "cluster.nics.count"),
        ("bandwidth: 200 Gbit/s, ", "cluster.nics.bandwidth"),
        ("latency: 1 us, ", "cluster.nics.latency"),
        ("kind: nvswitch, ", "cluster.scale_up.kind"),
        ("topology: leaf_spine, ", "cluster.fabric.topology"),
        ("leaf: qm9700-ndr, ", "cluster.fabric.leaf"),
        ("nodes_per_leaf: 16, ", "cluster.fabric.nodes_per_leaf"),
    ],
)
def test_a_node_from_nothing_that_lacks_a_field_says_which(line: str, field: str) -> None:
    with pytest.raises(ScenarioError, match="is missing") as caught:
        changed(None, INLINE.replace(line, "", 1))

    assert caught.value.field == field
    assert "or start from a shipped node" in str(caught.value.hint)
    assert caught.value.place is not None
    assert caught.value.place.line is not None


@pytest.mark.parametrize(
    ("text", "field", "message", "hint"),
    [
        ("acelerator: h200-sxm", "cluster.acelerator", "unknown field 'acelerator'", "did you mean 'accelerator'?"),
        ("accelerator: h200", "cluster.accelerator", "unknown accelerator 'h200'", "did you mean one of gh200, h200-nvl, h200-sxm?"),
        ("accelerators_per_node: 0", "cluster.accelerators_per_node", "0 is out of range", "write a number that is more than 0"),
        ("nics: {cont: 4}", "cluster.nics.cont", "unknown field 'cont'", "did you mean 'count'?"),
        ("nics: {bandwidth: 200}", "cluster.nics.bandwidth", "200 has no unit", "write it with a unit, such as '400 Gbit/s'"),
        (
            "nics: {model: cx7}",
            "cluster.nics.model",
            "unknown nic 'cx7'",
            "did you mean one of cx7-ndr, cx7-ndr200, cx7-roce-200g, cx7-roce-400g?",
        ),
        ("host: dgx-h200", "cluster.host", "unknown host 'dgx-h200'", "did you mean 'dgx-h100'?"),
        ("fabric: {topolgy: fat_tree}", "cluster.fabric.topolgy", "unknown field 'topolgy'", "did you mean 'topology'?"),
        ("fabric: {oversubscription: 0}", "cluster.fabric.oversubscription", "0 is out of range", "write a number that is at least 0.1"),
        ("fabric: {leaf: qm9701-ndr}", "cluster.fabric.leaf", "unknown switch 'qm9701-ndr'", "did you mean 'qm9700-ndr'?"),
        ("power: -1 W", "cluster.power", "-1 W is negative", "write a power such as '700 W'"),
    ],
)
def test_a_wrong_override_is_one_clear_error_at_its_place(text: str, field: str, message: str, hint: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        changed("dgx-h100", text)

    assert (caught.value.field, caught.value.message, caught.value.hint) == (field, message, hint)
    assert caught.value.place is not None
    assert caught.value.place.line == 2
    assert caught.value.place.text == f"  {text}"


def test_a_wrong_topology_lists_the_right_ones() -> None:
    with pytest.raises(ScenarioError, match="'ring' is not one of rail_optimized, leaf_spine, fat_tree, single_switch, torus, dragonfly"):
        changed("dgx-h100", "fabric: {topology: ring}")


def test_an_unknown_base_is_refused() -> None:
    with pytest.raises(ScenarioError, match="unknown node 'dgx-x100'"):
        changed("dgx-x100", "accelerators_per_node: 4")


def test_what_the_user_gave_is_kept_as_a_source_and_no_longer_remembered() -> None:
    before = load_node("hgx-h800")
    assert "hgx-h800.power" in remembered_fields(before)

    after = changed("hgx-h800", "{power: 10 kW, nics: {count: 4}}")

    assert after.sources[-1].covers == ("nics.count", "power")
    assert "hgx-h800.power" not in remembered_fields(after)
    assert "hgx-h800.nics.count" not in remembered_fields(after)
    assert "hgx-h800.accelerators_per_node" in remembered_fields(after)


def test_a_given_bandwidth_inside_covers_the_links_of_the_accelerator() -> None:
    assert "h800-sxm5-80g.scale_up.links" in remembered_fields(load_node("hgx-h800"))

    assert "h800-sxm5-80g.scale_up.links" not in remembered_fields(changed("hgx-h800", "scale_up: {bandwidth: 300 GB/s}"))

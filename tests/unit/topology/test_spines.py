from __future__ import annotations

import numpy as np
import pytest

from clustersim.hardware.catalog import load_cluster
from clustersim.topology.cluster import TIERS, FloatArray
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.names import LinkChange
from clustersim.topology.scale_out import Leaves
from clustersim.topology.spines import SpineTree, cables_of, spine_tree
from clustersim.topology.wired import Cluster
from tests.unit.topology.factories import NIC_BYTES_PER_S, all_pairs, make_fabric, make_node, named_rows

SUPERPOD = load_cluster("superpod-h100").fabric
NDR_BYTES_PER_S = 50e9


def alike(leaves: Leaves, adapter_bytes_per_s: float) -> FloatArray:
    """Return the bandwidth of the adapters at each leaf where all are of one kind."""
    return np.full(leaves.n_leaves, adapter_bytes_per_s)


def units(n_units: int, *, per_pod: int | None = None) -> Leaves:
    """Return scalable units of 32 nodes with eight rails."""
    return Leaves(
        n_leaves=8 * n_units,
        n_pods=1 if per_pod is None else n_units // per_pod,
        nodes_per_unit=32,
        leaves_per_unit=8,
        leaves_per_pod=8 * (n_units if per_pod is None else per_pod),
        n_adapters=8,
    )


# Leaves and spines of a DGX SuperPOD H100 of one to four scalable units, and of a B200 one of eight: NVIDIA's reference architectures,
# https://docs.nvidia.com/dgx-superpod/reference-architecture-scalable-infrastructure-h100/latest/network-fabrics.html and
# https://docs.nvidia.com/dgx-superpod/reference-architecture-scalable-infrastructure-b200/latest/dgx-superpod-architecture.html.
@pytest.mark.parametrize(("n_units", "n_spines", "n_cables"), [(1, 4, 256), (2, 8, 512), (3, 16, 768), (4, 16, 1024), (8, 32, 2048)])
def test_a_superpod_has_the_spines_and_cables_of_its_reference_architecture(n_units: int, n_spines: int, n_cables: int) -> None:
    leaves = units(n_units)
    cabling = cables_of(leaves, SUPERPOD, alike(leaves, NDR_BYTES_PER_S))

    assert cabling.n_spines == n_spines
    assert leaves.n_leaves * cabling.n_spines * cabling.to_spine == n_cables


@pytest.mark.parametrize("per_pod", [2, 4])
@pytest.mark.parametrize(("n_units", "n_spines", "n_cores", "n_cables"), [(16, 128, 64, 4096), (32, 256, 128, 8192), (64, 512, 256, 16384)])
def test_a_superpod_of_three_tiers_has_the_core_of_its_reference_architecture(
    per_pod: int, n_units: int, n_spines: int, n_cores: int, n_cables: int
) -> None:
    leaves = units(n_units, per_pod=per_pod)
    cabling = cables_of(leaves, SUPERPOD, alike(leaves, NDR_BYTES_PER_S))

    assert (cabling.n_spines * leaves.n_pods, cabling.n_spines * cabling.n_cores) == (n_spines, n_cores)
    assert cabling.n_spines * leaves.n_pods * cabling.n_cores * cabling.to_core == n_cables


def test_oversubscription_takes_cables_away_and_a_part_of_one_counts_in_full() -> None:
    leaves = Leaves(n_leaves=2, n_pods=1, nodes_per_unit=2, leaves_per_unit=1, leaves_per_pod=2, n_adapters=8)
    fabric = make_fabric("leaf_spine", oversubscription=3.0)

    cabling = cables_of(leaves, fabric, alike(leaves, NIC_BYTES_PER_S))

    assert cabling.n_spines * cabling.to_spine == 6  # 16 / 3 = 5.3
    laid = spine_tree(leaves, fabric, alike(leaves, NIC_BYTES_PER_S))
    assert laid.bandwidth_bytes_per_s.sum() == pytest.approx(2 * 2 * 16 / 3 * NIC_BYTES_PER_S, rel=1e-12)


def test_a_spine_below_a_core_has_fewer_ports_downwards() -> None:
    leaves = Leaves(n_leaves=8, n_pods=2, nodes_per_unit=2, leaves_per_unit=1, leaves_per_pod=4, n_adapters=8)

    even, thin = (cables_of(leaves, make_fabric(core_oversubscription=ratio), alike(leaves, NIC_BYTES_PER_S)) for ratio in (1.0, 3.0))

    assert (even.n_spines, thin.n_spines) == (2, 2)  # 64 cables into 32, and into 48, ports
    assert (even.n_cores * even.to_core, thin.n_cores * thin.to_core) == (32, 11)


def test_a_narrow_leaf_has_as_many_cables_as_the_widest_and_each_carries_its_part() -> None:
    leaves = Leaves(n_leaves=2, n_pods=1, nodes_per_unit=2, leaves_per_unit=1, leaves_per_pod=2, n_adapters=8)
    fabric = make_fabric("leaf_spine", routing="ecmp")

    tree = spine_tree(leaves, fabric, np.array([NIC_BYTES_PER_S, NIC_BYTES_PER_S / 4]))

    per_leaf = tree.bandwidth_bytes_per_s.reshape(2, -1)
    assert per_leaf.shape == (2, 32)
    assert per_leaf[0].tolist() == [NIC_BYTES_PER_S] * 32
    assert per_leaf[1].tolist() == [NIC_BYTES_PER_S / 4] * 32


def tall(routing: str = "ecmp", *changes: LinkChange) -> Cluster:
    fabric = make_fabric("fat_tree", nodes_per_leaf=1, leaves_per_pod=2, n_ports=8, routing="ecmp" if routing == "ecmp" else "adaptive")
    return build_cluster(make_node(n_accelerators=4, n_nics=4), 6, fabric, changes=changes)


def test_a_cable_is_named_after_what_it_joins_and_parallel_ones_are_numbered() -> None:
    cluster = tall()
    ends = {cluster.link_name(link): cluster.ends(link) for link in range(len(cluster.links))}

    assert isinstance(cluster.scale_out, SpineTree)
    assert len(ends) == len(cluster.links)
    assert ends["leaf3/spine1/up0"] == ("leaf3", "pod1/spine1")
    assert ends["leaf3/spine1/down1"] == ("pod1/spine1", "leaf3")
    assert ends["pod2/spine0/core0/up1"] == ("pod2/spine0", "core0")
    assert ends["pod2/spine1/core3/down0"] == ("core3", "pod2/spine1")


def test_a_hashed_flow_keeps_its_spine_through_the_core() -> None:
    cluster = tall()

    for source, destination in zip(range(8), range(16, 24), strict=True):
        names = [name for name, share in named_rows(cluster, source, destination) if "spine" in name]
        spines = [name.split("/")[1] for name in names]
        assert [TIERS[index] for index in (4, 5, 5, 4)] == ["leaf", "spine", "spine", "leaf"]
        assert len(names) == 4
        assert len(set(spines)) == 1


def test_hashed_flows_are_spread_over_all_cables_as_chance_would() -> None:
    cluster = build_cluster(make_node(), 32, make_fabric("leaf_spine", nodes_per_leaf=16, n_ports=64, routing="ecmp"))
    sources, destinations = all_pairs(cluster.n_ranks)
    across = (sources < 128) & (destinations >= 128)
    routes = cluster.routes(sources[across], destinations[across])

    loads = np.bincount(routes.link_ids, minlength=len(cluster.links))[np.asarray(cluster.tier_index) == TIERS.index("leaf")]

    used = loads[loads > 0]
    assert len(used) == 2 * 128  # up from the first leaf, down to the second
    assert ((used[:128] - 128) ** 2 / 128).sum() + ((used[128:] - 128) ** 2 / 128).sum() < 254 + 5 * np.sqrt(2 * 254)
    assert used.max() > 128  # flows meet


def test_hashed_flows_go_around_a_cable_that_is_down() -> None:
    whole = build_cluster(make_node(), 4, make_fabric("leaf_spine", n_ports=8, routing="ecmp"))
    worn = build_cluster(
        make_node(),
        4,
        make_fabric("leaf_spine", n_ports=8, routing="ecmp"),
        changes=[LinkChange(between=("leaf1", "spine2"), state="down")],
    )
    pairs = np.repeat(np.arange(16), 16), np.tile(np.arange(16, 32), 16)

    before, after = whole.routes(*pairs), worn.routes(*pairs)

    spines = [
        [worn.ends(int(link))[1] for link in routes.link_ids if worn.link_name(int(link)).startswith("leaf0/")]
        for routes in (before, after)
    ]
    assert spines[0].count("spine2") > 0
    assert spines[1].count("spine2") == 0
    assert len(spines[1]) == 256


@pytest.mark.parametrize("lost", [("pod0/spine1", "core[2,3]"), ("pod2/spine1", "core*")])
def test_no_flow_takes_a_spine_from_which_the_core_is_cut(lost: tuple[str, str]) -> None:
    cluster = tall("ecmp", LinkChange(between=lost, state="down"))
    sources, destinations = np.repeat(np.arange(8), 8), np.tile(np.arange(16, 24), 8)

    names = {cluster.link_name(int(link)) for link in cluster.routes(sources, destinations).link_ids}

    assert not {name for name in names if "spine1" in name}
    assert {name for name in names if "spine0/core0" in name}


def test_spread_flows_take_each_spine_in_proportion_to_the_least_share_that_is_left_over_it() -> None:
    fabric = make_fabric("leaf_spine", n_ports=8)
    cluster = build_cluster(
        make_node(),
        4,
        fabric,
        changes=[LinkChange(between=("leaf0", "spine0"), fraction=0.5), LinkChange(between=("leaf1", "spine1"), fraction=0.25)],
    )

    shares = [share for name, share in named_rows(cluster, 0, 16) if "leaf0" in name]

    expected = np.array([0.5, 0.25, 1.0, 1.0])
    np.testing.assert_allclose(shares, expected / expected.sum(), rtol=1e-12)


def test_one_slow_path_through_the_core_narrows_its_spine_for_pairs_that_cross_it_alone() -> None:
    cluster = tall("adaptive", LinkChange(between=("pod1/spine0", "core*"), fraction=0.5))

    through, beside = (
        [share for name, share in named_rows(cluster, 0, destination) if name.startswith("leaf0")] for destination in (4 * 2, 4 * 4)
    )

    np.testing.assert_allclose(through, [1 / 3, 2 / 3], rtol=1e-12)
    assert beside == [0.5, 0.5]


def test_below_one_leaf_nothing_is_hashed() -> None:
    cluster = build_cluster(make_node(), 2, make_fabric("leaf_spine", routing="ecmp"))

    assert [name for name, _ in named_rows(cluster, 0, 8)] == [
        "node0/gpu0/pcie/up",
        "node0/nic0/tx",
        "node1/nic0/rx",
        "node1/gpu0/pcie/down",
    ]

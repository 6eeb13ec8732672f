"""Algorithm and protocol of the library, on machines whose choices are known."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import inf

import pytest

from clustersim.collectives.choosing import (
    TREE_CORRECTION,
    Facts,
    channel_ceiling_bytes_per_s,
    choose,
    enabled,
    tree_correction,
)
from clustersim.collectives.library import CollectiveCall, Library
from clustersim.collectives.pattern import FlowSet, Pattern
from clustersim.collectives.timing import AlgorithmCandidate
from clustersim.hardware.calibrations import calibration_for, calibration_of_generation
from clustersim.hardware.catalog import load_node
from clustersim.hardware.library_costs import PROTOCOLS, CollectiveOp, Protocol
from clustersim.topology.cluster_wiring import build_cluster
from tests.unit.collectives.test_timing import on

KIB, MIB, GIB = 2.0**10, 2.0**20, 2.0**30
SIZES = [2.0**power for power in range(8, 35)]

AMPERE, HOPPER = (calibration_of_generation(name).network.library for name in ("ampere", "hopper"))
FACTS = Facts(op="all_reduce", n_ranks=16, n_domains=2, limits=AMPERE, n_channels=8, medium="nvlink")


@cache
def library(node: str, n_nodes: int, protocols: tuple[Protocol, ...] = PROTOCOLS) -> Library:
    machine = load_node(node)
    constants = replace(calibration_for(machine.accelerator).network, protocols=protocols)
    return Library(cluster=build_cluster(machine, n_nodes), calibration=constants)


def chosen(
    node: str,
    n_nodes: int,
    size_bytes: float,
    *,
    op: CollectiveOp = "all_reduce",
    per_node: int = 0,
    protocols: tuple[Protocol, ...] = PROTOCOLS,
) -> tuple[str, str]:
    """Return algorithm and protocol among the first so many of each node, all if 0."""
    found = library(node, n_nodes, protocols)
    in_node = found.cluster.node.n_accelerators
    members = tuple(rank for rank in range(found.cluster.n_ranks) if rank % in_node < (per_node or in_node))
    done = found.operation(CollectiveCall(op=op, group=f"{per_node}", size_bytes=size_bytes), (members,))
    return done.algorithm, done.protocol


def algorithms(node: str, n_nodes: int, sizes: list[float], *, op: CollectiveOp = "all_reduce", per_node: int = 0) -> set[str]:
    return {chosen(node, n_nodes, size_bytes, op=op, per_node=per_node)[0] for size_bytes in sizes}


# Inside a node


def test_eight_h200_reduce_up_to_a_mebibyte_over_rings_of_low_latency_and_more_in_the_switch() -> None:
    for size_bytes in SIZES:
        assert chosen("hgx-h200", 1, size_bytes) == (("ring", "ll") if size_bytes <= MIB else ("nvls", "simple")), size_bytes


@pytest.mark.parametrize(("node", "fewest"), [("hgx-h200", 5), ("dgx-h100", 5), ("dgx-b200", 6)])
@pytest.mark.parametrize("n_ranks", range(2, 9))
def test_a_switch_adds_only_for_enough_ranks(node: str, fewest: int, n_ranks: int) -> None:
    assert chosen(node, 1, 8 * GIB, per_node=n_ranks)[0] == ("nvls" if n_ranks >= fewest else "ring")


@pytest.mark.parametrize("node", ["dgx-a100-80g", "dgx1-v100-16g", "mi300x-oam", "pcie-l40s"])
def test_without_a_switch_that_adds_a_node_reduces_over_rings(node: str) -> None:
    assert algorithms(node, 1, SIZES) == {"ring"}


def test_the_larger_the_tensor_the_less_of_the_wire_goes_to_flags() -> None:
    protocols = [chosen("dgx1-v100-16g", 1, size_bytes)[1] for size_bytes in SIZES]

    assert list(dict.fromkeys(protocols)) == ["ll", "ll128", "simple"]


@pytest.mark.parametrize(("node", "lines"), [("dgx-a100-80g", True), ("dgx1-v100-16g", True), ("pcie-l40s", False)])
def test_lines_with_one_flag_are_sent_over_nvlink_only(node: str, lines: bool) -> None:
    protocols = {chosen(node, 1, size_bytes)[1] for size_bytes in SIZES}

    assert ("ll128" in protocols) is lines


@pytest.mark.parametrize("allowed", [("simple",), ("ll", "simple"), ("ll128",)])
@pytest.mark.parametrize("node", ["dgx-a100-80g", "aws-p4de"])
def test_only_protocols_that_the_calibration_allows_are_used(allowed: tuple[Protocol, ...], node: str) -> None:
    protocols = {chosen(node, 2, size_bytes, protocols=allowed)[1] for size_bytes in SIZES}

    assert protocols <= set(allowed)


# Between nodes


def test_two_nodes_with_few_adapters_reduce_large_tensors_over_trees() -> None:
    assert algorithms("aws-p4de", 2, [size for size in SIZES if size >= MIB]) == {"tree"}


def test_two_nodes_with_an_adapter_for_each_accelerator_reduce_large_tensors_over_rings() -> None:
    assert algorithms("dgx-a100-80g", 2, [size for size in SIZES if size >= 256 * MIB]) == {"ring"}


@pytest.mark.parametrize("node", ["dgx-a100-80g", "dgx-h100"])
@pytest.mark.parametrize("n_nodes", [4, 16])
def test_many_nodes_reduce_small_tensors_over_trees(node: str, n_nodes: int) -> None:
    assert algorithms(node, n_nodes, [size for size in SIZES if size <= 64 * KIB]) == {"tree"}


@pytest.mark.parametrize(("node", "n_nodes"), [("dgx-h100", 2), ("dgx-h100", 4), ("dgx-b200", 2)])
def test_nodes_whose_switches_add_reduce_over_a_tree_of_switches(node: str, n_nodes: int) -> None:
    assert algorithms(node, n_nodes, [64 * MIB, 256 * MIB, GIB]) == {"nvls_tree"}


def test_a_rack_is_one_domain_and_reduces_in_its_switch() -> None:
    assert chosen("gb200-nvl72", 18, GIB)[0] == "nvls"


# Gathers and exchanges


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter"])
def test_small_parts_of_many_nodes_are_gathered_in_logarithmic_steps_where_each_has_one_rank(op: CollectiveOp) -> None:
    assert chosen("dgx-h100", 64, MIB, op=op, per_node=1)[0] == "pat"
    assert chosen("dgx-h100", 64, GIB, op=op, per_node=1)[0] == "ring"
    assert algorithms("dgx-h100", 64, [KIB, MIB, GIB], op=op, per_node=2) == {"ring"}


@pytest.mark.parametrize(
    ("node", "n_nodes", "algorithm"),
    [
        ("dgx-h100", 2, "hierarchical"),
        ("dgx-a100-80g", 4, "hierarchical"),
        ("dgx-h100", 1, "direct"),
        ("aws-p4de", 2, "direct"),
        ("mi300x-oam", 2, "direct"),
        ("gb200-nvl72", 2, "direct"),
    ],
)
def test_an_all_to_all_is_relayed_where_switches_join_rails_that_are_apart(node: str, n_nodes: int, algorithm: str) -> None:
    assert algorithms(node, n_nodes, [KIB, MIB, GIB], op="all_to_all") == {algorithm}


@pytest.mark.parametrize("op", ["broadcast", "reduce", "gather", "scatter"])
def test_other_operations_have_one_way_each(op: CollectiveOp) -> None:
    assert len(algorithms("dgx-h100", 2, [KIB, MIB, GIB], op=op)) == 1


# The parts of the estimate


@pytest.mark.parametrize(
    ("algorithm", "changes", "offered"),
    [
        ("ring", {}, True),
        ("tree", {}, True),
        ("sharp", {}, True),
        ("nvls", {"limits": HOPPER, "n_ranks": 5}, True),
        ("nvls", {"limits": HOPPER, "n_ranks": 4}, False),
        ("nvls", {"limits": HOPPER, "n_ranks": 5, "op": "all_gather"}, False),
        ("nvls_tree", {"limits": HOPPER}, True),
        ("nvls_tree", {"limits": HOPPER, "n_domains": 1}, False),
        ("nvls_tree", {"limits": AMPERE}, False),
        ("pat", {"n_domains": 16}, True),
        ("pat", {"n_domains": 15}, False),
        ("hierarchical", {"op": "all_to_all", "relays": True}, True),
        ("hierarchical", {"op": "all_to_all", "relays": True, "n_domains": 1}, False),
        ("hierarchical", {"op": "all_to_all", "relays": False}, False),
        ("direct", {"op": "all_to_all", "relays": False}, True),
        ("direct", {"op": "all_to_all", "relays": True}, False),
        ("direct", {"op": "gather", "relays": True}, True),
    ],
)
def test_what_is_offered_goes_by_generation_ranks_and_domains(algorithm: str, changes: dict[str, object], offered: bool) -> None:
    assert enabled(algorithm, replace(FACTS, **changes)) is offered


@pytest.mark.parametrize("n_domains", [1, 2, 3, 40])
def test_channels_of_a_tree_are_narrower_the_more_nodes_there_are(n_domains: int) -> None:
    facts = replace(FACTS, n_domains=n_domains, n_channels=4)

    # In and out together, of which a byte of the tensor takes both.
    assert channel_ceiling_bytes_per_s("tree", facts) == 4 * (24.0e9, 23.6e9, 17.8e9)[min(n_domains, 3) - 1] / 2


def test_a_generation_without_limits_of_its_own_takes_those_of_another() -> None:
    assert calibration_of_generation("unheard-of").network.library == AMPERE


def test_rings_have_no_limit_but_their_links() -> None:
    assert channel_ceiling_bytes_per_s("ring", FACTS) == inf


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_trees_are_corrected_by_powers_of_two(protocol: Protocol) -> None:
    table = TREE_CORRECTION[protocol]

    assert [tree_correction(protocol, 64.0 * 2**power) for power in range(len(table))] == list(table)
    assert tree_correction(protocol, 1.0) == tree_correction(protocol, 127.0) == table[0]
    assert tree_correction(protocol, 64.0 * 2 ** len(table)) == 1.0


def test_of_equal_estimates_the_first_is_taken() -> None:
    flow_set = FlowSet(route_set=on("nvlink", 1.0), share=1.0, intra_steps=1, inter_steps=0, intra_latency_s=0.0, inter_latency_s=0.0)
    pattern = Pattern(phases=((flow_set,),), uniform=True)
    alike = [
        AlgorithmCandidate(algorithm=name, pattern=pattern, lone=pattern, idle_rate_bytes_per_s=1e9, known_rate_bytes_per_s=1e9)
        for name in ("gather", "scatter")
    ]
    facts = replace(FACTS, op="gather", n_domains=1, protocols=("simple",))

    assert choose(alike, facts, 1e6) == ("gather", "simple")
    assert choose(alike[::-1], facts, 1e6) == ("scatter", "simple")


def test_small_tensors_go_by_latency_and_large_ones_by_bandwidth() -> None:
    def way(name: str, steps: int, rate: float) -> AlgorithmCandidate:
        links = on("nvlink", 1.0)
        flow_set = FlowSet(route_set=links, share=1.0, intra_steps=steps, inter_steps=0, intra_latency_s=0.0, inter_latency_s=0.0)
        pattern = Pattern(phases=((flow_set,),), uniform=True)
        return AlgorithmCandidate(algorithm=name, pattern=pattern, lone=pattern, idle_rate_bytes_per_s=rate, known_rate_bytes_per_s=rate)

    both = [way("short", 1, 1e9), way("wide", 10, 1e11)]
    facts = replace(FACTS, op="gather", n_domains=1, protocols=("simple",))

    assert choose(both, facts, KIB)[0] == "short"
    assert choose(both, facts, GIB)[0] == "wide"

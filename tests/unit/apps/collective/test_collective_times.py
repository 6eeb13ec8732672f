"""One collective on an otherwise idle cluster, as nccl-tests would measure it."""

from __future__ import annotations

import pytest

from clustersim.apps.collective.collective_times import (
    CollectiveRequest,
    bus_factor,
    collective_cluster,
    collective_rows,
    group_members,
    operation_named,
    parse_sizes,
    servers_on,
)
from clustersim.errors import ScenarioError
from clustersim.hardware.library_costs import CollectiveOp


@pytest.mark.parametrize(
    ("text", "sizes"),
    [("1KB:5KB", (1e3, 2e3, 4e3)), ("1KiB:64KiB:8", (2.0**10, 2.0**13, 2.0**16)), ("64 MB, 1 MB", (64e6, 1e6))],
)
def test_a_range_doubles_or_takes_another_factor_and_a_list_stands_in_its_order(text: str, sizes: tuple[float, ...]) -> None:
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("8GB:1KB", "not a range of sizes"),
        ("1KB:2KB:3:4", "not a range of sizes"),
        ("1000T", "is not a size"),
        ("0 B", "size of zero"),
        ("1KB:8KB:1", "not a factor"),
        ("1KB:8KB:two", "not a factor"),
        ("much", "much"),
    ],
)
def test_what_is_not_a_size_is_refused(text: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said) as caught:
        parse_sizes(text)

    assert caught.value.field == "--sizes"


def test_bus_bandwidth_is_size_over_time_and_factor() -> None:
    cluster = collective_cluster("dgx-a100-80g", None, ())

    (row,), _ = collective_rows(cluster, CollectiveRequest(op="all_reduce", sizes_bytes=(1e9,)))

    assert row.algbw_bytes_per_s == 1e9 / row.time_s
    assert row.busbw_bytes_per_s == row.algbw_bytes_per_s * 2 * 7 / 8


@pytest.mark.parametrize(("op", "factor"), [("all_reduce", 1.5), ("all_gather", 0.75), ("all_to_all", 0.75), ("send_recv", 1.0)])
def test_the_factor_is_that_of_nccl_tests(op: CollectiveOp, factor: float) -> None:
    assert bus_factor(op, 4) == factor


def test_larger_tensors_take_longer_and_what_was_chosen_is_named() -> None:
    rows, _ = collective_rows(collective_cluster("dgx-h100", None, ()), CollectiveRequest(op="all_reduce", sizes_bytes=(1e4, 1e8, 1e9)))

    assert [row.time_s for row in rows] == sorted(row.time_s for row in rows)
    assert [(row.algorithm, row.protocol) for row in rows[::2]] == [("ring", "ll"), ("nvls", "simple")]


def test_oversubscription_slows_what_crosses_leaves() -> None:
    def busbw(ratio: int) -> float:
        overrides = ("cluster.fabric.topology=leaf_spine", "cluster.fabric.nodes_per_leaf=1", f"cluster.fabric.oversubscription={ratio}")
        cluster = collective_cluster("dgx-a100-80g", 4, overrides)
        rows, _ = collective_rows(cluster, CollectiveRequest(op="all_reduce", algorithm="ring", sizes_bytes=(1e10,)))
        return rows[0].busbw_bytes_per_s

    assert busbw(4) == pytest.approx(busbw(1) / 4, rel=0.03)


def test_assumptions_are_flagged_but_for_constants_of_kernels() -> None:
    cluster = collective_cluster("dgx-h100", 4, ("cluster.fabric.routing=ecmp", "cluster.fabric.nodes_per_leaf=1"))

    _, flags = collective_rows(cluster, CollectiveRequest(op="all_reduce", algorithm="hierarchical", sizes_bytes=(1e9,)))

    assert {"uncalibrated_algorithm", "one_path_per_pair"} <= {flag.code for flag in flags}
    assert all("launch" not in flag.message and "attention" not in flag.message for flag in flags)


def test_the_first_ranks_of_each_node_take_part_and_at_least_two() -> None:
    assert group_members(collective_cluster("dgx-h100", 2, ()), 2) == (0, 1, 8, 9)
    for taken, message in ((1, "two ranks or more"), (9, "9 ranks in a node of 8")):
        with pytest.raises(ScenarioError, match=message):
            group_members(collective_cluster("dgx-h100", 1, ()), taken)


def test_more_dedicated_servers_share_the_work() -> None:
    def time_s(n_servers: int) -> float:
        cluster = collective_cluster("uber-p100-25g", 4, (), n_dedicated=n_servers)
        request = CollectiveRequest(
            op="all_reduce", algorithm="parameter_server", sizes_bytes=(1e9,), n_servers=n_servers, dedicated=True, ranks_per_node=1
        )
        return collective_rows(cluster, request)[0][0].time_s

    assert time_s(2) == pytest.approx(time_s(1) / 2, rel=0.02)


def test_colocated_servers_need_as_many_nodes() -> None:
    request = CollectiveRequest(op="all_reduce", algorithm="parameter_server", sizes_bytes=(1e9,), n_servers=3)

    with pytest.raises(ScenarioError, match="3 servers on 2 nodes"):
        collective_rows(collective_cluster("dgx-h100", 2, ()), request)


def test_servers_are_those_of_parameter_servers() -> None:
    assert servers_on("parameter_server", None, "dedicated") == 1
    assert servers_on("ring", None, "colocated") == 0
    with pytest.raises(ScenarioError, match="ring has no servers"):
        servers_on("ring", 2, "colocated")
    with pytest.raises(ScenarioError, match="0 servers"):
        servers_on("parameter_server", 0, "colocated")
    with pytest.raises(ScenarioError, match="unknown placement 'here'"):
        servers_on("parameter_server", 1, "here")


@pytest.mark.parametrize(
    ("name", "overrides", "said"),
    [
        ("dgx-h10", (), "did you mean 'dgx-h100'"),
        ("dgx-h100", ("cluster.fabric.oversubscriptio=2",), "did you mean 'oversubscription'"),
        ("dgx-h100", ("cluster.nics.bandwidth=0 Gbit/s",), "out of range"),
        ("dgx-h100", ("strategy.tp=2",), "unknown field 'strategy'"),
    ],
)
def test_a_cluster_that_is_none_is_refused(name: str, overrides: tuple[str, ...], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        collective_cluster(name, 2, overrides)


def test_a_shipped_cluster_brings_its_number_of_nodes() -> None:
    assert collective_cluster("superpod-h100", None, ()).n_nodes > 100
    assert collective_cluster("superpod-h100", 3, ()).n_nodes == 3


def test_an_unknown_operation_is_refused() -> None:
    assert operation_named("all_to_all") == "all_to_all"
    with pytest.raises(ScenarioError, match="did you mean 'all_reduce'"):
        operation_named("alreduce")

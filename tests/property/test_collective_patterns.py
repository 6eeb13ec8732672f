"""Patterns of collectives: bytes that they move in closed form, and lower bounds of time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.collectives import ALGORITHMS
from clustersim.collectives.pattern import Algorithm, Grouping, grouping
from clustersim.hardware.library_costs import CollectiveOp
from clustersim.topology.wired import Cluster
from tests.unit.collectives.beside import busiest_link_s, flown_s
from tests.unit.collectives.execution import everybody, idle_s, injected, laid, nodes_of, one_domain, one_each
from tests.unit.topology.factories import NIC_BYTES_PER_S, SCALE_UP_BYTES_PER_S

OPS: tuple[CollectiveOp, ...] = ("all_reduce", "all_gather", "reduce_scatter")
ROUNDS: dict[str, int] = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
ADDING = ("nvls", "nvls_tree", "sharp")
EVERY = [(op, algorithm) for op in OPS for algorithm in ALGORITHMS[op].values()]
WAYS = [way for way in EVERY if way[1].name not in ADDING]
EXCHANGES: tuple[CollectiveOp, ...] = ("all_to_all", "gather", "scatter", "send_recv", "broadcast", "reduce")
MOVING = [*WAYS, *((op, algorithm) for op in EXCHANGES for algorithm in ALGORITHMS[op].values())]


def runs_on(algorithm: Algorithm, cluster: Cluster, group: Grouping | None = None) -> bool:
    n_domains = (everybody(cluster) if group is None else group).n_domains
    return {"nvls": n_domains == 1, "nvls_tree": n_domains > 1, "sharp": n_domains > 1}.get(algorithm.name, True)


def moved(op: CollectiveOp, n: int) -> float:
    """Return the bytes that n ranks send for each byte of the tensor, as nccl-tests counts its size."""
    exchanged = {"all_reduce": 2 * (n - 1), "gather": (n - 1) / n, "scatter": (n - 1) / n, "send_recv": n if n > 1 else 0}
    return exchanged.get(op, n - 1)


@pytest.mark.parametrize(("op", "algorithm"), MOVING, ids=[f"{op}-{algorithm.name}" for op, algorithm in MOVING])
@given(n_ranks=st.integers(1, 300))
@settings(max_examples=6, deadline=None)
def test_every_rank_gets_its_data_once(op: CollectiveOp, algorithm: Algorithm, n_ranks: int) -> None:
    for cluster in (one_domain(n_ranks), one_each(n_ranks)):
        assert injected(cluster, laid(algorithm, cluster)) == pytest.approx(moved(op, n_ranks), rel=1e-9)


@given(way=st.sampled_from(EVERY), n_ranks=st.integers(2, 1024))
@settings(max_examples=60, deadline=None)
def test_no_algorithm_beats_the_bound_of_its_ports(way: tuple[CollectiveOp, Algorithm], n_ranks: int) -> None:
    op, algorithm = way
    clusters = [(one_domain(n_ranks), SCALE_UP_BYTES_PER_S), (one_each(n_ranks), NIC_BYTES_PER_S)]

    for cluster, bandwidth in clusters:
        if not runs_on(algorithm, cluster):
            continue
        # Every rank must send, or receive, all parts but its own; a network that adds spares it the second trip.
        least = 1.0 if algorithm.name in ADDING and op == "all_reduce" else ROUNDS[op] * (n_ranks - 1) / n_ranks
        assert idle_s(cluster, laid(algorithm, cluster)) >= least / bandwidth * (1 - 1e-12)


@given(way=st.sampled_from(EVERY), n_domains=st.integers(2, 24), per_domain=st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_no_algorithm_beats_the_bound_of_the_adapters(way: tuple[CollectiveOp, Algorithm], n_domains: int, per_domain: int) -> None:
    op, algorithm = way
    cluster = nodes_of(per_domain, n_domains)
    if not runs_on(algorithm, cluster):
        return

    took_s = idle_s(cluster, laid(algorithm, cluster))

    # Domains as ranks whose port is all their adapters together.
    least = 1.0 if algorithm.name == "sharp" else ROUNDS[op] * (n_domains - 1) / n_domains
    assert took_s >= least / (per_domain * NIC_BYTES_PER_S) * (1 - 1e-12)


@given(way=st.sampled_from(WAYS), n_ranks=st.integers(2, 1024))
@settings(max_examples=60, deadline=None)
def test_data_need_a_step_for_every_doubling_of_who_has_them(way: tuple[CollectiveOp, Algorithm], n_ranks: int) -> None:
    for cluster in (one_domain(n_ranks), one_each(n_ranks)):
        steps = sum(flow_set.intra_steps + flow_set.inter_steps for phase in laid(way[1], cluster).phases for flow_set in phase)

        assert steps >= (n_ranks - 1).bit_length()


@given(
    way=st.sampled_from([way for way in WAYS if way[1].name != "halving_doubling"]),
    order=st.permutations(range(20)),
    shape=st.sampled_from([(1, 2), (1, 7), (1, 20), (2, 5), (3, 6), (5, 3), (4, 5), (6, 3)]),
    kind=st.sampled_from(["nvswitch", "rack"]),
)
@settings(max_examples=80, deadline=None)
def test_any_members_move_all_parts_but_one_for_every_rank(
    way: tuple[CollectiveOp, Algorithm], order: list[int], shape: tuple[int, int], kind: str
) -> None:
    op, algorithm = way
    cluster = nodes_of(5, 4, nodes_per_domain=2 if kind == "rack" else 1)
    members = np.array(order[: shape[0] * shape[1]], dtype=np.int64).reshape(shape)

    pattern = algorithm.lay(cluster, grouping(cluster, members))

    # n ranks hand over n (n - 1) parts of S / n on each trip, however they lie.
    assert injected(cluster, pattern) == pytest.approx(shape[0] * ROUNDS[op] * (shape[1] - 1), rel=1e-9)


@given(way=st.sampled_from(EVERY), order=st.permutations(range(20)), shape=st.sampled_from([(1, 2), (1, 20), (2, 5), (3, 6), (5, 3)]))
@settings(max_examples=80, deadline=None)
def test_whatever_runs_lists_each_link_once_with_something_on_it(
    way: tuple[CollectiveOp, Algorithm], order: list[int], shape: tuple[int, int]
) -> None:
    cluster = nodes_of(5, 4)
    group = grouping(cluster, np.array(order[: shape[0] * shape[1]], dtype=np.int64).reshape(shape))
    if not runs_on(way[1], cluster, group):
        return

    for phase in way[1].lay(cluster, group).phases:
        for flow_set in phase:
            assert (np.diff(flow_set.route_set.link_ids) > 0).all()
            assert (flow_set.route_set.flows > 0.0).all()
            assert flow_set.share > 0.0
            assert (flow_set.inter_latency_s > 0.0) == (flow_set.inter_steps > 0)


@given(way=st.sampled_from(MOVING[len(WAYS) :]), n_domains=st.integers(1, 9), per_domain=st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_no_exchange_beats_its_lower_bound(way: tuple[CollectiveOp, Algorithm], n_domains: int, per_domain: int) -> None:
    op, algorithm = way
    cluster = nodes_of(per_domain, n_domains)
    n, pattern = cluster.n_ranks, laid(algorithm, cluster)
    # Somebody has to send, or to receive, as much.
    moved = {"all_to_all": n - 1, "gather": n - 1, "scatter": n - 1, "send_recv": n}.get(op, n) / n if n > 1 else 0.0

    time_s = flown_s(cluster, pattern)

    assert time_s >= busiest_link_s(cluster, pattern) * (1 - 1e-9)
    # By NVLink, and by all adapters of the node.
    out_bytes_per_s = SCALE_UP_BYTES_PER_S * (per_domain > 1) + per_domain * NIC_BYTES_PER_S * (n_domains > 1)
    assert n == 1 or time_s >= moved / out_bytes_per_s * (1 - 1e-9)

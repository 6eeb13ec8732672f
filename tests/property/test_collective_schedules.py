"""Schedules of all-reduce, all-gather and reduce-scatter: they deliver, and their patterns move the same bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.collectives import ALGORITHMS
from clustersim.collectives.pattern import Algorithm, Grouping, MessageSchedule, grouping
from clustersim.hardware.library_costs import CollectiveOp
from clustersim.topology.cluster import Cluster
from tests.unit.collectives.execution import (
    drawn,
    everybody,
    idle_s,
    injected,
    laid,
    n_messages,
    nodes_of,
    one_domain,
    one_each,
    played,
)
from tests.unit.topology.factories import NIC_BYTES_PER_S, SCALE_UP_BYTES_PER_S

OPS: tuple[CollectiveOp, ...] = ("all_reduce", "all_gather", "reduce_scatter")
ROUNDS: dict[str, int] = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
WAYS = [(op, algorithm) for op in OPS for algorithm in ALGORITHMS[op].values() if algorithm.schedule is not None]
SENT = pytest.mark.parametrize(("op", "algorithm"), WAYS, ids=[f"{op}-{algorithm.name}" for op, algorithm in WAYS])
SIZES = [*range(2, 34), 64, 100, 128]


def scheduled(algorithm: Algorithm, n_ranks: int) -> MessageSchedule:
    assert algorithm.schedule is not None
    return algorithm.schedule(n_ranks)


def runs_on(algorithm: Algorithm, cluster: Cluster, group: Grouping | None = None) -> bool:
    n_domains = (everybody(cluster) if group is None else group).n_domains
    return {"nvls": n_domains == 1, "nvls_tree": n_domains > 1, "sharp": n_domains > 1}.get(algorithm.name, True)


def check_delivery(op: CollectiveOp, schedule: MessageSchedule) -> None:
    held = drawn(schedule.n_ranks, schedule.n_chunks)
    chunks = np.arange(schedule.n_chunks)
    owners = chunks * schedule.n_ranks // schedule.n_chunks
    whole = held[owners, chunks] if op == "all_gather" else held.sum(axis=0, dtype=np.uint64)
    if op == "all_gather":
        others = np.ones(held.shape, dtype=np.bool_)
        others[owners, chunks] = False
        held[others] = 0

    ended = played(schedule, held)

    if op == "reduce_scatter":
        np.testing.assert_array_equal(ended[owners, chunks], whole)
    else:
        np.testing.assert_array_equal(ended, np.broadcast_to(whole, ended.shape))


@SENT
@pytest.mark.parametrize("n_ranks", SIZES)
def test_every_rank_ends_with_what_the_operation_promises(op: CollectiveOp, algorithm: Algorithm, n_ranks: int) -> None:
    check_delivery(op, scheduled(algorithm, n_ranks))


@SENT
@pytest.mark.parametrize("n_ranks", [1000, 1024])
def test_a_thousand_ranks_end_with_what_the_operation_promises(op: CollectiveOp, algorithm: Algorithm, n_ranks: int) -> None:
    check_delivery(op, scheduled(algorithm, n_ranks))


@given(way=st.sampled_from(WAYS), n_ranks=st.integers(2, 1024))
@settings(max_examples=12, deadline=None)
def test_any_number_of_ranks_ends_with_what_the_operation_promises(way: tuple[CollectiveOp, Algorithm], n_ranks: int) -> None:
    op, algorithm = way

    check_delivery(op, scheduled(algorithm, n_ranks))


@SENT
@pytest.mark.parametrize("n_ranks", [2, 3, 8, 24, 33])
def test_nobody_writes_to_itself_and_no_two_take_the_same_place(op: CollectiveOp, algorithm: Algorithm, n_ranks: int) -> None:
    for step in scheduled(algorithm, n_ranks).steps:
        assert (step.sources != step.destinations).all()
        if not step.reduces:
            assert len(np.unique(np.stack((step.destinations, step.chunks)), axis=1).T) == len(step.sources)


@SENT
@given(n_ranks=st.integers(2, 1024))
@settings(max_examples=6, deadline=None)
def test_a_pattern_moves_the_bytes_of_its_messages(op: CollectiveOp, algorithm: Algorithm, n_ranks: int) -> None:
    schedule = scheduled(algorithm, n_ranks)
    sent = n_messages(schedule) / schedule.n_chunks

    for cluster in (one_domain(n_ranks), one_each(n_ranks)):
        assert injected(cluster, laid(algorithm, cluster)) == pytest.approx(sent, rel=1e-9)


ADDING = ("nvls", "nvls_tree", "sharp")
EVERY = [(op, algorithm) for op in OPS for algorithm in ALGORITHMS[op].values()]


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


@SENT
@given(n_ranks=st.integers(2, 1024))
@settings(max_examples=6, deadline=None)
def test_data_need_a_step_for_every_doubling_of_who_has_them(op: CollectiveOp, algorithm: Algorithm, n_ranks: int) -> None:
    for cluster in (one_domain(n_ranks), one_each(n_ranks)):
        steps = sum(wave.intra_steps + wave.inter_steps for phase in laid(algorithm, cluster).phases for wave in phase)

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
        for wave in phase:
            assert (np.diff(wave.footprint.link_ids) > 0).all()
            assert (wave.footprint.flows > 0.0).all()
            assert wave.share > 0.0
            assert (wave.inter_latency_s > 0.0) == (wave.inter_steps > 0)

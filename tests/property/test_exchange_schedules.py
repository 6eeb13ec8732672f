"""Schedules of all-to-all, rooted operations and sends: they deliver, and their patterns move the same bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.collectives import ALGORITHMS
from clustersim.collectives.pattern import Algorithm, MessageSchedule
from clustersim.hardware.library_costs import CollectiveOp
from clustersim.topology.cluster import IntArray
from tests.unit.collectives.beside import busiest_link_s, flown_s
from tests.unit.collectives.execution import drawn, injected, laid, n_messages, nodes_of, one_domain, one_each, played, played_s
from tests.unit.topology.factories import NIC_BYTES_PER_S, SCALE_UP_BYTES_PER_S

MOVES: tuple[CollectiveOp, ...] = ("all_to_all", "gather", "scatter", "send_recv")
ROOTED: tuple[CollectiveOp, ...] = ("broadcast", "reduce")
WAYS = [(op, algorithm) for op in (*MOVES, *ROOTED) for algorithm in ALGORITHMS[op].values()]
EVERY_WAY = pytest.mark.parametrize(("op", "algorithm"), WAYS, ids=[f"{op}-{algorithm.name}" for op, algorithm in WAYS])
SIZES = [*range(2, 34), 64, 100, 128]


def scheduled(algorithm: Algorithm, n_ranks: int) -> MessageSchedule:
    assert algorithm.schedule is not None
    return algorithm.schedule(n_ranks)


def chunk_of(op: CollectiveOp, schedule: MessageSchedule) -> float:
    """Return what one chunk is of the tensor, as nccl-tests counts its size."""
    n = schedule.n_ranks
    return {"all_to_all": 1 / n, "gather": 1 / n, "scatter": 1 / n, "send_recv": 1.0}.get(op, 1 / schedule.n_chunks)


def ends_of(op: CollectiveOp, n: int) -> tuple[IntArray, IntArray]:
    """Return where each chunk is before and after an operation that moves chunks and changes none."""
    ranks, root = np.arange(n), np.zeros(n, dtype=np.int64)
    match op:
        case "all_to_all":
            return np.repeat(ranks, n), np.tile(ranks, n)
        case "gather":
            return ranks, root
        case "scatter":
            return root, ranks
        case _:
            return ranks, (ranks + 1) % n


def check_moves(op: CollectiveOp, schedule: MessageSchedule) -> None:
    held_by, destination = ends_of(op, schedule.n_ranks)
    assert len(held_by) == schedule.n_chunks
    for step in schedule.steps:
        assert len(np.unique(step.chunks)) == len(step.chunks)
        np.testing.assert_array_equal(held_by[step.chunks], step.sources)
        held_by[step.chunks] = step.destinations
    np.testing.assert_array_equal(held_by, destination)


def check_delivery(op: CollectiveOp, schedule: MessageSchedule) -> None:
    if op in MOVES:
        check_moves(op, schedule)
        return
    held = drawn(schedule.n_ranks, schedule.n_chunks)
    if op == "broadcast":
        held[1:] = 0
        np.testing.assert_array_equal(played(schedule, held), np.broadcast_to(held[0], held.shape))
    else:
        np.testing.assert_array_equal(played(schedule, held)[0], held.sum(axis=0, dtype=np.uint64))


@EVERY_WAY
@pytest.mark.parametrize("n_ranks", SIZES)
def test_everything_ends_where_the_operation_promises(op: CollectiveOp, algorithm: Algorithm, n_ranks: int) -> None:
    check_delivery(op, scheduled(algorithm, n_ranks))


@EVERY_WAY
@pytest.mark.parametrize("n_ranks", [1000, 1024])
def test_with_a_thousand_ranks_everything_ends_where_it_should(op: CollectiveOp, algorithm: Algorithm, n_ranks: int) -> None:
    check_delivery(op, scheduled(algorithm, n_ranks))


@given(way=st.sampled_from(WAYS), n_ranks=st.integers(2, 1024))
@settings(max_examples=12, deadline=None)
def test_with_any_number_of_ranks_everything_ends_where_it_should(way: tuple[CollectiveOp, Algorithm], n_ranks: int) -> None:
    op, algorithm = way

    check_delivery(op, scheduled(algorithm, n_ranks))


@EVERY_WAY
def test_one_rank_has_nothing_to_send(op: CollectiveOp, algorithm: Algorithm) -> None:
    assert n_messages(scheduled(algorithm, 1)) == 0


@EVERY_WAY
@pytest.mark.parametrize("n_ranks", [2, 3, 8, 24, 33])
def test_nobody_writes_to_itself(op: CollectiveOp, algorithm: Algorithm, n_ranks: int) -> None:
    for step in scheduled(algorithm, n_ranks).steps:
        assert (step.sources != step.destinations).all()


@pytest.mark.parametrize("way", [("all_to_all", "pairwise"), ("broadcast", "ring"), ("reduce", "ring")])
@pytest.mark.parametrize("n_ranks", [2, 3, 7, 8, 33])
def test_nobody_sends_or_receives_two_messages_at_once(way: tuple[CollectiveOp, str], n_ranks: int) -> None:
    op, name = way

    for step in scheduled(ALGORITHMS[op][name], n_ranks).steps:
        assert np.bincount(step.sources).max() == 1
        assert np.bincount(step.destinations).max() == 1


@pytest.mark.parametrize("n_ranks", SIZES)
def test_nobody_sends_more_of_a_broadcast_by_trees_than_there_is(n_ranks: int) -> None:
    schedule = scheduled(ALGORITHMS["broadcast"]["tree"], n_ranks)

    sources = np.concatenate([step.sources for step in schedule.steps])

    assert np.bincount(sources).max() <= schedule.n_chunks


@pytest.mark.parametrize("n_ranks", SIZES)
def test_trees_take_a_step_for_each_level(n_ranks: int) -> None:
    for op in ROOTED:
        algorithm = ALGORITHMS[op]["tree"]
        pattern = laid(algorithm, one_each(n_ranks))

        assert len(scheduled(algorithm, n_ranks).steps) == pattern.phases[0][0].inter_steps


@EVERY_WAY
@given(n_ranks=st.integers(2, 300))
@settings(max_examples=6, deadline=None)
def test_a_pattern_moves_the_bytes_of_its_messages(op: CollectiveOp, algorithm: Algorithm, n_ranks: int) -> None:
    schedule = scheduled(algorithm, n_ranks)
    sent = n_messages(schedule) * chunk_of(op, schedule)
    clusters = [one_domain(n_ranks), one_each(n_ranks)]
    if algorithm.name == "hierarchical":
        per_domain = max(size for size in range(1, 9) if n_ranks % size == 0)
        clusters = [nodes_of(per_domain, n_ranks // per_domain)]

    for cluster in clusters:
        assert injected(cluster, laid(algorithm, cluster)) == pytest.approx(sent, rel=1e-9)


@pytest.mark.parametrize("name", ["direct", "pairwise", "hierarchical"])
@given(n_ranks=st.integers(2, 300))
@settings(max_examples=6, deadline=None)
def test_an_all_to_all_takes_as_long_as_its_steps(name: str, n_ranks: int) -> None:
    algorithm = ALGORITHMS["all_to_all"][name]
    schedule = scheduled(ALGORITHMS["all_to_all"]["direct" if name == "hierarchical" else name], n_ranks)

    for cluster in (one_domain(n_ranks), one_each(n_ranks)):
        # Without domains beside each other there is nothing to relay.
        steps_s = played_s(cluster, schedule) * schedule.n_chunks / n_ranks
        assert flown_s(cluster, laid(algorithm, cluster)) == pytest.approx(steps_s, rel=1e-9)


@pytest.mark.parametrize("op", ["gather", "scatter", "send_recv"])
@given(n_ranks=st.integers(2, 1024))
@settings(max_examples=6, deadline=None)
def test_other_direct_messages_take_as_long_as_their_step(op: CollectiveOp, n_ranks: int) -> None:
    algorithm = ALGORITHMS[op]["direct"]
    schedule = scheduled(algorithm, n_ranks)

    for cluster in (one_domain(n_ranks), one_each(n_ranks)):
        steps_s = played_s(cluster, schedule) * schedule.n_chunks * chunk_of(op, schedule)
        assert flown_s(cluster, laid(algorithm, cluster)) == pytest.approx(steps_s, rel=1e-9)


@pytest.mark.parametrize("op", ROOTED)
@given(n_ranks=st.integers(2, 300))
@settings(max_examples=6, deadline=None)
def test_a_chain_takes_as_long_as_its_steps_but_for_the_time_to_fill(op: CollectiveOp, n_ranks: int) -> None:
    algorithm = ALGORITHMS[op]["ring"]
    cluster, schedule = one_each(n_ranks), scheduled(algorithm, n_ranks)

    # n chunks over n - 1 edges: the last chunk leaves n - 1 steps after the first, and takes n - 1 steps.
    full = schedule.n_chunks / (schedule.n_chunks + n_ranks - 2)
    assert flown_s(cluster, laid(algorithm, cluster)) == pytest.approx(full * played_s(cluster, schedule), rel=1e-9)


@EVERY_WAY
@given(n_domains=st.integers(1, 9), per_domain=st.integers(1, 6))
@settings(max_examples=10, deadline=None)
def test_no_time_beats_its_lower_bound(op: CollectiveOp, algorithm: Algorithm, n_domains: int, per_domain: int) -> None:
    cluster = nodes_of(per_domain, n_domains)
    n, pattern = cluster.n_ranks, laid(algorithm, cluster)
    # Somebody has to send, or to receive, as much.
    moved = {"all_to_all": n - 1, "gather": n - 1, "scatter": n - 1, "send_recv": n}.get(op, n) / n if n > 1 else 0.0

    time_s = flown_s(cluster, pattern)

    assert time_s >= busiest_link_s(cluster, pattern) * (1 - 1e-9)
    # By NVLink, and by all adapters of the node.
    out_bytes_per_s = SCALE_UP_BYTES_PER_S * (per_domain > 1) + per_domain * NIC_BYTES_PER_S * (n_domains > 1)
    assert n == 1 or time_s >= moved / out_bytes_per_s * (1 - 1e-9)

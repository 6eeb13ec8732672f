from __future__ import annotations

import pytest

from clustersim.engine.simulate import replay
from clustersim.errors import DeadlockError
from clustersim.network.in_flight import TICK_S
from clustersim.trace.timeline import EngineStats
from tests.unit.engine.factories import (
    LATENT_NETWORK,
    bytes_by_link,
    collective,
    communicate,
    compute,
    group_of,
    instant,
    make_machine,
    overlapped,
    program,
    task,
    timeline_of,
    total_bytes,
    transfer,
    without_wall_time,
    work,
)
from tests.unit.topology.factories import NIC_BYTES_PER_S, SCALE_UP_BYTES_PER_S, make_node

TP = group_of((0, 1, 2, 3), (4, 5, 6, 7), name="tp", dimension="tp")
DP = group_of((0, 4), (1, 5), (2, 6), (3, 7), name="dp")
SIZE = 8e9


def test_the_step_ends_with_the_last_task() -> None:
    timeline = timeline_of(make_machine(), task(compute(work(1.0))), task(compute(work(3.0)), rank_class=1), n_classes=2)

    assert timeline.step_time_s == 3.0


def test_spans_are_sorted_by_class_stream_and_start() -> None:
    tasks = (
        task(compute(work(1.0), name="late"), 1, rank_class=1),
        task(compute(work(1.0), name="early"), rank_class=1),
        task(communicate(DP, 1.0), stream="dp"),
        task(compute(work(1.0), name="first")),
    )

    timeline = timeline_of(make_machine(), *tasks, n_classes=2)

    assert [span.name for span in timeline.spans] == ["first", "reduce", "early", "late"]


def test_the_engine_says_how_many_ranks_its_classes_stand_for() -> None:
    engine = timeline_of(make_machine(), task(compute(work(1.0))), n_classes=2).engine

    assert (engine.ranks, engine.rank_classes, engine.folded) == (8, 2, True)
    assert (engine.events, engine.n_tasks) == (0, 1)
    assert engine.wall_s > 0.0


def test_classes_of_one_rank_each_are_not_folded() -> None:
    engine = timeline_of(make_machine(), task(compute(work(1.0))), n_classes=8).engine

    assert not engine.folded


def test_a_repeated_layer_is_one_task_and_no_event() -> None:
    engines = [timeline_of(make_machine(), task(compute(collective(TP, 1e9), work(0.1), repeat=n))).engine for n in (1, 1000)]

    assert [(engine.events, engine.n_tasks) for engine in engines] == [(0, 1), (0, 1)]


def test_two_collectives_that_meet_cost_a_handful_of_events_whatever_their_groups() -> None:
    def engine_of(n: int) -> EngineStats:
        group = group_of(tuple(range(n)))
        return timeline_of(
            make_machine(n_nodes=4), task(communicate(group, SIZE), stream="one"), task(communicate(group, SIZE), stream="other")
        ).engine

    engines = [engine_of(n) for n in (16, 24, 32)]

    assert [engine.n_tasks for engine in engines] == [2, 2, 2]
    assert 0 < engines[0].events == engines[1].events == engines[2].events <= 12


def test_events_are_counted_where_transfers_share_a_link_and_nowhere_else() -> None:
    def engine_of(*streams: str) -> EngineStats:
        return timeline_of(make_machine(), *(task(transfer((0, 4), size_bytes=SIZE), stream=stream) for stream in streams)).engine

    alone, both = engine_of("one"), engine_of("one", "other")

    assert (alone.events, alone.n_tasks) == (0, 1)
    assert both.events > 0
    assert both.n_tasks == 2


def test_a_link_is_busy_while_bytes_move_and_not_during_latency() -> None:
    timeline = timeline_of(make_machine(network=LATENT_NETWORK), task(communicate(TP, SIZE)))

    (link,) = timeline.links
    assert link.busy_s == pytest.approx(2 * 3 / 4 * SIZE / (0.8 * SCALE_UP_BYTES_PER_S), rel=1e-9)  # a difference of two instants
    assert link.busy_s < timeline.step_time_s


def test_a_link_is_busy_only_with_its_own_flows() -> None:
    short, long = transfer((0, 1), size_bytes=SCALE_UP_BYTES_PER_S), transfer((4, 5), size_bytes=2 * SCALE_UP_BYTES_PER_S, name="long")

    timeline = timeline_of(make_machine(), task(short, stream="short"), task(long, stream="long"))

    assert {link.name: (link.n_links, link.busy_s) for link in timeline.links} == {
        "node0/gpu0/nvlink/up": (2, pytest.approx(1.0, rel=1e-12)),
        "node0/gpu4/nvlink/up": (2, pytest.approx(2.0, rel=1e-12)),
    }


def test_a_link_is_busy_only_with_its_own_passes() -> None:
    left, right = (group_of(pair, name=str(pair), dimension="tp") for pair in ((0, 1), (4, 5)))
    short, long = compute(collective(left, SCALE_UP_BYTES_PER_S)), compute(collective(right, SCALE_UP_BYTES_PER_S), repeat=2)

    timeline = timeline_of(make_machine(), task(short), task(long, rank_class=1), n_classes=2)

    assert {link.name: (link.n_links, link.busy_s) for link in timeline.links} == {
        "node0/gpu0/nvlink/up": (4, pytest.approx(1.0, rel=1e-12)),
        "node0/gpu4/nvlink/up": (4, pytest.approx(2.0, rel=1e-12)),
    }


def test_no_link_is_used_beyond_its_share() -> None:
    action = compute(work(0.01), collective(TP, SIZE), overlapped(collective(DP, SIZE), 0.01), repeat=3)
    machine = make_machine(n_nodes=2, network=LATENT_NETWORK)

    timeline = timeline_of(machine, task(action), task(communicate(group_of(tuple(range(16)), name="all"), SIZE)))

    for link in timeline.links:
        usable = LATENT_NETWORK.efficiency[link.tier]
        assert link.peak_utilisation <= usable * (1.0 + 1e-12)
        assert link.bytes <= usable * link.bandwidth_bytes_per_s * timeline.step_time_s * (1.0 + 1e-12)
        assert link.busy_s <= timeline.step_time_s * (1.0 + 1e-12)


def test_transfers_load_the_links_of_their_routes() -> None:
    timeline = timeline_of(make_machine(n_nodes=2), task(transfer((0, 8), (1, 9), size_bytes=SIZE)))

    assert bytes_by_link(timeline, "nic") == {"node0/nic0/tx": pytest.approx(SIZE, rel=1e-12)}
    assert total_bytes(timeline, "nic") == pytest.approx(4 * SIZE, rel=1e-12)
    assert timeline.step_time_s == pytest.approx(SIZE / NIC_BYTES_PER_S, abs=4 * TICK_S)


def test_a_program_without_traffic_has_no_links() -> None:
    assert timeline_of(make_machine(), task(compute(work(1.0)))).links == ()


def test_a_second_replay_of_the_same_objects_is_the_same() -> None:
    machine, of = make_machine(network=LATENT_NETWORK), program(task(compute(collective(TP, SIZE))), task(communicate(DP, SIZE)))

    assert without_wall_time(replay(of, machine)[0]) == without_wall_time(replay(of, machine)[0])


def test_a_deadlock_behind_passes_with_collectives_is_found_too() -> None:
    action = compute(collective(TP, SIZE))
    circle = program(task(action), task(communicate(DP, SIZE), 2), task(action, 0, 1))

    with pytest.raises(DeadlockError, match="2 of 3 tasks wait"):
        replay(circle, make_machine())


def test_slower_wires_make_a_later_end() -> None:
    slow, fast = make_machine(make_node()), make_machine(instant(make_node()))
    ends = [timeline_of(machine, task(communicate(TP, SIZE))).step_time_s for machine in (slow, fast)]

    # Six steps of half a microsecond.
    assert ends[0] - ends[1] == pytest.approx(6 * 0.5e-6, abs=4 * TICK_S)

"""Tasks that meet no other traffic need no event, and those that do end when they would with one."""

from __future__ import annotations

import pytest

from clustersim.engine.replay import Replay
from clustersim.engine.simulate import prepare, replay
from clustersim.errors import DeadlockError
from clustersim.program.program import Background, Program
from clustersim.program.tasks import Task
from clustersim.trace.timeline import Span
from tests.unit.engine.factories import (
    LATENT_NETWORK,
    collective,
    communicate,
    compute,
    group_of,
    make_machine,
    program,
    replay_of,
    task,
    timeline_of,
    transfer,
    work,
)
from tests.unit.topology.factories import SCALE_UP_BYTES_PER_S

B = SCALE_UP_BYTES_PER_S
TP = group_of((0, 1, 2, 3), (4, 5, 6, 7), name="tp", dimension="tp")
DP = group_of((0, 4), (1, 5), (2, 6), (3, 7), name="dp")


def settled(of: Program) -> Replay:
    """Return a replay of one step that has ended."""
    return prepare(of, make_machine(network=LATENT_NETWORK), (), others=()).replayed().first


def chain(n: int) -> list[Task]:
    """Return passes and sends in turn, each behind the one before."""
    return [
        task(transfer((0, 4), size_bytes=B), *range(place)[-1:], stream="send")
        if place % 2
        else task(compute(work(1.0)), *range(place)[-1:])
        for place in range(n)
    ]


def test_a_private_transfer_needs_no_event() -> None:
    replay = settled(program(*chain(8)))

    assert replay.contended == frozenset()
    assert replay.clock.world.now == 0.0
    assert (replay.clock.n_events, replay.n_tasks) == (0, 8)


def test_those_that_could_meet_and_do_not_need_no_event_either() -> None:
    one, other = task(transfer((0, 4), size_bytes=B), stream="one"), task(transfer((0, 4), size_bytes=B), 0, stream="other")

    assert settled(program(one, other)).contended == frozenset()


def test_those_that_meet_share_their_link_and_the_others_stay_ahead_of_the_clock() -> None:
    sends = [task(transfer((0, 4), size_bytes=B), stream=stream) for stream in ("one", "other")]
    elsewhere = task(compute(work(0.5)), rank_class=1)

    replay = settled(program(*sends, elsewhere, n_classes=2))

    assert replay.contended == {0, 1}
    alone_s = settled(program(sends[0])).end_s()
    assert replay.end_s() > 1.9 * alone_s
    assert replay.ended_s[2] == 0.5


def test_a_meeting_that_another_meeting_brings_about_is_seen() -> None:
    # Two sends slow each other down, so that the pass behind them comes to meet a third, which alone would have been through.
    tasks = [
        task(transfer((0, 4), size_bytes=B), stream="one"),
        task(transfer((0, 4), size_bytes=B), stream="other"),
        task(compute(work(1.5)), rank_class=1),
        task(transfer((1, 5), size_bytes=B), 0, stream="third"),
        task(transfer((1, 5), size_bytes=B), 2, stream="fourth", rank_class=1),
    ]
    of = program(*tasks, n_classes=2)

    found = settled(of)

    assert {3, 4} <= found.contended
    everything = replay_of(make_machine(network=LATENT_NETWORK), of, contended=range(len(tasks)))
    assert found.ended_s == pytest.approx(everything.run().ended_s, rel=1e-12)


def test_tasks_that_wait_for_each_other_are_named_without_any_event() -> None:
    of = program(task(compute(work(1.0), name="A"), 1), task(compute(work(1.0), name="B"), 0))

    with pytest.raises(DeadlockError, match="A on stage 0 waits for B on stage 0"):
        settled(of)


def test_a_load_goes_on_until_the_last_task_has_ended() -> None:
    machine = make_machine()
    link = machine.cluster.links.index(next(link for link in machine.cluster.links if link.name == "node0/gpu7/nvlink/up"))
    load = Background(name="load", link_ids=(link,), rate_bytes_per_s=1.0)

    timeline, _ = replay(program(task(compute(work(2.5)))), machine, [load])

    (use,) = [use for use in timeline.links if use.users]
    assert (timeline.step_time_s, use.busy_s, use.bytes) == (2.5, 2.5, pytest.approx(2.5, rel=1e-12))


def detail_of(*tasks: Task) -> Span:
    return next(span for span in timeline_of(make_machine(), *tasks).spans if span.kind == "forward")


def test_only_a_pass_that_met_somebody_is_replayed_item_by_item() -> None:
    action = compute(work(1.0), collective(TP, B), repeat=2)

    assert detail_of(task(action), task(communicate(DP, B), 0)).detail != ()
    assert detail_of(task(action), task(communicate(DP, B))).detail == ()

from __future__ import annotations

import pytest

from clustersim.engine.simulate import Machine
from clustersim.errors import DeadlockError
from clustersim.program.tasks import Action, Block, Compute, Lane, Task
from clustersim.trace.timeline import Span
from tests.unit.engine.factories import (
    LATENT_NETWORK,
    collective,
    communicate,
    compute,
    group_of,
    make_machine,
    overlapped,
    program,
    replay_of,
    task,
    timeline_of,
    transfer,
    work,
)
from tests.unit.topology.factories import SCALE_UP_BYTES_PER_S

TP = group_of((0, 1, 2, 3), (4, 5, 6, 7), name="tp", dimension="tp")
DP = group_of((0, 4), (1, 5), (2, 6), (3, 7), name="dp")
ONE_SECOND = SCALE_UP_BYTES_PER_S
"""Bytes whose all-reduce between two takes a second."""


def spans_of(machine: Machine, *tasks: Task, n_classes: int = 1) -> dict[str, Span]:
    return {span.name: span for span in timeline_of(machine, *tasks, n_classes=n_classes).spans}


def named(action_s: float, name: str) -> Action:
    return compute(work(action_s), name=name)


def test_a_task_starts_when_the_last_that_it_waits_for_has_ended() -> None:
    one, two, both = task(named(1.0, "one")), task(named(3.0, "two"), rank_class=1), task(named(1.0, "both"), 0, 1)

    spans = spans_of(make_machine(), one, two, both, n_classes=2)

    assert (spans["both"].start_s, spans["both"].end_s) == (3.0, 4.0)


def test_tasks_that_wait_for_nothing_start_together() -> None:
    spans = spans_of(make_machine(), task(named(1.0, "one")), task(named(3.0, "two"), rank_class=1), n_classes=2)

    assert (spans["one"].start_s, spans["two"].start_s) == (0.0, 0.0)


def test_a_task_may_be_written_down_before_what_it_waits_for() -> None:
    spans = spans_of(make_machine(), task(named(1.0, "later"), 1), task(named(3.0, "sooner")))

    assert spans["later"].start_s == 3.0


def test_communication_runs_beside_computation() -> None:
    timeline = timeline_of(make_machine(), task(named(1.0, "F")), task(communicate(DP, ONE_SECOND)), task(named(1.0, "G"), 0))

    assert timeline.step_time_s == pytest.approx(2.0, rel=1e-12)


def test_a_span_says_what_a_pass_did() -> None:
    action = compute(work(0.5), overlapped(collective(TP, ONE_SECOND), 0.25), repeat=2, phase="backward", name="B")
    lane = Lane(rank_class=0, stream="compute")

    span = spans_of(make_machine(), Task(action=action, lanes=(lane,), after=(), micro_batch=3, chunk=1))["B"]

    assert (span.kind, span.stream, span.micro_batch, span.chunk, span.dimension) == ("backward", "compute", 3, 1, "")
    assert span.compute_s == pytest.approx(1.5, rel=1e-12)
    # Four members: 2 * 3/4 S/B.
    assert span.exposed_s == (("tp", pytest.approx(2 * 1.25, rel=1e-12)),)
    assert span.hidden_s == (("tp", pytest.approx(2 * 0.25, rel=1e-12)),)
    assert span.bytes == 2 * ONE_SECOND
    assert span.detail[0].repeat == 2


def test_a_transfer_shows_on_every_lane_that_it_occupies() -> None:
    send = transfer((0, 4), size_bytes=ONE_SECOND)
    lanes = (Lane(rank_class=0, stream="send"), Lane(rank_class=1, stream="recv"))

    timeline = timeline_of(make_machine(), Task(action=send, lanes=lanes, after=(), micro_batch=2), n_classes=2)

    assert [(span.rank_class, span.stream, span.kind, span.dimension) for span in timeline.spans] == [
        (0, "send", "communication", "pp"),
        (1, "recv", "communication", "pp"),
    ]
    assert {(span.start_s, span.end_s, span.bytes, span.micro_batch) for span in timeline.spans} == {(0.0, 1.0, ONE_SECOND, 2)}


CROWDED = (
    compute(work(0.3), collective(TP, ONE_SECOND), overlapped(collective(TP, ONE_SECOND), 0.5), repeat=3),
    communicate(DP, 4 * ONE_SECOND),
)


def test_a_pass_that_meets_traffic_takes_longer_than_alone() -> None:
    action, rival = CROWDED
    alone, beside = (timeline_of(make_machine(), *tasks) for tasks in ([task(action)], [task(action), task(rival)]))

    assert beside.spans[0].end_s > alone.spans[0].end_s
    assert beside.spans[0].compute_s == pytest.approx(alone.spans[0].compute_s, rel=1e-12)


def test_a_pass_that_meets_traffic_still_is_computation_and_exposed_communication() -> None:
    action, rival = CROWDED
    (span, *_) = timeline_of(make_machine(), task(action), task(rival)).spans

    exposed_s = sum(seconds for _, seconds in span.exposed_s)
    assert span.end_s - span.start_s == pytest.approx(span.compute_s + exposed_s, rel=1e-12)


def test_a_pass_that_meets_traffic_has_no_layers_alike_to_show() -> None:
    action, rival = CROWDED

    assert timeline_of(make_machine(), task(action)).spans[0].detail != ()
    assert timeline_of(make_machine(), task(action), task(rival)).spans[0].detail == ()


def test_a_rival_that_never_flies_beside_a_pass_changes_nothing() -> None:
    """Both ways through the engine: item by item because a rival might come, and at its price because none can."""
    machine = make_machine(network=LATENT_NETWORK)
    action = CROWDED[0]
    # A collective of next to no bytes on the shared links keeps nobody waiting, but the engine cannot know.
    fast = timeline_of(machine, task(action))
    slow = timeline_of(machine, task(action), task(communicate(DP, 1e-9, name="nothing")))

    by_item = next(span for span in slow.spans if span.kind == "forward")
    assert by_item.detail == ()
    assert by_item.end_s == pytest.approx(fast.spans[0].end_s, rel=1e-12)
    assert by_item.exposed_s == (("tp", pytest.approx(fast.spans[0].exposed_s[0][1], rel=1e-12)),)
    carried = {link.name: link.bytes for link in slow.links}
    assert carried == pytest.approx({link.name: link.bytes for link in fast.links}, rel=1e-12)


def test_a_collective_of_no_bytes_loads_no_link() -> None:
    action = CROWDED[0]

    beside = timeline_of(make_machine(network=LATENT_NETWORK), task(action), task(communicate(DP, 0.0, name="latency alone")))

    assert next(span for span in beside.spans if span.kind == "forward").detail != ()


def test_tasks_that_wait_for_each_other_are_named() -> None:
    machine = make_machine()
    of = program(task(named(1.0, "fine")), task(named(1.0, "A"), 2), task(communicate(DP, 1.0, name="C"), 1))
    run = replay_of(machine, of)

    with pytest.raises(DeadlockError) as caught:
        run.run()

    assert str(caught.value) == (
        "2 of 3 tasks wait for each other for ever, the first on rank 0:\n"
        "  A on stage 0 waits for C on stage 0 (dp)\n  C on stage 0 (dp) waits for A on stage 0"
    )
    assert [span.name for span in run.spans()] == ["fine"]


def test_a_task_that_ends_at_once_starts_those_behind_it_only_once() -> None:
    # A pass of no layers, replayed item by item because of the collective beside it.
    empty = Compute(name="empty", phase="forward", blocks=(Block(name="layer", body=(collective(TP, 1.0),), repeat=0),))

    timeline = timeline_of(
        make_machine(), task(empty), task(communicate(DP, ONE_SECOND)), task(named(1.0, "F"), 0), task(named(1.0, "G"), 2)
    )

    assert [span.name for span in timeline.spans if span.stream == "compute"] == ["empty", "F", "G"]
    assert timeline.step_time_s == pytest.approx(2.0, rel=1e-12)


def test_a_transfer_that_stays_on_its_rank_ends_at_once() -> None:
    timeline = timeline_of(make_machine(), task(transfer((0, 0), size_bytes=1.0)))

    assert timeline.step_time_s == 0.0

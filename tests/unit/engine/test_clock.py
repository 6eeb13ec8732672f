from __future__ import annotations

from clustersim.engine.clock import Clock
from tests.unit.engine.clockwork import coupled_flow, fly, one_link, said


def test_time_passes_until_the_alarm() -> None:
    clock, log = Clock(network=one_link()), list[tuple[str, float]]()
    clock.after(2.0, said(clock, log, "late"))
    clock.after(0.5, said(clock, log, "early"))

    clock.world.run()

    assert log == [("early", 0.5), ("late", 2.0)]
    assert clock.n_events == 2


def test_alarms_of_one_instant_go_off_in_the_order_in_which_they_were_set() -> None:
    clock, log = Clock(network=one_link()), list[tuple[str, float]]()
    for word in ("first", "second", "third"):
        clock.after(1.0, said(clock, log, word))

    clock.world.run()

    assert [word for word, _ in log] == ["first", "second", "third"]


def test_a_flow_without_bytes_only_waits() -> None:
    network = one_link()
    clock, log = Clock(network=network), list[tuple[str, float]]()
    fly(clock, said(clock, log, "landed"), 0.0, latency_s=3.0)

    clock.world.run()

    assert log == [("landed", 3.0)]
    assert network.n_solved == 0


def test_what_has_nothing_to_fly_ends_at_once_but_not_before_the_caller_has_gone_on() -> None:
    clock, log = Clock(network=one_link()), list[tuple[str, float]]()
    clock.perform((), said(clock, log, "landed"))

    assert log == []
    clock.world.run()
    assert log == [("landed", 0.0)]


def test_flows_of_a_phase_start_together_and_the_last_ends_it() -> None:
    clock, log = Clock(network=one_link()), list[tuple[str, float]]()
    # Half of the link each until 1 s; then the longer one alone.
    clock.perform(((coupled_flow(4.0), coupled_flow(12.0)), (coupled_flow(8.0, latency_s=0.5),)), said(clock, log, "landed"))

    clock.world.run()

    assert log == [("landed", 2.0 + 0.5 + 1.0)]


def test_two_operations_meet_phase_by_phase() -> None:
    clock, log = Clock(network=one_link()), list[tuple[str, float]]()
    clock.perform(((coupled_flow(8.0),), (coupled_flow(8.0),)), said(clock, log, "twice"))
    clock.perform(((coupled_flow(24.0),),), said(clock, log, "once"))

    clock.world.run()

    # Until 4 s each has half of the link, the first in two turns of 8 bytes; then 8 bytes are left for a second.
    assert log == [("twice", 4.0), ("once", 5.0)]


def test_a_load_takes_its_share_until_it_is_taken_off() -> None:
    clock, log = Clock(network=one_link()), list[tuple[str, float]]()
    clock.after(2.0, clock.load(0))
    fly(clock, said(clock, log, "landed"), 16.0)

    clock.world.run()

    # Half of the link for 2 s, and all of it for another.
    assert log == [("landed", 3.0)]


def test_a_load_without_an_end_keeps_nobody_waiting() -> None:
    clock = Clock(network=one_link())
    clock.load(0)

    clock.world.run()

    assert clock.now_s == 0.0


def test_in_a_world_that_is_halted_nothing_happens_any_more() -> None:
    clock, log = Clock(network=one_link()), list[tuple[str, float]]()
    fly(clock, said(clock, log, "landed"), 16.0)
    clock.after(1.0, clock.world.halt)
    clock.after(1.5, said(clock, log, "alarm"))

    clock.world.run()

    assert log == []
    assert clock.now_s == 1.0


def test_all_changes_of_an_instant_are_solved_once() -> None:
    network = one_link(n_flow_classes=20)
    clock = Clock(network=network)
    for flow_class in range(20):
        fly(clock, lambda: None, 8.0, latency_s=1.0, flow_class=flow_class)

    clock.world.run()

    # Once when all twenty start, and once when all twenty have ended.
    assert network.n_solved == 2
    assert clock.now_s == 21.0


def test_a_flow_that_follows_at_once_is_solved_with_the_end_of_the_one_before() -> None:
    network = one_link()
    clock = Clock(network=network)
    fly(clock, lambda: fly(clock, lambda: None, 8.0), 8.0)

    clock.world.run()

    assert network.n_solved == 3
    assert clock.now_s == 2.0


def test_an_alarm_that_is_out_of_date_wakes_nobody() -> None:
    network = one_link()
    clock, log = Clock(network=network), list[tuple[str, float]]()
    fly(clock, said(clock, log, "first"), 16.0)
    fly(clock, said(clock, log, "second"), 40.0, latency_s=1.0)

    clock.world.run()

    # The end at 2 s that was foreseen before the second started is not one: two starts and two ends are solved.
    assert log == [("first", 3.0), ("second", 7.0)]
    assert network.n_solved == 4

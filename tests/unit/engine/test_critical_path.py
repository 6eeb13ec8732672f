"""The chain of tasks that sets the step time, and the slack of all others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.engine.critical_path import critical_path
from clustersim.engine.simulate import replay
from clustersim.errors import DeadlockError
from clustersim.program.tasks import Task
from tests.unit.engine.factories import communicate as reduced
from tests.unit.engine.factories import compute, group_of, joined, make_machine, paced, program, task, transfer, work, workers

MACHINE = make_machine()


def names(tasks: list[Task]) -> list[str]:
    return [span.name for span in critical_path(program(*tasks), MACHINE).spans]


def test_the_longer_of_two_ways_is_the_chain() -> None:
    tasks = [
        task(compute(work(1.0), name="start")),
        task(compute(work(1.0), name="short"), 0),
        task(compute(work(2.0), name="long"), 0, stream="other"),
        task(compute(work(1.0), name="end"), 1, 2),
    ]

    assert names(tasks) == ["start", "long", "end"]


def test_slack_is_how_much_later_a_task_may_end() -> None:
    tasks = [
        task(compute(work(1.0), name="start")),
        task(compute(work(0.5), phase="backward", name="short"), 0),
        task(compute(work(2.0), name="long"), 0, stream="other"),
    ]

    path = critical_path(program(*tasks), MACHINE)

    assert [(slack.what, slack.n_tasks, slack.least_s, slack.mean_s) for slack in path.slack] == [
        ("backward", 1, pytest.approx(1.5), pytest.approx(1.5)),
        ("forward", 2, 0.0, 0.0),
    ]
    assert (path.n_critical, path.n_tasks) == (2, 3)


def test_of_equal_ways_the_first_is_told_and_both_have_no_slack() -> None:
    tasks = [task(compute(work(1.0), name="one")), task(compute(work(1.0), name="other"), stream="other")]

    path = critical_path(program(*tasks), MACHINE)

    assert [span.name for span in path.spans] == ["one"]
    assert path.n_critical == 2


def test_the_chain_goes_from_rank_to_rank_with_what_is_sent() -> None:
    tasks = [
        task(compute(work(1.0), name="first stage")),
        task(transfer((0, 4), size_bytes=1e9), 0, stream="send"),
        task(compute(work(1.0), name="second stage"), 1, rank_class=1),
    ]

    path = critical_path(program(*tasks, n_classes=2), MACHINE)

    assert [span.name for span in path.spans] == ["first stage", "send", "second stage"]
    assert list(path.classes()) == ["stage 0", "stage 1"]
    assert set(path.shares()) == {"forward", "pp communication"}


def test_a_slow_rank_is_on_the_chain() -> None:
    path = critical_path(joined(1.0, 1.0, 1.0, size_bytes=1e6), paced(MACHINE, 1.0, 1.5, 1.0))

    assert path.spans[0].rank_class == 1
    assert path.spans[0].end_s == pytest.approx(1.5)


def test_a_program_that_does_nothing_has_no_chain() -> None:
    path = critical_path(program(), MACHINE)

    assert (path.spans, path.slack, path.step_time_s) == ((), (), 0.0)


def test_a_program_that_waits_for_itself_is_refused() -> None:
    with pytest.raises(DeadlockError):
        critical_path(program(task(compute(work(1.0)), 1), task(compute(work(1.0)), 0)), MACHINE)


@st.composite
def graphs(draw: st.DrawFn) -> list[Task]:
    """Return tasks of which each waits for some of those before."""
    n_tasks = draw(st.integers(1, 9))
    tasks: list[Task] = []
    for place in range(n_tasks):
        seconds = draw(st.integers(1, 5))
        after = sorted(draw(st.sets(st.integers(0, place - 1), max_size=3))) if place else []
        tasks.append(task(compute(work(float(seconds)), name=f"T{place}"), *after, stream=f"s{place}"))
    return tasks


@given(tasks=graphs())
def test_a_chain_has_no_gaps_and_lasts_as_long_as_the_step(tasks: list[Task]) -> None:
    path = critical_path(program(*tasks), MACHINE)

    assert path.spans[0].start_s == 0.0
    assert path.spans[-1].end_s == path.step_time_s == replay(program(*tasks), MACHINE)[0].step_time_s
    assert all(before.end_s == after.start_s for before, after in zip(path.spans, path.spans[1:], strict=False))
    assert sum(path.shares().values()) == pytest.approx(path.step_time_s, rel=1e-12)


@given(tasks=graphs(), place=st.integers(0, 8), delay_s=st.integers(1, 12))
def test_a_task_may_be_late_by_its_slack_and_no_more(tasks: list[Task], place: int, delay_s: int) -> None:
    place %= len(tasks)
    one_by_one = [each._replace(lanes=(each.lanes[0]._replace(rank_class=index),)) for index, each in enumerate(tasks)]
    path = critical_path(program(*one_by_one, n_classes=len(tasks), n_ranks=len(tasks)), make_machine(n_nodes=2))
    (slack,) = (slack for slack in path.slack if slack.rank_class == place)

    seconds = path_s(tasks, place) + delay_s
    late = [each._replace(action=compute(work(seconds), name="late")) if index == place else each for index, each in enumerate(tasks)]

    expected = path.step_time_s + max(0.0, delay_s - slack.least_s)
    assert replay(program(*late), MACHINE)[0].step_time_s == pytest.approx(expected, rel=1e-9)


def path_s(tasks: list[Task], place: int) -> float:
    return replay(program(tasks[place]._replace(after=())), MACHINE)[0].step_time_s


def test_workers_that_nothing_joins_have_the_slowest_as_their_chain() -> None:
    path = critical_path(workers(1.0, 3.0), MACHINE)

    assert [(span.rank_class, span.end_s) for span in path.spans] == [(1, pytest.approx(3.0))]


def test_what_is_reduced_last_is_the_end_of_the_chain() -> None:
    group = group_of(tuple(range(8)))
    tasks = [task(compute(work(1.0))), task(reduced(group, 1e9), 0)]

    shares = critical_path(program(*tasks), MACHINE).shares()

    assert list(shares) == ["forward", "dp communication"]

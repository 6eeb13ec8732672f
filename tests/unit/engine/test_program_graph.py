from __future__ import annotations

from clustersim.engine.program_graph import Graph, Joint, unrolled
from clustersim.program.program import Program
from clustersim.program.tasks import Lane, Task
from tests.unit.engine.factories import communicate, compute, group_of, program, task, work

ALL = communicate(group_of((0, 1)), 1.0, name="all")


def both(*after: int, of: tuple[int, int] = (0, 1)) -> Task:
    """Return a task that takes two classes."""
    return Task(action=ALL, lanes=tuple(Lane(rank_class=each, stream="dp") for each in of), after=after)


def named(name: str, *after: int, rank_class: int = 0) -> Task:
    return task(compute(work(1.0), name=name), *after, rank_class=rank_class)


PAIR = program(named("a"), named("b", rank_class=1), both(0, 1), named("c", 2), named("d", 2, rank_class=1), n_classes=2)


def names(found: Program) -> list[tuple[str, tuple[int, ...]]]:
    return [(task.action.name, task.after) for task in found.tasks]


def test_followers_are_the_dependencies_turned_round() -> None:
    assert Graph(PAIR).followers == [[2], [2], [3, 4], [], []]


def test_what_nothing_of_a_class_precedes_waits_for_the_class() -> None:
    graph = Graph(PAIR)

    assert graph.gates == [[0], [1]]
    assert graph.n_waits == [1, 1, 2, 1, 1]


def test_what_only_another_class_precedes_waits_for_its_own_too() -> None:
    graph = Graph(program(named("a"), named("b", 0, rank_class=1), n_classes=2))

    assert graph.gates == [[0], [1]]
    assert graph.n_waits == [1, 2]


def test_a_task_of_two_classes_waits_for_both_to_begin() -> None:
    assert Graph(program(both(), n_classes=2)).n_waits == [2]


def test_tasks_are_counted_for_every_class_that_they_take() -> None:
    graph = Graph(PAIR)

    assert graph.classes == ((0,), (1,), (0, 1), (0,), (1,))
    assert graph.n_tasks == [3, 3]


def test_two_lanes_of_a_class_are_one_class() -> None:
    lanes = tuple(Lane(rank_class=0, stream=stream) for stream in ("send", "recv"))

    assert Graph(program(Task(action=ALL, lanes=lanes, after=()))).classes == ((0,),)


def test_classes_are_connected_by_tasks_and_by_what_they_wait_for() -> None:
    tasks = (named("a"), named("b", 0, rank_class=2), named("c", rank_class=1), both())

    assert Graph(program(*tasks[:3], n_classes=4)).components == ((0, 2), (1,))
    assert Graph(program(*tasks, n_classes=4)).components == ((0, 1, 2),)


def test_a_joint_task_knows_what_each_class_does_before() -> None:
    tasks = (named("a"), named("b", rank_class=1), both(0, 1), named("c", 2), both(2, 3, 1), both(2, 4))

    # The last waits for nothing that one class does alone.
    assert Graph(program(*tasks, n_classes=2)).joints == {
        2: Joint(own=((0, (0,)), (1, (1,))), n_ranks=(4, 4)),
        4: Joint(own=((0, (3,)), (1, (1,))), n_ranks=(4, 4)),
    }


def test_what_a_class_does_with_others_that_are_not_in_a_joint_is_its_own_there() -> None:
    graph = Graph(program(both(), both(of=(2, 3)), both(0, 1, of=(0, 2)), n_classes=4))

    assert graph.joints == {2: Joint(own=((0, (0,)), (2, (1,))), n_ranks=(2, 2))}


def test_a_class_begins_the_next_step_behind_all_of_its_own() -> None:
    found = unrolled(Graph(PAIR))

    assert names(found)[:5] == names(PAIR)
    assert names(found)[5:] == [("a", (3,)), ("b", (4,)), ("all", (5, 6)), ("c", (7,)), ("d", (7,))]


def test_a_class_begins_the_next_step_without_the_others() -> None:
    found = unrolled(Graph(program(named("F"), named("F", 0, rank_class=1), named("beside"), n_classes=2)))

    # The first class waits for both of its own tasks and not for the second.
    assert names(found)[3:] == [("F", (0, 2)), ("F", (3, 1)), ("beside", (0, 2))]


def test_what_takes_two_classes_waits_for_both_where_it_begins_the_step() -> None:
    found = unrolled(Graph(program(both(), named("c", 0), n_classes=2)))

    assert names(found)[2:] == [("all", (1, 0)), ("c", (2,))]

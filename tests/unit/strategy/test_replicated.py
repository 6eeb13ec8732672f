"""Replicas of timed layers: who waits for whom, and how much goes where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.hardware.communication import Servers
from clustersim.program.program import Program
from clustersim.program.tasks import Collective, Communicate, Compute, Task, Transfer, Work
from clustersim.strategy.replicated import (
    AllReduce,
    ParameterServers,
    Receiving,
    TimedLayer,
    fused,
    lower_replicas,
)
from clustersim.workload.operators import Recorded
from tests.rows import rows

LAYERS = tuple(
    TimedLayer(name=name, forward_s=forward_s, backward_s=2.0 * forward_s, gradient_bytes=size_bytes)
    for name, forward_s, size_bytes in (("first", 1.0, 10.0), ("second", 2.0, 40.0), ("third", 4.0, 20.0))
)
TWO_NODES = ((0, 1), (2, 3))
RING = AllReduce(bucket_bytes=1.0)
SERVED = ParameterServers(hosts=(0, 1), pull="first_come")
THREAD = Receiving(bytes_per_s=10.0, doubling_bytes=40.0)


def on_stream(program: Program, stream: str) -> list[Task]:
    return [task for task in program.tasks if task.lanes[0].stream == stream]


def named(program: Program, name: str) -> list[Task]:
    return [task for task in program.tasks if task.action.name == name]


def collective(task: Task) -> Collective:
    assert isinstance(task.action, Communicate)
    return task.action.collective


def duration_s(task: Task) -> float:
    assert isinstance(task.action, Compute)
    ((work,),) = [block.body for block in task.action.blocks]
    assert isinstance(work, Work)
    (kernel,) = work.kernels
    assert isinstance(kernel, Recorded)
    return kernel.duration_s


def ancestors(program: Program, task: Task) -> list[Task]:
    """Return all tasks that must have ended before a task."""
    found: dict[int, None] = {}
    waiting = list(task.after)
    while waiting:
        index = waiting.pop()
        if index not in found:
            found[index] = None
            waiting.extend(program.tasks[index].after)
    return [program.tasks[index] for index in sorted(found)]


def names_before(program: Program, task: Task) -> list[tuple[str, int]]:
    return [(each.action.name, each.chunk) for each in ancestors(program, task)]


@pytest.mark.parametrize("exchange", [RING, SERVED])
def test_one_accelerator_alone_exchanges_nothing(exchange: AllReduce | ParameterServers) -> None:
    program = lower_replicas(LAYERS, [(0,)], exchange)

    assert [(task.action.name, task.chunk, duration_s(task)) for task in program.tasks] == [
        ("F", 0, 1.0),
        ("F", 1, 2.0),
        ("F", 2, 4.0),
        ("B", 2, 8.0),
        ("B", 1, 4.0),
        ("B", 0, 2.0),
    ]


def test_gradients_are_reduced_as_soon_as_their_layer_is_through() -> None:
    program = lower_replicas(LAYERS, TWO_NODES, RING)

    reductions = named(program, "gradients")
    assert [collective(task).bytes for task in reductions] == [20.0, 40.0, 10.0]
    assert {rows(collective(task).group.members) for task in reductions} == {((0, 1, 2, 3),)}
    assert ("B", 1) not in names_before(program, reductions[0])
    assert ("B", 0) not in names_before(program, reductions[1])


def test_without_overlap_the_first_reduction_waits_for_the_whole_backward_pass() -> None:
    program = lower_replicas(LAYERS, TWO_NODES, replace(RING, overlap=False))

    assert ("B", 0) in names_before(program, named(program, "gradients")[0])


def test_a_ring_in_rank_order_sends_from_each_rank_to_the_next() -> None:
    program = lower_replicas(LAYERS[:1], TWO_NODES, replace(RING, algorithm="rank_order"))

    (ring,) = [task.action for task in program.tasks if isinstance(task.action, Transfer)]
    assert rows(ring.pairs) == ((0, 1), (1, 2), (2, 3), (3, 0))
    assert ring.bytes == pytest.approx(2.0 * 3 / 4 * 10.0, rel=1e-15)


def test_a_processor_spends_time_on_what_its_rank_sends_beside_the_network() -> None:
    program = lower_replicas(LAYERS[:1], TWO_NODES, replace(RING, host_bytes_per_s=5.0))

    (work,) = on_stream(program, "host")
    assert duration_s(work) == pytest.approx(2.0 * 3 / 4 * 10.0 / 5.0, rel=1e-15)
    assert names_before(program, work) == [("F", 0), ("B", 0)]


def test_a_reduction_takes_time_from_the_passes_that_it_runs_beside() -> None:
    program = lower_replicas(LAYERS, TWO_NODES, replace(RING, accelerator_bytes_per_s=3.0))

    passes = [(task.action.name, task.chunk) for task in on_stream(program, "compute")]
    assert passes[3:] == [("B", 2), ("taken", 0), ("B", 1), ("taken", 1), ("B", 0), ("taken", 2)]
    assert [duration_s(task) for task in named(program, "taken")] == pytest.approx([10.0, 20.0, 5.0], rel=1e-15)


def test_without_overlap_a_reduction_takes_nothing_from_the_backward_pass() -> None:
    program = lower_replicas(LAYERS, TWO_NODES, replace(RING, accelerator_bytes_per_s=3.0, overlap=False))

    assert [task.action.name for task in on_stream(program, "compute")][3:] == ["B"] * 3 + ["taken"] * 3


@pytest.mark.parametrize(
    ("bucket_bytes", "window_s", "expected"),
    [
        (1.0, inf, ((2,), (1,), (0,))),
        (50.0, inf, ((2,), (1, 0))),
        (60.0, inf, ((2, 1), (0,))),
        (1e9, inf, ((2, 1, 0),)),
        (1e9, 10.0, ((2,), (1, 0))),
    ],
)
def test_gradients_are_fused_up_to_the_buffer_and_within_the_window(
    bucket_bytes: float, window_s: float, expected: tuple[tuple[int, ...], ...]
) -> None:
    assert fused(LAYERS, AllReduce(bucket_bytes=bucket_bytes, window_s=window_s)) == expected


sizes = st.lists(st.floats(min_value=0.1, max_value=100.0), min_size=1, max_size=30)


@given(sizes_bytes=sizes, bucket_bytes=st.floats(min_value=0.1, max_value=300.0), window_s=st.floats(min_value=0.1, max_value=50.0))
def test_every_gradient_is_reduced_once_and_no_bucket_overflows(sizes_bytes: Sequence[float], bucket_bytes: float, window_s: float) -> None:
    layers = [TimedLayer(name="", forward_s=1.0, backward_s=2.0, gradient_bytes=size) for size in sizes_bytes]

    buckets = fused(layers, AllReduce(bucket_bytes=bucket_bytes, window_s=window_s))

    assert [index for bucket in buckets for index in bucket] == list(reversed(range(len(layers))))
    # A sum that is formed in another order may differ in its last digits.
    assert all(len(bucket) == 1 or sum(sizes_bytes[index] for index in bucket) <= bucket_bytes * (1 + 1e-12) for bucket in buckets)


def test_each_tensor_goes_to_the_host_that_holds_least_so_far_whatever_its_number() -> None:
    program = lower_replicas(LAYERS, TWO_NODES, replace(SERVED, hosts=(5, 3)))

    moved = {task.chunk: collective(task).servers for task in named(program, "push")}
    assert [moved[layer] for layer in range(3)] == [Servers(hosts=(host,), shares=(1.0,)) for host in (5, 3, 5)]


def test_each_tensor_lies_on_one_server_that_all_workers_push_to_and_pull_from() -> None:
    program = lower_replicas(LAYERS, TWO_NODES, SERVED)

    for name in ("push", "pull"):
        moved = {task.chunk: collective(task) for task in named(program, name)}
        assert [moved[layer].bytes for layer in range(3)] == [10.0, 40.0, 20.0]
        assert [moved[layer].servers for layer in range(3)] == [Servers(hosts=(host,), shares=(1.0,)) for host in (0, 1, 0)]
        assert {rows(each.group.members) for each in moved.values()} == {((0, 1, 2, 3),)}
        assert {each.algorithm for each in moved.values()} == {"parameter_server"}


def test_servers_work_beside_each_other() -> None:
    program = lower_replicas(LAYERS, TWO_NODES, SERVED)

    assert [task.chunk for task in on_stream(program, "push to 0")] == [2, 0]
    assert [task.chunk for task in on_stream(program, "push to 1")] == [1]
    assert [task.chunk for task in on_stream(program, "pull from 0")] == [0, 2]


def test_pulls_in_no_order_hold_up_the_first_layer() -> None:
    program = lower_replicas(LAYERS, TWO_NODES, SERVED)

    assert names_before(program, named(program, "F")[0]) == [("pull", 0), ("pull", 1), ("pull", 2)]


def test_pulls_with_the_front_first_hold_up_each_layer_by_its_own() -> None:
    program = lower_replicas(LAYERS, TWO_NODES, replace(SERVED, pull="front_first"))

    first, second, _ = named(program, "F")
    assert names_before(program, first) == [("pull", 0)]
    assert names_before(program, second) == [("pull", 0), ("pull", 1), ("F", 0)]


def test_pulls_within_the_step_follow_the_push_of_their_layer_beside_the_backward_pass() -> None:
    program = lower_replicas(LAYERS, TWO_NODES, replace(SERVED, pull="in_step"))

    assert names_before(program, named(program, "F")[0]) == []
    pulls = {task.chunk: task for task in named(program, "pull")}
    assert ("push", 2) in names_before(program, pulls[2])
    assert ("B", 1) not in names_before(program, pulls[2])


def test_a_node_adds_up_its_gradients_and_one_accelerator_speaks_for_it() -> None:
    program = lower_replicas(LAYERS, TWO_NODES, replace(SERVED, per_node=True))

    push, pull = named(program, "push")[0], named(program, "pull")[0]
    assert rows(collective(push).group.members) == rows(collective(pull).group.members) == ((0, 2),)
    assert {rows(collective(task).group.members) for name in ("reduce", "broadcast") for task in named(program, name)} == {TWO_NODES}
    assert ("reduce", push.chunk) in names_before(program, push)
    assert ("broadcast", 2) in names_before(program, named(program, "F")[0])


def test_a_node_of_one_accelerator_adds_up_nothing() -> None:
    program = lower_replicas(LAYERS, [(0,), (1,)], replace(SERVED, per_node=True))

    assert named(program, "reduce") == named(program, "broadcast") == []


@pytest.mark.parametrize(("per_node", "workers"), [(False, 4), (True, 2)])
def test_the_thread_of_a_server_receives_a_tensor_from_each_worker_and_that_of_a_worker_once(*, per_node: bool, workers: int) -> None:
    program = lower_replicas(LAYERS, TWO_NODES, replace(SERVED, per_node=per_node, receiving=THREAD))

    (added,) = on_stream(program, "server 1")
    received = on_stream(program, "receive")
    # 40 bytes at 10 a second take 4 s, and as long again because they are as many as double the time.
    assert duration_s(added) == pytest.approx(workers * 8.0, rel=1e-15)
    assert [duration_s(task) for task in received] == pytest.approx([1.25, 8.0, 3.0], rel=1e-15)


def test_a_tensor_that_goes_on_to_an_accelerator_is_copied_again() -> None:
    thread = replace(THREAD, accelerator_bytes_per_s=20.0)
    program = lower_replicas(LAYERS, TWO_NODES, replace(SERVED, receiving=thread, on_accelerators=True))

    assert [duration_s(task) for task in on_stream(program, "receive")] == pytest.approx([1.75, 10.0, 4.0], rel=1e-15)
    assert duration_s(on_stream(program, "server 1")[0]) == pytest.approx(4 * 8.0, rel=1e-15)


def test_what_waits_for_a_tensor_waits_for_the_thread_that_receives_it() -> None:
    program = lower_replicas(LAYERS, TWO_NODES, replace(SERVED, pull="in_step", receiving=THREAD))

    last = next(task for task in named(program, "pull") if task.chunk == 1)
    assert ("add", 1) in names_before(program, last)

"""Offloaded steps against their closed forms, on links without latency.

One node with n accelerators, each behind a PCIe link of its own of B bytes per second and direction, memory of M bytes per second and
drives that read R and write W bytes per second.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.collectives.host import COPY_START_S
from clustersim.engine.simulate import Machine, replay
from clustersim.hardware.models import Node
from clustersim.network.in_flight import TICK_S
from clustersim.parallel.division import divided, place
from clustersim.parallel.offload import TILE_PARAMETERS, HostSide, host_update_bytes
from clustersim.parallel.stage import stage_of
from clustersim.parallel.training_plan import Offload, Plan
from clustersim.parallel.weights import Weights
from clustersim.program.program import Key, Program, ProgramBuilder
from clustersim.program.tasks import HostCopy, HostUpdate
from tests.unit.engine.factories import compute, instant, make_machine, solo_s, work
from tests.unit.parallel.factories import make_plan
from tests.unit.topology.factories import PCIE_BYTES_PER_S, make_node

B = PCIE_BYTES_PER_S
M = 200e9
R, W = 20e9, 12e9
ROUND_OFF = 1e-9
LAYER = 50e6
"""Parameters of one layer."""


def node_of(n: int = 1, *, memory_bytes_per_s: float = M, n_sockets: int = 1) -> Node:
    node = instant(make_node(n_accelerators=n, accelerators_per_pcie_switch=1, n_sockets=n_sockets))
    host = replace(
        node.host,
        memory_bandwidth_bytes_per_s=memory_bytes_per_s,
        storage_bandwidth_bytes_per_s=R,
        storage_write_bandwidth_bytes_per_s=W,
    )
    return replace(node, host=host)


def plan_of(n: int = 1, offload: Offload | None = None, **changes: object) -> Plan:
    offload = offload or Offload(optimizer="host", gradients="host")
    return make_plan(**{"offload": offload, "zero_stage": 2, "dp": n, "global_batch_size": n, "no_sync": False, **changes})


def side_of(plan: Plan) -> HostSide:
    return HostSide(
        builder=ProgramBuilder(), division=divided(place(plan.strategy)), stage=stage_of(plan, 0), n_micro_batches=plan.n_micro_batches
    )


def built(side: HostSide) -> Program:
    return side.builder.build(side.division.rank_classes())


def step_s(side: HostSide, machine: Machine) -> float:
    timeline, _ = replay(built(side), machine)
    return timeline.step_time_s


def backward(side: HostSide, n_layers: int, layer_s: float) -> list[Key]:
    """Add a backward pass whose layers each take so long and leave gradients to be copied."""
    (lane,) = side.division.lanes(0)
    keys: list[Key] = []
    for layer in range(n_layers):
        keys.append(("B", layer))
        side.builder.add(keys[-1], compute(work(layer_s), name="B", phase="backward"), [lane])
        side.add_gradient_copy(Weights(dense=LAYER), after=[keys[-1]], micro_batch=0)
    return keys


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("memory_bytes_per_s", [M, 1e9])
def test_copies_take_the_slower_of_pcie_and_the_memory_that_all_share(n: int, memory_bytes_per_s: float) -> None:
    machine = make_machine(node_of(n, memory_bytes_per_s=memory_bytes_per_s))
    copy = HostCopy(name="copy", ranks=np.arange(n), bytes=1e9, source="accelerator", destination="host")

    assert solo_s(copy, machine) == pytest.approx(COPY_START_S + max(1e9 / B, n * 1e9 / memory_bytes_per_s), rel=ROUND_OFF)


@pytest.mark.parametrize(("n", "n_sockets", "shared"), [(1, 1, 1), (1, 2, 2), (2, 2, 2), (4, 2, 4)])
def test_updates_share_the_memory_and_one_rank_gets_one_socket(n: int, n_sockets: int, shared: int) -> None:
    machine = make_machine(node_of(n, n_sockets=n_sockets))
    update = HostUpdate(name="update", ranks=np.arange(n), bytes=1e9)

    assert solo_s(update, machine) == pytest.approx(shared * 1e9 / M, rel=ROUND_OFF)


@pytest.mark.parametrize("layer_s", [0.001, 0.05])
@pytest.mark.parametrize("n_layers", [1, 6])
def test_gradients_leave_behind_the_backward_pass_or_hold_it_up(n_layers: int, layer_s: float) -> None:
    side = side_of(plan_of())
    backward(side, n_layers, layer_s)

    copy_s = COPY_START_S + LAYER * 4.0 / B
    # L copies behind L layers: whichever is slower sets the pace, and one of the other stands at its end.
    expected_s = layer_s + copy_s + (n_layers - 1) * max(layer_s, copy_s)
    assert step_s(side, make_machine(node_of())) == pytest.approx(expected_s, abs=64 * TICK_S)


@pytest.mark.parametrize("n_tiles", [1, 5])
def test_new_parameters_follow_the_update_one_tile_behind(n_tiles: int) -> None:
    plan = plan_of()
    side = side_of(plan)
    side.add_update(Weights(dense=n_tiles * TILE_PARAMETERS), after=[])

    update_s = TILE_PARAMETERS * host_update_bytes(plan.training) / M
    copy_s = COPY_START_S + TILE_PARAMETERS * 2.0 / B
    assert update_s > copy_s
    # The copies share the memory with the update: what both move passes over it at once.
    beside_s = TILE_PARAMETERS * (host_update_bytes(plan.training) + 2.0) / M
    longest_s = n_tiles * beside_s + copy_s
    shortest_s = n_tiles * update_s + copy_s
    assert shortest_s * (1 - ROUND_OFF) <= step_s(side, make_machine(node_of())) <= longest_s * (1 + ROUND_OFF)


def test_a_whole_step_is_backward_last_gradients_update_and_last_parameters() -> None:
    plan = plan_of()
    side = side_of(plan)
    backward(side, 4, 0.05)
    side.add_update(Weights(dense=4 * LAYER), after=[("B", 3)])

    gradients_s = COPY_START_S + LAYER * 4.0 / B
    tile = 4 * LAYER / 2
    update_s, parameters_s = tile * host_update_bytes(plan.training) / M, COPY_START_S + tile * 2.0 / B
    # Two tiles; while the first is copied, the second is updated with what the copy leaves of the memory.
    taken_s = tile * 2.0 / M
    expected_s = 4 * 0.05 + gradients_s + 2 * update_s + taken_s + parameters_s
    assert update_s > parameters_s
    assert step_s(side, make_machine(node_of())) == pytest.approx(expected_s, rel=ROUND_OFF)


@pytest.mark.parametrize("n_tiles", [1, 2, 8])
def test_an_update_from_drives_is_paced_by_the_slowest_of_reading_updating_and_writing(n_tiles: int) -> None:
    offload = Offload(optimizer="nvme", gradients="host", parameters="host")
    plan = plan_of(offload=offload, zero_stage=3)
    side = side_of(plan)
    side.add_update(Weights(dense=n_tiles * TILE_PARAMETERS), after=[])

    # With memory that nothing fills, each of the three takes its own time: r + u + w + (n - 1) max.
    machine = make_machine(node_of(memory_bytes_per_s=1e15))
    read_s, write_s = TILE_PARAMETERS * 12.0 / R, TILE_PARAMETERS * 12.0 / W
    update_s = TILE_PARAMETERS * host_update_bytes(plan.training) / 1e15
    expected_s = read_s + update_s + write_s + (n_tiles - 1) * max(read_s, update_s, write_s)
    assert step_s(side, machine) == pytest.approx(expected_s, rel=ROUND_OFF)


def test_ranks_of_a_node_share_its_drives() -> None:
    times_s = [
        solo_s(HostCopy(name="read", ranks=np.arange(n), bytes=1e9, source="nvme", destination="host"), make_machine(node_of(n)))
        for n in (1, 2, 4)
    ]

    assert times_s == pytest.approx([1e9 / R, 2e9 / R, 4e9 / R], rel=ROUND_OFF)


@pytest.mark.parametrize("n_micro_batches", [1, 2, 5])
def test_sums_on_the_host_travel_back_and_forth(n_micro_batches: int) -> None:
    side = side_of(plan_of(global_batch_size=n_micro_batches))
    after: tuple[Key, ...] = ()
    for micro_batch in range(n_micro_batches):
        after = side.add_gradient_copy(Weights(dense=LAYER), after=after, micro_batch=micro_batch)

    one_s = COPY_START_S + LAYER * 4.0 / B
    assert step_s(side, make_machine(node_of())) == pytest.approx((2 * n_micro_batches - 1) * one_s, abs=64 * TICK_S)

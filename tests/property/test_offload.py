"""Whatever is offloaded: all bytes arrive once, and nothing is faster than its links."""

from __future__ import annotations

from dataclasses import replace
from math import fsum

from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.engine.simulate import replay
from clustersim.hardware.library_costs import Place
from clustersim.parallel.division import divided, place
from clustersim.parallel.offload import HostSide, host_update_bytes, state_bytes
from clustersim.parallel.stage import stage_of
from clustersim.parallel.training_plan import Offload, Plan
from clustersim.parallel.weights import Weights
from clustersim.program.program import Program, ProgramBuilder
from clustersim.program.tasks import HostCopy, HostUpdate
from tests.unit.engine.factories import instant, make_machine, total_bytes
from tests.unit.parallel.factories import local_of, make_plan
from tests.unit.topology.factories import PCIE_BYTES_PER_S, make_node

R, W, MEMORY = 20e9, 12e9, 200e9
PLACES: tuple[Place, ...] = ("accelerator", "host", "nvme")

homes = st.builds(Offload, optimizer=st.sampled_from(PLACES[1:]), gradients=st.sampled_from(PLACES), parameters=st.sampled_from(PLACES))


def plan_of(offload: Offload, n_ranks: int, n_micro_batches: int) -> Plan:
    return make_plan(offload=offload, zero_stage=3, dp=n_ranks, global_batch_size=n_ranks * n_micro_batches, no_sync=False)


def step_of(plan: Plan, layers: list[float]) -> Program:
    """Return a step whose micro-batches fetch and copy every layer, followed by the update."""
    side = HostSide(
        builder=ProgramBuilder(), division=divided(place(plan.strategy)), stage=stage_of(plan, 0), n_micro_batches=plan.n_micro_batches
    )
    for micro_batch in range(plan.n_micro_batches):
        for parameters in layers:
            fetched = side.add_parameter_fetch(Weights(dense=parameters), after=[])
            side.add_gradient_copy(Weights(dense=parameters), after=fetched, micro_batch=micro_batch)
    side.add_update(Weights(dense=fsum(layers)), after=[])
    return side.builder.build(side.division.rank_classes())


def moved_bytes(program: Program, *ways: tuple[Place, Place]) -> float:
    """Return what one rank copies on some ways."""
    copies = [task.action for task in program.tasks if isinstance(task.action, HostCopy)]
    return fsum(copy.bytes for copy in copies if (copy.source, copy.destination) in ways)


steps = st.tuples(homes, st.integers(1, 4), st.integers(1, 3), st.lists(st.floats(1e6, 3e8), min_size=1, max_size=4))


@given(steps)
@settings(max_examples=60, deadline=None)
def test_every_gradient_and_parameter_makes_each_way_as_often_as_it_must(step: tuple[Offload, int, int, list[float]]) -> None:
    offload, n_ranks, n_micro_batches, layers = step
    plan = plan_of(offload, n_ranks, n_micro_batches)
    program, shard = step_of(plan, layers), fsum(layers) / n_ranks

    leaves = n_micro_batches if offload.gradients != "accelerator" else 1
    out = moved_bytes(program, ("accelerator", "host"), ("accelerator", "nvme"))
    assert abs(out - leaves * 4.0 * shard) <= 1e-9 * out
    back = (leaves - 1) * 4.0 * shard + (2.0 * shard if offload.parameters == "accelerator" else n_micro_batches * 2.0 * shard)
    came = moved_bytes(program, ("host", "accelerator"), ("nvme", "accelerator"))
    assert abs(came - back) <= 1e-9 * back


@given(steps)
@settings(max_examples=60, deadline=None)
def test_drives_are_read_as_much_as_they_were_written(step: tuple[Offload, int, int, list[float]]) -> None:
    offload, n_ranks, n_micro_batches, layers = step
    program = step_of(plan_of(offload, n_ranks, n_micro_batches), layers)

    reads = moved_bytes(program, ("nvme", "host"), ("nvme", "accelerator"))
    writes = moved_bytes(program, ("host", "nvme"), ("accelerator", "nvme"))
    # Parameters are read again for each micro-batch, and written once.
    again = (n_micro_batches - 1) * 2.0 * fsum(layers) / n_ranks if offload.parameters == "nvme" else 0.0
    assert abs(reads - again - writes) <= 1e-9 * max(reads, 1.0)


@given(steps)
@settings(max_examples=25, deadline=None)
def test_no_step_is_faster_than_any_of_its_links(step: tuple[Offload, int, int, list[float]]) -> None:
    offload, n_ranks, n_micro_batches, layers = step
    plan = plan_of(offload, n_ranks, n_micro_batches)
    program, shard = step_of(plan, layers), fsum(layers) / n_ranks
    node = instant(make_node(n_accelerators=n_ranks, accelerators_per_pcie_switch=1, n_sockets=1))
    host = replace(node.host, memory_bandwidth_bytes_per_s=MEMORY, storage_bandwidth_bytes_per_s=R, storage_write_bandwidth_bytes_per_s=W)

    timeline, _ = replay(program, make_machine(replace(node, host=host)))

    up = moved_bytes(program, ("accelerator", "host"), ("accelerator", "nvme"))
    down = moved_bytes(program, ("host", "accelerator"), ("nvme", "accelerator"))
    reads = n_ranks * moved_bytes(program, ("nvme", "host"), ("nvme", "accelerator"))
    writes = n_ranks * moved_bytes(program, ("host", "nvme"), ("accelerator", "nvme"))
    least_s = max(up / PCIE_BYTES_PER_S, down / PCIE_BYTES_PER_S, reads / R, writes / W)
    least_s = max(least_s, n_ranks * shard * host_update_bytes(plan.training) / MEMORY)
    assert timeline.step_time_s >= least_s * (1 - 1e-9)
    assert abs(total_bytes(timeline, "storage") - reads - writes) <= 1e-6 * max(reads + writes, 1.0)


@given(homes, st.floats(1e6, 3e9))
@settings(max_examples=60, deadline=None)
def test_the_update_touches_every_parameter_once(offload: Offload, parameters: float) -> None:
    plan = plan_of(offload, 1, 1)
    side = HostSide(
        builder=ProgramBuilder(), division=divided(place(plan.strategy)), stage=stage_of(plan, 0), n_micro_batches=plan.n_micro_batches
    )
    side.add_update(Weights(dense=parameters), after=[])
    program = side.builder.build(side.division.rank_classes())

    updated = fsum(task.action.bytes for task in program.tasks if isinstance(task.action, HostUpdate))
    assert abs(updated - parameters * host_update_bytes(plan.training)) <= 1e-9 * updated
    read = moved_bytes(program, ("nvme", "host"))
    expected = parameters * (
        state_bytes(plan.training, local_of(plan)) * (offload.optimizer == "nvme") + 4.0 * (offload.gradients == "nvme")
    )
    assert abs(read - expected) <= 1e-9 * max(expected, 1.0)

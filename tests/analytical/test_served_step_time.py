"""A step with parameter servers against the closed forms of ``docs/theory/parameter-server.md``, on idle links without latency.

N workers with one accelerator and one adapter of B bytes per second each, k servers, S bytes of gradients and as many of parameters.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.engine.simulate import Machine, replay
from clustersim.hardware.models import Fabric, Node, ServerHosts, Switch
from clustersim.kernels.kernel_model import KernelModel
from clustersim.network.in_flight import TICK_S
from clustersim.parallel.contributors.parameter_server import served_slices
from clustersim.parallel.lower import lower
from clustersim.parallel.optimizer import update_bytes
from clustersim.parallel.step_settings import Assignment, Priority
from clustersim.parallel.training_plan import Plan
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.trace.timeline import Timeline
from tests.unit.engine.factories import instant, make_calibration
from tests.unit.parallel.factories import GPT, embedding_parameters, layer_parameters, local_of, make_plan, servers
from tests.unit.topology.factories import NIC_BYTES_PER_S, PCIE_BYTES_PER_S, make_fabric, make_node

B = NIC_BYTES_PER_S
MODEL = replace(GPT, n_layers=4)
S = 4.0 * MODEL.n_parameters
FIRST = 4.0 * (embedding_parameters(MODEL) + layer_parameters(MODEL))
"""The slice that is pulled first and pushed last."""
UPDATE = 12.0 / 4.0
"""Plain descent in fp32 reads weight and gradient and writes the weight: 12 bytes for 4."""
ROUND_OFF = 1e-9
COUNTS = pytest.mark.parametrize(("n", "k"), [(2, 1), (4, 2), (8, 3), (8, 8), (4, 16)])


def machine(n: int, *, n_dedicated: int = 0, memory_bytes_per_s: float = 4e11, per_node: int = 1, fabric: Fabric | None = None) -> Machine:
    """Return workers that compute in no time, on links without latency."""
    node = instant(make_node(n_accelerators=per_node, n_nics=per_node, accelerators_per_pcie_switch=1))
    host = replace(node.host, memory_bandwidth_bytes_per_s=memory_bytes_per_s)
    accelerator = replace(node.accelerator, peak_flops_per_s={"fp32": 1e40}, memory_bandwidth_bytes_per_s=1e40)
    node = replace(node, host=host, accelerator=accelerator)
    servers = ServerHosts(n_hosts=n_dedicated, host=host, nic=node.nic, n_nics=1) if n_dedicated else None
    calibration = make_calibration()
    return Machine(
        cluster=build_cluster(node, n, without_latency(fabric or make_fabric("single_switch")), servers=servers),
        kernels=kernels(node),
        calibration=calibration,
    )


def kernels(node: Node) -> KernelModel:
    return KernelModel(accelerator=node.accelerator, calibration=make_calibration(), precision="fp32", attention_precision="fp32")


def without_latency(fabric: Fabric) -> Fabric:
    def switch(of: Switch) -> Switch:
        return replace(of, latency_s=0.0)

    return replace(fabric, leaf=switch(fabric.leaf), spine=switch(fabric.spine), cable_latency_s=0.0)


def plan_for(
    on: Machine,
    hosts: range,
    *,
    priority: Priority = "layers",
    assignment: Assignment = "key_ranges",
    reduce_in_node: bool = False,
    overlap: bool = True,
) -> Plan:
    service = servers(*hosts, assignment=assignment, priority=priority, reduce_in_node=reduce_in_node)
    return make_plan(
        MODEL, dp=on.cluster.n_ranks, global_batch_size=on.cluster.n_ranks, precision="fp32", optimizer="sgd", gradient_precision="same",
        bucket_bytes=1.0, service=service, overlap=overlap,
    )  # fmt: skip


def timeline_of(on: Machine, plan: Plan) -> Timeline:
    return replay(lower(plan), on)[0]


def step_s(on: Machine, hosts: range) -> float:
    return timeline_of(on, plan_for(on, hosts)).step_time_s


def dedicated(on: Machine) -> range:
    return range(on.cluster.n_nodes, on.cluster.n_hosts)


def last_update_s(k: int, memory_bytes_per_s: float = 4e11) -> float:
    return UPDATE * FIRST / (k * memory_bytes_per_s)


@COUNTS
def test_with_dedicated_servers_a_step_is_a_pull_a_push_and_the_last_update(n: int, k: int) -> None:
    on = machine(n, n_dedicated=k)

    one_way_s = max(1.0, n / k) * S / B
    assert step_s(on, dedicated(on)) == pytest.approx(2 * one_way_s + last_update_s(k), abs=64 * TICK_S)


@pytest.mark.parametrize("n", [2, 3, 8])
def test_with_a_server_on_every_worker_a_step_moves_what_a_ring_moves(n: int) -> None:
    on = machine(n)

    one_way_s = max((n - 1) / n / B, 1 / PCIE_BYTES_PER_S) * S
    assert step_s(on, range(n)) == pytest.approx(2 * one_way_s + last_update_s(n), abs=64 * TICK_S)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("priority", ["layers", "none"])
def test_without_computation_to_hide_behind_order_and_overlap_change_nothing(priority: Priority, overlap: bool) -> None:
    on = machine(4, n_dedicated=2)

    plan = plan_for(on, dedicated(on), priority=priority, overlap=overlap)
    assert timeline_of(on, plan).step_time_s == pytest.approx(2 * 2 * S / B + last_update_s(2), abs=64 * TICK_S)


@pytest.mark.parametrize("assignment", ["round_robin", "greedy"])
def test_whole_tensors_make_the_fullest_server_the_last(assignment: Assignment) -> None:
    on = machine(8, n_dedicated=3)
    plan = plan_for(on, dedicated(on), assignment=assignment)
    service = plan.strategy.data_parallel.service
    assert service is not None
    (whole,) = served_slices(local_of(plan), service, [(0, MODEL.n_layers)])
    fullest = 4.0 * max(holding.parameters for holding in whole.holdings)
    pulls = [span for span in timeline_of(on, plan).spans if span.name == "pull"]

    assert fullest > S / 3
    assert max(span.end_s for span in pulls) == pytest.approx(8 * fullest / B, abs=64 * TICK_S)


def slowed(on: Machine, layer_s: float) -> Machine:
    """Return the same machine, on which the products of one layer take so long forward."""
    rows, hidden = 256, MODEL.hidden_size
    accelerator = replace(on.cluster.node.accelerator, peak_flops_per_s={"fp32": 24.0 * rows * hidden**2 / layer_s})
    return replace(on, kernels=kernels(replace(on.cluster.node, accelerator=accelerator)))


def durations_s(timeline: Timeline, kind: str) -> list[float]:
    return [span.end_s - span.start_s for span in timeline.spans if span.kind == kind and span.stream == "compute"]


def test_long_passes_hide_all_but_the_first_pull_the_last_push_and_its_update() -> None:
    on = machine(4, n_dedicated=4)

    timeline = timeline_of(slowed(on, 1.0), plan_for(on, dedicated(on)))

    passes_s = sum(durations_s(timeline, "forward") + durations_s(timeline, "backward"))
    assert passes_s > 10 * S / B
    assert timeline.step_time_s == pytest.approx(FIRST / B + passes_s + FIRST / B + last_update_s(4), rel=ROUND_OFF)


@pytest.mark.parametrize("priority", ["layers", "none"])
@pytest.mark.parametrize("layer_s", [1e-6, 1e-4, 3e-4, 1e-3, 1e-2])
def test_a_step_is_the_longest_way_through_pulls_passes_pushes_and_updates(layer_s: float, priority: Priority) -> None:
    n, k, memory_bytes_per_s = 8, 2, 4e12
    on = slowed(machine(n, n_dedicated=k, memory_bytes_per_s=memory_bytes_per_s), layer_s)
    plan = plan_for(on, dedicated(on), priority=priority)
    service = plan.strategy.data_parallel.service
    assert service is not None
    slices = served_slices(local_of(plan), service, [(layer, layer + 1) for layer in range(MODEL.n_layers)])
    sizes = [4.0 * holding.parameters for part in slices for holding in part.holdings]

    timeline = timeline_of(on, plan)

    one_way_s = [n / k * size / B for size in sizes]
    update_s = [UPDATE * size / (k * memory_bytes_per_s) for size in sizes]
    forward_s, backward_s = durations_s(timeline, "forward"), durations_s(timeline, "backward")[::-1]
    if priority == "layers":
        through_s = max(sum(one_way_s[: i + 1]) + sum(forward_s[i:]) for i in range(4))
    else:
        through_s = sum(one_way_s) + sum(forward_s)
    ready_s = [through_s + sum(backward_s[i:]) for i in range(4)]
    added_s = [max(ready_s[j] + sum(one_way_s[i : j + 1]) for j in range(i, 4)) for i in range(4)]
    expected_s = max(added_s[i] + sum(update_s[: i + 1]) for i in range(4))
    assert timeline.step_time_s == pytest.approx(expected_s, abs=64 * TICK_S)


def test_the_update_of_the_tests_is_that_of_the_plan() -> None:
    on = machine(2)

    assert update_bytes(plan_for(on, range(2)).training) == 4.0 * UPDATE

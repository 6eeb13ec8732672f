"""Properties of every step with parameter servers: gradients go up once, parameters come down once, workers keep no optimizer state."""

from __future__ import annotations

from dataclasses import replace
from math import fsum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.engine.simulate import Machine, replay
from clustersim.hardware.models import ServerHosts
from clustersim.parallel.contributors import stage_holds
from clustersim.parallel.lower import lower
from clustersim.parallel.optimizer import update_bytes
from clustersim.parallel.shard import numerics
from clustersim.parallel.stage import stage_of
from clustersim.parallel.training_plan import Plan
from clustersim.program.tasks import Communicate, Compute
from clustersim.topology.cluster_wiring import build_cluster
from tests.unit.engine.factories import make_machine, total_bytes
from tests.unit.parallel.factories import BERT, GPT, LLAMA, make_plan, peak, servers
from tests.unit.topology.factories import make_node

PER_NODE = 4
MODELS = [replace(model, n_layers=4) for model in (GPT, LLAMA, BERT)]


@st.composite
def plans(draw: st.DrawFn) -> tuple[Plan, int, int]:
    """Return a plan with parameter servers, its nodes, and how many servers are dedicated."""
    n_nodes, tp = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 4]))
    n_dedicated = draw(st.integers(0, 5))
    hosts = range(n_nodes, n_nodes + n_dedicated) if n_dedicated else range(draw(st.integers(1, n_nodes)))
    dp = n_nodes * PER_NODE // tp
    service = servers(
        *hosts,
        assignment=draw(st.sampled_from(["key_ranges", "round_robin", "greedy"])),
        priority=draw(st.sampled_from(["layers", "none"])),
        reduce_in_node=draw(st.booleans()),
    )
    plan = make_plan(
        draw(st.sampled_from(MODELS)), dp=dp, tp=tp, global_batch_size=dp * draw(st.integers(1, 3)),
        schedule=draw(st.sampled_from(["naive", "gpipe", "1f1b"])), service=service,
        overlap=draw(st.booleans()), bucket_bytes=draw(st.sampled_from([1.0, 1e7, 1e9])),
        precision=draw(st.sampled_from(["fp32", "bf16"])), gradient_precision=draw(st.sampled_from(["fp32", "same"])),
    )  # fmt: skip
    return plan, n_nodes, n_dedicated


def moved_bytes(plan: Plan, name: str) -> float:
    actions = [task.action for task in lower(plan).tasks if task.action.name == name]
    return fsum(action.collective.bytes for action in actions if isinstance(action, Communicate))


def without_servers(plan: Plan) -> Plan:
    gradients = plan.strategy.data_parallel.changed(algorithm="ring", hosts=())
    return replace(plan, strategy=plan.strategy.changed(data_parallel=gradients))


@given(plans())
@settings(max_examples=60, deadline=None)
def test_every_gradient_is_pushed_once_and_every_parameter_pulled_once(drawn: tuple[Plan, int, int]) -> None:
    plan, _, _ = drawn

    parameters, number = stage_of(plan, 0).weights.total, numerics(plan.training)
    assert moved_bytes(plan, "push") == pytest.approx(parameters * number.gradient_bytes, rel=1e-12)
    assert moved_bytes(plan, "pull") == pytest.approx(parameters * number.element_bytes, rel=1e-12)


@given(plans())
@settings(max_examples=60, deadline=None)
def test_memory_falls_by_the_optimizer_state_and_the_optimizer_s_work_is_gone(drawn: tuple[Plan, int, int]) -> None:
    plan, _, _ = drawn
    own, served = ([hold for hold in stage_holds(stage_of(each, 0)) if hold.bytes] for each in (without_servers(plan), plan))

    assert served == [hold for hold in own if hold.category != "optimizer"]
    assert peak(plan) < peak(without_servers(plan))
    on_accelerators = [task for task in lower(plan).tasks if task.lanes[0].stream == "compute" and isinstance(task.action, Compute)]
    assert {task.action.name for task in on_accelerators} == {"host", "F", "B"}


@given(plans())
@settings(max_examples=25, deadline=None)
def test_the_memories_of_servers_carry_what_is_added_sent_and_updated(drawn: tuple[Plan, int, int]) -> None:
    plan, n_nodes, n_dedicated = drawn

    timeline, _ = replay(lower(plan), machine(n_nodes, n_dedicated))

    service, number = plan.strategy.data_parallel.service, numerics(plan.training)
    assert service is not None
    # Accelerators of one node that hold the same parameters push once where they add up first.
    copies = plan.strategy.dp if not service.reduce_in_node else n_nodes
    parameters = copies * plan.strategy.tp * stage_of(plan, 0).weights.total
    # A lone gradient is written; what others are added to is read with the sum, and written again.
    expected = parameters * ((4 if copies > 1 else 1) * number.gradient_bytes + number.element_bytes)
    expected += plan.strategy.tp * stage_of(plan, 0).weights.total * update_bytes(plan.training)
    assert total_bytes(timeline, "memory") == pytest.approx(expected, rel=1e-9)


def machine(n_nodes: int, n_dedicated: int) -> Machine:
    node = make_node(n_accelerators=PER_NODE, n_nics=1)
    servers = ServerHosts(n_hosts=n_dedicated, host=node.host, nic=node.nic, n_nics=1) if n_dedicated else None
    return replace(make_machine(node, n_nodes), cluster=build_cluster(node, n_nodes, servers=servers))


@given(plans())
@settings(max_examples=25, deadline=None)
def test_a_step_takes_no_less_than_its_passes_and_lasts_until_the_last_update(drawn: tuple[Plan, int, int]) -> None:
    plan, n_nodes, n_dedicated = drawn

    timeline, _ = replay(lower(plan), machine(n_nodes, n_dedicated))

    ends = {span.name: max(each.end_s for each in timeline.spans if each.name == span.name) for span in timeline.spans}
    assert timeline.step_time_s == ends["update"] >= ends["push"] >= ends["B"] >= ends["F"] >= ends["pull"]

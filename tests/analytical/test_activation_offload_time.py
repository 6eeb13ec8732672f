"""Activations on the host: the time of a pass in closed form, bytes over PCIe, and what hosts and accelerators hold.

Of L equal layers that each take t and whose activations each take c over PCIe, two are on the accelerator at a time. The first and the
last layer of a pass run alone, and beside the others the activations of as many layers are copied: a pass takes 2 t + (L - 2) max(t, c).
"""

from __future__ import annotations

from dataclasses import replace
from math import fsum

import pytest

from clustersim.collectives.host import COPY_START_S
from clustersim.engine.simulate import Machine, replay
from clustersim.network.in_flight import TICK_S
from clustersim.parallel.lower import lower
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.stage import stage_of
from clustersim.parallel.stages import model_chunks, orders_of
from clustersim.parallel.training_plan import Offload, Plan
from clustersim.program.holds import FORWARD_TO_BACKWARD, GATHER_TO_LAST_PASS
from clustersim.program.tasks import HostCopy
from clustersim.trace.timeline import Span
from clustersim.workloads.kinds.call import Layer
from clustersim.workloads.kinds.normalization import LinearLayer
from clustersim.workloads.layered import Layered
from tests.unit.engine.factories import instant, make_machine
from tests.unit.parallel.factories import LLAMA, chosen, held, make_plan, peak, peak_in_flight
from tests.unit.topology.factories import PCIE_BYTES_PER_S, make_node

ROUND_OFF = 1e-9
SAMPLES = 4096
AWAY = Offload(activations="host")
SMALL = replace(LLAMA, n_layers=16, hidden_size=64, n_heads=8, n_kv_heads=4, head_dim=8, intermediate_size=192, vocab_size=1024)


def machine() -> Machine:
    return make_machine(instant(make_node(n_accelerators=1, accelerators_per_pcie_switch=1)))


def plan_of(n_layers: int, width: int, **changes: object) -> Plan:
    layers: tuple[Layer, ...] = (LinearLayer(input=(width,), features=width, bias=False),) * n_layers
    model = Layered(name="equal layers", input=(width,), tokens_per_sample=1, layers=layers)
    plan = make_plan(**{"micro_batch_size": SAMPLES, "global_batch_size": SAMPLES, "offload": AWAY, **changes})
    return replace(plan, model=model)


def passes_of(plan: Plan, kind: str) -> list[Span]:
    timeline, _ = replay(lower(plan), machine())
    return [span for span in timeline.spans if span.kind == kind]


def duration_s(span: Span) -> float:
    return span.end_s - span.start_s


@pytest.mark.parametrize("n_layers", [3, 6, 12])
@pytest.mark.parametrize("width", [256, 1024, 65536])
def test_a_pass_takes_the_longer_of_computing_and_copying(n_layers: int, width: int) -> None:
    for kind in ("forward", "backward"):
        first, middle, last = passes_of(plan_of(n_layers, width), kind)
        copies_s = COPY_START_S + (n_layers - 2) * SAMPLES * width * 2.0 / PCIE_BYTES_PER_S

        expected_s = duration_s(first) + max(duration_s(middle), copies_s) + duration_s(last)
        assert last.end_s - first.start_s == pytest.approx(expected_s, abs=64 * TICK_S)
        assert duration_s(middle) == pytest.approx((n_layers - 2) * duration_s(first), rel=ROUND_OFF)


def test_the_cases_are_bound_by_copying_and_by_computing() -> None:
    exposed = [passes[-1].start_s > passes[-2].end_s for passes in (passes_of(plan_of(6, width), "forward") for width in (256, 65536))]

    assert exposed == [True, False]


@pytest.mark.parametrize("schedule", [*SCHEDULES])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_stages_move_every_layer_there_and_back_unless_it_is_used_at_once(schedule: str, recompute: str) -> None:
    n_chunks = SCHEDULES[schedule].n_chunks or 2
    plan = make_plan(SMALL, pp=2, schedule=schedule, virtual_stages=n_chunks, recompute=recompute, global_batch_size=8, offload=AWAY)
    moved = [
        fsum(action.bytes for task in chosen(lower(plan), name) if isinstance(action := task.action, HostCopy))
        for name in ("activations to host", "activations from host")
    ]
    expected = 0.0
    for order, chunks in zip(orders_of(plan.strategy, plan.n_micro_batches), model_chunks(plan.strategy, plan.model.n_layers), strict=True):
        for step, behind in zip(order, (*order[1:], None), strict=True):
            layers = stage_of(plan, 0).activations.kept_by_layer(chunks[step.chunk])
            at_once = behind and behind.goes_back and (behind.micro_batch, behind.chunk) == (step.micro_batch, step.chunk)
            expected += 0.0 if step.kind != "F" else fsum(layers[:-2] if at_once else layers)

    assert moved == pytest.approx([expected, expected], rel=1e-12)
    assert replay(lower(plan), make_machine())[0].step_time_s > 0.0


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "interleaved_1f1b", "zb_h1"])
def test_hosts_hold_what_is_in_flight_and_accelerators_two_layers(schedule: str) -> None:
    n_chunks = SCHEDULES[schedule].n_chunks or 2
    changes: dict[str, object] = {"pp": 2, "schedule": schedule, "virtual_stages": n_chunks, "global_batch_size": 8}
    there, here = make_plan(SMALL, offload=AWAY, **changes), make_plan(SMALL, **changes)

    for stage, chunks in enumerate(model_chunks(there.strategy, there.model.n_layers)):
        layers = [stage_of(there, 0).activations.kept_by_layer(chunk) for chunk in chunks]
        ends = [stage_of(there, 0).activations.end_activation_bytes(chunk) for chunk in chunks]
        in_flight = peak_in_flight(orders_of(there.strategy, there.n_micro_batches)[stage], [1.0] * len(chunks), [0.0] * len(chunks))
        assert peak(there, stage, place="host") == pytest.approx(in_flight * fsum(layers[0]), rel=1e-12)
        assert held(there, stage, interval=GATHER_TO_LAST_PASS) == pytest.approx(2 * layers[0][0], rel=1e-12)
        assert held(there, stage, interval=FORWARD_TO_BACKWARD) == pytest.approx(fsum(ends), rel=1e-12)
        assert held(here, stage, interval=FORWARD_TO_BACKWARD) == pytest.approx(fsum(map(fsum, layers)) + fsum(ends), rel=1e-12)


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
@pytest.mark.parametrize("pp", [1, 2])
def test_activations_leave_beside_sharded_states(zero_stage: int, pp: int) -> None:
    plan = make_plan(SMALL, dp=4, pp=pp, zero_stage=zero_stage, offload=AWAY, no_sync=False, global_batch_size=8)
    program = lower(plan)

    assert len(chosen(program, "activations to host")) > 0
    assert replay(program, make_machine())[0].step_time_s > 0.0

"""Activations on the host: which pass waits for which copy. Times, bytes and memory are in ``tests/analytical``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.engine.simulate import replay
from clustersim.parallel.lower import lower
from clustersim.parallel.stage import stage_of
from clustersim.parallel.training_plan import Offload, Plan
from clustersim.program.tasks import HostCopy, Task
from tests.unit.engine.factories import make_machine
from tests.unit.parallel.factories import GPT, chosen, computes, make_plan, peak, waits_for

AWAY = Offload(activations="host")


def away(**changes: object) -> Plan:
    return make_plan(**{"offload": AWAY, "global_batch_size": 4, **changes})


def size_bytes(task: Task) -> float:
    assert isinstance(task.action, HostCopy)
    return task.action.bytes


def test_without_stages_all_layers_but_two_go_and_come_back() -> None:
    plan = away()
    program = lower(plan)
    layer = stage_of(plan, 0).activations.kept_by_layer(stage_of(plan, 0).chunks[0])[0]

    for name in ("activations to host", "activations from host"):
        assert [size_bytes(task) for task in chosen(program, name)] == [14 * layer] * 4


def test_the_last_layer_waits_until_the_first_ones_have_left() -> None:
    program = lower(away(global_batch_size=1))
    (stored,), (fetched,) = (chosen(program, f"activations {way} host") for way in ("to", "from"))
    first, _, last, back, *_, front = (task for task in computes(program, 0) if task.action.name in ("F", "B"))

    assert first in waits_for(program, stored)
    assert stored in waits_for(program, last)
    assert back in waits_for(program, fetched)
    assert stored in waits_for(program, fetched)
    assert fetched in waits_for(program, front)


def test_micro_batches_that_wait_leave_altogether() -> None:
    program = lower(away(pp=2, schedule="gpipe"))
    stored, fetched = (chosen(program, f"activations {way} host", rank_class=0) for way in ("to", "from"))
    passes = [task for task in computes(program, 0) if task.action.name == "F"]

    # Many layers, the last but one, and the last one; back the other way round. The last micro-batch goes back at once.
    assert [task.micro_batch for task in stored] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]
    assert sorted(task.micro_batch for task in fetched) == [task.micro_batch for task in stored]
    again = [task for task in fetched if task.micro_batch == 0]
    assert size_bytes(stored[0]) == size_bytes(again[2]) == 6 * size_bytes(stored[1])
    # The next pass needs the room of the layer before the last.
    assert stored[1] in waits_for(program, passes[3])
    assert stored[2] in waits_for(program, again[0])


FEW = ({"pp": 16}, {"pp": 8}, {"pp": 4, "stage_layers": (0, 8, 8, 0)}, {"pp": 4, "stage_layers": (1, 7, 7, 1)})


@pytest.mark.parametrize("changes", FEW)
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb_h1"])
def test_stages_of_few_layers_are_copied_too(changes: dict[str, object], schedule: str) -> None:
    plan = away(schedule=schedule, **changes)
    timeline, _ = replay(lower(plan), make_machine(n_nodes=2))

    assert timeline.step_time_s > 0.0


def test_parts_copy_at_once() -> None:
    program = lower(away(dp=4, pp=2), [(0, 1, 2), (3,)])

    assert {len(task.lanes) for task in chosen(program, "activations to host")} == {2}
    assert replay(program, make_machine())[0].step_time_s > 0.0


def test_the_host_holds_them_beside_the_training_state() -> None:
    plan, alone = away(dp=2, zero_stage=1, global_batch_size=8), away(dp=2, global_batch_size=8)
    both = replace(plan, strategy=plan.strategy.changed(offload=Offload(optimizer="host", activations="host")))
    state = replace(plan, strategy=plan.strategy.changed(offload=Offload(optimizer="host")))

    assert peak(alone, place="host") == pytest.approx(sum(stage_of(alone, 0).activations.kept_by_layer(stage_of(alone, 0).chunks[0])))
    assert peak(both, place="host") == pytest.approx(peak(state, place="host") + peak(alone, place="host"), rel=1e-12)


def test_recomputed_layers_leave_their_input() -> None:
    plan = away(recompute="full")

    assert stage_of(plan, 0).activations.kept_by_layer(stage_of(plan, 0).chunks[0]) == (2.0 * 256 * GPT.hidden_size,) * 16

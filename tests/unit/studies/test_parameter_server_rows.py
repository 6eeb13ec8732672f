"""From a row to layers with times, to a program, to a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import load_node
from clustersim.program.tasks import Communicate
from clustersim.studies.parameter_server_rows import (
    SpeedRow,
    mean_error_fraction,
    parameter_server_rows,
    row_program,
    timed_layers,
)
from clustersim.studies.row_sources import SpeedRowSpec, layer_table
from clustersim.topology.build import build_cluster
from tests.rows import rows
from tests.unit.studies.test_row_sources import TEXT


def make_row(**changes: float) -> SpeedRow:
    return SpeedRow(
        **{
            "id": "one",
            "table": "A",
            "model": "vgg16",
            "machine": "box",
            "exchange": "horovod_mpi",
            "gpus": 16,
            "batch": 64,
            "measured": 10.0,
            "predicted": 11.0,
            **changes,
        }
    )


def test_the_time_of_a_step_goes_to_the_layers_by_their_multiply_adds() -> None:
    table = layer_table("vgg16")
    layers = timed_layers(table, 3.0)

    assert sum(layer.forward_s for layer in layers) == pytest.approx(1.0, rel=1e-12)
    assert sum(layer.backward_s for layer in layers) == pytest.approx(2.0, rel=1e-12)
    assert layers[1].forward_s / layers[0].forward_s == pytest.approx(64 / 3, rel=1e-12)
    assert sum(layer.gradient_bytes for layer in layers) == 4.0 * table.parameters


def test_accelerators_fill_node_after_node_and_each_node_serves() -> None:
    cluster = build_cluster(node := load_node("uber-p100-25g"), 4, node.fabric)
    row = SpeedRowSpec(
        id="one", table="A", model="vgg16", machine="box", exchange="distributed_ps_host", gpus=8, batch=64, measured=2.0, alone=1.0
    )

    moved = [task.action.collective for task in row_program(row, cluster).tasks if isinstance(task.action, Communicate)]

    assert {rows(collective.group.members) for collective in moved if collective.op == "push"} == {((0, 4),)}
    assert {rows(collective.group.members) for collective in moved if collective.op == "reduce"} == {((0, 1, 2, 3), (4, 5, 6, 7))}
    assert sorted({collective.servers.hosts for collective in moved if collective.servers}) == [(0,), (1,)]


def test_an_error_has_its_sign_and_the_mean_has_none() -> None:
    fast, slow = make_row(predicted=11.0), make_row(predicted=8.0)

    assert fast.error_fraction == pytest.approx(0.1, rel=1e-12)
    assert slow.error_fraction == pytest.approx(-0.2, rel=1e-12)
    assert mean_error_fraction([fast, slow]) == pytest.approx(0.15, rel=1e-12)


def test_a_machine_that_is_too_small_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "made-up.yaml"
    path.write_text(TEXT.replace("gpus: 2", "gpus: 9"))

    with pytest.raises(ScenarioError) as caught:
        parameter_server_rows([path])

    assert (caught.value.message, caught.value.field) == ("box has 8 accelerators, not 9", "rows.0.gpus")
    assert caught.value.place is not None
    assert caught.value.place.line == 9


def test_an_unknown_node_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "made-up.yaml"
    path.write_text(TEXT.replace("dgx1-p100", "dgx1-p1000"))

    with pytest.raises(ScenarioError) as caught:
        parameter_server_rows([path])

    assert caught.value.field == "machines.box.node"

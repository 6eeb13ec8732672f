"""Parameter server against ring, as measured: speed-ups of published runs, predicted from the time of one accelerator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Final

from clustersim.engine.simulate import Machine, replay
from clustersim.errors import ScenarioError
from clustersim.hardware.calibrations import calibration_for
from clustersim.hardware.catalog import load_node, named
from clustersim.hardware.overrides import node_from_mapping
from clustersim.hardware.schema import NodeChange
from clustersim.kernels.model import KernelModel
from clustersim.program.program import Program
from clustersim.strategy.replicated import TimedLayer, lower_replicas
from clustersim.studies.row_sources import (
    LayerTableSpec,
    SpeedRowSpec,
    SpeedSource,
    exchanges,
    layer_table,
    read_speed_source,
    speed_source_names,
)
from clustersim.topology.build import build_cluster
from clustersim.topology.cluster import Cluster

if TYPE_CHECKING:
    from clustersim.documents.spots import Data

NUMBER_BYTES: Final = 4.0
"""All of these runs keep parameters and gradients in fp32."""
FORWARD_FRACTION: Final = 1.0 / 3.0
"""Of the time of a step: the backward pass has two products, by the input and by the weights, where the forward pass has one."""
PRECISION: Final = "fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedRow:
    """One run, measured and predicted."""

    id: str
    table: str
    model: str
    machine: str
    exchange: str
    gpus: int
    batch: int
    measured: float
    """Speed-up over one accelerator."""
    predicted: float

    @property
    def error_fraction(self) -> float:
        """Predicted over measured speed-up, less one."""
        return self.predicted / self.measured - 1.0


def parameter_server_rows(sources: Sequence[str | Path] = ()) -> tuple[SpeedRow, ...]:
    """Return all rows of some sources, predicted; of all shipped ones when none is named.

    Raises
    ------
    ScenarioError
        When there is no such source, or its file cannot be used.
    """
    return tuple(row for name in sources or speed_source_names() for row in _predicted(read_speed_source(name)))


def mean_error_fraction(rows: Sequence[SpeedRow]) -> float:
    """Return the mean of the absolute errors of some rows."""
    return fmean(abs(row.error_fraction) for row in rows)


def timed_layers(table: LayerTableSpec, step_s: float) -> tuple[TimedLayer, ...]:
    """Return the layers of a model with the time of a step divided among them in proportion to their multiply-adds."""
    return tuple(
        TimedLayer(
            name=name,
            forward_s=FORWARD_FRACTION * step_s * multiply_adds / table.multiply_adds,
            backward_s=(1.0 - FORWARD_FRACTION) * step_s * multiply_adds / table.multiply_adds,
            gradient_bytes=NUMBER_BYTES * parameters,
        )
        for name, (parameters, multiply_adds) in table.layers.items()
    )


def row_program(row: SpeedRowSpec, cluster: Cluster) -> Program:
    """Return one step of a row; accelerators fill node after node, and each node serves parameters."""
    per_node = cluster.node.n_accelerators
    nodes = [range(first, min(first + per_node, row.gpus)) for first in range(0, row.gpus, per_node)]
    layers = timed_layers(layer_table(row.model), row.batch / row.alone)
    return lower_replicas(layers, nodes, exchanges().exchange(row.exchange, hosts=range(len(nodes))))


def _predicted(source: SpeedSource) -> Iterator[SpeedRow]:
    machines = {name: _machine(source, name) for name in source.spec.machines}
    for index, row in enumerate(source.spec.rows):
        machine = machines[row.machine]
        if row.gpus > machine.cluster.n_ranks:
            message = f"{row.machine} has {machine.cluster.n_ranks} accelerators, not {row.gpus}"
            place = source.document.place(("rows", index, "gpus"))
            raise ScenarioError(message, field=f"rows.{index}.gpus", hint="give the machine more nodes", place=place)
        timeline, _ = replay(row_program(row, machine.cluster), machine)
        yield SpeedRow(
            id=row.id,
            table=row.table,
            model=row.model,
            machine=row.machine,
            exchange=row.exchange,
            gpus=row.gpus,
            batch=row.batch,
            measured=row.speed_up,
            predicted=row.gpus * row.batch / row.alone / timeline.step_time_s,
        )


def _machine(source: SpeedSource, name: str) -> Machine:
    spec, document, at = source.spec.machines[name], source.document, ("machines", name)
    named(load_node, spec.node, document, (*at, "node"))
    given = _part(_part(document.data, "machines"), name)
    changes = {key: given[key] for key in NodeChange.model_fields if key in given}
    node = node_from_mapping(spec.node, changes, document, at)
    calibration = calibration_for(node.accelerator)
    kernels = KernelModel(accelerator=node.accelerator, calibration=calibration, precision=PRECISION, attention_precision=PRECISION)
    return Machine(cluster=build_cluster(node, spec.nodes, node.fabric), kernels=kernels, calibration=calibration)


def _part(data: Data, key: str) -> dict[str, Data]:
    part = data[key] if isinstance(data, dict) else None
    return part if isinstance(part, dict) else {}

"""Measured collectives beside predicted ones.

What was promised: half of all times from 1 MiB up within 10 %, of those below within 25 %, and the bus bandwidth of large messages
within 8 % on every cluster, but for those that are named here with the reason. A changed constant that stays within them still
shows, in the golden table.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from statistics import median
from types import MappingProxyType
from typing import Final

import pytest

from clustersim.apps.collective.collective_times import bus_factor
from clustersim.collectives import ALGORITHMS
from clustersim.collectives.library import CollectiveCall, Library
from clustersim.documents.files import data_path
from clustersim.documents.text import read_document
from clustersim.engine.alone import alone
from clustersim.engine.traffic import Traffic
from clustersim.hardware.calibrations import calibration_for
from clustersim.hardware.catalog import load_node, profile_names
from clustersim.hardware.library_costs import CollectiveOp
from clustersim.hardware.models import Node
from clustersim.network.sharing import SharedNetwork
from clustersim.topology.cluster_wiring import build_cluster

MEDIAN_FRACTION: Final = 0.10
MEDIAN_BELOW_FRACTION: Final = 0.25
LARGE_FRACTION: Final = 0.08
MIB: Final = 2**20
LARGE_BYTES: Final = 256 * MIB
"""The largest size of a curve counts as large from here on."""

MEASUREMENTS: Final = data_path("hardware_profiles") / "calibration" / "measurements"
SOURCES: Final = read_document(MEASUREMENTS / "collectives.yaml").data

EXCEPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "gcp-a4-high": "the guide reports 329 GB/s over 8 x 400 Gbit/s, 82 % of the line rate, and no cause",
        "nccl-issue-a100-pair": "a user's report of 86 GB/s, where the same adapters gave another user 91 (nccl-issue-hgx-a100-pair)",
        "nccl-issue-a100-two-nics": "a user's report with NCCL 2.9, whose trees do not reach what the channels of the library of today do",
    }
)
"""Clusters whose large messages are farther off, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One curve: what was measured where."""

    source: str
    op: CollectiveOp
    n_nodes: int
    per_node: int
    algorithm: str = "auto"

    @property
    def n_ranks(self) -> int:
        return self.n_nodes * self.per_node

    def __str__(self) -> str:
        return f"{self.source} {self.op} {self.n_nodes}x{self.per_node}{f' {self.algorithm}' if self.algorithm != 'auto' else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    setting: Setting
    size_bytes: int
    time_s: float

    @property
    def error_fraction(self) -> float:
        """Return by how much the predicted time is too long."""
        return predicted(self)[0] / self.time_s - 1.0

    @property
    def bus_error_fraction(self) -> float:
        """Return by how much the predicted bus bandwidth is too high."""
        return self.time_s / predicted(self)[0] - 1.0


def _read() -> tuple[Measured, ...]:
    with (MEASUREMENTS / "collectives.csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            Measured(
                setting=Setting(
                    source=row["source_id"],
                    op=next(op for op in ALGORITHMS if op == row["op"]),
                    n_nodes=int(row["nodes"]),
                    per_node=int(row["ranks_per_node"]),
                    algorithm=row["algorithm"] or "auto",
                ),
                size_bytes=int(row["bytes"]),
                time_s=float(row["time_s"]),
            )
            for row in csv.DictReader(file)
        )


ROWS: Final = _read()
CURVES: Final = tuple(dict.fromkeys(row.setting for row in ROWS))


def curve(setting: Setting) -> list[Measured]:
    """Return the rows of a curve, by size."""
    return sorted((row for row in ROWS if row.setting == setting), key=lambda row: row.size_bytes)


LARGE: Final = tuple(rows[-1] for setting in CURVES if (rows := curve(setting))[-1].size_bytes >= LARGE_BYTES)


@cache
def node_of(source: str) -> Node:
    """Return the node that a source measured."""
    described = SOURCES[source]
    assert isinstance(described, dict)
    node, nics = load_node(str(described["node"])), described.get("nics")
    return replace(node, n_nics=int(str(nics["count"]))) if isinstance(nics, dict) else node


@cache
def traffic_of(source: str, n_nodes: int) -> Traffic:
    node = node_of(source)
    # Flows of one collective keep out of each other's way, as the libraries and the fabrics see to.
    cluster = build_cluster(node, n_nodes, replace(node.fabric, routing="adaptive"))
    library = Library(cluster=cluster, calibration=calibration_for(node.accelerator).network)
    return Traffic(library=library, network=SharedNetwork(library.bandwidth_bytes_per_s, labels=cluster.tier_index))


@cache
def predicted(row: Measured) -> tuple[float, str]:
    """Return the time in seconds, and what was chosen."""
    setting, node = row.setting, node_of(row.setting.source)
    traffic = traffic_of(setting.source, setting.n_nodes)
    members = tuple(rank for rank in range(setting.n_nodes * node.n_accelerators) if rank % node.n_accelerators < setting.per_node)
    call = CollectiveCall(op=setting.op, group=f"{setting.per_node} of each node", size_bytes=row.size_bytes, algorithm=setting.algorithm)
    operation = traffic.library.operation(call, (members,))
    time_s = alone(traffic.phases_of(operation), traffic.network).duration_s
    return time_s, f"{operation.algorithm} ({operation.protocol})"


def median_error(rows: list[Measured]) -> float:
    return median(abs(row.error_fraction) for row in rows)


# Predictions


def test_half_of_the_times_from_a_mebibyte_up_are_within_a_tenth() -> None:
    assert median_error([row for row in ROWS if row.size_bytes >= MIB]) <= MEDIAN_FRACTION


def test_half_of_the_times_below_a_mebibyte_are_within_a_quarter() -> None:
    assert median_error([row for row in ROWS if row.size_bytes < MIB]) <= MEDIAN_BELOW_FRACTION


def test_the_bus_bandwidth_of_large_messages_is_predicted() -> None:
    farther_off = {row.setting for row in LARGE if abs(row.bus_error_fraction) > LARGE_FRACTION}

    assert {setting.source for setting in farther_off} == set(EXCEPTIONS), farther_off


@pytest.mark.parametrize("size_bytes", [2**28, 2**30])
def test_two_four_and_eight_accelerators_of_a_cube_mesh_reach_what_they_reached(size_bytes: int) -> None:
    rows = {row.setting.per_node: row for row in ROWS if row.setting.source == "vtrain-v100" and row.size_bytes == size_bytes}

    def bus_bytes_per_s(n_ranks: int, time_s: float) -> float:
        return bus_factor("all_reduce", n_ranks) * size_bytes / time_s

    buses = {n: (bus_bytes_per_s(n, row.time_s), bus_bytes_per_s(n, predicted(row)[0])) for n, row in rows.items()}
    assert set(buses) == {2, 4, 8}
    for measured, modelled in buses.values():
        assert modelled == pytest.approx(measured, rel=LARGE_FRACTION)
    # Pairs have one link between them; four close three rings over two links each, and eight six.
    for few, many in ((2, 4), (4, 8)):
        growth = [buses[many][which] / buses[few][which] for which in (0, 1)]
        assert growth[1] == pytest.approx(growth[0], rel=LARGE_FRACTION)


def test_predictions_are_those_of_the_reviewed_table(golden: Callable[[str, str], None]) -> None:
    golden("collectives.md", table())


def table() -> str:
    """Return the errors of all curves as a Markdown table."""
    lines = [
        "| source | operation | ranks | rows | median error from 1 MiB | below | bus bandwidth of the largest |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for setting in CURVES:
        rows = curve(setting)
        operation = setting.op + ("" if setting.algorithm == "auto" else f" ({setting.algorithm})")
        halves = [[row for row in rows if (row.size_bytes >= MIB) is above] for above in (True, False)]
        errors = [f"{100 * median_error(half):.1f} %" if half else "" for half in halves]
        large = f"{100 * rows[-1].bus_error_fraction:+.1f} %, {predicted(rows[-1])[1]}" if rows[-1] in LARGE else ""
        cells = (f"`{setting.source}`", operation, f"{setting.n_nodes} x {setting.per_node}", str(len(rows)), *errors, large)
        lines.append(f"| {' | '.join(cells)} |")
    above, below = ([row for row in ROWS if (row.size_bytes >= MIB) is above] for above in (True, False))
    total = (f"{100 * median_error(above):.1f} %", f"{100 * median_error(below):.1f} %")
    lines.append(f"| all |  |  | {len(ROWS)} | {total[0]} | {total[1]} |  |")
    return "\n".join(lines) + "\n"


# Measurements


def test_every_measurement_has_a_source_and_every_source_measurements() -> None:
    assert {row.setting.source for row in ROWS} == set(SOURCES)
    for source in SOURCES.values():
        assert isinstance(source, dict)
        assert set(source) - {"nics"} == {"title", "url", "node"}
        assert str(source["url"]).startswith("https://") or source["url"] == "not kept"
        assert source["node"] in profile_names("nodes")
        if "nics" in source:
            assert isinstance(source["nics"], dict)
            assert set(source["nics"]) == {"count"}


def test_what_was_measured_can_run_where_it_was() -> None:
    for setting in CURVES:
        node = node_of(setting.source)

        assert setting.n_ranks >= 2, setting
        assert setting.per_node <= node.n_accelerators, setting
        assert setting.algorithm in ("auto", *ALGORITHMS[setting.op]), setting


def test_no_measurement_beats_the_data_sheet() -> None:
    for row in [curve(setting)[-1] for setting in CURVES]:
        setting, node = row.setting, node_of(row.setting.source)
        n_domains = -(-setting.n_nodes // node.scale_up.nodes_per_domain)

        # Whatever the algorithm, each rank, and each node, gets what the others have of the result.
        gets = 1.0 if setting.op in ("broadcast", "reduce", "send_recv") else 1.0 - 1.0 / setting.n_ranks
        inside = node.accelerator.scale_up_bandwidth_bytes_per_s or node.accelerator.pcie_bandwidth_bytes_per_s
        assert row.time_s > gets * row.size_bytes / inside, row.setting
        if n_domains > 1 and setting.op != "all_to_all":
            between = 1.0 if setting.op == "send_recv" else 1.0 - 1.0 / n_domains
            adapters = node.nic.bandwidth_bytes_per_s * (1 if setting.op == "send_recv" else node.n_nics)
            assert row.time_s > between * row.size_bytes / adapters

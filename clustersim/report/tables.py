"""The result of a run as tidy CSV files: SI units in the headers, floats that read back exactly, the same bytes every time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import fsum
from pathlib import Path
from types import MappingProxyType
from typing import Final

from clustersim.documents.csv_text import csv_text
from clustersim.documents.files import replacing
from clustersim.measure.metrics import COMMUNICATION, Metrics, by_dimension
from clustersim.report.facts import MEMORY_PARTS, memory_parts
from clustersim.report.shares import step_seconds
from clustersim.trace.timeline import Timeline

Cell = str | int | float
Row = tuple[Cell, ...]

HEADERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "breakdown.csv": ("part", "dimension", "in_step_time", "time_s", "share_fraction"),
        "memory.csv": ("stage", "category", "size_bytes", "capacity_fraction"),
        "memory_over_time.csv": (
            "rank_class",
            "stage",
            "time_s",
            *(f"{part}_bytes" for part in MEMORY_PARTS),
            "total_bytes",
        ),
        "links.csv": (
            "tier",
            "name",
            "n_links",
            "bandwidth_bytes_per_s",
            "bytes_per_link",
            "bytes_all_links",
            "busy_s",
            "mean_utilisation_fraction",
            "peak_utilisation_fraction",
            "users",
            "contended_s",
            "meetings",
        ),
    }
)
"""Columns of each file. ``in_step_time`` is 0 for communication that is overlapped with computation, else 1. Memory goes in straight
lines from one row of a rank class to the next; where it jumps, two rows have the same time."""


def write_tables(metrics: Metrics, timeline: Timeline, folder: Path) -> None:
    """Write a file for each entry of ``HEADERS`` into ``folder``, which must exist."""
    rows = {
        "breakdown.csv": breakdown_rows(metrics),
        "memory.csv": memory_rows(metrics),
        "memory_over_time.csv": memory_over_time_rows(timeline),
        "links.csv": link_use_rows(timeline),
    }
    for name, header in HEADERS.items():
        write_table(folder / name, header, rows[name])


def breakdown_rows(metrics: Metrics) -> list[Row]:
    """Return one row for each part of the step, communication by dimension; all parts, also those of no length."""
    step_s = metrics.step_time_s
    parts = [
        ("exposed_communication" if key in COMMUNICATION else key, key if key in COMMUNICATION else "", 1, seconds)
        for key, seconds in step_seconds(metrics).items()
    ]
    hidden = [
        ("overlapped_communication", dimension, 0, seconds)
        for dimension, seconds in by_dimension(metrics.overlapped_communication_s).items()
    ]
    return [(*row, row[-1] / step_s if step_s > 0 else 0.0) for row in (*parts, *hidden)]


def memory_rows(metrics: Metrics) -> list[Row]:
    """Return one row for each stage and category of memory, and its peak."""
    capacity = metrics.memory.capacity_bytes
    return [
        (stage.stage, category, size, size / capacity if capacity > 0 else 0.0)
        for stage in metrics.memory.by_stage
        for category, size in (*memory_parts(stage).items(), ("peak", stage.peak_bytes))
    ]


def memory_over_time_rows(timeline: Timeline) -> list[Row]:
    """Return a row for each moment at which the memory of a rank of some class changes its course."""
    rows: list[Row] = []
    for curve in timeline.memory:
        rank_class = timeline.rank_classes[curve.rank_class]
        columns = (curve.time_s, *curve.parts_bytes.values(), curve.total_bytes)
        rows += [(rank_class.name, rank_class.stage, *row) for row in zip(*columns, strict=True)]
    return rows


def link_use_rows(timeline: Timeline) -> list[Row]:
    """Return one row for each group of equal links."""
    return [
        (
            link.tier,
            link.name,
            link.n_links,
            link.bandwidth_bytes_per_s,
            link.bytes,
            link.bytes * link.n_links,
            link.busy_s,
            link.bytes / link.bandwidth_bytes_per_s / timeline.step_time_s if timeline.step_time_s > 0 else 0.0,
            link.peak_utilisation,
            "; ".join(link.users),
            fsum(meeting.seconds for meeting in link.meetings),
            "; ".join(" + ".join(meeting.names) for meeting in link.meetings),
        )
        for link in timeline.links
    ]


def write_table(path: Path, header: tuple[str, ...], rows: Iterable[tuple[Cell | None, ...]]) -> None:
    """Write one CSV file; a cell that is None stays empty."""
    with replacing(path) as fresh:
        fresh.write_text(csv_text([header, *rows]), encoding="utf-8", newline="")

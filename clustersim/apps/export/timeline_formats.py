"""Formats in which the timeline of a run is written for other tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from clustersim.apps.export.chakra_export import write_chakra
from clustersim.apps.export.simai_export import write_simai
from clustersim.apps.run.result import Result
from clustersim.apps.serve.serving_result import ServingResult
from clustersim.apps.study.duckdb_file import write_by_duckdb
from clustersim.documents.csv_text import csv_cell
from clustersim.documents.files import beside, replacing
from clustersim.errors import ScenarioError
from clustersim.parallel.lower import lower
from clustersim.program.program import Program
from clustersim.program.tasks import Action, Collective, Communicate, Compute, Transfer, collectives_in
from clustersim.report.chrome import write_trace
from clustersim.report.kineto import Call, write_kineto
from clustersim.report.serving_summary import write_serving_trace, write_steps

_TYPES: Final = {"micro_batch": "BIGINT", "chunk": "BIGINT", "step": "BIGINT"}
_NUMBERS: Final = ("start_s", "end_s", "bytes", "flops")


def _csv(result: Result, path: Path) -> None:
    from pandas.api.types import is_numeric_dtype

    frame = result.spans.to_frame()
    for column in frame.columns:
        if not is_numeric_dtype(frame[column]):
            # Few names stand in many rows.
            frame[column] = frame[column].map({name: csv_cell(name) for name in frame[column].unique()})
    with replacing(path) as fresh:
        frame.to_csv(fresh, index=False, lineterminator="\n")


def _parquet(result: Result, path: Path) -> None:
    table = beside(path, ".csv")
    frame = result.spans.to_frame()
    types = {name: "DOUBLE" if name in _NUMBERS else _TYPES.get(name, "VARCHAR") for name in frame.columns}
    try:
        frame.to_csv(table, index=False, lineterminator="\n")
        with replacing(path) as fresh:
            write_by_duckdb(table, fresh, types, "parquet")
    except ImportError as error:
        raise ScenarioError("DuckDB is not installed", field="--as", hint="pip install 'clustersim[store]'") from error
    finally:
        table.unlink(missing_ok=True)


def _kineto(result: Result, path: Path) -> None:
    path.mkdir(exist_ok=True)
    program = lower(result.built.plan)
    alike = len(program.rank_classes) == len(result.spans.rank_classes)
    write_kineto(result.spans, path, _calls(program) if alike else (), result.built.cluster.node.accelerator.name)


def _calls(program: Program) -> list[dict[tuple[str, str, int], Call]]:
    """Return the collectives and sends of the representative rank of each class, as its spans and slices name them."""
    found: list[dict[tuple[str, str, int], Call]] = [{} for _ in program.rank_classes]
    groups: dict[tuple[int, ...], int] = {}
    for task in program.tasks:
        for place in {lane.rank_class for lane in task.lanes}:
            rank = program.rank_classes[place].representative_rank
            for name, op, members, dimension, size in _moved(task.action, rank):
                number = groups.setdefault(members, len(groups) + 1)
                found[place].setdefault((name, dimension, round(size)), Call(op, number, members, dimension))
    return found


def _moved(action: Action, rank: int) -> Iterator[tuple[str, str, tuple[int, ...], str, float]]:
    """Yield name, operation, ranks, dimension and bytes of what a rank sends and receives in a task."""
    match action:
        case Compute():
            for collective in (each for block in action.blocks for item in block.body for each in collectives_in(item)):
                yield (
                    collective.op.replace("_", "-"),
                    collective.op,
                    _members(collective, rank),
                    collective.group.dimension,
                    collective.bytes,
                )
        case Communicate():
            collective = action.collective
            if collective.servers is None:
                yield action.name, collective.op, _members(collective, rank), collective.group.dimension, collective.bytes
        case Transfer():
            for source, destination in action.pairs[(action.pairs == rank).any(axis=1)].tolist()[:1]:
                op = "send" if source == rank else "recv"
                yield action.name, op, (source, destination), action.dimension, action.bytes
        case _:
            return


def _members(collective: Collective, rank: int) -> tuple[int, ...]:
    members = collective.group.members
    return tuple(members[(members == rank).any(axis=1)][0].tolist())


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """One format."""

    name: str
    """Name of the file or the folder, where none is given."""
    trained: Callable[[Result, Path], None]
    served: Callable[[ServingResult, Path], None] | None = None

    def write(self, result: Result | ServingResult, path: Path) -> None:
        """Write a run.

        Raises
        ------
        ScenarioError
            When it cannot be written so.
        """
        if isinstance(result, Result):
            self.trained(result, path)
        elif self.served is not None:
            self.served(result, path)
        else:
            others = " or ".join(name for name, form in FORMATS.items() if form.served is not None)
            raise ScenarioError("a serving run has no operators for it", field="--as", hint=f"use {others}")


FORMATS: Final[Mapping[str, ExportFormat]] = MappingProxyType(
    {
        "chrome": ExportFormat(
            "trace.json.gz",
            lambda result, path: write_trace(result.spans, path),
            lambda result, path: write_serving_trace((result.run.steps, result.run.decode_steps), len(result.run.replicas), path),
        ),
        "kineto": ExportFormat("kineto", _kineto),
        "csv": ExportFormat("timeline.csv", _csv, lambda result, path: write_steps((result.run.steps, result.run.decode_steps), path)),
        "parquet": ExportFormat("timeline.parquet", _parquet),
        "chakra": ExportFormat("chakra", write_chakra),
        "simai": ExportFormat("workload.txt", write_simai),
    }
)
"""Formats by name; kineto and chakra fill a folder."""

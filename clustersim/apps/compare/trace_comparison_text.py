"""A prediction beside traces as tables for people, as Markdown, CSV and plain data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from clustersim.apps.compare.kernel_names import IDLE, UNKNOWN, ClassTime, StepKernels
from clustersim.apps.compare.trace_comparison import TraceComparison
from clustersim.config.yaml_text import plain
from clustersim.documents.csv_text import csv_text as csv_of
from clustersim.report.text_tables import NOTHING, TextTable, signed
from clustersim.units.quantity import format_quantity

SCHEMA_VERSION: Final = 1
N_NAMED: Final = 3
"""Kernels in no class that are named."""
_LONGEST: Final = 60
"""Characters of the name of a kernel."""
STEP_ROWS: Final = (
    ("step", "step_s"),
    ("computing", "computing_s"),
    ("exposed communication and copies", "exposed_s"),
    (IDLE, "idle_s"),
)
"""Rows of the first table, and the attributes that they show."""


def headline(found: TraceComparison) -> str:
    """Return the step time, measured and predicted, in one sentence."""
    measured_s, predicted_s = found.measured.step_s, found.predicted.step_s
    markers = found.traces[0].markers
    steps = markers[0] if len(markers) == 1 else f"mean of {len(markers)} steps, {markers[0]} to {markers[-1]}"
    ranks = f"rank {found.ranks[0]}" if len(found.ranks) == 1 else f"mean of {len(found.ranks)} ranks"
    change = signed(predicted_s / measured_s - 1.0)
    return f"A step takes {_time(measured_s)} measured ({ranks}, {steps}) and {_time(predicted_s)} predicted ({change})."


def tables(found: TraceComparison) -> tuple[TextTable, TextTable]:
    """Return where the step goes, and the classes of kernels."""
    columns = ("", ">measured", ">predicted", ">difference of step")
    rows = [(name, *_pair(found, getattr(found.measured, key), getattr(found.predicted, key))) for name, key in STEP_ROWS]
    classes = [
        (
            each.name,
            *_pair(found, each.measured.seconds, each.predicted.seconds),
            _count(each.measured),
            _count(each.predicted),
            each.because,
        )
        for each in found.classes
    ]
    return (
        TextTable(heading="Where the step goes", columns=columns, rows=tuple(rows)),
        TextTable(
            heading="Classes of kernels and collectives, which may run beside each other",
            columns=("class", *columns[1:], ">kernels", ">predicted", "explained by"),
            rows=tuple(classes),
        ),
    )


def notes(found: TraceComparison) -> Iterator[str]:
    """Yield the remarks for a reader, line by line."""
    yield from found.notes
    if found.unknown:
        seconds = sum(found.unknown.values())
        longest = "; ".join(name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..." for name in list(found.unknown)[:N_NAMED])
        share = f"{100 * seconds / found.measured.step_s:.1f} % of the step"
        n = len(found.unknown)
        named = "name of kernels is" if n == 1 else "names of kernels are"
        yield f"{n} {named} {UNKNOWN} ({share}), longest: {longest}; add them with --names FILE"


def markdown(found: TraceComparison) -> str:
    """Return all of it as Markdown."""
    told = [f"## {table.heading}\n\n{table.markdown()}" for table in tables(found)]
    blocks = [
        f"# {found.scenario}, measured and predicted",
        headline(found),
        *told,
        *(f"{note[:1].upper()}{note[1:]}." for note in notes(found)),
    ]
    return "\n\n".join(blocks) + "\n"


def csv_text(found: TraceComparison) -> str:
    """Return all of it as tidy CSV, in seconds."""
    head = ["kind", "name", "measured_s", "predicted_s", "of_step", "measured_kernels", "predicted_kernels", "explained_by"]
    step_s = found.measured.step_s
    rows: list[list[str | float | None]] = []
    for name, key in STEP_ROWS:
        measured_s, predicted_s = getattr(found.measured, key), getattr(found.predicted, key)
        rows.append(["step", name, measured_s, predicted_s, (predicted_s - measured_s) / step_s, None, None, None])
    for each in found.classes:
        times = [each.measured.seconds, each.predicted.seconds, each.of_step]
        rows.append(["class", each.name, *times, each.measured.n_kernels, each.predicted.n_kernels, each.because or None])
    return csv_of([head, *rows])


def document(found: TraceComparison) -> dict[str, object]:
    """Return all of it as plain data, for JSON."""
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario": found.scenario,
        "traces": [
            {"file": each.file, "rank": rank, "steps": list(each.markers)} for each, rank in zip(found.traces, found.ranks, strict=True)
        ],
        "measured": _times(found.measured),
        "predicted": _times(found.predicted),
        "classes": plain(found.classes),
        "unknown_s": dict(found.unknown),
        "notes": list(notes(found)),
    }


def _times(step: StepKernels) -> dict[str, float]:
    return {key: getattr(step, key) for _, key in STEP_ROWS}


def _pair(found: TraceComparison, measured_s: float, predicted_s: float) -> tuple[str, str, str]:
    share = (predicted_s - measured_s) / found.measured.step_s
    return _time(measured_s), _time(predicted_s), signed(share)


def _time(seconds: float) -> str:
    return format_quantity(seconds, "s", 3) if seconds > 0.0 else NOTHING


def _count(time: ClassTime) -> str:
    return f"{time.n_kernels:,.0f}" if time.n_kernels else NOTHING

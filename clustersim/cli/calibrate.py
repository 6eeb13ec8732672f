"""``clustersim measure`` and ``clustersim calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clustersim.apps.calibrate.document import worded
from clustersim.apps.calibrate.fit_accelerator import Calibrated, CalibrationRequest, PartResult, calibrate, write_calibration
from clustersim.apps.calibrate.measured_folder import script
from clustersim.apps.calibrate.nccl_tests import Ranks
from clustersim.cli.options import JsonOption, OutOption, named_file
from clustersim.cli.terminal import notice, print_table, write_json, write_lines, write_out
from clustersim.cli.watching import watched
from clustersim.config.yaml_text import plain
from clustersim.documents.files import check_folder, write_text
from clustersim.documents.text import Data
from clustersim.errors import EXIT_OK
from clustersim.units.divisors import count_text


def calibrate_command(
    *,
    accelerator: Annotated[str, typer.Option(metavar="NAME", help="The shipped accelerator that was measured.")],
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Calibration file to write, such as mine.yaml.")],
    base: Annotated[
        str | None, typer.Option(metavar="GENERATION", help="Shipped calibration, or a file, to start from; default: the accelerator's.")
    ] = None,
    gemm: Annotated[list[str] | None, typer.Option(metavar="CSV", help="Measured matrix products. Repeatable.")] = None,
    attention: Annotated[list[str] | None, typer.Option(metavar="CSV", help="Measured fused attention. Repeatable.")] = None,
    nccl: Annotated[list[str] | None, typer.Option(metavar="FILE", help="nccl-tests as text or JSON, or a CSV. Repeatable.")] = None,
    trace: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Trace of the PyTorch profiler or of Nsight Systems. Repeatable.")
    ] = None,
    steps: Annotated[list[str] | None, typer.Option(metavar="YAML", help="Whole steps, as in published sources. Repeatable.")] = None,
    measured: Annotated[
        list[str] | None, typer.Option(metavar="FOLDER", help="Output folder of the script of `measure`. Repeatable.")
    ] = None,
    node: Annotated[str | None, typer.Option(metavar="NAME", help="Shipped node of the collectives.")] = None,
    nodes: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Number of nodes of the collectives, if their files do not give it.")
    ] = None,
    ranks_per_node: Annotated[int | None, typer.Option(metavar="N", min=1, help="Ranks in each of these nodes.")] = None,
    algorithm: Annotated[
        str | None, typer.Option(metavar="NAME", help="Algorithm of collectives whose files name none (NCCL_ALGO), such as ring.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Device of traces and nccl-tests, such as a100; default: the one they name.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Fit a calibration file to your own measurements.

    Show errors before and after.
    """
    request = CalibrationRequest(
        accelerator=accelerator,
        base=base,
        gemm=tuple(gemm or ()),
        attention=tuple(attention or ()),
        nccl=tuple(nccl or ()),
        trace=tuple(trace or ()),
        steps=tuple(steps or ()),
        measured=tuple(measured or ()),
        node=node,
        ranks=Ranks(n_nodes=nodes, per_node=ranks_per_node),
        algorithm=algorithm,
        device=device,
    )
    path = named_file(out, (".yaml",), "--out")
    with watched():
        found = calibrate(request, path.stem)
    write_calibration(found, path)
    if json:
        write_json(document(found))
    else:
        _print(found)
    for line in (*(f"note: {each}" for each in found.notices), *(f"warning: {each}" for each in found.doubts)):
        notice(line)
    notice(f"wrote {path}; use it with cluster.calibration: {path.name}")
    return EXIT_OK


def _print(found: Calibrated) -> None:
    write_out(f"{headline(found)}\n")
    if found.parts:
        write_out("\nErrors of predicted times\n")
        print_table(ERROR_COLUMNS, list(map(_error_row, found.parts)))
        for part in found.parts:
            write_lines(f"  worst of {part.name} after: {_percent(part.worst_error_fraction, signed=True)}, {part.worst}")
    write_out("\nConstants\n")
    print_table(CONSTANT_COLUMNS, _constant_rows(found))
    write_lines("", f"Not moved by these measurements, and kept from {found.base}: {', '.join(found.kept_sections) or 'nothing'}")


SCHEMA_VERSION = 1
ERROR_COLUMNS = ("part", ">measurements", ">mean before", ">mean after", ">median before", ">median after", ">bias after")
CONSTANT_COLUMNS = ("constant", ">before", ">after", ">change", "from")


def _constant_rows(found: Calibrated) -> list[tuple[str, ...]]:
    """Return a row for each constant that was measured."""
    return [
        (
            change.name,
            worded(change.name, change.before),
            worded(change.name, change.after),
            f"{100 * (change.after / change.before - 1):+.1f} %" if change.before else "",
            change.part,
        )
        for change in found.changes
    ]


def headline(found: Calibrated) -> str:
    """Return what was calibrated, and from what."""
    n_files = sum(len(part.files) for part in found.parts)
    n_traces = len(found.read_off)
    fitted = [f"fitted to {count_text(n_files, 'file')}"] if n_files else []
    read = [f"read off {count_text(n_traces, 'trace')}"] if n_traces else []
    return f"{found.accelerator} ({found.generation}), {' and '.join([*read, *fitted])} from the constants of {found.base}"


def document(found: Calibrated) -> dict[str, Data]:
    """Return the JSON document: errors and constants before and after, in SI units."""
    return {
        "schema_version": SCHEMA_VERSION,
        "name": found.name,
        "accelerator": found.accelerator,
        "generation": found.generation,
        "base": found.base,
        "read_off": list(found.read_off),
        "parts": plain(found.parts),
        "constants": plain(found.changes),
        "kept": list(found.kept),
        "doubts": list(found.doubts),
        "notices": list(found.notices),
    }


def _error_row(part: PartResult) -> tuple[str, ...]:
    before, after = part.before, part.after
    return (
        part.name,
        str(after.n_measurements),
        _percent(before.mean_absolute_error_fraction),
        _percent(after.mean_absolute_error_fraction),
        _percent(before.median_absolute_error_fraction),
        _percent(after.median_absolute_error_fraction),
        _percent(after.mean_error_fraction, signed=True),
    )


def _percent(fraction: float, *, signed: bool = False) -> str:
    return f"{100 * fraction:+.1f} %" if signed else f"{100 * fraction:.1f} %"


def measure_command(
    *,
    out: OutOption = None,
) -> int:
    """Write a script of microbenchmarks for one node.

    The script needs only PyTorch; `calibrate --measured` reads its output.
    """
    if out is None:
        write_out(script())
        return EXIT_OK
    check_folder(Path(out))
    write_text(Path(out), script())
    notice(f"wrote {out}; run it on a node with: python {out}")
    return EXIT_OK

"""Runs that are kept in a folder, for a list of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clustersim.apps.compare.run_directories import RESULTS
from clustersim.documents.json_text import read_json
from clustersim.documents.spots import Data
from clustersim.errors import Place, ScenarioError
from clustersim.units.quantity import format_quantity

COLUMNS: Final = ("run", "written", ">GPUs", ">step", ">MFU", ">tokens/s", "changes")
_MANIFEST: Final = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """One run directory; figures that its kind of run does not have are None."""

    folder: str
    written_at: str
    gpus: int | None
    step_time_s: float | None
    mfu: float | None
    tokens_per_s: float | None
    changes: tuple[str, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        """Row of a table."""
        return (
            self.folder,
            self.written_at[:16].replace("T", " "),
            "-" if self.gpus is None else f"{self.gpus:,}",
            "-" if self.step_time_s is None else format_quantity(self.step_time_s, "s"),
            "-" if self.mfu is None else f"{100 * self.mfu:.1f} %",
            "-" if self.tokens_per_s is None else f"{self.tokens_per_s:,.0f}",
            ", ".join(self.changes),
        )


def kept_runs(folder: Path, tell: Callable[[str], None]) -> list[KeptRun]:
    """Return the complete runs below a folder, the latest first; those that cannot be read are told and left out.

    Raises
    ------
    ScenarioError
        When there is no such folder.
    """
    if not folder.is_dir():
        raise ScenarioError(
            "there is no such folder", place=Place(file=str(folder)), hint="name the folder of 'run', which is runs unless --out says so"
        )
    found: list[KeptRun] = []
    for path in sorted(folder.rglob(_MANIFEST)):
        if (path.parent / RESULTS).is_file():
            try:
                found.append(_kept(path.parent))
            except ScenarioError as error:
                tell(f"left out: {error}")
    return sorted(found, key=lambda run: run.written_at, reverse=True)


def _kept(folder: Path) -> KeptRun:
    manifest, results = (_mapping(folder / name) for name in (_MANIFEST, RESULTS))
    gpus, changes = results.get("gpus"), manifest.get("overrides")
    return KeptRun(
        folder=str(folder),
        written_at=str(manifest.get("written_at", "")),
        gpus=gpus if isinstance(gpus, int) else None,
        step_time_s=_number(results, "step_time_s"),
        mfu=_number(results, "mfu"),
        tokens_per_s=_number(results, "tokens_per_s", "total_tokens_per_s"),
        changes=tuple(map(str, changes)) if isinstance(changes, Sequence) else (),
    )


def _mapping(path: Path) -> Mapping[str, Data]:
    data = read_json(str(path))[2]
    if not isinstance(data, dict):
        raise ScenarioError("is no document of a run", place=Place(file=str(path)), hint="run it again")
    return data


def _number(results: Mapping[str, Data], *names: str) -> float | None:
    values = (results.get(name) for name in names)
    return next((float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)), None)

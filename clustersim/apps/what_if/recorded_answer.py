"""Step times of a recorded job without stragglers, and with other durations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

from clustersim.apps.what_if.cases import Case, parse_case
from clustersim.apps.what_if.recorded_job import Duration, RecordedJob, RecordedOperation, check_order, recorded_job
from clustersim.apps.what_if.records_file import COMPUTE, read_records
from clustersim.documents.check import choices_hint
from clustersim.documents.spots import Data
from clustersim.errors import Place, ScenarioError
from clustersim.report.facts import percent_text
from clustersim.units.quantity import format_quantity

SCHEMA_VERSION: Final = 1
EVEN: Final = "even"
ALL: Final = "all"
NO_STRAGGLERS: Final = "no stragglers"
LEAST: Final = 0.001
"""Share of the step from which on a single kind of operation or stage without stragglers is told."""
COLUMNS: Final = ("case", ">step", ">change")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCase:
    """One case, and the mean of its steps."""

    name: str
    changes: Mapping[str, Data]
    step_times_s: tuple[float, ...]

    @property
    def step_time_s(self) -> float:
        """Mean over steps, in seconds."""
        return fmean(self.step_times_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAnswer:
    """A recorded job, replayed as it was and with changes."""

    file: str
    n_ranks: int
    steps: tuple[int, ...]
    recorded_s: tuple[float, ...]
    """Time of each step as it was recorded, delays of launches included."""
    replayed: RecordedCase
    even: RecordedCase
    """Without stragglers."""
    parts: tuple[RecordedCase, ...]
    """Without the stragglers of one kind of operation or of one stage, the shortest step first."""
    asked: tuple[RecordedCase, ...]

    def headline(self) -> str:
        """Return in one sentence what stragglers cost."""
        share = 1.0 - self.even.step_time_s / self.replayed.step_time_s
        steps = "one step" if len(self.steps) == 1 else f"mean of {len(self.steps)} steps"
        return (
            f"A step of {self.n_ranks} ranks takes {_time(fmean(self.recorded_s))} recorded ({steps}), {_time(self.replayed.step_time_s)} "
            f"replayed, and {_time(self.even.step_time_s)} without stragglers, which cost {percent_text(share)}."
        )

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row for each case."""
        base_s = self.replayed.step_time_s
        told = [each for each in self.parts if abs(each.step_time_s / base_s - 1.0) >= LEAST]
        cases = (self.replayed, self.even, *told, *self.asked)
        return [(each.name, _time(each.step_time_s), _change(each.step_time_s / base_s - 1.0)) for each in cases]

    def to_dict(self) -> dict[str, object]:
        """Return the document of ``what-if --json``."""
        cases = (self.replayed, self.even, *self.parts, *self.asked)
        base_s = self.replayed.step_time_s
        return {
            "schema_version": SCHEMA_VERSION,
            "file": self.file,
            "ranks": self.n_ranks,
            "steps": list(self.steps),
            "recorded_s": list(self.recorded_s),
            "cases": [
                {
                    "name": each.name,
                    "changes": dict(each.changes),
                    "step_time_s": each.step_time_s,
                    "relative": each.step_time_s / base_s - 1.0,
                    "step_times_s": list(each.step_times_s),
                }
                for each in cases
            ],
        }


def answered_records(source: str, cases: Sequence[str] = ()) -> RecordedAnswer:
    """Return the step times of a recorded job without stragglers, and in some cases.

    Parameters
    ----------
    cases
        ``name:key=value,key=value`` texts: a factor on the time of an operation, of ``compute`` or of ``communication``; or ``even``
        with what has no stragglers: ``all``, one of these, or ``stage 3``.

    Raises
    ------
    ScenarioError
        When records or a case cannot be used.
    """
    job = recorded_job(read_records(source), Path(source).name)
    asked = [parse_case(text) for text in cases]
    changed = [_duration(job, case) for case in asked]
    replayed = RecordedCase(name="as recorded", changes={}, step_times_s=tuple(check_order(job, source)))
    parts = [_case(job, Case(name=f"no stragglers in {each}", changes={EVEN: each})) for each in _parts(job)]
    return RecordedAnswer(
        file=source,
        n_ranks=len(job.rank_classes),
        steps=tuple(step.number for step in job.steps),
        recorded_s=tuple(step.recorded_s for step in job.steps),
        replayed=replayed,
        even=_case(job, Case(name=NO_STRAGGLERS, changes={EVEN: ALL})),
        parts=tuple(sorted(parts, key=lambda each: each.step_time_s)),
        asked=tuple(
            RecordedCase(name=case.name, changes=case.changes, step_times_s=tuple(job.step_times_s(duration)))
            for case, duration in zip(asked, changed, strict=True)
        ),
    )


def _case(job: RecordedJob, case: Case) -> RecordedCase:
    return RecordedCase(name=case.name, changes=case.changes, step_times_s=tuple(job.step_times_s(_duration(job, case))))


def _stages(job: RecordedJob) -> list[str]:
    return [f"stage {stage}" for stage in sorted({rank_class.stage for rank_class in job.rank_classes})]


def _parts(job: RecordedJob) -> list[str]:
    return [*job.even_s, *_stages(job)]


def _is_part(operation: RecordedOperation, part: str) -> bool:
    """Return whether an operation is of a kind, or all of it on one stage."""
    kinds = (ALL, operation.name, "compute" if operation.name in COMPUTE else "communication")
    return part in kinds or (len(operation.stages) == 1 and part == f"stage {operation.stages[0]}")


def _duration(job: RecordedJob, case: Case) -> Duration:
    """Return the durations of a case."""
    place = Place(file=f"--case {case.name}")
    kinds = ["compute", "communication", *job.even_s]
    factors: dict[str, float] = {}
    for key, value in case.changes.items():
        if key == EVEN:
            if value not in (ALL, *kinds, *_stages(job)):
                hint = choices_hint(str(value), [ALL, *kinds, *_stages(job)])
                raise ScenarioError(f"'{value}' is no part of the job", field=key, hint=hint, place=place)
        elif key not in kinds:
            raise ScenarioError(f"records have no '{key}'", field=key, hint=choices_hint(key, [EVEN, *kinds]), place=place)
        elif not isinstance(value, int | float) or isinstance(value, bool) or value < 0.0:
            hint = "give a factor on its time, such as 0.5"
            raise ScenarioError(f"'{value}' is no factor", field=key, hint=hint, place=place)
        else:
            factors[key] = float(value)
    even = case.changes.get(EVEN)

    def seconds(operation: RecordedOperation) -> float:
        found = job.even(operation) if even is not None and _is_part(operation, str(even)) else operation.own_s
        for part, factor in factors.items():
            found *= factor if _is_part(operation, part) else 1.0
        return found

    return seconds


def _time(seconds: float) -> str:
    return format_quantity(seconds, "s", 4)


def _change(fraction: float) -> str:
    return "" if fraction == 0.0 else f"{100 * fraction:+.1f} %"

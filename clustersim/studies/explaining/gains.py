"""What changes of a scenario gain, each found by replaying it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from clustersim.errors import InfeasibleError, ScenarioError
from clustersim.progress import advanced, phase
from clustersim.report.deciding import Decision, is_shorter
from clustersim.scenario.bounds.run import run_bound
from clustersim.scenario.build import build
from clustersim.scenario.load import Source, checked_scenario
from clustersim.scenario.overriding import Override, parse_override
from clustersim.scenario.result import Result
from clustersim.scenario.run import run_built, seeded
from clustersim.scenario.simulate import memory_report
from clustersim.studies.explaining.candidates import Candidate

LEAST: Final = 1e-3
"""Share of the step from which on a gain is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """One change that shortens the step."""

    change: Candidate
    step_time_s: float
    saved_s: float
    peak_bytes: float
    """Of the fullest accelerator."""
    better_than_base: Decision | None
    """Whether it is shorter, as far as the error bars tell; None without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    """All that were looked for."""

    best: tuple[Gain, ...]
    """Of each family the best, the largest gain first."""
    n_tried: int
    n_impossible: int
    """Contradict the scenario."""
    n_misfits: int
    """Could be faster, and need more memory than there is."""


def gains(source: Source, changes: Sequence[Override], base: Result, tried: Sequence[Candidate]) -> Gains:
    """Return what each of some changes gains over a run, replayed with the same seed.

    A change is not replayed where closed forms say that it does not fit in memory, or that no step of it can be short enough to be the
    best of its family: a step of many ranks takes seconds to replay.

    Parameters
    ----------
    source
        The scenario as it was written.
    changes
        Of the run itself.
    """
    best: dict[str, Gain] = {}
    n_impossible = n_misfits = 0
    with phase("replay changes"):
        for number, candidate in enumerate(tried):
            advanced(number, len(tried))
            known = best.get(candidate.family)
            enough_s = min(known.step_time_s if known else inf, (1.0 - LEAST) * base.step_time_s)
            try:
                built = seeded(build(checked_scenario(source, (*changes, *map(parse_override, candidate.overrides)))), base.seed)
                if run_bound(built, base.seed).bound_s >= enough_s:
                    continue
                if base.metrics.memory.fits and not memory_report(built.plan, built.cluster).fits:
                    n_misfits += 1
                    continue
                metrics = run_built(built, seed=base.seed).metrics
            except (ScenarioError, InfeasibleError):
                n_impossible += 1
                continue
            if metrics.step_time_s < enough_s:
                best[candidate.family] = Gain(
                    change=candidate,
                    step_time_s=metrics.step_time_s,
                    saved_s=base.step_time_s - metrics.step_time_s,
                    peak_bytes=metrics.memory.peak_bytes,
                    better_than_base=is_shorter(metrics, base.metrics),
                )
    ordered = sorted(best.values(), key=lambda gain: -gain.saved_s)
    return Gains(best=tuple(ordered), n_tried=len(tried), n_impossible=n_impossible, n_misfits=n_misfits)

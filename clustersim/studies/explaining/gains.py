"""What changes of a scenario gain, each found by replaying it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from clustersim.errors import InfeasibleError, ScenarioError
from clustersim.report.metrics import Metrics
from clustersim.scenario.build import build
from clustersim.scenario.load import Source, checked_scenario
from clustersim.scenario.overriding import Override, parse_override
from clustersim.scenario.result import Result
from clustersim.scenario.run import run_built
from clustersim.studies.explaining.candidates import Candidate

LEAST: Final = 1e-3
"""Share of the step from which on a gain is told."""

OnCandidate = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """One change that shortens the step."""

    change: Candidate
    step_time_s: float
    saved_s: float
    peak_bytes: float
    """Of the fullest accelerator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    """All that were looked for."""

    best: tuple[Gain, ...]
    """Of each family the best, the largest gain first."""
    n_tried: int
    n_impossible: int
    """Contradict the scenario."""
    n_misfits: int
    """Would be faster, and need more memory than there is."""


def gains(
    source: Source, changes: Sequence[Override], base: Result, tried: Sequence[Candidate], on_candidate: OnCandidate | None = None
) -> Gains:
    """Return what each of some changes gains over a run, replayed with the same seed.

    Parameters
    ----------
    source
        The scenario as it was written.
    changes
        Of the run itself.
    """
    best: dict[str, Gain] = {}
    n_impossible = n_misfits = 0
    for number, candidate in enumerate(tried, start=1):
        if on_candidate is not None:
            on_candidate(number, len(tried), candidate.what)
        metrics = _metrics(source, (*changes, *map(parse_override, candidate.overrides)), seed=base.seed)
        if metrics is None:
            n_impossible += 1
            continue
        saved_s = base.step_time_s - metrics.step_time_s
        if saved_s < LEAST * base.step_time_s:
            continue
        if not metrics.memory.fits and base.metrics.memory.fits:
            n_misfits += 1
            continue
        gain = Gain(change=candidate, step_time_s=metrics.step_time_s, saved_s=saved_s, peak_bytes=metrics.memory.peak_bytes)
        known = best.get(candidate.family)
        if known is None or gain.saved_s > known.saved_s:
            best[candidate.family] = gain
    ordered = sorted(best.values(), key=lambda gain: -gain.saved_s)
    return Gains(best=tuple(ordered), n_tried=len(tried), n_impossible=n_impossible, n_misfits=n_misfits)


def _metrics(source: Source, changes: Sequence[Override], *, seed: int) -> Metrics | None:
    """Return what comes of a changed scenario; None where it contradicts itself."""
    try:
        return run_built(build(checked_scenario(source, changes)), seed=seed).metrics
    except (ScenarioError, InfeasibleError):
        return None

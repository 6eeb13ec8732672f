"""The figures of one run that a question may ask about: its metrics, and what memory and links hold in sum."""

from __future__ import annotations

from typing import Final

from clustersim.apps.run.result import Result
from clustersim.apps.sweep.point import PointOutcome, outcome_of
from clustersim.apps.sweep.results import sweep_metrics
from clustersim.measure.metrics import StageMemory
from clustersim.topology.cluster import TIERS

STATES: Final = "memory.states_bytes"
"""Parameters, gradients and optimizer state of the stage with most of them."""
ACTIVATIONS: Final = "memory.activations_bytes"
"""Activations of the stage with most of them."""
LINKS: Final = "links"
"""Before the name of a tier: what all links of it carried in a step, both directions added."""


def figure_names() -> dict[str, bool]:
    """Return every figure, and whether it is true or false and not a number."""
    extra = (STATES, ACTIVATIONS, *(f"{LINKS}.{tier}_bytes" for tier in TIERS))
    return {**sweep_metrics(), **dict.fromkeys(extra, False)}


def outcome_with_sums(result: Result) -> PointOutcome:
    """Return what is kept of a run, with the sums."""
    outcome = outcome_of(result)
    stages = result.metrics.memory.by_stage
    sums = {STATES: max(map(_states_bytes, stages)), ACTIVATIONS: max(stage.activations_bytes for stage in stages)}
    links = {f"{LINKS}.{tier}_bytes": 0.0 for tier in TIERS} | {f"{LINKS}.{use.tier}_bytes": use.bytes for use in result.metrics.links}
    return PointOutcome(
        status=outcome.status,
        reason=outcome.reason,
        scenario_hash=outcome.scenario_hash,
        figures={**outcome.figures, **{name: float(value) for name, value in (sums | links).items()}},
    )


def _states_bytes(stage: StageMemory) -> float:
    return stage.parameters_bytes + stage.gradients_bytes + stage.optimizer_bytes

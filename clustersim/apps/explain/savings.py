"""Changes with which a run that needs too much memory fits, each built and replayed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Final

from clustersim.apps.explain.candidates import RECOMPUTATION, CandidateChange, candidates
from clustersim.apps.explain.changing import ChangedRun
from clustersim.apps.run.running import step_metrics
from clustersim.apps.run.simulation import memory_report
from clustersim.config.build import Built
from clustersim.config.overriding import set_options
from clustersim.errors import InfeasibleError, ScenarioError
from clustersim.parallel.stage import stages_of
from clustersim.report.facts import memory_verdict
from clustersim.units.quantity import format_quantity

AT_ONCE: Final = 2
"""Changes that are made together where no single one is enough."""
MOST_REPLAYED: Final = 4
"""Changes that fit and are replayed, those that come first."""
SAVING: Final = ("layout", "micro-batch", "sharding")
"""Families of changes that may save memory."""


def fitting_changes(run: ChangedRun, asked: str) -> tuple[str, ...]:
    """Return changes with which a run fits, as few at once as can be, in the order of their step; or that none is enough; as sentences.

    The last names the scenario as it was asked for: the argument and options of a command.
    """
    singles = list(_savings(run.result.built))
    for count in range(1, AT_ONCE + 1):
        fitting: list[tuple[str, tuple[str, ...], Built]] = []
        for together in combinations(singles, count):
            if len({change.family for change in together}) < count:
                continue
            try:
                overrides, built = run.changed_alone([each for change in together for each in change.overrides])
            except (ScenarioError, InfeasibleError):
                continue
            if memory_report(stages_of(built.plan), built.cluster).fits:
                fitting.append((" and ".join(change.what for change in together), overrides, built))
        replayed = [(what, overrides, step_metrics(built, run.result.seed)) for what, overrides, built in fitting[:MOST_REPLAYED]]
        ordered = sorted((each for each in replayed if each[2].memory.fits), key=lambda each: each[2].step_time_s)
        if ordered:
            return tuple(
                f"{what}: {format_quantity(metrics.step_time_s, 's')} a step, {memory_verdict(metrics)}; {set_options(overrides)}"
                for what, overrides, metrics in ordered
            )
    none = f"none of {len(singles)} changes, nor two of them together"
    return (f"{none}; clustersim plan {asked} says which layout needs least, and on how many nodes",)


def _savings(built: Built) -> Iterator[CandidateChange]:
    strategy = built.plan.strategy
    yield from (change for change in candidates(built) if change.family in SAVING)
    now = strategy.recompute if strategy.recompute in RECOMPUTATION else "full"
    for other in RECOMPUTATION[RECOMPUTATION.index(now) + 1 :]:
        what = f"recomputation {other} instead of {now}"
        yield CandidateChange(family="recomputation", what=what, overrides=(f"strategy.recompute={other}",))
    if not strategy.offload.parts:
        yield CandidateChange(family="offload", what="optimizer states on the hosts", overrides=("strategy.offload=[optimizer]",))

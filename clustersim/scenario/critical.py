"""The chain of tasks that sets the step time of a scenario."""

from __future__ import annotations

from clustersim.collection import collection_paused
from clustersim.errors import ScenarioError
from clustersim.hardware.mixed import calibration_of
from clustersim.scenario.build import Built
from clustersim.scenario.replaying import Conditions, critical_path_of
from clustersim.trace.critical import CriticalPath


def critical_path(built: Built, *, seed: int = 0) -> CriticalPath:
    """Return which chain of tasks sets the time of one step, and the slack of everything else.

    The step is replayed by itself, without other jobs, background or what varies from step to step.

    Raises
    ------
    ScenarioError
        When workers go at their own pace, so that no chain sets the step time.
    """
    mode = built.plan.strategy.data_parallel.mode
    if mode != "sync":
        message = f"with mode {mode} workers do not wait for each other, and no chain of tasks sets the step time"
        raise ScenarioError(message, field="strategy.data_parallel.mode", hint="use mode: sync")
    calibration = calibration_of([node for node, _ in built.cluster.kinds])
    with collection_paused():
        return critical_path_of(built.plan, built.cluster, calibration, Conditions(uneven=built.uneven, seed=seed))

"""A scenario in the words of a framework, a serving engine or a scheduler, by one name each."""

from __future__ import annotations

from typing import Final

from clustersim.apps.plan.flags import FRAMEWORKS, FrameworkFiles
from clustersim.apps.plan.launchers import LAUNCHERS
from clustersim.apps.plan.serving_flags import SERVERS
from clustersim.apps.serve.deployment import build_serving
from clustersim.config.build import build
from clustersim.config.load import Scenario
from clustersim.config.serving_scenario import ServingScenario
from clustersim.documents.check import choices_hint
from clustersim.errors import ScenarioError

TRAINING: Final = (*FRAMEWORKS, *LAUNCHERS)
SERVING: Final = tuple(SERVERS)
WRITTEN: Final = (*TRAINING, *SERVING)
"""Names in whose words a scenario can be written."""


def check_written(name: str, *, serving: bool) -> None:
    """Refuse a name in whose words no job of this kind can be written.

    Raises
    ------
    ScenarioError
        With the names that there are.
    """
    known = SERVING if serving else TRAINING
    if name not in known:
        what = "a deployment" if serving else "a training job"
        hint = f"use {', '.join(known)}" if name in WRITTEN else choices_hint(name, known)
        raise ScenarioError(f"{what} cannot be written as '{name}'", field="--as", hint=hint)


def written(scenario: Scenario | ServingScenario, name: str) -> FrameworkFiles:
    """Return the file of a scenario.

    Raises
    ------
    ScenarioError
        When the framework, engine or scheduler has no such job.
    """
    check_written(name, serving=isinstance(scenario, ServingScenario))
    if isinstance(scenario, ServingScenario):
        return SERVERS[name](build_serving(scenario))
    built = build(scenario)
    return FRAMEWORKS[name](built.plan) if name in FRAMEWORKS else LAUNCHERS[name](built)

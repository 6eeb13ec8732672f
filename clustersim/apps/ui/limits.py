"""Bounds of the replays of the page: larger ones are for the command line."""

from __future__ import annotations

from typing import Final

from clustersim.config.load import Scenario
from clustersim.config.machine import hardware_of
from clustersim.errors import ScenarioError

MOST_GPUS: Final = 131_072
MOST_STEPS: Final = 200
MOST_AT_ONCE: Final = 2
"""Replays of all pages together; the next one waits."""
MOST_S: Final = 60.0
"""Duration of one replay, or of one search for layouts."""
MOST_BYTES: Final = 1.5e9
"""Resident memory of one replay, where the system tells it (``/proc``)."""


class LimitError(ScenarioError):
    """A replay that is too large for the page."""


def check_limits(scenario: Scenario) -> None:
    """Refuse a scenario that is too large for the page, before anything is laid out.

    Raises
    ------
    LimitError
        When it has too many GPUs or steps.
    ScenarioError
        When its cluster cannot be used.
    """
    gpus = sum(node.n_accelerators * count for node, count in hardware_of(scenario.spec.cluster, scenario.document).kinds)
    for number, most, unit in ((gpus, MOST_GPUS, "GPUs"), (scenario.spec.steps or 1, MOST_STEPS, "steps")):
        if number > most:
            raise LimitError(f"{number:,} {unit} are more than the {most:,} that this page simulates")

"""A run with changes that leave all else as it is, the settings that nobody gave too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json import dumps
from operator import attrgetter

from clustersim.apps.run.result import Result
from clustersim.apps.run.running import seeded
from clustersim.config.build import Built, build
from clustersim.config.load import ScenarioText, checked_scenario
from clustersim.config.overriding import Override, parse_override
from clustersim.config.planning import circumstances_of
from clustersim.config.usual import Value, usual_settings
from clustersim.errors import ScenarioError
from clustersim.parallel.needs import idle


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRun:
    """A run, and the scenario and changes that it was made from."""

    written: ScenarioText
    changes: tuple[Override, ...]
    result: Result

    def built(self, overrides: Sequence[str]) -> Built:
        """Return the scenario of the run with further changes, as ``--set`` takes them."""
        built = build(checked_scenario(self.written, (*self.changes, *map(parse_override, overrides))))
        return seeded(built, self.result.seed)

    def changed_alone(self, overrides: Sequence[str]) -> tuple[tuple[str, ...], Built]:
        """Return a change with what keeps the usual settings of the run as they are, and what is built with it.

        Software comes with its precision and sharding: without that a change of these would be credited with the kernels of another
        software.
        """
        base, built = self.result.built, self.built(overrides)
        given = {text.partition("=")[0] for text in overrides}
        unused = {".".join(each.path) for plan in (base.plan, built.plan) for each in idle(plan.model, plan.training, plan.strategy)}
        usual, others = _usual(base), _usual(built)
        held: dict[str, str] = {}
        for key in dict.fromkeys((*usual, *others)):
            now, then = attrgetter(key)(base.plan), attrgetter(key)(built.plan)
            if usual.get(key) != others.get(key) and now not in (None, then) and key not in given | unused:
                held[key] = f"{key}={dumps(now)}".replace('"', "")
        while held:
            together = (*overrides, *held.values())
            try:
                return together, self.built(together)
            except ScenarioError as error:
                # A setting that cannot stand beside the change goes with it.
                if error.field is None or held.pop(error.field, None) is None:
                    raise
        return tuple(overrides), built


def _usual(built: Built) -> Mapping[str, Value]:
    kinds, n_ranks = [node for node, _ in built.cluster.kinds], built.cluster.n_ranks
    found = usual_settings(circumstances_of(built.scenario.spec, built.plan.model, kinds, n_ranks=n_ranks))
    return {key: value for key, (value, _) in found.items()}

"""A run with changes that leave all else as it is, the settings that nobody gave too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from json import dumps
from operator import attrgetter

from clustersim.apps.run.result import Result
from clustersim.apps.run.running import seeded
from clustersim.config.build import Built, build
from clustersim.config.load import ScenarioText, checked_scenario
from clustersim.config.overriding import Override, parse_override
from clustersim.config.planning import circumstances_of
from clustersim.config.usual import Circumstances, Value, usual_settings
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
        built = self.built(overrides)
        held = {key: f"{key}={dumps(now)}".replace('"', "") for key, (now, _) in self.brought(overrides, built).items()}
        while held:
            together = (*overrides, *held.values())
            try:
                return together, self.built(together)
            except ScenarioError as error:
                # A setting that cannot stand beside the change goes with it.
                if error.field is None or held.pop(error.field, None) is None:
                    raise
        return tuple(overrides), built

    def brought(self, overrides: Sequence[str], built: Built) -> dict[str, tuple[Value, Value]]:
        """Return the usual settings that changes bring along where they are typed alone, with their values before and then."""
        base, given = self.result.built, {text.partition("=")[0] for text in overrides}
        unused = {".".join(each.path) for plan in (base.plan, built.plan) for each in idle(plan.model, plan.training, plan.strategy)}
        usual, others = _usual(_circumstances(base)), _usual(_circumstances(built))
        found: dict[str, tuple[Value, Value]] = {}
        for key in dict.fromkeys((*usual, *others)):
            now, then = attrgetter(key)(base.plan), attrgetter(key)(built.plan)
            if usual.get(key) != others.get(key) and now not in (None, then) and key not in given | unused:
                found[key] = now, then
        return found

    def kept_from(self, key: str) -> str:
        """Return the given setting that keeps one from its usual value, as text; empty where none does."""
        run = _circumstances(self.result.built)
        kept = _usual(run).get(key) != _usual(replace(run, dispatch=None)).get(key)
        return f"dispatch {run.dispatch}" if kept else ""


def _circumstances(built: Built) -> Circumstances:
    kinds, n_ranks = [node for node, _ in built.cluster.kinds], built.cluster.n_ranks
    return circumstances_of(built.scenario.spec, built.plan.model, kinds, n_ranks=n_ranks)


def _usual(run: Circumstances) -> Mapping[str, Value]:
    return {key: value for key, (value, _) in usual_settings(run).items()}

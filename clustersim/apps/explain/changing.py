"""A scenario with a change that leaves all else as it is, the settings that nobody gave too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def changed_alone(
    source: ScenarioText, changes: Sequence[Override], base: Result, overrides: Sequence[str]
) -> tuple[tuple[str, ...], Built]:
    """Return a change with what keeps the usual settings of a run as they are, and what is built with it.

    Software comes with its precision and sharding: without that a change of these would be credited with the kernels of another software.

    Parameters
    ----------
    source
        The scenario as it was written.
    changes
        Of the run itself.
    overrides
        Of the change, as ``--set`` takes them.
    """

    def built_with(texts: Sequence[str]) -> Built:
        return seeded(build(checked_scenario(source, (*changes, *map(parse_override, texts)))), base.seed)

    built = built_with(overrides)
    given = {text.partition("=")[0] for text in overrides}
    unused = {".".join(each.path) for plan in (base.built.plan, built.plan) for each in idle(plan.model, plan.training, plan.strategy)}
    usual, others = _usual(base.built), _usual(built)
    held: dict[str, str] = {}
    for key in dict.fromkeys((*usual, *others)):
        now, then = attrgetter(key)(base.built.plan), attrgetter(key)(built.plan)
        if usual.get(key) != others.get(key) and now not in (None, then) and key not in given | unused:
            held[key] = f"{key}={dumps(now)}".replace('"', "")
    while held:
        together = (*overrides, *held.values())
        try:
            return together, built_with(together)
        except ScenarioError as error:
            # A setting that cannot stand beside the change goes with it.
            if error.field is None or held.pop(error.field, None) is None:
                raise
    return tuple(overrides), built


def _usual(built: Built) -> Mapping[str, Value]:
    kinds, n_ranks = [node for node, _ in built.cluster.kinds], built.cluster.n_ranks
    found = usual_settings(circumstances_of(built.scenario.spec, built.plan.model, kinds, n_ranks=n_ranks))
    return {key: value for key, (value, _) in found.items()}

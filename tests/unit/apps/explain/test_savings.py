"""Changes with which a run that needs too much memory fits."""

from __future__ import annotations

import shlex

from clustersim.apps.explain.savings import fitting_changes
from clustersim.apps.run.running import run_built
from clustersim.config.build import build
from clustersim.config.load import checked_scenario, read_source
from clustersim.config.overriding import parse_override

NAME = "llama3-8b-8xh100"
TOO_MUCH = ("strategy.recompute=none",)


def test_each_change_that_is_told_makes_the_run_fit() -> None:
    source, changes = read_source(NAME), tuple(map(parse_override, TOO_MUCH))
    base = run_built(build(checked_scenario(source, changes)))

    told = fitting_changes(source, changes, base)

    assert not base.metrics.memory.fits
    assert told
    for sentence in told:
        overrides = [text for text in shlex.split(sentence.rpartition("; ")[2]) if text != "-s"]
        assert run_built(build(checked_scenario(source, (*changes, *map(parse_override, overrides))))).metrics.memory.fits

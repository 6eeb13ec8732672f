"""Changes with which a run that needs too much memory fits."""

from __future__ import annotations

import shlex

from clustersim.apps.explain.changing import ChangedRun
from clustersim.apps.explain.explanation import measured_changes
from clustersim.apps.explain.savings import fitting_changes
from clustersim.apps.run.running import run, run_built
from clustersim.config.build import build
from clustersim.config.load import checked_scenario, read_source
from clustersim.config.overriding import parse_override, set_options

NAME = "llama3-8b-8xh100"
TOO_MUCH = ("strategy.recompute=none",)


def test_each_change_that_is_told_makes_the_run_fit() -> None:
    source, changes = read_source(NAME), tuple(map(parse_override, TOO_MUCH))
    base = run_built(build(checked_scenario(source, changes)))

    told = fitting_changes(ChangedRun(written=source, changes=changes, result=base), NAME)

    assert not base.metrics.memory.fits
    assert told
    for sentence in told:
        overrides = [text for text in shlex.split(sentence.rpartition("; ")[2]) if text != "-s"]
        assert run_built(build(checked_scenario(source, (*changes, *map(parse_override, overrides))))).metrics.memory.fits


def test_where_no_change_is_enough_the_command_that_finds_a_layout_is_told() -> None:
    overrides = ("cluster.nodes=1", "strategy.dp=auto", "strategy.pp=1", "strategy.tp=1", "training.global_batch_size=8")

    result = run("llama3-70b-h100-512", set=overrides)

    assert (
        measured_changes("llama3-70b-h100-512", overrides, result)
        .changes[0]
        .endswith(f"; clustersim plan llama3-70b-h100-512 {set_options(overrides)} says which layout needs least, and on how many nodes")
    )


def test_below_changes_of_a_run_the_command_that_searches_layouts_is_told() -> None:
    assert measured_changes(NAME, (), run(NAME)).further == (
        f"clustersim plan {NAME} searches layouts, and names those that it leaves out",
    )

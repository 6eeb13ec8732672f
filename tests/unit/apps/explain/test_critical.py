"""The chain that sets the step time of a scenario."""

from __future__ import annotations

import pytest

from clustersim.apps.explain.explanation import critical_path
from clustersim.apps.run.running import run_built
from clustersim.config.build import build
from clustersim.config.load import example_names, load_scenario
from clustersim.errors import ScenarioError

MANY = ("llama3-405b-16k-cost", "llama3-405b-4d", "deepseek-v3-2048-h800", "resnet50-async-servers", "two-jobs-one-fabric")
"""Examples that take long, that have no chain, and that are slowed down by others."""


@pytest.mark.parametrize("name", [name for name in example_names() if name not in MANY and not name.startswith("zb-")])
def test_the_chain_of_an_example_lasts_as_long_as_its_step(name: str) -> None:
    built = build(load_scenario(name, ["steps=1"] if name != "starter" else []))
    path = critical_path(built)

    assert path.step_time_s == pytest.approx(run_built(built).step_time_s, rel=1e-9)
    assert sum(path.shares().values()) == pytest.approx(path.step_time_s, rel=1e-9)
    assert path.spans[0].start_s == 0.0
    assert all(before.end_s == pytest.approx(after.start_s) for before, after in zip(path.spans, path.spans[1:], strict=False))


@pytest.mark.parametrize("name", ["zb-h1", "zb-v"])
def test_the_chain_of_stages_that_do_not_wait_for_each_other_is_that_of_one_step_alone(name: str) -> None:
    built = build(load_scenario(name))

    assert critical_path(built).step_time_s >= run_built(built).step_time_s


def test_micro_batches_that_repeat_are_all_on_the_chain() -> None:
    built = build(load_scenario("1f1b", ["training.global_batch_size=512"]))

    path = critical_path(built)

    n_micro_batches = built.plan.training.global_batch_size // built.plan.strategy.dp // built.plan.training.micro_batch_size
    assert {span.micro_batch for span in path.spans if span.kind == "backward"} == set(range(n_micro_batches))


def test_the_stage_with_the_logits_is_the_one_that_others_wait_for() -> None:
    path = critical_path(build(load_scenario("llama3-70b-h100-512")))

    assert next(iter(path.classes())) == "stage 3"


def test_workers_at_their_own_pace_have_no_chain() -> None:
    with pytest.raises(ScenarioError, match="with mode async workers do not wait for each other"):
        critical_path(build(load_scenario("resnet50-async-servers")))

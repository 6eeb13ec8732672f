"""The ``jobs`` of a scenario: who gets which nodes, what is used of another scenario, and what comes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.apps.run.running import run
from clustersim.config.build import build
from clustersim.config.job_settings import allocate_nodes
from clustersim.config.load import load_scenario
from clustersim.config.resolve import resolved_scenario, scenario_hash
from clustersim.config.scenario_schema import JobSpec
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from tests.unit.config.samples import MODEL, built, refusal, small

CLUSTER: dict[str, Data] = {
    "node": "dgx-a100-40g",
    "nodes": 4,
    "fabric": {"topology": "leaf_spine", "nodes_per_leaf": 2, "oversubscription": 8},
}
TRAINING: dict[str, Data] = {"global_batch_size": 96, "precision": "bf16"}
SERVERS: dict[str, Data] = {"algorithm": "parameter_server"}
INNER: dict[str, Data] = {"model": dict(MODEL), "training": TRAINING}


def job(nodes: Data = 1, scenario: Data = None, **more: Data) -> dict[str, Data]:
    entry: dict[str, Data] = {"nodes": nodes, "scenario": INNER if scenario is None else scenario}
    return entry | more


def inner(**sections: Data) -> dict[str, Data]:
    return INNER | sections


def seats(n_nodes: int, *nodes: Data) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    found = allocate_nodes([JobSpec.model_validate({"scenario": "x", "nodes": each}) for each in nodes], n_nodes)
    return found.own, found.jobs


@pytest.mark.parametrize(
    ("nodes", "own", "jobs"),
    [
        ([], (0, 1, 2, 3, 4, 5), ()),
        ([2], (0, 1, 2, 3), ((4, 5),)),
        ([[1, 3]], (0, 2, 4, 5), ((1, 3),)),
        (["5,1"], (0, 2, 3, 4), ((5, 1),)),
        ([["2-4"]], (0, 1, 5), ((2, 3, 4),)),
        ([2, 1], (0, 1, 2), ((4, 5), (3,))),
        ([2, [5]], (0, 1, 2), ((3, 4), (5,))),
    ],
)
def test_named_nodes_go_first_and_numbers_take_the_last_of_the_rest(
    nodes: list[Data], own: tuple[int, ...], jobs: tuple[tuple[int, ...], ...]
) -> None:
    assert seats(6, *nodes) == (own, jobs)


@pytest.mark.parametrize(
    ("nodes", "field", "message"),
    [
        ([[6]], "jobs.0.nodes", "there is no node 6"),
        ([[1], [2, 1]], "jobs.1.nodes", "node 1 belongs to jobs.0 already"),
        ([7], "jobs.0.nodes", "7 nodes are asked for, and 6 are left"),
        ([[0, 1], 5], "jobs.1.nodes", "5 nodes are asked for, and 4 are left"),
        ([6], "jobs.0.nodes", "no node is left for the scenario's own job"),
        ([["0-3"], 2], "jobs.1.nodes", "no node is left for the scenario's own job"),
    ],
)
def test_nodes_that_there_are_not_are_refused(nodes: list[Data], field: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        seats(6, *nodes)

    assert (caught.value.field, caught.value.message) == (field, message)


def test_the_own_job_fills_what_is_left() -> None:
    made = built(cluster=CLUSTER, jobs=[job([1])], training={"global_batch_size": 48, "precision": "bf16"}, strategy={"tp": 2})

    assert made.nodes == (0, 2, 3)
    assert made.plan.strategy.dp == 12
    assert made.cluster.n_nodes == 4
    assert (made.jobs[0].nodes, made.jobs[0].planned.plan.strategy.dp) == ((1,), 8)


def test_a_job_brings_its_own_model_training_and_strategy() -> None:
    other = inner(training={"global_batch_size": 16, "micro_batch_size": 2, "precision": "fp16"}, strategy={"tp": 4})

    plan = built(cluster=CLUSTER, jobs=[job(2, other)]).jobs[0].planned.plan

    assert (plan.training.precision, plan.training.micro_batch_size) == ("fp16", 2)
    assert (plan.strategy.tp, plan.strategy.dp) == (4, 4)


def test_a_job_may_stand_in_a_file_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("name: other\nmodel: gpt2\ntraining: {global_batch_size: 8, precision: bf16}\n")
    (tmp_path / "main.yaml").write_text(
        "model: gpt2\ncluster: {node: dgx-a100-40g, nodes: 2}\ntraining: {global_batch_size: 8, precision: bf16}\n"
        "jobs: [{scenario: other.yaml, nodes: 1}]\n"
    )

    made = build(load_scenario(tmp_path / "main.yaml"))

    assert [(each.name, each.nodes) for each in made.jobs] == [("other", (1,))]


def test_a_shipped_scenario_is_used_without_its_cluster_and_says_so() -> None:
    made = built(cluster={"node": "dgx-h100", "nodes": 4}, jobs=[job(2, "llama3-8b-8xh100")])

    assert made.jobs[0].name == "llama3-8b-8xh100"
    assert made.jobs[0].planned.plan.strategy.dp == 16
    assert "job llama3-8b-8xh100: cluster of its scenario is not used" in [flag.message for flag in made.flags]


def test_whatever_is_not_used_is_named() -> None:
    other = inner(cluster={"node": "dgx-a100-40g", "nodes": 64}, checks=["mfu > 2"])

    messages = [flag.message for flag in built(cluster=CLUSTER, training=TRAINING, strategy={}, jobs=[job(scenario=other, name="x")]).flags]

    assert "job x: cluster and checks of its scenario are not used" in messages


def test_what_is_assumed_of_a_job_is_flagged_with_its_name() -> None:
    other = inner(training={"global_batch_size": 32})

    flags = built(cluster=CLUSTER, training=TRAINING, strategy={}, jobs=[job(scenario=other, name="x")]).flags

    assert any(flag.code == "assumed_precision" and flag.message.startswith("job x: no precision is given") for flag in flags)


def test_jobs_without_names_get_different_ones() -> None:
    made = built(cluster=CLUSTER, jobs=[job(), job(), job(scenario=inner(name="own"))])

    assert [each.name for each in made.jobs] == ["job", "job-2", "own"]


@pytest.mark.parametrize(
    ("entry", "field", "message"),
    [
        (job(scenario="llama3-8b-8xh10"), "scenario", "there is no shipped example 'llama3-8b-8xh10'"),
        (job(scenario="nowhere/other.yaml"), "scenario", "there is no file 'nowhere/other.yaml'"),
        (job(scenario=5), "scenario", "5 is not text or a mapping"),
        (job("two"), "nodes", "'two' is not a number or a range"),
        (job(0), "nodes", "0 is out of range"),
        (job([1, 1]), "nodes", "1 stands there twice"),
        (job(node=1), "node", "unknown field 'node'"),
        (job(name="a b"), "name", None),
        (job(scenario={"model": "gpt2"}), "scenario.training", "'training' is missing"),
        (job(scenario=inner(strategy={"tp": 3})), "scenario.strategy.tp", "3 does not divide 8 attention heads"),
        (job(scenario=inner(strategy={"ep": 2})), "scenario.strategy.ep", "model has no experts"),
        (job(scenario=inner(strategy={"tpp": 3})), "scenario.strategy.tpp", "unknown field 'tpp'"),
        (job(scenario=inner(jobs=[job()])), "scenario.jobs", "a job of another scenario has none of its own"),
        (
            job(scenario=inner(background=[{"links": ["leaf0/up"], "load": "1 %"}])),
            "scenario.background",
            "a job of another scenario has none of its own",
        ),
        (
            job(scenario=inner(cluster={"node": "dgx-h100", "nodes": 1})),
            "scenario.cluster",
            "this is a scenario for h100-sxm5-80g, and the cluster that it shares has a100-sxm4-40g",
        ),
        (
            job(scenario=inner(strategy={"data_parallel": {"algorithm": "parameter_server", "placement": "dedicated"}})),
            "scenario.strategy.data_parallel.placement",
            "a job that shares a cluster has no dedicated servers",
        ),
        (
            job(scenario=inner(strategy={"data_parallel": {**SERVERS, "mode": "async"}})),
            "scenario.strategy.data_parallel.mode",
            "a job that shares a cluster runs with all its workers in step, and mode async lets some go ahead",
        ),
        (
            job(scenario=inner(strategy={"data_parallel": {**SERVERS, "mode": "ssp", "staleness": 1}})),
            "scenario.strategy.data_parallel.mode",
            "a job that shares a cluster runs with all its workers in step, and mode ssp lets some go ahead",
        ),
        (
            job(scenario=inner(strategy={"data_parallel": {**SERVERS, "backup_workers": 1}})),
            "scenario.strategy.data_parallel.backup_workers",
            "a job that shares a cluster runs with all its workers in step, and backup_workers let some go ahead",
        ),
        (job(name="first"), "name", "'first' is the name of jobs.0 too"),
    ],
)
def test_a_job_that_cannot_be_is_refused_with_its_place(entry: dict[str, Data], field: str, message: str | None) -> None:
    error = refusal(cluster=CLUSTER, jobs=[job(name="first"), entry])

    assert error.field == f"jobs.1.{field}"
    assert message is None or error.message == message


def test_a_mistake_in_a_job_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "main.yaml"
    path.write_text(
        "model: gpt2\ncluster: {node: dgx-a100-40g, nodes: 2}\ntraining: {global_batch_size: 8, precision: bf16}\njobs:\n"
        "  - nodes: 1\n    scenario:\n      model: gpt2\n      training: {global_batch_size: 7, precision: bf16}\n"
    )

    with pytest.raises(ScenarioError) as caught:
        build(load_scenario(path))

    assert caught.value.field == "jobs.0.scenario.training.global_batch_size"
    assert str(caught.value.place) == f"{path}:8:37"


def test_a_mistake_in_a_file_of_a_job_has_its_place_there(tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("model: gpt2\ntraining: {global_batch_size: 7, precision: bf16}\n")
    (tmp_path / "main.yaml").write_text(
        "model: gpt2\ncluster: {node: dgx-a100-40g, nodes: 2}\ntraining: {global_batch_size: 8, precision: bf16}\n"
        "jobs: [{scenario: other.yaml, nodes: 1}]\n"
    )

    with pytest.raises(ScenarioError) as caught:
        build(load_scenario(tmp_path / "main.yaml"))

    assert caught.value.field == "training.global_batch_size"
    assert str(caught.value.place) == f"{other}:2:31"


# Results


def two(nodes: Data, **sections: Data) -> dict[str, Data]:
    """Return two equal jobs, one of them on the nodes that are given."""
    return small(
        cluster=CLUSTER, training=TRAINING, strategy={"zero_stage": 1}, jobs=[job(nodes, inner(strategy={"zero_stage": 1}))], **sections
    )


def test_where_jobs_met_and_for_how_long_is_told() -> None:
    result = run(two([1, 3]))

    shared = result.metrics.shared_links
    uplink = next(link for link in result.spans.links if link.name == "leaf0/up")
    assert {link.tier for link in shared} == {"leaf"}
    assert shared[0].jobs == (result.metrics.scenario, "job")
    assert shared[0].contended_s == max(link.contended_s for link in shared)
    met = next(link for link in shared if link.name == "leaf0/up")
    assert 0.0 < met.contended_s <= uplink.busy_s
    # Who shares a link loses at most as long as others were on it.
    assert result.metrics.step_time_alone_s is not None
    assert result.step_time_s - result.metrics.step_time_alone_s <= met.contended_s * (1 + 1e-9)


def test_a_job_of_the_same_name_as_the_scenario_is_another_one() -> None:
    scenario = two([1, 3])
    jobs = scenario["jobs"]
    assert isinstance(jobs, list)
    assert isinstance(jobs[0], dict)
    jobs[0]["name"] = name = run(two([1, 3])).metrics.scenario

    assert run(scenario).metrics.shared_links[0].jobs == (name, name)


def test_figures_are_those_of_the_own_job() -> None:
    result = run(two([1, 3]))
    alone = run(small(cluster={**CLUSTER, "nodes": 2}, training=TRAINING, strategy={"zero_stage": 1}))

    assert (result.metrics.ranks, result.metrics.gpus, result.metrics.engine.ranks) == (16, 16, 16)
    assert result.metrics.tokens_per_s == pytest.approx(96 * 256 / result.step_time_s, rel=1e-12)
    assert result.metrics.model_flops_per_step == alone.metrics.model_flops_per_step
    assert result.metrics.mfu * result.step_time_s == pytest.approx(alone.metrics.mfu * alone.step_time_s, rel=1e-12)


def test_parameter_servers_follow_the_nodes_of_their_job() -> None:
    served: dict[str, Data] = {"data_parallel": {"algorithm": "parameter_server", "servers": 1}}
    dedicated: dict[str, Data] = {"data_parallel": {"algorithm": "parameter_server", "servers": 1, "placement": "dedicated"}}
    scenario = small(cluster=CLUSTER, training=TRAINING, strategy=dedicated, jobs=[job([2], inner(strategy=served))])

    users = {link.name: link.users for link in run(scenario).spans.links if link.tier == "memory"}

    assert set(users) == {"server0/memory", "node2/memory"}
    assert all(user.startswith("job: ps") for user in users["node2/memory"])


def test_a_job_that_does_not_fit_in_memory_is_flagged() -> None:
    large: dict[str, Data] = {"model": "llama3-70b", "training": {"global_batch_size": 8, "seq_length": 128, "precision": "bf16"}}
    scenario = small(cluster=CLUSTER, training=TRAINING, strategy={"tp": 8}, jobs=[job(1, large, name="large")])

    messages = [flag.message for flag in run(scenario, set=["training.global_batch_size=33"]).flags if flag.code == "job_memory"]

    assert messages == ["job large does not fit in memory, and is simulated all the same"]


def test_steps_without_number_are_refused_before_they_are_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clustersim.apps.run.replaying.MAX_PASSES", 10)

    with pytest.raises(ScenarioError, match=r"1 steps of \d+ tasks beside one of the scenario are more than the 10 tasks") as caught:
        run(two([1, 3]))

    assert caught.value.field == "jobs.0"


def test_the_resolved_scenario_runs_to_the_same_result() -> None:
    made = built(cluster=CLUSTER, training=TRAINING, strategy={}, jobs=[job(1, name="a"), job([0])])
    resolved = resolved_scenario(made)

    again = build(load_scenario(resolved))

    assert [each.nodes for each in again.jobs] == [(3,), (0,)]
    assert resolved_scenario(again) == resolved
    assert scenario_hash(resolved_scenario(again), 0) == scenario_hash(resolved, 0)
    assert (
        run(resolved).metrics.jobs
        == run(small(cluster=CLUSTER, training=TRAINING, strategy={}, jobs=[job(1, name="a"), job([0])])).metrics.jobs
    )


def test_jobs_change_the_hash() -> None:
    one, other = (resolved_scenario(built(cluster=CLUSTER, training=TRAINING, strategy={}, jobs=[job([node])])) for node in (2, 3))

    assert scenario_hash(one, 0) != scenario_hash(other, 0)

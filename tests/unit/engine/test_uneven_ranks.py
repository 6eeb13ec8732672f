"""Differences between ranks, and the parts of replicas that follow from them."""

from __future__ import annotations

import pytest

from clustersim.apps.run.running import run_built
from clustersim.config.build import Built
from clustersim.documents.text import Data
from clustersim.engine.pace import Jitter
from clustersim.engine.policies import Asynchronous, BackupWorkers, StaleSynchronous, Synchronous
from clustersim.engine.uneven_ranks import division_of, jitter_of, paces_of, policy_of, slow_ranks
from clustersim.errors import ScenarioError
from clustersim.parallel.division import Division
from clustersim.parallel.pass_costs import kernels_of
from clustersim.parallel.stage import stage_of
from clustersim.workloads.operators import Gemm, Stream
from tests.unit.config.samples import built, refusal

SERVERS: dict[str, Data] = {"algorithm": "parameter_server"}


def divided(made: Built) -> Division:
    assert made.uneven is not None
    return division_of(made.plan.strategy, made.uneven, has_experts=made.plan.model.experts is not None)


def uneven(*overrides: str, stragglers: Data = None, **sections: Data) -> Built:
    """Return 2 nodes of 8 accelerators, some of them slow, with pipelines of 2 stages of 2 ranks."""
    cluster: dict[str, Data] = {"node": "dgx-a100-40g", "nodes": 2, "stragglers": stragglers or []}
    return built(*overrides, **({"cluster": cluster} | sections))


def parts(made: Built) -> tuple[tuple[int, ...], ...]:
    assert made.uneven is not None
    return divided(made).parts


def slow(**entry: Data) -> list[Data]:
    return [{"slowdown": 1.3, **entry}]


def test_like_ranks_are_not_uneven() -> None:
    assert built().uneven is None
    assert uneven(stragglers=slow(ranks=3, slowdown=1)).uneven is None


def test_a_slow_rank_sets_its_replica_apart() -> None:
    # Ranks 0 to 7 are stage 0 of replicas 0 to 3, two each.
    assert parts(uneven(stragglers=slow(ranks=3))) == ((0, 2, 3), (1,))
    assert parts(uneven(stragglers=slow(ranks=11))) == ((0, 2, 3), (1,))


def test_replicas_that_are_slow_alike_are_one_part() -> None:
    assert parts(uneven(stragglers=slow(ranks="0-3"))) == ((0, 1), (2, 3))
    assert parts(uneven(stragglers=[*slow(ranks=0), *slow(ranks=2, slowdown=1.5)])) == ((0,), (1,), (2, 3))


def test_a_class_goes_at_the_pace_of_its_slowest_rank() -> None:
    made = uneven(stragglers=[*slow(ranks=2, slowdown=1.1), *slow(ranks=3)])
    assert made.uneven is not None
    division = divided(made)

    node = made.cluster.node
    kernels = kernels_of(made.plan.training, made.plan.strategy, node)

    paces = paces_of(division, made.uneven, lambda _: kernels)

    assert [pace.slowdown for pace in paces] == [1.0, 1.3, 1.0, 1.0]


def test_work_shared_by_two_kinds_takes_as_long_as_on_the_one_slower_at_it() -> None:
    made = built(
        cluster={"nodes": [{"node": kind, "count": 1, "accelerators_per_node": 4} for kind in ("pcie-l40s", "pcie-a100-80g")]},
        strategy={"tp": 8, "pp": 1},
    )
    assert made.uneven is not None
    kinds = [kernels_of(made.plan.training, made.plan.strategy, node) for node in made.uneven.nodes]
    models = {each.accelerator.name: each for each in kinds}

    (pace,) = paces_of(divided(made), made.uneven, lambda node: models[node.accelerator.name])

    for kernel in (Stream(traffic_bytes=1e9), Gemm(m=4096, n=4096, k=4096)):
        assert pace.kernels.work_s([kernel]) == max(each.work_s([kernel]) for each in kinds)


def test_where_steps_vary_every_replica_is_a_part_of_its_own() -> None:
    made = uneven("cluster.jitter=3 %")

    assert parts(made) == ((0,), (1,), (2,), (3,))
    assert made.uneven is not None
    drawn = jitter_of(divided(made), made.uneven, seed=1)
    assert drawn is not None
    assert list(drawn.n_coupled) == [2] * 8


def test_workers_are_nodes_or_accelerators() -> None:
    node_wise = built(strategy={"tp": 2, "data_parallel": {**SERVERS, "mode": "async", "reduce_in_node": True}})
    each = built(strategy={"tp": 2, "data_parallel": {**SERVERS, "mode": "async"}})

    assert parts(node_wise) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert parts(each) == tuple((replica,) for replica in range(8))


def test_a_slow_rank_in_a_node_that_pushes_together_slows_the_node() -> None:
    made = uneven(strategy={"tp": 2, "data_parallel": SERVERS}, stragglers=slow(ranks=3))

    assert parts(made) == ((0, 1, 2, 3), (4, 5, 6, 7))


@pytest.mark.parametrize(
    ("keys", "policy"),
    [
        ({}, Synchronous()),
        ({"mode": "async"}, Asynchronous()),
        ({"mode": "ssp", "staleness": 2}, StaleSynchronous(staleness=2)),
    ],
)
def test_workers_keep_together_as_asked(keys: dict[str, Data], policy: object) -> None:
    made = uneven("cluster.jitter=1 %", strategy={"tp": 2, "data_parallel": {**SERVERS, **keys}})
    assert made.uneven is not None

    assert policy_of(stage_of(made.plan, 0), divided(made)) == policy


def test_backup_workers_are_those_that_nobody_waits_for() -> None:
    made = built(strategy={"tp": 2, "data_parallel": {**SERVERS, "backup_workers": 1, "reduce_in_node": False}})
    assert made.uneven is not None
    policy = policy_of(stage_of(made.plan, 0), divided(made))

    assert isinstance(policy, BackupWorkers)
    assert policy.n_needed == 7
    assert [operation.op for operation in policy.update] == ["update"]


def test_one_step_is_replayed_unless_steps_differ() -> None:
    steady, varying = built(), built("cluster.jitter=3 %")

    assert (steady.n_steps, varying.n_steps, built("cluster.jitter=3 %", "steps=7").n_steps) == (1, 50, 7)
    assert [flag.code for flag in varying.flags if flag not in steady.flags] == ["assumed_steps"]


def test_one_step_with_jitter_is_the_expected_one() -> None:
    even, varying = (run_built(built(*more, "strategy.tp=1", "strategy.pp=1")) for more in ((), ("cluster.jitter=3 %", "steps=1")))

    waiting = Jitter(sigma=0.03).largest(even.metrics.ranks)
    assert varying.metrics.breakdown_s.compute == pytest.approx(waiting * even.metrics.breakdown_s.compute, rel=1e-6)
    assert varying.metrics.step_time_s > even.metrics.step_time_s
    assert [flag.code for flag in varying.flags if flag.code == "expected_jitter"] == ["expected_jitter"]


def test_the_expected_step_is_the_mean_of_drawn_ones() -> None:
    one, many = (run_built(built("cluster.jitter=5 %", f"steps={n}", "strategy.tp=1", "strategy.pp=1")) for n in (1, 400))

    assert one.metrics.step_time_s == pytest.approx(many.metrics.step_time_s, rel=0.005)


def test_a_slow_rank_waits_as_all_others_do() -> None:
    made = uneven("cluster.jitter=3 %", "steps=1", stragglers=slow(ranks=3))
    assert made.uneven is not None

    paces = paces_of(divided(made), made.uneven, lambda node: kernels_of(made.plan.training, made.plan.strategy, node))

    waiting = Jitter(sigma=0.03).largest(16)
    assert sorted({pace.slowdown for pace in paces}) == pytest.approx([waiting, 1.3 * waiting])


def test_a_slow_rank_of_another_job_is_refused() -> None:
    job: Data = {"scenario": {"model": "gpt2", "training": {"global_batch_size": 8, "seq_length": 128}}, "nodes": [1], "name": "other"}
    error = refusal(
        cluster={"node": "dgx-a100-40g", "nodes": 2, "stragglers": slow(ranks=9)},
        jobs=[job],
    )

    assert (error.field, error.message) == ("cluster.stragglers", "rank 9 is on node 1, which belongs to another job")


def test_more_steps_than_can_be_simulated_are_refused() -> None:
    made = built("cluster.jitter=3 %", "steps=100000")

    with pytest.raises(ScenarioError, match="tasks are more than the 2,000,000 tasks that are simulated"):
        run_built(made)


def test_a_result_says_who_a_class_goes_at_the_pace_of() -> None:
    made = uneven(stragglers=slow(ranks=3))

    result = run_built(made)

    assert [flag.message for flag in result.flags if flag.code == "pace_of_slowest"] == ["stage 0, ranks 2-3 go at the pace of rank 3"]
    assert result.metrics.steps is not None
    assert result.metrics.steps.waited_for[0].slow == "rank 3"


def test_ranks_that_are_all_alike_or_alone_go_at_their_own_pace() -> None:
    made = uneven("strategy.tp=1", "strategy.pp=1", stragglers=slow(ranks=3))
    assert made.uneven is not None

    assert slow_ranks(divided(made), made.uneven) == ("", "")

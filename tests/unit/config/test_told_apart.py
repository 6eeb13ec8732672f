"""Differences between ranks change the figures that they must, and no others."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from clustersim.apps.run import replaying
from clustersim.apps.run.result import Result
from clustersim.apps.run.running import run

DENSE = {
    "num_hidden_layers": 8,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "intermediate_size": 2816,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
SPARSE = {**DENSE, "num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 1408}


def ran(cluster: dict[str, object], *, batch: int = 16, model: dict[str, int] = DENSE, fold: bool = True, **strategy: object) -> Result:
    training = {"global_batch_size": batch, "micro_batch_size": 1, "seq_length": 512}
    scenario = {"version": 1, "name": "told", "model": model, "cluster": cluster, "strategy": strategy, "training": training}
    return run(scenario, fold=fold)


@pytest.mark.parametrize("reduce_in_node", [False, True])
def test_servers_add_up_the_gradients_of_parts_that_push_apart(reduce_in_node: bool) -> None:
    service = {"algorithm": "parameter_server", "reduce_in_node": reduce_in_node}
    nodes: dict[str, object] = {"node": "dgx-h100", "nodes": 2}
    hardly_slow = {**nodes, "stragglers": [{"ranks": 0, "slowdown": 1.000001}]}

    even, divided, apart = (
        ran(nodes, data_parallel=service),
        ran(hardly_slow, data_parallel=service),
        ran(nodes, fold=False, data_parallel=service),
    )

    # Smaller pushes ramp up a little sooner.
    assert divided.step_time_s == pytest.approx(even.step_time_s, rel=0.05)
    assert apart.step_time_s == pytest.approx(even.step_time_s, rel=0.05)


def test_workers_of_a_rack_add_up_over_all_of_its_nodes() -> None:
    service = {"algorithm": "parameter_server", "reduce_in_node": True}
    rack: dict[str, object] = {"node": "gb200-nvl72", "nodes": 2}

    folded, apart = (ran(rack, fold=fold, data_parallel=service) for fold in (True, False))

    assert apart.step_time_s == pytest.approx(folded.step_time_s, rel=1e-9)
    assert [use.bytes for use in apart.metrics.links] == pytest.approx([use.bytes for use in folded.metrics.links], rel=1e-9)


def test_waiting_for_experts_is_counted_in_passes_that_meet_others_too() -> None:
    def waited_s(*, whole: bool) -> float:
        real = replaying.replay_in_part
        with patch.object(replaying, "replay_in_part", (lambda *_: None) if whole else real):
            result = ran(
                {"node": "dgx-h100", "nodes": 1}, batch=2048, model=SPARSE, pp=2, ep=2, stage_layers="balanced", expert_load="zipf"
            )
        assert result.metrics.experts is not None
        return result.metrics.experts.waited_s

    assert waited_s(whole=True) == pytest.approx(waited_s(whole=False), rel=1e-9)


def test_whoever_is_called_slow_is_in_the_class_that_was_waited_for() -> None:
    slow = [{"ranks": rank, "slowdown": 1.1} for rank in (1, 2)]

    report = ran({"node": "dgx1-v100-32g", "nodes": 1, "stragglers": slow}, batch=8, cp=2, zero_stage=3, shard_degree=2).metrics.steps

    assert report is not None
    assert [(each.name, each.slow) for each in report.waited_for] == [("ranks 0-1", "rank 1")]


def test_a_job_computes_on_the_kind_of_node_that_it_has() -> None:
    inner = {"model": DENSE, "training": {"global_batch_size": 16, "micro_batch_size": 1, "seq_length": 512}, "strategy": {"zero_stage": 1}}
    kinds = [{"node": "dgx1-v100-32g", "count": 2}, {"node": "aws-p4d", "count": 2}]
    scenario = {
        "version": 1,
        "name": "kinds",
        "model": DENSE,
        "cluster": {"nodes": kinds},
        "training": {"global_batch_size": 16, "micro_batch_size": 1, "seq_length": 512, "precision": "fp16"},
        "jobs": [{"nodes": 2, "scenario": inner}],
    }

    (job,) = run(scenario).metrics.jobs

    assert job.step_time_alone_s > 0.0

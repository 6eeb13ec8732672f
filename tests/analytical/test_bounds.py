"""Lower bounds against closed forms, and against steps."""

from __future__ import annotations

import numpy as np
import pytest

import clustersim
from clustersim.errors import ScenarioError
from clustersim.measure.bounds.bound_evaluator import lanes, ways_of_schedule


@pytest.mark.parametrize("n_stages", [1, 2, 4, 8])
@pytest.mark.parametrize("n_micro_batches", [1, 8, 32])
def test_equal_stages_take_fill_passes_and_drain(n_stages: int, n_micro_batches: int) -> None:
    forward_s, backward_s = np.full(n_stages, 1.0), np.full(n_stages, 2.0)
    ways = ways_of_schedule("1f1b", n_stages, 1)

    found = lanes(ways, (forward_s, backward_s), np.array([float(n_micro_batches)]))

    # (m + p - 1) (t_f + t_b): the last stage waits for all others, before its first pass and behind its last
    assert (found.fill_s + found.busy_s + found.drain_s).max() == pytest.approx((n_micro_batches + n_stages - 1) * 3.0)


@pytest.mark.parametrize(("n_stages", "n_chunks"), [(2, 2), (4, 5)])
def test_chunks_divide_fill_and_drain(n_stages: int, n_chunks: int) -> None:
    forward_s, backward_s = np.full(n_stages * n_chunks, 1.0), np.full(n_stages * n_chunks, 2.0)
    ways = ways_of_schedule("interleaved_1f1b", n_stages, n_chunks)

    found = lanes(ways, (forward_s, backward_s), np.array([16.0]))

    # v m (t_f + t_b) + (p - 1) (t_f + t_b), with times of one chunk
    assert (found.fill_s + found.busy_s + found.drain_s).max() == pytest.approx((16 * n_chunks + n_stages - 1) * 3.0)


@pytest.mark.parametrize("node", ["dgx1-v100-16g", "aws-p3dn"])
@pytest.mark.parametrize("pp", [2, 4])
def test_a_bound_holds_where_the_pairs_of_a_stage_have_fewer_links_than_others(node: str, pp: int) -> None:
    # Ranks 0 and 1 have one NVLink between them, ranks 2 and 3 have two.
    training = {"global_batch_size": 64, "micro_batch_size": 2, "precision": "fp16"}
    scenario = {"model": "gpt2-medium", "cluster": {"node": node, "nodes": 1}, "training": training, "strategy": {"tp": 2, "pp": pp}}

    assert clustersim.run(scenario).bounds.bound_fraction <= 1.0


def test_a_bound_holds_where_stages_gather_while_they_wait_for_sends() -> None:
    strategy = {"tp": 4, "pp": 4, "zero_stage": 3, "stage_layers": "balanced", "data_parallel": {"overlap": False}}
    training = {"global_batch_size": 256, "micro_batch_size": 2}
    scenario = {"model": "gpt2", "cluster": {"node": "aws-p4d", "nodes": 4}, "training": training, "strategy": strategy}

    assert clustersim.run(scenario).bounds.bound_fraction <= 1.0


@pytest.mark.parametrize("pipeline", [{}, {"pp": 2, "schedule": "interleaved_1f1b", "virtual_stages": 2}], ids=["one stage", "two"])
def test_tokens_that_travel_beside_other_micro_batches_are_seldom_waited_for(pipeline: dict[str, object]) -> None:
    training = {"global_batch_size": 128, "micro_batch_size": 1}
    layout = {"model": "mixtral-8x7b", "cluster": {"node": "dgx-h100", "nodes": 4}, "training": training}
    apart, beside = (
        clustersim.run({**layout, "strategy": {"ep": 8, "zero_stage": 1, "recompute": "full", "overlap_ep": overlap, **pipeline}})
        for overlap in (False, "micro_batches")
    )

    exposed_s = [run.metrics.breakdown_s.exposed_communication.ep for run in (apart, beside)]
    assert exposed_s[1] < exposed_s[0] / 2
    assert beside.step_time_s < apart.step_time_s
    assert beside.bounds.bound_fraction <= 1.0


def test_a_pipeline_that_alternates_between_stages_has_nothing_to_run_beside_tokens() -> None:
    training, strategy = {"global_batch_size": 128}, {"ep": 8, "pp": 2, "overlap_ep": "micro_batches"}
    with pytest.raises(ScenarioError, match="1f1b has no forward pass of another micro-batch beside each backward pass"):
        clustersim.run({"model": "mixtral-8x7b", "cluster": {"node": "dgx-h100", "nodes": 4}, "training": training, "strategy": strategy})


def test_a_bound_holds_where_unequal_buckets_are_reduced_as_one() -> None:
    # The library chooses for the mean bucket: what it chooses for each by itself may be slower.
    cluster = {"node": "pcie-rtx4090", "nodes": 3, "fabric": {"topology": "leaf_spine", "nodes_per_leaf": 2, "oversubscription": 1}}
    training = {"global_batch_size": 96, "micro_batch_size": 2, "seq_length": 512}
    gradients = {"overlap": False, "bucket": "100 MB"}
    scenario = {"model": "llama3.2-1b", "cluster": cluster, "training": training, "strategy": {"data_parallel": gradients}}

    assert clustersim.run(scenario).bounds.bound_fraction <= 1.0


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb-v", "gpt3-175b-selene", "gpt-10b-zero-offload-v100"])
def test_a_step_without_contention_is_its_bound(name: str) -> None:
    assert clustersim.run(name).bounds.bound_fraction == 1.0


# llama3-70b-h100-512 has 0.99997 since hosts wait for its sends, and 1.0 with sync_p2p: false.
@pytest.mark.parametrize(
    "name", ["mixtral-8x7b-ep", "dualpipe", "llama3-70b-h100-512", "llama3-405b-4d", "resnet50-async-servers", "two-jobs-one-fabric"]
)
def test_a_step_with_contention_is_longer_than_its_bound(name: str) -> None:
    assert 0.9 <= clustersim.run(name).bounds.bound_fraction < 1.0


def test_the_parts_of_the_longest_path_add_up_to_it() -> None:
    bounds = clustersim.run("llama3-70b-h100-512").bounds

    assert sum(part.seconds for part in bounds.parts) == pytest.approx(bounds.path_s, rel=1e-9)

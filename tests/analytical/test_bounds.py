"""Least times against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

import clustersim
from clustersim.errors import ScenarioError
from clustersim.measure.bounds.pipeline_bounds import lanes, ways_of_schedule


@pytest.mark.parametrize("n_stages", [1, 2, 4, 8])
@pytest.mark.parametrize("n_micro_batches", [1, 8, 32])
def test_equal_stages_take_fill_passes_and_drain(n_stages: int, n_micro_batches: int) -> None:
    forward_s, backward_s = np.full(n_stages, 1.0), np.full(n_stages, 2.0)
    ways = ways_of_schedule("1f1b", n_stages, 1)

    found = lanes(ways, (forward_s, backward_s), np.array([float(n_micro_batches)]), send_s=0.0, sends_block=False)

    # (m + p - 1) (t_f + t_b): the last stage waits for all others, before its first pass and behind its last
    assert (found.fill_s + found.busy_s + found.drain_s).max() == pytest.approx((n_micro_batches + n_stages - 1) * 3.0)


@pytest.mark.parametrize(("n_stages", "n_chunks"), [(2, 2), (4, 5)])
def test_chunks_divide_fill_and_drain(n_stages: int, n_chunks: int) -> None:
    forward_s, backward_s = np.full(n_stages * n_chunks, 1.0), np.full(n_stages * n_chunks, 2.0)
    ways = ways_of_schedule("interleaved_1f1b", n_stages, n_chunks)

    found = lanes(ways, (forward_s, backward_s), np.array([16.0]), send_s=0.0, sends_block=False)

    # v m (t_f + t_b) + (p - 1) (t_f + t_b), with times of one chunk
    assert (found.fill_s + found.busy_s + found.drain_s).max() == pytest.approx((16 * n_chunks + n_stages - 1) * 3.0)


def test_sends_that_block_are_part_of_a_stage() -> None:
    times = np.ones(4)
    ways = ways_of_schedule("1f1b", 4, 1)

    free = lanes(ways, (times, times), np.array([8.0]), send_s=0.1, sends_block=False)
    blocked = lanes(ways, (times, times), np.array([8.0]), send_s=0.1, sends_block=True)

    # An inner stage sends forward and backward for each micro-batch; the last send belongs to what comes behind.
    assert (blocked.busy_s - free.busy_s).tolist() == pytest.approx([0.7, 1.5, 1.5, 0.7])
    assert free.fill_s.tolist() == pytest.approx([0.0, 1.1, 2.2, 3.3])


@pytest.mark.parametrize(("gather_s", "waited_s"), [(0.1, 1.5), (0.5, 3.5)])
def test_gathers_pass_beside_sends_that_block(gather_s: float, waited_s: float) -> None:
    times = np.ones(4)
    ways = ways_of_schedule("1f1b", 4, 1)

    free = lanes(ways, (times, times), np.array([8.0]), send_s=0.1, sends_block=False)
    found = lanes(ways, (times, times), np.array([8.0]), send_s=0.1, sends_block=True, more_s=gather_s)

    # max(15 sends, 7 gathers) of an inner stage
    assert (found.busy_s - free.busy_s)[1] == pytest.approx(waited_s)


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


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "llama3-70b-h100-512", "gpt3-175b-selene", "gpt2-dp-8xv100", "llama3-8b-8xh100"])
def test_typical_layouts_are_within_two_percent_of_their_bound(name: str) -> None:
    bounds = clustersim.run(name).bounds

    assert 0.98 <= bounds.bound_fraction <= 1.0


@pytest.mark.parametrize("name", ["mixtral-8x7b-ep", "zb-v", "dualpipe", "gpt-10b-zero-offload-v100", "llama3-405b-4d"])
def test_other_layouts_are_within_a_fifth_of_their_bound(name: str) -> None:
    # Over hashed paths no traffic is in the bound, because what meets on them depends on all of it.
    bounds = clustersim.run(name, set=["cluster.fabric.routing=adaptive"]).bounds

    assert 0.8 <= bounds.bound_fraction <= 1.0


def test_the_parts_of_the_longest_way_add_up_to_it() -> None:
    bounds = clustersim.run("llama3-70b-h100-512").bounds

    assert sum(part.seconds for part in bounds.parts) == pytest.approx(bounds.path_s, rel=0.02)

"""Memory of accelerators beside offloaded state, and of hosts and drives."""

from __future__ import annotations

import pytest

from clustersim.config.machine import host_bytes
from clustersim.parallel.stage import stage_of, stages_of
from clustersim.parallel.training_plan import Offload, Plan
from clustersim.topology.cluster_wiring import build_cluster
from tests.unit.parallel.factories import held, local_of, make_plan
from tests.unit.topology.factories import make_node

HOST = Offload(optimizer="host", gradients="host")
ALL_HOST = Offload(optimizer="host", gradients="host", parameters="host")
ALL_NVME = Offload(optimizer="nvme", gradients="nvme", parameters="nvme")


def plan_of(offload: Offload, **changes: object) -> Plan:
    return make_plan(**{"offload": offload, "zero_stage": 3, "dp": 8, "global_batch_size": 8, "no_sync": False, **changes})


def shard_of(plan: Plan) -> float:
    return stage_of(plan, 0).weights.total / plan.strategy.sharding.degree


def test_shards_of_two_buckets_stand_in_for_the_gradients() -> None:
    assert held(plan_of(HOST, zero_stage=2, bucket_bytes=1e6), owner="offload") == 2e6 / 8
    # A bucket that is larger than all gradients holds no more than these.
    whole_bytes = 4.0 * sum(layer_sizes(plan_of(HOST)))
    assert held(plan_of(HOST, zero_stage=2, bucket_bytes=1e12), owner="offload") == pytest.approx(2.0 * whole_bytes / 8, rel=1e-12)


def layer_sizes(plan: Plan) -> list[float]:
    return [weights.total for weights in local_of(plan).layer_weights()]


def two_units_bytes(plan: Plan) -> float:
    """Return the shards of the gradients of the first layer, and of embedding and head, which are reduced one behind the other."""
    layers = layer_sizes(plan)
    return (layers[0] + stage_of(plan, 0).weights.total - sum(layers)) * 4.0 / 8


def test_units_of_sharded_parameters_stand_in_for_their_gradients_whatever_the_bucket() -> None:
    small, large = (plan_of(HOST, bucket_bytes=size) for size in (1e6, 1e12))

    assert held(small, owner="offload") == held(large, owner="offload") == pytest.approx(two_units_bytes(small), rel=1e-12)


@pytest.mark.parametrize(("prefetch", "overlap", "n_layers"), [(0, True, 1), (1, True, 2), (3, True, 4), (3, False, 1)])
def test_shards_of_layers_stand_in_for_the_parameters(prefetch: int, overlap: bool, n_layers: int) -> None:
    plan = plan_of(ALL_HOST, prefetch=prefetch, overlap=overlap)

    shards = held(plan, owner="offload") - two_units_bytes(plan)
    assert shards == pytest.approx(n_layers * layer_sizes(plan)[0] * 2.0 / 8, rel=1e-9)


def test_the_host_holds_16_bytes_of_each_parameter_and_the_copy_on_its_way() -> None:
    plan = plan_of(HOST)

    # Weight, two moments and gradient in fp32, and 16 bits in page-locked tiles, which are larger than this shard.
    assert held(plan, place="host") == pytest.approx(shard_of(plan) * 18.0, rel=1e-12)
    assert held(plan_of(ALL_HOST), place="host") == pytest.approx(shard_of(plan) * 18.0, rel=1e-12)


def test_without_sharding_every_rank_needs_room_for_all() -> None:
    alone, sharded = plan_of(Offload(optimizer="host"), zero_stage=0), plan_of(Offload(optimizer="host"), zero_stage=1)

    assert held(alone, place="host") == pytest.approx(8.0 * held(sharded, place="host"), rel=1e-12)


def test_large_shards_on_drives_pass_through_memory_in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(ALL_NVME)
    monkeypatch.setattr("clustersim.parallel.contributors.optimizer_update.TILE_PARAMETERS", shard_of(plan) / 10.0)

    assert held(plan, place="host") == pytest.approx(shard_of(plan) * (0.3 * (12.0 + 4.0) + 0.2 * 2.0), rel=1e-12)


def test_sums_of_several_micro_batches_wait_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(ALL_NVME, global_batch_size=16)
    monkeypatch.setattr("clustersim.parallel.contributors.optimizer_update.TILE_PARAMETERS", shard_of(plan) / 10.0)

    assert held(plan, place="host") == pytest.approx(shard_of(plan) * (0.3 * 12.0 + 4.0 + 0.2 * 2.0), rel=1e-12)


def test_a_node_holds_what_all_of_its_ranks_need() -> None:
    plan = plan_of(Offload(optimizer="host"), dp=4, pp=2, zero_stage=1)
    cluster = build_cluster(make_node(n_accelerators=4), 2)

    needed = host_bytes(stages_of(plan), cluster)

    assert needed.tolist() == pytest.approx([4.0 * held(plan, stage, place="host") for stage in (0, 1)], rel=1e-12)

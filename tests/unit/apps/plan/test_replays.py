"""A tenth more of one resource, and of nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from clustersim.apps.plan import replays
from clustersim.apps.plan.replays import RESOURCES, UPLINKS, ReplayOutcome, Replays, replayed, resources, with_more
from clustersim.apps.run.running import run_built
from clustersim.config.build import Built, build
from clustersim.config.load import load_scenario

SCENARIO: dict[str, Any] = {
    "version": 1,
    "name": "small",
    "model": "llama3.2-1b",
    "cluster": {"node": "dgx-a100-40g", "nodes": 2, "fabric": {"oversubscription": 2, "nodes_per_leaf": 1}},
    "training": {"global_batch_size": 32, "seq_length": 1024},
    "strategy": {"tp": 2},
}


def scenario(**cluster: object) -> Built:
    return build(load_scenario(SCENARIO | {"cluster": SCENARIO["cluster"] | cluster}))


def test_one_node_has_no_network_and_a_full_fabric_no_narrow_uplinks() -> None:
    assert resources(scenario()) == (*RESOURCES, UPLINKS)
    assert resources(scenario(fabric={"oversubscription": 1})) == tuple(RESOURCES)
    assert resources(scenario(nodes=1)) == tuple(name for name in RESOURCES if name != "network bandwidth")


@pytest.mark.parametrize("resource", [*RESOURCES, UPLINKS])
def test_a_tenth_more_of_anything_never_costs_time(resource: str) -> None:
    before = scenario()

    after = with_more(before, resource)

    assert run_built(after).step_time_s <= run_built(before).step_time_s * (1 + 1e-9)
    assert (after.plan, after.cluster.n_ranks) == (before.plan, before.cluster.n_ranks)


def test_links_are_a_tenth_wider_where_they_are_asked_to_be() -> None:
    before = scenario().cluster
    wider = {
        name: np.asarray(with_more(scenario(), name).cluster.bandwidth_bytes_per_s) / before.bandwidth_bytes_per_s
        for name in (*RESOURCES, UPLINKS)
    }

    def of_tier(name: str, tier: str) -> float:
        chosen = [ratio for ratio, link in zip(wider[name], before.links, strict=True) if link.tier == tier]
        assert min(chosen) == pytest.approx(max(chosen))
        return float(chosen[0])

    assert of_tier("network bandwidth", "nic") == pytest.approx(1.1)
    assert of_tier("scale-up bandwidth", "nvlink") == pytest.approx(1.1)
    assert of_tier(UPLINKS, "leaf") == pytest.approx(1.1)
    assert of_tier(UPLINKS, "nic") == of_tier("memory bandwidth", "nvlink") == 1.0


def test_other_processes_replay_a_larger_cluster_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "PATIENCE_S", -1.0)
    with Replays() as pool:
        outcome = pool.end(pool.begin(SCENARIO, "scale-up bandwidth"))

    here, plain = replayed(SCENARIO, "scale-up bandwidth"), replayed(SCENARIO)
    assert isinstance(outcome, ReplayOutcome)
    assert isinstance(here, ReplayOutcome)
    assert isinstance(plain, ReplayOutcome)
    assert outcome.step_time_s == here.step_time_s < plain.step_time_s

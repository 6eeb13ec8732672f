"""What may be offloaded, where to, and what an error says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.config.offloading import check_drives, host_shortfall
from clustersim.documents.spots import Data
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import load_node
from clustersim.parallel.contributors.optimizer_update import OffloadedUpdate
from clustersim.parallel.training_plan import Offload, OffloadPart, StrategySettings
from clustersim.topology.cluster_wiring import build_cluster, build_mixed_cluster
from tests.unit.config.samples import refusal
from tests.unit.parallel.factories import make_plan
from tests.unit.topology.factories import make_node

DRIVEN, BARE = load_node("dgx2-v100-32g"), load_node("dgx1-v100-16g")


def asked(*parts: Data, zero_stage: int = 3) -> Offload:
    strategy = StrategySettings.model_validate({"offload": parts, "zero_stage": zero_stage})
    OffloadedUpdate.refuse(make_plan(), strategy)
    return strategy.offload


def refused(*parts: Data, zero_stage: int = 3) -> tuple[str, str | None]:
    error = refusal(
        "training.precision=fp16", cluster={"node": DRIVEN.name, "nodes": 1}, strategy={"offload": [*parts], "zero_stage": zero_stage}
    )
    assert error.field == "strategy.offload"
    return error.message, error.hint


def test_nothing_asked_is_nothing_offloaded() -> None:
    assert asked() == Offload()


def test_parts_go_to_host_memory_unless_something_else_is_said() -> None:
    assert asked("optimizer") == asked("optimizer", {"to": "host"}) == Offload(optimizer="host")
    assert asked("gradients", "optimizer") == Offload(optimizer="host", gradients="host")


def test_all_named_parts_go_to_one_place() -> None:
    expected = Offload(optimizer="nvme", gradients="nvme", parameters="nvme")
    assert asked({"to": "nvme"}, "optimizer", "gradients", "parameters") == expected


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_the_optimizer_may_leave_with_any_sharding(zero_stage: int) -> None:
    assert asked("optimizer", zero_stage=zero_stage) == Offload(optimizer="host")


def test_a_part_that_stands_twice_is_refused() -> None:
    assert refused("optimizer", "optimizer") == ("'optimizer' stands twice", "name each part once")


def test_two_places_are_refused() -> None:
    message, hint = refused("optimizer", {"to": "host"}, {"to": "nvme"})

    assert (message, hint) == ("2 places to offload to", "write {to: host} or {to: nvme} once")


def test_a_place_for_nothing_is_refused() -> None:
    assert refused({"to": "host"})[0] == "nothing is offloaded to host"


@pytest.mark.parametrize("part", ["gradients", "parameters"])
def test_nothing_leaves_without_the_optimizer(part: OffloadPart) -> None:
    message, hint = refused(part)

    assert message == f"{part} cannot be offloaded without the optimizer"
    assert hint is not None
    assert f"[optimizer, {part}]" in hint


@pytest.mark.parametrize("zero_stage", [0, 1])
def test_gradients_that_are_not_sharded_stay(zero_stage: int) -> None:
    message, hint = refused("optimizer", "gradients", zero_stage=zero_stage)

    assert message == f"with zero_stage {zero_stage} gradients stay on the accelerator until the last micro-batch"
    assert hint is not None
    assert "zero_stage: 2" in hint


@pytest.mark.parametrize("zero_stage", [0, 1, 2])
def test_parameters_that_are_not_sharded_stay(zero_stage: int) -> None:
    _, hint = refused("optimizer", "parameters", zero_stage=zero_stage)

    assert hint == "use zero_stage: 3, or leave parameters out"


def test_activations_go_to_the_host_by_themselves() -> None:
    assert asked("activations", zero_stage=0) == Offload(activations="host")


def test_activations_are_not_sent_to_drives() -> None:
    message, hint = refused("activations", {"to": "nvme"})

    assert message == "activations go to the memory of the host, not to its drives"
    assert hint == "use {to: host}, or leave activations out"


def test_a_node_without_nvme_is_refused_and_those_with_it_are_named() -> None:
    with pytest.raises(ScenarioError) as error:
        check_drives(StrategySettings.model_validate({"offload": ["optimizer", {"to": "nvme"}]}), [DRIVEN, BARE])

    assert error.value.message == "dgx1-v100-16g has no NVMe"
    assert error.value.hint is not None
    assert "{to: host}" in error.value.hint
    assert "dgx2-v100-32g" in error.value.hint
    assert "dgx1" not in error.value.hint


def test_a_host_that_is_too_small_is_named() -> None:
    plan = make_plan(offload=Offload(optimizer="host", gradients="host"), zero_stage=2, dp=16, global_batch_size=16)
    node = make_node()
    small = replace(node, name="small", host=replace(node.host, memory_bytes=1e6))

    shortfall = host_shortfall(plan, build_mixed_cluster([(node, 1), (small, 1)]))

    assert shortfall.startswith("what is offloaded to node 1 takes")
    assert shortfall.endswith("and its host has 1 MB of memory")
    assert not host_shortfall(plan, build_cluster(node, 2))
    assert not host_shortfall(make_plan(dp=16), build_cluster(small, 2))

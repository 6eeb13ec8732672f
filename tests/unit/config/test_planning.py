"""Plan of a scenario: the order of dimensions left open, offloading, and demands of context and expert parallelism on a model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.config.machine import host_shortfall
from clustersim.config.planning import FAR_STAGES, NEAR_STAGES, MeshDimension, rank_layout
from clustersim.documents.text import Data
from clustersim.errors import DomainError
from clustersim.hardware.catalog import load_node
from clustersim.parallel.contributors.optimizer_update import OffloadedUpdate
from clustersim.parallel.division import place
from clustersim.parallel.sharding_groups import expert_grid
from clustersim.parallel.stage import stages_of
from clustersim.parallel.training_plan import Offload, StrategySettings
from clustersim.topology.cluster_wiring import build_cluster, build_mixed_cluster
from tests.unit.config.samples import built, refusal
from tests.unit.parallel.factories import make_plan
from tests.unit.topology.factories import make_node


@pytest.mark.parametrize(
    ("strategy", "order"),
    [({"tp": 2, "pp": 2}, NEAR_STAGES), ({"tp": 8, "pp": 2}, FAR_STAGES), ({"tp": 8, "pp": 1}, FAR_STAGES)],
)
def test_stages_are_neighbours_where_they_fit_under_a_leaf(strategy: dict[str, Data], order: tuple[str, ...]) -> None:
    one_node: Data = {"node": "dgx-a100-40g", "nodes": 2, "fabric": {"topology": "leaf_spine", "nodes_per_leaf": 1}}
    found = built(cluster=one_node, strategy={**strategy, "placement": "auto"})

    assert found.plan.strategy.placement == order
    assert "chosen_placement" in {flag.code for flag in found.flags}


def test_a_placement_that_is_written_is_kept() -> None:
    assert built(strategy={"tp": 2, "placement": ["dp", "tp", "cp", "ep", "pp"]}).plan.strategy.placement == ("dp", "tp", "cp", "ep", "pp")


def test_replicas_that_hold_all_experts_stay_together_before_the_stages() -> None:
    strategy = built(model=MIXTURE, strategy={"pp": 2, "ep": 4, "placement": "auto"}).plan.strategy
    mesh = place(strategy)

    assert strategy.placement == NEAR_STAGES
    assert expert_grid(strategy, mesh, 0)[0].reshape(-1).tolist() == [0, 1, 2, 3]
    assert expert_grid(strategy, mesh, 1)[0].reshape(-1).tolist() == [4, 5, 6, 7]


def test_tensor_parallel_ranks_are_nearest_in_either_order() -> None:
    for order in (NEAR_STAGES, FAR_STAGES):
        strategy = make_plan(dp=4, tp=2, pp=2, placement=order).strategy
        assert place(strategy).groups("tp", 0)[0].tolist() == [0, 1]


DRIVEN = load_node("dgx2-v100-32g")
BARE = replace(DRIVEN, name="bare", host=replace(DRIVEN.host, storage_bandwidth_bytes_per_s=None))


def asked(*parts: Data, zero_stage: int = 3) -> Offload:
    strategy = StrategySettings.model_validate({"offload": parts, "zero_stage": zero_stage})
    plan = make_plan()
    OffloadedUpdate.refuse(plan.strategy, strategy, model=plan.model, training=plan.training)
    return strategy.offload


def refused(*parts: Data, zero_stage: int = 3) -> tuple[str, str | None]:
    error = refusal(
        "training.precision=fp16", cluster={"node": DRIVEN.name, "nodes": 1}, strategy={"offload": [*parts], "zero_stage": zero_stage}
    )
    assert error.field == "strategy.offload"
    return error.message, error.hint


def test_parts_go_to_host_memory_unless_something_else_is_said() -> None:
    assert asked("optimizer") == asked("optimizer", {"to": "host"}) == Offload(optimizer="host")
    assert asked("gradients", "optimizer") == Offload(optimizer="host", gradients="host")


def test_all_named_parts_go_to_one_place() -> None:
    expected = Offload(optimizer="nvme", gradients="nvme", parameters="nvme")
    assert asked({"to": "nvme"}, "optimizer", "gradients", "parameters") == expected


def test_activations_go_to_the_host_by_themselves() -> None:
    assert asked("activations", zero_stage=0) == Offload(activations="host")


@pytest.mark.parametrize(
    ("parts", "zero_stage", "message", "hint"),
    [
        (["optimizer", "optimizer"], 3, "'optimizer' stands twice", "name each part once"),
        (["optimizer", {"to": "host"}, {"to": "nvme"}], 3, "2 places to offload to", "write {to: host} or {to: nvme} once"),
        ([{"to": "host"}], 3, "nothing is offloaded to host", ""),
        (["gradients"], 3, "gradients cannot be offloaded without the optimizer", "[optimizer, gradients]"),
        (["parameters"], 3, "parameters cannot be offloaded without the optimizer", "[optimizer, parameters]"),
        (["optimizer", "gradients"], 1, "with zero_stage 1 gradients stay on the accelerator until the last", "zero_stage: 2"),
        (["optimizer", "parameters"], 2, "", "use zero_stage: 3, or leave parameters out"),
        (["activations", {"to": "nvme"}], 3, "activations go to the memory of the host, not to its drives", "use {to: host}, or leave"),
    ],
)
def test_what_cannot_be_offloaded_is_refused_with_what_can(parts: list[Data], zero_stage: int, message: str, hint: str) -> None:
    found, advice = refused(*parts, zero_stage=zero_stage)

    assert message in found
    assert hint in (advice or "")


def test_a_node_without_nvme_is_refused_and_those_with_it_are_named() -> None:
    plan, cluster = make_plan(offload=Offload(optimizer="nvme")), build_mixed_cluster([(DRIVEN, 1), (BARE, 1)])

    with pytest.raises(DomainError) as error:
        OffloadedUpdate.refuse_placed(plan.strategy, model=plan.model, cluster=cluster, nodes=(0, 1))

    assert error.value.message == "bare has no NVMe"
    assert error.value.hint is not None
    assert "{to: host}" in error.value.hint
    assert "dgx2-v100-32g" in error.value.hint
    assert "dgx1" not in error.value.hint


def test_a_host_that_is_too_small_is_named() -> None:
    plan = make_plan(offload=Offload(optimizer="host", gradients="host"), zero_stage=2, dp=16, global_batch_size=16)
    node = make_node()
    small = replace(node, name="small", host=replace(node.host, memory_bytes=1e6))

    shortfall = host_shortfall(stages_of(plan), build_mixed_cluster([(node, 1), (small, 1)]))

    assert shortfall.startswith("what is offloaded to node 1 takes")
    assert shortfall.endswith("and its host has 1 MB of memory")
    assert not host_shortfall(stages_of(plan), build_cluster(node, 2))
    assert not host_shortfall(stages_of(make_plan(dp=16)), build_cluster(small, 2))


@pytest.mark.parametrize(
    ("overrides", "field", "words"),
    [
        (["strategy.cp=2", "training.attention=unfused"], "training.attention", "fused attention only"),
        (["strategy.cp=4", "training.seq_length=4100"], "training.seq_length", "two pieces for each"),
        (
            ["strategy.cp=8", "strategy.tp=1", "strategy.pp=1", "strategy.context_parallel=ulysses", "training.seq_length=4100"],
            "training.seq_length",
            "one piece",
        ),
        (["strategy.cp=2", "training.scored_tokens=77"], "training.scored_tokens", "77 scored tokens"),
    ],
)
def test_what_ranks_cannot_divide_is_refused_at_its_value(overrides: list[str], field: str, words: str) -> None:
    error = refusal(*overrides)

    assert error.field == field
    assert words in error.message
    assert error.hint


def test_heads_that_cannot_be_dealt_out_are_refused_with_those_that_can() -> None:
    error = refusal("strategy.cp=8", "strategy.tp=2", "strategy.pp=1", "strategy.context_parallel=ulysses")

    assert error.field == "strategy.cp"
    assert "8 does not divide the 4 heads" in error.message
    assert "context_parallel: ring" in (error.hint or "")


def test_a_ring_is_refused_where_layers_see_a_window_only() -> None:
    error = refusal("strategy.cp=2", "strategy.tp=1", model="mistral-7b")

    assert error.field == "strategy.context_parallel"
    assert "all_gather or ulysses" in (error.hint or "")


@pytest.mark.parametrize("kind", ["ring", "all_gather", "ulysses"])
def test_ranks_of_a_sequence_hold_as_many_replicas_fewer(kind: str) -> None:
    sections: dict[str, Data] = {"strategy": {"cp": 4, "context_parallel": kind}}
    plan = built(**sections).plan

    assert plan.strategy.dp * 4 == built(strategy={}).plan.strategy.dp
    assert plan.strategy.replicas == built(strategy={}).plan.strategy.dp


MIXTURE: dict[str, Data] = {
    "num_hidden_layers": 8,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "vocab_size": 4096,
    "max_position_embeddings": 4096,
    "num_experts": 12,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 256,
}


@pytest.mark.parametrize(
    ("strategy", "field", "words"),
    [
        ({"ep": 8}, "strategy.ep", "8 does not divide 12 experts"),
        ({"ep": 3}, "strategy.ep", "does not divide the dp * cp * tp"),
        ({"ep": 2, "etp": 7}, "strategy.etp", "does not divide the width 256"),
        ({"tp": 2, "sequence_parallel": False}, "strategy.sequence_parallel", "tokens that tensor-parallel ranks have divided"),
        ({"ep": 4, "data_parallel": {"algorithm": "parameter_server"}}, "strategy.ep", "parameter servers keep whole models"),
        ({"ep": 4, "zero_stage": 1, "shard_degree": 2}, "strategy.shard_degree", "do not hold all experts"),
        ({"recompute": "alternate"}, "strategy.recompute", "dense layers only"),
    ],
)
def test_degrees_that_do_not_fit_are_refused_at_their_key(strategy: dict[str, Data], field: str, words: str) -> None:
    error = refusal(model=MIXTURE, strategy=strategy)

    assert error.field == field
    assert words in error.message
    assert error.hint


@pytest.mark.parametrize(("key", "value"), [("ep", 2), ("etp", 1), ("expert_load", "zipf")])
def test_a_model_without_experts_has_no_use_for_their_keys(key: str, value: Data) -> None:
    error = refusal(strategy={key: value})

    assert error.field == f"strategy.{key}"
    assert "has no experts" in error.message


def test_experts_of_several_ranks_fold_into_the_stage() -> None:
    strategy = built(model=MIXTURE, strategy={"tp": 2, "ep": 4, "etp": 1}).plan.strategy

    assert (strategy.ep, strategy.expert_tp, strategy.expert_replicas) == (4, 1, strategy.dp * 2 // 4)


def reaches(*overrides: str, node_size: int = 8, domain_size: int = 8) -> dict[str, str]:
    strategy = built(*overrides).plan.strategy
    return {span.dimension: span.reach for span in rank_layout(strategy, node_size=node_size, domain_size=domain_size)}


def test_the_fastest_dimension_comes_first_with_stride_one() -> None:
    spans = rank_layout(built().plan.strategy, node_size=8, domain_size=8)

    assert spans == (
        MeshDimension(dimension="tp", degree=2, stride=1, reach="inside a node"),
        MeshDimension(dimension="cp", degree=1, stride=2, reach="no communication"),
        MeshDimension(dimension="dp", degree=4, stride=2, reach="inside a node"),
        MeshDimension(dimension="pp", degree=2, stride=8, reach="across the fabric"),
    )


def test_another_placement_changes_the_strides() -> None:
    assert reaches("strategy.placement=[pp, tp, cp, ep, dp]") == {
        "pp": "inside a node", "tp": "inside a node", "cp": "no communication", "dp": "across the fabric"
    }  # fmt: skip


def test_a_domain_of_several_nodes_holds_more() -> None:
    assert reaches(node_size=4, domain_size=16) == {
        "tp": "inside a node", "cp": "no communication", "dp": "inside a scale-up domain", "pp": "inside a scale-up domain"
    }  # fmt: skip


def test_a_domain_that_holds_all_ranks_has_no_border() -> None:
    assert reaches(node_size=4, domain_size=72)["dp"] == "inside a scale-up domain"


def test_a_group_that_crosses_a_border_somewhere_is_across_the_fabric() -> None:
    assert reaches(node_size=6, domain_size=6)["dp"] == "across the fabric"


@pytest.mark.parametrize("placement", ["[tp, cp, ep, dp, pp]", "[pp, dp, ep, cp, tp]", "[dp, tp, cp, ep, pp]"])
def test_the_strides_are_those_of_the_mesh(placement: str) -> None:
    strategy = built(f"strategy.placement={placement}").plan.strategy
    groups = place(strategy).groups("dp", 0)[0]
    span = next(span for span in rank_layout(strategy, node_size=8, domain_size=8) if span.dimension == "dp")

    assert groups.tolist() == [int(groups[0]) + index * span.stride for index in range(span.degree)]

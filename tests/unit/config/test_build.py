"""From a checked scenario to model, cluster and plan; every default is filled in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clustersim.config.build import build
from clustersim.config.load import load_scenario
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import load_cluster, load_node
from clustersim.hardware.provenance import remembered_fields
from tests.unit.config.samples import MODEL, TEXT, built, refusal


def codes(*overrides: str, **sections: Data) -> list[str]:
    """Return the flags but for unseen figures, which depend on the profiles, and the host and kernels, which most plans assume."""
    usual = ("unseen_figures", "assumed_launch_overhead", "assumed_kernels")
    return [flag.code for flag in built(*overrides, **sections).flags if flag.code not in usual]


def unseen(cluster: Data) -> str:
    return "".join(flag.message for flag in built(cluster=cluster).flags if flag.code == "unseen_figures")


def test_figures_that_nobody_has_seen_are_named() -> None:
    message = unseen({"node": "dgx-a100-80g", "nodes": 16})

    assert all(name in message for name in remembered_fields(load_node("dgx-a100-80g")))


def test_a_named_cluster_answers_for_its_own_fabric_and_not_for_that_of_its_nodes() -> None:
    message = unseen({"name": "selene-a100", "nodes": 16})

    assert "selene-a100.fabric.nodes_per_leaf" in message
    assert "dgx-a100-80g.fabric" not in message


def test_a_figure_of_the_fabric_that_the_scenario_gives_is_no_longer_unseen() -> None:
    message = unseen({"name": "selene-a100", "nodes": 16, "fabric": {"nodes_per_leaf": 10}})

    assert "selene-a100.fabric.nodes_per_leaf" not in message
    assert "selene-a100.fabric.leaves_per_pod" in message
    assert "selene-a100.nodes" not in message


def test_a_figure_that_is_spelled_out_as_the_profile_has_it_is_still_the_profiles() -> None:
    plain, node = unseen({"node": "dgx-a100-80g", "nodes": 16}), load_node("dgx-a100-80g")

    assert unseen({"node": "dgx-a100-80g", "nodes": 16, "fabric": {"nodes_per_leaf": node.fabric.nodes_per_leaf}}) == plain
    assert unseen({"node": "dgx-a100-80g", "nodes": 16, "nics": {"bandwidth": "25 GB/s"}}) == plain


def test_the_defaults_are_those_of_the_promise() -> None:
    plan = built("training.precision=null", strategy={}).plan

    training, strategy, gradients = plan.training, plan.strategy, plan.strategy.data_parallel
    assert (training.micro_batch_size, training.precision, training.optimizer, training.attention) == (1, "bf16", "adam", "flash")
    assert (strategy.dp, strategy.tp, strategy.pp, strategy.cp, strategy.ep) == (16, 1, 1, 1, 1)
    assert (strategy.schedule, strategy.zero_stage, strategy.recompute, strategy.offload.parts) == ("1f1b", 0, "none", ())
    assert (gradients.mode, gradients.algorithm, gradients.overlap, gradients.bucket_bytes) == ("sync", "auto", True, 25e6)


def test_sequence_parallelism_comes_with_tensor_parallelism() -> None:
    assert built().plan.strategy.sequence_parallel
    assert not built("strategy.tp=1").plan.strategy.sequence_parallel


@pytest.mark.parametrize(("node", "precision"), [("dgx-h100", "bf16"), ("dgx1-v100-16g", "fp16"), ("aws-p2-k80", "fp32")])
def test_the_precision_that_is_assumed_is_one_that_the_accelerator_has(node: str, precision: str) -> None:
    made = built(cluster={"node": node, "nodes": 1}, training={"global_batch_size": 32})

    assert made.plan.training.precision == precision
    assert "assumed_precision" in [flag.code for flag in made.flags]


def test_a_precision_that_the_accelerator_lacks_is_refused_with_those_it_has() -> None:
    error = refusal("cluster.node=dgx1-v100-16g")

    assert (error.field, error.message) == ("training.precision", "v100-sxm2-16g does not have bf16")
    assert error.hint == "use fp32 or fp16"


@pytest.mark.parametrize(("precision", "gradients"), [("bf16", "fp32"), ("fp16", "same"), ("tf32", "same"), ("fp32", "same")])
def test_gradients_are_kept_in_32_bits_where_nothing_tells_of_software_that_did_not(precision: str, gradients: str) -> None:
    assert built(f"training.precision={precision}").plan.training.gradient_precision == gradients


def test_a_model_without_a_length_needs_one() -> None:
    model: Data = {key: value for key, value in MODEL.items() if key != "max_position_embeddings"}

    error = refusal(model=model)

    assert (error.field, error.message) == ("training.seq_length", "'seq_length' is missing")
    assert built("training.seq_length=512", model=model).plan.training.seq_length == 512


def test_sequences_longer_than_the_model_are_flagged() -> None:
    assert codes("training.seq_length=512") == ["long_sequence"]


def test_tensor_parallelism_beyond_the_scale_up_domain_is_flagged() -> None:
    overrides = ["model.num_attention_heads=16", "strategy.tp=16", "strategy.pp=1"]

    assert codes(*overrides) == ["tp_across_fabric"]
    assert "tp_across_fabric" not in codes(*overrides, "cluster.node=gb200-nvl72", "cluster.nodes=4")


def test_sequence_parallelism_without_tensor_parallelism_is_flagged() -> None:
    assert codes("strategy.tp=1", "strategy.sequence_parallel=true") == ["no_effect"]


def test_an_overlap_that_one_process_cannot_have_is_flagged_also_where_it_is_the_default() -> None:
    one = ("cluster.nodes=1", "strategy.tp=1", "strategy.pp=1", "strategy.data_parallel.single_process=true")

    assert codes(*one) == []
    assert codes(*one, "strategy.data_parallel.overlap=true") == ["no_effect"]


def test_a_precision_of_weights_that_never_travel_does_nothing() -> None:
    assert codes("strategy.tp=1", "strategy.data_parallel.gather_precision=fp32") == ["no_effect"]
    assert codes("strategy.tp=1", "strategy.data_parallel.gather_precision=fp32", "strategy.zero_stage=1") == []


@pytest.mark.parametrize(
    ("said", "around", "elsewhere"),
    [
        ("strategy.data_parallel.overlap=false", ("strategy.data_parallel.bucket=1 TB",), ("strategy.data_parallel.bucket=1 MB",)),
        ("strategy.data_parallel.no_sync=true", ("training.global_batch_size=16",), ("training.global_batch_size=64",)),
        ("strategy.schedule=gpipe", ("training.global_batch_size=16",), ("training.global_batch_size=64",)),
        ("strategy.zero_stage=2", ("strategy.tp=4", "strategy.pp=8", "cluster.nodes=4"), ()),
        ("strategy.data_parallel.first_bucket=1 MB", ("strategy.zero_stage=3", "strategy.gather=tensor"), ("strategy.zero_stage=0",)),
        (
            "strategy.data_parallel.overlap=false",
            ("strategy.zero_stage=2", "strategy.data_parallel.bucket=1 TB", "training.global_batch_size=16"),
            ("strategy.zero_stage=2", "strategy.data_parallel.bucket=1 TB"),
        ),
        ("strategy.recompute_stops_early=true", ("strategy.recompute=full", "model.dropout=true"), ("strategy.recompute=full",)),
    ],
)
def test_a_setting_that_does_nothing_in_its_surroundings_is_flagged(said: str, around: tuple[str, ...], elsewhere: tuple[str, ...]) -> None:
    one_stage = ("strategy.tp=1", "strategy.pp=1")

    assert "no_effect" in codes(*one_stage, *around, said)
    assert "no_effect" not in codes(*one_stage, *elsewhere, said)


def test_prices_and_failures_are_built_where_they_are_asked_for() -> None:
    asked, not_asked = built("cost.gpu_hour=2.50 USD", "reliability.restart=8 min"), built()

    assert asked.priced is not None
    assert asked.priced.prices.usd_per_gpu_hour == 2.5
    assert asked.maintained is not None
    assert asked.maintained.upkeep.recovery.restart_s == 480.0
    assert (not_asked.priced, not_asked.maintained) == (None, None)


def test_what_is_assumed_about_the_model_is_flagged() -> None:
    model: Data = {key: value for key, value in MODEL.items() if key != "model_type"}

    assert codes(model=model) == ["model_assumed"]


def test_a_shipped_cluster_brings_its_nodes_and_its_fabric() -> None:
    cluster = built("training.global_batch_size=6144", cluster="meta-24k-roce").cluster

    assert (cluster.n_nodes, cluster.node.name, cluster.fabric.core_oversubscription) == (3072, "meta-grand-teton", 7.0)


def test_a_shipped_cluster_can_be_changed_in_place() -> None:
    cluster = built(
        cluster={"name": "superpod-h100", "nodes": 2, "accelerator": "h200-sxm", "fabric": {"oversubscription": 2}, "nics": {"count": 4}}
    ).cluster

    assert (cluster.n_nodes, cluster.node.accelerator.name, cluster.node.n_nics) == (2, "h200-sxm", 4)
    assert cluster.fabric.oversubscription == 2.0
    assert cluster.fabric.nodes_per_leaf == load_cluster("superpod-h100").fabric.nodes_per_leaf


def test_adapters_far_above_their_pcie_are_flagged() -> None:
    flags = {text: {flag.code for flag in built(f"cluster.nics.bandwidth={text}").flags} for text in ("400 GB/s", "400 Gbit/s")}

    assert ["adapter_above_pcie" in flags[text] for text in flags] == [True, False]


def test_hashed_routing_lays_uplinks_one_by_one_and_says_so() -> None:
    made = built("cluster.fabric={topology: leaf_spine, nodes_per_leaf: 1, routing: ecmp, seed: 5}")

    assert {flag.code for flag in made.flags} - {flag.code for flag in built().flags} == {"one_path_per_pair"}
    assert (made.cluster.fabric.routing, made.cluster.fabric.seed) == ("ecmp", 5)
    assert "leaf1/spine0/up1" in {link.name for link in made.cluster.links}


def test_links_are_changed_as_the_scenario_says() -> None:
    links: list[Data] = [
        {"between": ["node0/nic0", "leaf0"], "bandwidth": "100 Gbit/s", "latency": "5 us"},
        {"between": ["node1/nic[0-3]", "leaf*"], "fraction": 0.5, "direction": "forward"},
        {"between": ["node0/gpu0", "domain0/nvswitch"], "half_duplex": True},
        {"between": ["node1/nic7", "leaf7"], "state": "down"},
    ]
    cluster = built(cluster={"node": "dgx-h100", "nodes": 2, "links": links}).cluster
    whole = {link.name: link for link in built(cluster={"node": "dgx-h100", "nodes": 2}).cluster.links}
    changed = {link.name: link for link in cluster.links}

    assert (changed["node0/nic0/rx"].bandwidth_bytes_per_s, changed["node0/nic0/rx"].latency_s) == (12.5e9, 5e-6)
    assert changed["node1/nic3/tx"].bandwidth_bytes_per_s == whole["node1/nic3/tx"].bandwidth_bytes_per_s / 2
    assert changed["node1/nic3/rx"] == whole["node1/nic3/rx"]
    assert cluster.works is not None
    assert [cluster.link_name(int(link)) for link in np.flatnonzero(~cluster.works)] == ["node1/nic7/tx", "node1/nic7/rx"]
    assert cluster.shared is not None


@pytest.mark.parametrize(
    ("link", "field", "message"),
    [
        ({"between": ["node0/nic0"]}, "cluster.links.0.between.1", "'1' is missing"),
        ({"between": ["node0/nic0", "leaf0"]}, "cluster.links.0", "the links stay as they are"),
        ({"between": ["node0/nic0", "leaf0"], "bandwith": "1 GB/s"}, "cluster.links.0.bandwith", "unknown field 'bandwith'"),
        ({"between": ["leaf0", "leaf0"], "state": "down"}, "cluster.links.0.between", "'leaf0' stands at both ends"),
        ({"between": ["node0/nic0", "leaf0"], "bandwidth": "0 GB/s"}, "cluster.links.0.bandwidth", "a link cannot have 0 B/s"),
        ({"between": ["node0/nic0", "leaf0"], "fraction": 0}, "cluster.links.0.fraction", "0 is not a share of a bandwidth"),
        ({"between": ["node0/nic0", "leaf0"], "latency": "-1 us"}, "cluster.links.0.latency", None),
        ({"between": ["node0/nic0", "leaf0"], "state": "dwon"}, "cluster.links.0.state", "'dwon' is not one of up, down"),
        ({"between": ["node9/nic0", "leaf0"], "state": "down"}, "cluster.links.0.between.0", "there is no 'node9'"),
        (
            {"between": ["node1/nic*", "leaf*"], "state": "down"},
            "cluster.links.0",
            "ranks 8-15 cannot reach ranks 0-7: no way is left with the links down between node1/nic* and leaf*",
        ),
    ],
)
def test_a_change_of_links_that_makes_no_sense_is_refused_at_its_key(link: dict[str, Data], field: str, message: str | None) -> None:
    error = refusal(cluster={"node": "dgx-h100", "nodes": 2, "links": [link]})

    assert error.field == field
    assert message is None or error.message == message
    assert error.hint


def test_a_cut_has_the_place_of_the_link_that_makes_it(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    text = TEXT.replace("cluster:\n", "cluster:\n  links:\n    - between: [node1/nic*, leaf*]\n      state: down\n")
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ScenarioError) as caught:
        build(load_scenario(path))

    place = caught.value.place
    assert place is not None
    assert place.line is not None
    assert text.splitlines()[place.line - 1] == "    - between: [node1/nic*, leaf*]"


INLINE: dict[str, Data] = {
    "accelerator": "l40s",
    "accelerators_per_node": 8,
    "host": "pcie-box",
    "nics": {"count": 1, "bandwidth": "100 Gbit/s", "latency": "2 us"},
    "scale_up": {"kind": "pcie"},
    "fabric": {"topology": "single_switch", "leaf": "eth-100g-64p", "nodes_per_leaf": 64},
}


@pytest.mark.parametrize(
    ("cluster", "field", "message"),
    [
        ({"nodes": 2}, "cluster.node", "'node' is missing"),
        ({"node": "dgx-h100"}, "cluster.nodes", "'nodes' is missing"),
        ({"name": "superpod-h100", "node": "dgx-h100"}, "cluster.node", "a cluster has a name or a node, not both"),
        ({"name": "superpod"}, "cluster.name", "unknown cluster 'superpod'"),
        ({"node": "dgx", "nodes": 2}, "cluster.node", "unknown node 'dgx'"),
        ({"node": "dgx-h100", "nodes": 2, "accelerator": "h300"}, "cluster.accelerator", "unknown accelerator 'h300'"),
        ({"node": "dgx-h100", "nodes": 2, "nics": {"modle": "x"}}, "cluster.nics.modle", "unknown field 'modle'"),
        ({"node": {"accelerator": "l40s"}, "nodes": 2}, "cluster.node.accelerators_per_node", "'accelerators_per_node' is missing"),
        ({"name": "superpod-h100", "fabric": {"leaf": "x"}}, "cluster.fabric.leaf", "unknown switch 'x'"),
        ({"node": "dgx-h100", "nodes": 300000}, "cluster.nodes", "300000 nodes of 8 GPUs are more than 2000000"),
    ],
)
def test_a_cluster_that_cannot_be_built_is_refused_at_its_key(cluster: dict[str, Data], field: str, message: str) -> None:
    error = refusal(cluster=cluster)

    assert (error.field, error.message) == (field, message)
    assert error.hint


def test_a_model_file_beside_the_scenario_is_found(tmp_path: Path) -> None:
    model, rest = TEXT[TEXT.index("model:\n") :].split("cluster:\n")
    (tmp_path / "toy.yaml").write_text("\n".join(line[2:] for line in model.splitlines()[1:]), encoding="utf-8")
    (tmp_path / "run.yaml").write_text(f"model: toy.yaml\ncluster:\n{rest}", encoding="utf-8")

    assert build(load_scenario(tmp_path / "run.yaml")).plan.model.name == "toy"


def test_a_contradiction_has_the_place_of_the_value_to_change(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(TEXT.replace("tp: 2", "tp: 6"), encoding="utf-8")

    with pytest.raises(ScenarioError) as caught:
        build(load_scenario(path))

    assert str(caught.value) == f"{path}:20:7: strategy.tp: 6 does not divide 8 attention heads; use 1, 2, 4 or 8\n    tp: 6\n        ^"


def test_a_check_that_is_not_one_has_its_place(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(TEXT + "checks:\n  - mfu >= 0\n  - mfuu >= 0\n", encoding="utf-8")

    with pytest.raises(ScenarioError) as caught:
        build(load_scenario(path))

    assert str(caught.value).startswith(f"{path}:24:5: checks.1: there is no metric 'mfuu'; did you mean 'mfu'?")


def test_a_check_of_the_time_to_train_needs_a_budget() -> None:
    assert refusal("checks=[time_to_train_s <= 30 days]").hint == "give training.tokens, such as 15T"
    assert len(built("checks=[time_to_train_s <= 30 days]", "training.tokens=1T").checks) == 1

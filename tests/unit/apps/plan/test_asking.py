"""Mistakes that hold for all layouts are told before a search, with their places."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from clustersim.apps.plan.answer import plan_for
from clustersim.apps.plan.asking import asked_of
from clustersim.apps.plan.drafts import Drafts
from clustersim.apps.plan.replays import Replays
from clustersim.apps.plan.space import families, layouts
from clustersim.config.build import build
from clustersim.config.load import load_scenario
from clustersim.errors import ScenarioError

SCENARIO = """\
version: 1
model: llama3-8b
cluster: {node: dgx-h100, nodes: 1}
training: {global_batch_size: 16, seq_length: 2048}
"""


def refused(tmp_path: Path, more: str) -> ScenarioError:
    file = tmp_path / "plan.yaml"
    file.write_text(SCENARIO + more, encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        plan_for(asked_of(str(file)))
    return caught.value


@pytest.mark.parametrize(
    ("section", "field", "words"),
    [
        ("cost: {prices: rented-2062}\n", "cost.prices", "did you mean 'rented-2026'?"),
        ("reliability: {checkpoint: {to: nowhere}}\n", "reliability.checkpoint", ""),
        ("jobs: [{name: other, scenario: no-such-example, nodes: 1}]\n", "jobs", ""),
    ],
)
def test_what_is_wrong_with_all_layouts_is_told_with_its_line_before_any_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str, field: str, words: str
) -> None:
    monkeypatch.setattr(Replays, "begin", None)

    error = refused(tmp_path, section)

    assert error.place is not None
    assert error.place.line == 5
    assert (error.field or "").startswith(field)
    assert words in (error.hint or "")


def test_a_mistake_of_the_command_line_is_told_with_its_option() -> None:
    with pytest.raises(ScenarioError, match="unknown price list") as caught:
        plan_for(asked_of("llama3-8b", "dgx-h100", nodes=1, overrides=["cost.prices=rented-2062"]))

    assert str(caught.value).startswith("--set cost.prices=rented-2062: cost.prices: ")


def test_a_model_without_a_cluster_is_told_that_the_cluster_is_missing() -> None:
    with pytest.raises(ScenarioError, match="'llama3-70b' is a model, and the cluster to plan for is missing"):
        asked_of("llama3-70b")


def test_a_configuration_of_hugging_face_is_told_how_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}), encoding="utf-8")

    for cluster, nodes in (("dgx-h100", 1), (None, None)):
        with pytest.raises(ScenarioError) as caught:
            asked_of("config.json", cluster, nodes=nodes)
        assert "write hf:config.json" in str(caught.value)
    Path("ds.json").write_text(json.dumps({"zero_optimization": {"stage": 3}}), encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        asked_of("ds.json")
    assert "hf:ds.json" not in str(caught.value)


def test_a_file_of_a_framework_is_planned_for_a_cluster_with_its_model_and_batch(tmp_path: Path) -> None:
    text = "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nlocal_batch_size = 2\nseq_len = 2048\n[parallelism]\n"
    (tmp_path / "job.toml").write_text(f"{text}tensor_parallel_degree = 2\n", encoding="utf-8")

    asked = asked_of(str(tmp_path / "job.toml"), "dgx-h100", nodes=2)

    assert (asked.base["model"], asked.tokens_per_step) == ("llama3-8b", 8 * 2 * 2048)


@pytest.mark.parametrize("nodes", [10**6, 10**30])
def test_more_nodes_than_anybody_has_are_refused_at_once(nodes: int) -> None:
    with pytest.raises(
        ScenarioError, match=r"are more than 2000000; use at most 250000|is out of range; write a number that is at most 2000000"
    ) as caught:
        asked_of("llama3-8b", "dgx-h100", nodes=nodes)

    assert caught.value.field == "--nodes"


def test_what_no_list_has_a_price_of_is_said_and_its_power_counted() -> None:
    asked = asked_of("llama3-8b", "dgx-b300", nodes=1)

    notice = asked.cautions[-1]
    assert notice.startswith("no price of b300-sxm is known, and none is counted; give one for all, -s cost.gpu_hour='2.50 USD', or for")
    assert notice not in asked.assumed
    assert asked.base["cost"] == {}


def test_rents_by_name_leave_those_of_the_list_for_the_rest() -> None:
    overrides = ("cost.gpu_hour={b300-sxm: 2.50 USD}", "cost.pue=1.1")

    listed, named = (asked_of("llama3-8b", node, nodes=1, overrides=overrides) for node in ("dgx-h100", "dgx-b300"))

    assert "no prices are given of h100-sxm5-80g: those of on-demand-2026-10 (-s cost.gpu_hour='2.50 USD')" in listed.assumed
    assert [each.base["cost"] for each in (listed, named)] == [
        {"gpu_hour": {"b300-sxm": "2.50 USD"}, "pue": 1.1, "prices": "on-demand-2026-10"},
        {"gpu_hour": {"b300-sxm": "2.50 USD"}, "pue": 1.1},
    ]


def test_a_setting_of_a_scenario_that_is_searched_is_said_unless_it_is_held() -> None:
    said = "tp, pp as given: of the layout marked yours alone; --only tp=... holds it"
    given = ("strategy.tp=2", "strategy.pp=2")

    assert said in asked_of("llama3-8b-8xh100", overrides=given).cautions
    assert not any("as given" in each for each in asked_of("llama3-8b-8xh100", overrides=given, limits=("tp=2", "pp=2")).cautions)


@pytest.mark.parametrize(("name", "node"), [("h100", "dgx-h100"), ("b200-sxm", "dgx-b200")])
def test_an_accelerator_in_place_of_a_node_is_told_the_nodes_that_have_it(name: str, node: str) -> None:
    with pytest.raises(ScenarioError, match=f"there is no cluster or node '{name}'") as caught:
        asked_of("llama3-8b", name, nodes=1)

    assert caught.value.hint is not None
    assert caught.value.hint.startswith("use ")
    assert node in caught.value.hint


def test_the_usual_settings_of_all_layouts_are_said_with_how_to_ask_for_others() -> None:
    asked = asked_of("llama3-8b", "dgx-h100", nodes=1)

    said = next(flag for flag in asked.usual if flag.code == "usual_settings")
    assert said.message.removeprefix("not said, and taken as usual: ") in asked.assumed
    assert "overlap_tp gemm_chunks" in said.message
    assert "kernels fused" in said.message
    asks, holds = asked.usual[-2].message, asked.cautions[-1]
    assert "for those of PyTorch's FSDP -s strategy.overlap_tp=none" in asks
    assert "-s training.kernels=eager" in asks
    assert holds.startswith("to run a layout with zero 3 as here, in the software of all layouts, add ")
    assert "-s training.kernels=fused" in holds


def test_settings_that_the_printed_options_ask_for_are_those_of_a_run_with_sharded_parameters() -> None:
    said = asked_of("llama3-8b", "dgx-h100", nodes=1).usual[-2]
    options = re.findall(r"-s (\S+=[^,\s]+)", said.message.partition("(for a framework")[0])
    run = {"model": "llama3-8b", "cluster": {"node": "dgx-h100", "nodes": 1}, "training": {"global_batch_size": 1024}}

    asked = asked_of("llama3-8b", "dgx-h100", nodes=1, overrides=options)
    plain, given = (build(load_scenario({**run, "strategy": {"zero_stage": 3}}, some)).plan for some in ((), options))

    assert given == plain
    assert [flag.code for flag in asked.usual] == []


def test_a_preset_that_shards_parameters_is_planned_with_its_own_usual_settings() -> None:
    asked = asked_of("llama3-8b", "dgx-h100", nodes=1, overrides=["strategy.preset=pytorch_fsdp"])

    assert isinstance(asked.base["strategy"], dict)
    assert asked.base["strategy"]["overlap_tp"] == "none"


@pytest.mark.parametrize(
    ("framework", "zero_stage", "lacks"),
    [("torchtitan", 3, "zero_stage 0"), ("torchtitan", 2, "zero_stage 1"), ("megatron", 1, "zero_stage 2"), ("sbatch", 1, "zero_stage 2")],
)
def test_a_plan_for_a_framework_has_its_preset_and_no_layout_that_it_lacks(framework: str, zero_stage: int, lacks: str) -> None:
    limits = ("tp=2", "pp=2", "cp=1", "offload=none", "schedule=1f1b")
    asked = asked_of("llama3-8b", "dgx-h100", nodes=1, limits=limits, framework=framework)
    drafts = Drafts(asked.base, writes=asked.writes)
    plans = {each: drafts.plan(each) for family in families(asked.space) for each in layouts(asked.space, family)}

    assert any(line.startswith(f"planned for {framework}, which is started with preset") for line in asked.cautions)
    assert any(not isinstance(plan, str) and plan.strategy.zero_stage == zero_stage for plan in plans.values())
    assert {plan.training.kernels for plan in plans.values() if not isinstance(plan, str)} == {
        "eager" if framework == "torchtitan" else "fused"
    }
    assert all(isinstance(plan, str) for each, plan in plans.items() if f"zero_stage {each.zero_stage}" == lacks)
    refused = [plan for plan in plans.values() if isinstance(plan, str) and "contradicts preset" in plan]
    assert all(plan.startswith("strategy.") for plan in refused)


def test_a_plan_for_deepspeed_takes_no_sequence_parallelism_and_no_preset() -> None:
    asked = asked_of("llama3-8b", "dgx-h100", nodes=1, framework="deepspeed")

    assert isinstance(asked.base["strategy"], dict)
    assert asked.base["strategy"]["sequence_parallel"] is False
    assert any("started with sequence_parallel false: without --as another layout may win" in line for line in asked.cautions)


def test_a_setting_of_a_mapping_leaves_what_the_framework_holds_beside_it() -> None:
    asked = asked_of("llama3-8b", "dgx-h100", nodes=1, overrides=["strategy.data_parallel.bucket=100 MB"], framework="megatron")

    assert isinstance(asked.base["strategy"], dict)
    assert asked.base["strategy"]["data_parallel"] == {"overlap": True, "bucket": "100 MB"}

"""No step is shorter than the bound of its Program, and that is not shorter than the closed form of a search."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from clustersim.apps.run.bound import evaluator_of, run_bound
from clustersim.apps.run.running import run_built
from clustersim.config.build import build
from clustersim.config.load import load_scenario
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import load_node, profile_names

SMALL = 16
"""Ranks."""

RANKS = 32
"""At most, so that a replay takes a fraction of a second."""

SCHEDULES = ("naive", "gpipe", "1f1b", "interleaved_1f1b", "breadth_first", "zb_h1", "zb_h2", "zb_2p", "zb_v", "dualpipe", "dualpipe_v")


@st.composite
def clusters(draw: st.DrawFn, node: str, n_nodes: int) -> dict[str, object]:
    """Draw nodes of one kind on a fabric, sometimes with slow ranks, weak links or steps that vary."""
    n_ranks = n_nodes * load_node(node).n_accelerators
    cluster: dict[str, object] = {
        "node": node,
        "nodes": n_nodes,
        "fabric": {
            "topology": draw(st.sampled_from(["leaf_spine", "rail_optimized"])),
            "nodes_per_leaf": draw(st.sampled_from([2, 3, 8])),
            "oversubscription": draw(st.sampled_from([1, 2])),
            "routing": draw(st.sampled_from(["adaptive", "ecmp"])),
        },
    }
    # Where every rank has a pace of its own nothing folds: such clusters are small.
    uneven = ["slow", "weak", *(["varying"] if n_ranks <= SMALL else [])]
    match draw(st.sampled_from(["even", "even", "even", *uneven])):
        case "slow":
            cluster["stragglers"] = [{"ranks": draw(st.integers(0, n_ranks - 1)), "slowdown": 1.4}]
        case "weak":
            cluster["links"] = [{"between": [f"node{draw(st.integers(0, n_nodes - 1))}/gpu2", "*"], "fraction": 0.5}]
        case "varying":
            cluster["jitter"] = "5 %"
        case _:
            pass
    return cluster


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, object]:
    name = draw(st.sampled_from(profile_names("nodes")))
    node = load_node(name)
    n_nodes = draw(st.sampled_from([each for each in (1, 2, 2, 3, 4) if each * node.n_accelerators <= RANKS]))
    model, tp, cp, ep = draw(
        st.sampled_from(
            [
                ("gpt2", 1, 1, 1),
                ("llama3.2-1b", 1, 1, 1),
                ("llama3.2-1b", 2, 1, 1),
                ("llama3.2-1b", 8, 1, 1),
                ("llama3.2-1b", 2, 2, 1),
                ("llama3.2-1b", 1, 4, 1),
                ("llama3.2-1b", 16, 1, 1),
                ("olmoe-1b-7b", 1, 1, 4),
                ("olmoe-1b-7b", 2, 1, 8),
                ("mixtral-8x7b", 2, 1, 8),
                ("resnet-50", 1, 1, 1),
            ]
        )
    )
    pp = draw(st.sampled_from([1, 1, 2, 4, 8])) if model != "resnet-50" else 1
    dp, rest = divmod(node.n_accelerators * n_nodes, tp * pp * cp)
    assume(rest == 0 and dp and (dp * cp * tp) % ep == 0)
    schedule = draw(st.sampled_from(SCHEDULES)) if pp > 1 else "1f1b"
    chunked = schedule in ("interleaved_1f1b", "breadth_first")
    sharded = draw(st.sampled_from([0, 1, 2, 3]))
    gradients: dict[str, object] = {
        "overlap": draw(st.booleans()),
        "bucket": draw(st.sampled_from(["100 MB", "2 GB"])),
        "no_sync": draw(st.sampled_from([None, True, False])),
    }
    strategy: dict[str, object] = {
        "tp": tp,
        "pp": pp,
        "cp": cp,
        "ep": ep,
        "schedule": schedule,
        "virtual_stages": 2 if chunked else None,
        "stage_layers": draw(st.sampled_from(["even", "balanced"])) if model != "resnet-50" else "even",
        "zero_stage": sharded,
        "recompute": draw(st.sampled_from(["none", "selective", "full"])) if model != "resnet-50" else "none",
        "recompute_layers": None,
        "overlap_tp": draw(st.sampled_from(["none", "weight_gradient", "gemm_chunks"])),
        "overlap_p2p": draw(st.sampled_from([None, True, False])),
        "prefetch": draw(st.sampled_from([0, 1, 2])) if sharded == 3 else 1,
        "reshard_after_forward": draw(st.booleans()) if sharded == 3 else True,
        "keep_ends": draw(st.booleans()) if sharded == 3 else False,
        "shard_degree": draw(st.sampled_from(["auto", 2])) if sharded and ep == 1 else "auto",
        "offload": draw(st.sampled_from([[], [], ["optimizer"], ["activations"]])),
        "data_parallel": gradients,
        "placement": draw(st.permutations(["tp", "cp", "ep", "dp", "pp"])),
    }
    if draw(st.integers(0, 9)) == 0:
        strategy["data_parallel"] = {"algorithm": "parameter_server", "mode": draw(st.sampled_from(["sync", "async"]))}
        strategy["offload"] = []
        strategy["zero_stage"] = 0
    cluster = draw(clusters(name, n_nodes))
    precisions = [each for each in ("bf16", "fp16", "fp8") if each in node.accelerator.peak_flops_per_s] or ["fp32"]
    training = {
        "global_batch_size": draw(st.sampled_from([1, 4, 8])) * dp,
        "micro_batch_size": draw(st.sampled_from([1, 2])),
        "precision": draw(st.sampled_from(precisions)) if model != "resnet-50" else "fp32",
        "kernels": draw(st.sampled_from(["fused", "eager"])),
        "blocking_launches": draw(st.integers(0, 9)) == 0,
    }
    training["cuda_graphs"] = not training["blocking_launches"] and draw(st.booleans())
    if model in ("olmoe-1b-7b", "mixtral-8x7b"):
        training["grouped_experts"] = draw(st.sampled_from([True, "fused", False]))
        strategy["expert_load"] = draw(st.sampled_from(["balanced", "balanced", "zipf"]))
        strategy["dispatch"] = draw(st.sampled_from(["all_to_all", "per_node"]))
    if model != "resnet-50":
        training["seq_length"] = draw(st.sampled_from([512, 2048]))
    return {"version": 1, "name": "drawn", "model": model, "cluster": cluster, "training": training, "strategy": strategy}


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(scenario=scenarios())
def test_no_replay_ends_before_its_bound(scenario: dict[str, object]) -> None:
    try:
        built = build(load_scenario(scenario))
        run = run_built(built)
    except ScenarioError:
        assume(False)
        return

    bound, closed = run_bound(built), evaluator_of(built)

    assert 0.0 < bound.bound_s <= run.step_time_s
    assert run.bounds.bound_s == pytest.approx(bound.bound_s, rel=1e-12)
    assert max(closed.mean_s(built.plan), closed.passes_s(built.plan)) <= bound.path_s

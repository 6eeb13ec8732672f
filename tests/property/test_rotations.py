"""Results from the lowest of interchangeable ranks equal, byte for byte, those from all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.engine import folding
from clustersim.errors import ScenarioError

fold_by_rotation = folding.fold_by_rotation


@contextmanager
def counted(least: float) -> Iterator[list[bool]]:
    """Let clusters of so many ranks be folded by rotation, and note for each replay whether it was."""
    taken: list[bool] = []

    def noted(*given: object) -> object:
        found = fold_by_rotation(*given)  # pyright: ignore[reportArgumentType] - whatever fold gives
        taken.append(found is not None)
        return found

    with patch.object(folding, "LEAST_ROTATED", least), patch.object(folding, "fold_by_rotation", noted):
        yield taken


def played(scenario: dict[str, object], *, least: float) -> tuple[str, str, bool]:
    """Return all that is said of a run, its timeline, and whether it was folded by rotation; runs without some of its keys may be."""
    with counted(least) as taken:
        result = clustersim.run(scenario)
    document = result.to_dict()
    engine = document["engine"]
    assert isinstance(engine, dict)
    said = {**document, "engine": {key: value for key, value in engine.items() if key not in ("wall_s", "events_per_s")}}
    return json.dumps(said), result.timeline().to_csv(), any(taken[:1])


@st.composite
def clusters(draw: st.DrawFn, n_nodes: int) -> dict[str, object]:
    fabric: dict[str, object] = {
        "topology": draw(st.sampled_from(["rail_optimized", "rail_optimized", "leaf_spine"])),
        "nodes_per_leaf": draw(st.sampled_from([1, 2, 3, 4])),
        "oversubscription": draw(st.sampled_from([1, 2])),
        "routing": draw(st.sampled_from(["adaptive", "adaptive", "adaptive", "ecmp"])),
    }
    if draw(st.booleans()):
        fabric |= {"leaves_per_pod": draw(st.sampled_from([1, 2, 8, 16])), "core_oversubscription": draw(st.sampled_from([1, 2]))}
    cluster: dict[str, object] = {
        "node": draw(st.sampled_from(["dgx-h100", "dgx-h100", "dgx-a100-80g", "aws-p4d"])),
        "nodes": n_nodes,
        "fabric": fabric,
    }
    unlike = draw(st.sampled_from(["", "", "", "", "rank", "node", "link"]))
    if unlike in ("rank", "node"):
        first = 8 * draw(st.integers(0, n_nodes - 1))
        cluster["stragglers"] = [{"ranks": first if unlike == "rank" else f"{first}-{first + 7}", "slowdown": 1.3}]
    if unlike == "link":
        cluster["links"] = [{"between": [f"node{draw(st.integers(0, n_nodes - 1))}/nic1", "*"], "fraction": 0.5}]
    return cluster


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, object]:
    n_nodes = draw(st.sampled_from([2, 4, 6, 8, 16]))
    model, tp = draw(
        st.sampled_from([("llama3-8b", 8), ("llama3-8b", 8), ("llama3-8b", 8), ("llama3-8b", 4), ("llama3-8b", 2), ("gpt2-xl", 1)])
    )
    cluster = draw(clusters(n_nodes))
    pp = draw(st.sampled_from([1, 2, 4]))
    dp, rest = divmod(8 * n_nodes, tp * pp)
    assume(rest == 0 and dp > 0)
    strategy = {
        "tp": tp,
        "pp": pp,
        "sequence_parallel": tp > 1 and draw(st.sampled_from([True, True, True, False])),
        "zero_stage": draw(st.sampled_from([0, 1, 1, 3])),
        "data_parallel": {"overlap": draw(st.booleans()), "algorithm": draw(st.sampled_from(["auto", "auto", "ring"]))},
        "placement": draw(
            st.sampled_from([["tp", "cp", "ep", "dp", "pp"], ["tp", "cp", "ep", "pp", "dp"], ["tp", "cp", "dp", "ep", "pp"]])
        ),
    }
    training = {"global_batch_size": 2 * dp, "micro_batch_size": 1, "seq_length": 512, "precision": "bf16"}
    return {"version": 1, "name": "drawn", "model": model, "cluster": cluster, "training": training, "strategy": strategy}


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(scenario=scenarios())
def test_a_run_that_is_folded_by_rotation_says_what_one_says_that_is_not(scenario: dict[str, object]) -> None:
    try:
        *whole, _ = played(scenario, least=inf)
    except ScenarioError:
        assume(False)
        return

    *rotated, by_rotation = played(scenario, least=0)

    event(f"by rotation: {by_rotation}")
    assert rotated == whole


BATCH_OF_32 = {"global_batch_size": 32, "micro_batch_size": 1, "seq_length": 512, "precision": "bf16"}
OTHER_JOB = {"model": "llama3-8b", "training": BATCH_OF_32, "strategy": {"tp": 8, "zero_stage": 1}}


def regular(**changes: object) -> dict[str, object]:
    """Return a scenario that a rotation leaves as it is, with some sections changed."""
    sections: dict[str, object] = {
        "version": 1,
        "name": "regular",
        "model": "llama3-8b",
        "cluster": {},
        "training": {"global_batch_size": 8, "micro_batch_size": 1, "seq_length": 512, "precision": "bf16"},
        "strategy": {},
        **changes,
    }
    cluster = {"node": "dgx-h100", "nodes": 4, "fabric": {"topology": "rail_optimized", "nodes_per_leaf": 2}}
    assert isinstance(sections["cluster"], dict)
    assert isinstance(sections["strategy"], dict)
    return {**sections, "cluster": cluster | sections["cluster"], "strategy": {"tp": 8, "pp": 2} | sections["strategy"]}


@pytest.mark.parametrize(
    "scenario",
    [
        regular(),
        regular(cluster={"fabric": {"topology": "leaf_spine", "nodes_per_leaf": 2, "oversubscription": 2}}),
        regular(cluster={"fabric": {"topology": "rail_optimized", "nodes_per_leaf": 1, "leaves_per_pod": 8}}),
        regular(cluster={"nodes": 8, "fabric": {"topology": "rail_optimized", "nodes_per_leaf": 3}}),
        regular(cluster={"stragglers": [{"ranks": "8-15", "slowdown": 1.3}]}),
        regular(cluster={"stragglers": [{"ranks": 9, "slowdown": 1.3}]}),
        regular(strategy={"zero_stage": 1, "schedule": "gpipe"}),
        regular(strategy={"tp": 1, "pp": 1, "zero_stage": 3}, training=BATCH_OF_32),
    ],
    ids=["rails", "one leaf", "pods", "uneven leaves", "a slow node", "a rank that its node waits for", "sharded", "groups of whole nodes"],
)
def test_what_a_rotation_leaves_as_it_is_is_folded_by_rotation(scenario: dict[str, object]) -> None:
    *whole, _ = played(scenario, least=inf)

    *rotated, by_rotation = played(scenario, least=0)

    assert by_rotation
    assert rotated == whole


@pytest.mark.parametrize(
    "scenario",
    [
        regular(cluster={"stragglers": [{"ranks": 9, "slowdown": 1.3}]}, strategy={"tp": 1}, training=BATCH_OF_32),
        regular(cluster={"links": [{"between": ["node1/nic3", "*"], "fraction": 0.5}]}),
        regular(cluster={"links": [{"between": ["leaf0", "spine*"], "fraction": 0.5}]}),
        regular(cluster={"links": [{"between": ["node1/nic3", "*"], "state": "down"}]}),
        regular(cluster={"fabric": {"topology": "rail_optimized", "nodes_per_leaf": 2, "routing": "ecmp"}}),
        regular(cluster={"nodes": [{"node": "dgx-h100", "count": 2}, {"node": "hgx-h200", "count": 2}], "node": None}),
        regular(cluster={"node": "dgx1-v100-16g"}, training=BATCH_OF_32 | {"precision": "fp16"}),
        regular(strategy={"tp": 2, "placement": ["pp", "tp", "cp", "ep", "dp"]}),
        regular(strategy={"sequence_parallel": False}),
        regular(strategy={"tp": 8, "pp": 1, "data_parallel": {"mode": "sync", "algorithm": "parameter_server"}}),
        regular(strategy={"offload": ["optimizer"], "zero_stage": 1}),
        regular(model="qwen3-30b-a3b", strategy={"tp": 1, "ep": 8, "pp": 1}, training=BATCH_OF_32),
    ],
    ids=[
        "a slow rank",
        "a slow adapter",
        "a slow leaf",
        "a link that is down",
        "hashed paths",
        "two kinds of nodes",
        "a mesh",
        "stages in a node",
        "adding switches",
        "servers",
        "copies to hosts",
        "experts",
    ],
)
def test_what_a_turn_may_change_is_folded_whole(scenario: dict[str, object]) -> None:
    *whole, _ = played(scenario, least=inf)

    *found, by_rotation = played(scenario, least=0)

    assert not by_rotation
    assert found == whole


@pytest.mark.parametrize(
    "scenario",
    [
        regular(strategy={"pp": 1}, jobs=[{"name": "other", "nodes": 2, "scenario": OTHER_JOB}]),
        regular(background=[{"name": "backup", "links": ["node0/nic0/tx"], "load": "50 %"}]),
        regular(cluster={"jitter": "3 %"}, steps=3),
        regular(steps=8),
    ],
    ids=["another job", "a load", "jitter", "many steps"],
)
def test_what_is_on_the_same_links_is_folded_as_ever(scenario: dict[str, object]) -> None:
    # By itself the job may be folded by rotation, as it is to say what the others cost it.
    assert played(scenario, least=0)[:2] == played(scenario, least=inf)[:2]

"""The resolved scenario says everything, runs to the same result, and has a hash that only its meaning decides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from clustersim.config.build import build
from clustersim.config.load import example_names, load_scenario
from clustersim.config.machine import hardware_of
from clustersim.config.node_groups import Hardware
from clustersim.config.resolve import resolved_hardware, resolved_scenario, scenario_hash
from clustersim.config.scenario_schema import ClusterSpec
from clustersim.config.yaml_text import yaml_text
from clustersim.documents.check import validate_document
from clustersim.documents.text import Data, parse_document, plain_document
from clustersim.hardware.catalog import load_node
from clustersim.hardware.profile_schema import Checked
from tests.unit.config.samples import TEXT, built, small
from tests.unit.config.test_build import INLINE

SOURCES: list[dict[str, Data]] = [
    small(),
    small(cluster={"node": "dgx-a100-40g", "nodes": 1, "clock_spread": 0.01}),
    small(
        cluster={"name": "superpod-h100", "nodes": 4, "fabric": {"oversubscription": 2.5, "routing": "ecmp", "in_network_reduction": True}}
    ),
    small(cluster={"node": "dgx-h100", "nodes": 2, "fabric": {"topology": "torus", "dimensions": [2], "link_bandwidth": "3 GB/s"}}),
    small(
        cluster={
            "node": "dgx-h100",
            "nodes": 2,
            "fabric": {
                "topology": "dragonfly",
                "nodes_per_leaf": 1,
                "leaves_per_group": 2,
                "global_links": 1,
                "routing": "ecmp",
                "seed": 9,
            },
            "links": [{"between": ["node1/nic*", "group0/*"], "fraction": 0.1, "latency": "7 us"}],
        }
    ),
    small(cluster={"node": INLINE, "nodes": 2}),
    small(cluster={"node": "pcie-l40s", "nodes": 2, "nics": {"bandwidth": "123.4 Gbit/s"}}),
    small(cost={"gpu_hour": "2.50 USD"}, reliability={"restart": "8 min"}, checks=["mfu >= 0.1"]),
    small(strategy={"tp": 2, "data_parallel": {"algorithm": "parameter_server", "servers": 3, "placement": "dedicated"}}),
    small(strategy={"data_parallel": {"algorithm": "parameter_server", "servers": 1, "assignment": "greedy", "priority": "none"}}),
    small(
        training={"global_batch_size": 64, "tokens": "1.5T"},
        strategy={"dp": 4, "tp": 2, "pp": 2, "data_parallel": {"bucket": "33333333 B"}},
    ),
]


EVEN: dict[str, Data] = {"single_process": False, "reduce_precision": "same"}

INLINE: dict[str, Data] = {
    "accelerator": "l40s",
    "accelerators_per_node": 8,
    "host": "dgx-a100",
    "nics": {"count": 2, "bandwidth": "100 Gbit/s", "latency": "1.5 us"},
    "scale_up": {"kind": "pcie", "latency": "1 us"},
    "fabric": {"topology": "leaf_spine", "leaf": "qm9700-ndr", "nodes_per_leaf": 8},
}

GROUPS: list[Data] = [
    {"node": "dgx-h100", "count": 2, "accelerator": "h200-sxm", "power": "11 kW"},
    {"node": "dgx1-v100-32g", "count": 1, "nics": {"bandwidth": "100 Gbit/s"}},
    {"node": INLINE, "count": 3},
]


def digits(source: dict[str, Data] | str, *overrides: str, seed: int = 0) -> str:
    return scenario_hash(resolved_scenario(build(load_scenario(source, overrides))), seed)


def part(document: Mapping[str, Data], key: str) -> dict[str, Data]:
    """Return a part of a document that is a mapping itself."""
    found = document[key]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("source", [*SOURCES, *example_names()])
def test_the_resolved_scenario_builds_the_same_and_resolves_to_itself(source: dict[str, Data] | str) -> None:
    first = build(load_scenario(source))
    resolved = resolved_scenario(first)

    second = build(load_scenario(parse_document(yaml_text(resolved), "resolved.yaml").data))

    assert second.plan == first.plan
    assert (second.cluster.n_nodes, second.cluster.fabric, second.cluster.node.name) == (
        first.cluster.n_nodes,
        first.cluster.fabric,
        first.cluster.node.name,
    )
    assert np.array_equal(second.cluster.bandwidth_bytes_per_s, first.cluster.bandwidth_bytes_per_s)
    assert resolved_scenario(second) == resolved


def test_every_default_that_does_something_is_written_out() -> None:
    resolved = resolved_scenario(built())

    strategy, training = part(resolved, "strategy"), part(resolved, "training")
    assert (strategy["dp"], strategy["schedule"], strategy["data_parallel"]) == (
        4, "1f1b", {"mode": "sync", "algorithm": "auto", "overlap": True, "bucket": "25 MB", "no_sync": True, **EVEN}
    )  # fmt: skip
    assert (training["seq_length"], training["gradient_precision"]) == (256, "fp32")


def test_parameter_servers_are_written_out() -> None:
    resolved = resolved_scenario(built(strategy={"tp": 2, "data_parallel": {"algorithm": "parameter_server"}}))

    assert part(resolved, "strategy")["data_parallel"] == {
        **EVEN, "gather_precision": "same",
        "mode": "sync", "algorithm": "parameter_server", "bucket": "25 MB", "servers": 2,
        "placement": "colocated", "assignment": "key_ranges", "priority": "layers", "reduce_in_node": True,
    }  # fmt: skip


def test_workers_at_their_own_pace_and_sharding_are_written_out() -> None:
    slack = built(strategy={"data_parallel": {"algorithm": "parameter_server", "mode": "ssp", "staleness": 2, "reduce_in_node": False}})
    spare = built(strategy={"data_parallel": {"algorithm": "parameter_server", "backup_workers": 1}})
    loaded = built(
        training={"global_batch_size": 32, "data_loader": {"rate": "2 ksamples/s"}},
        strategy={"zero_stage": 1, "shard_degree": 4, "data_parallel": {"first_bucket": "1 MiB"}},
    )

    strategies = [part(resolved_scenario(made), "strategy") for made in (slack, spare, loaded)]
    gradients = [part(strategy, "data_parallel") for strategy in strategies]
    assert [each.get("staleness") for each in gradients] == [2, None, None]
    assert [each.get("backup_workers") for each in gradients] == [None, 1, None]
    assert [each.get("first_bucket") for each in gradients] == [None, None, "1.048576 MB"]
    assert [strategy.get("shard_degree") for strategy in strategies] == [None, None, 4]
    assert part(resolved_scenario(loaded), "training")["data_loader"] == {"rate": "2 ksamples/s"}


def test_quantities_are_text_with_units() -> None:
    resolved = resolved_scenario(built("cluster.nics={bandwidth: 200 Gbit/s, latency: 1300 ns}"))

    assert part(resolved, "cluster")["nics"] == {"model": "cx6-hdr", "count": 8, "bandwidth": "25 GB/s", "latency": "1.3 us"}


def test_the_hash_is_eight_hexadecimal_digits() -> None:
    assert re.fullmatch("[0-9a-f]{8}", digits(small()))


@pytest.mark.parametrize(
    "source",
    [
        small(training={"precision": "bf16", "micro_batch_size": 1, "global_batch_size": 32, "seq_length": 256}),
        small(strategy={"pp": 2, "tp": 2, "dp": 4, "data_parallel": {"bucket": "25000 kB"}}),
        dict(reversed(small().items())),
        parse_document("# a comment\n" + TEXT.replace("tp: 2", "tp:     2  # two"), "x").data,
    ],
)
def test_how_a_scenario_is_written_does_not_change_its_hash(source: dict[str, Data]) -> None:
    assert digits(source) == digits(small())


@pytest.mark.parametrize(
    "override",
    ["name=other", "model.num_hidden_layers=16", "cluster.nodes=4", "cluster.accelerator=a100-sxm4-80g", "cluster.nics.latency=1 us",
     "training.global_batch_size=64", "training.attention=unfused", "strategy.recompute=full", "strategy.data_parallel.bucket=26 MB",
     "strategy.data_parallel.algorithm=tree",
     "cluster.fabric.oversubscription=2", "checks=[mfu > 0]", "training.tokens=1T"],
)  # fmt: skip
def test_what_a_scenario_means_changes_its_hash(override: str) -> None:
    assert digits(small(), override) != digits(small())


def test_the_seed_is_in_the_hash() -> None:
    assert digits(small(), seed=1) != digits(small())


def test_the_version_is_in_the_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digits(small())
    monkeypatch.setattr("clustersim.config.resolve.__version__", "99.0")

    assert digits(small()) != before


class Setting(Checked):
    cluster: ClusterSpec


def hardware(cluster: dict[str, Data]) -> Hardware:
    document = plain_document({"cluster": cluster}, "test.yaml")
    return hardware_of(validate_document(Setting, document).cluster, document)


def figures(found: Hardware) -> list[object]:
    """Return all but the sources: a figure that is written out is one that the user gave."""
    nodes = [replace(node, sources=(), fabric=found.fabric, nic=replace(node.nic, sources=())) for node, _ in found.kinds]
    nodes = [replace(node, accelerator=replace(node.accelerator, sources=())) for node in nodes]
    return [nodes, [count for _, count in found.kinds], found.fabric]


def at(data: Data, *path: str | int) -> Data:
    for step in path:
        assert isinstance(data, dict | list)
        data = data[str(step)] if isinstance(data, dict) else data[int(step)]
    return data


@pytest.mark.parametrize(
    "cluster",
    [
        {"node": "dgx-h100", "nodes": 4, "fabric": {"routing": "ecmp", "seed": 3}},
        {"node": INLINE, "nodes": 2},
        {"nodes": GROUPS, "fabric": {"topology": "leaf_spine"}},
        {"nodes": GROUPS[::-1]},
        {"name": "superpod-h100"},
    ],
    ids=["one kind", "from nothing", "groups", "groups from nothing first", "a shipped cluster"],
)
def test_what_is_written_reads_as_the_same_hardware(cluster: dict[str, Data]) -> None:
    found = hardware(cluster)

    written = resolved_hardware(found.kinds, found.fabric)

    assert figures(hardware(written)) == figures(found)
    again = hardware(written)
    assert resolved_hardware(again.kinds, again.fabric) == written


def test_groups_are_written_in_order_with_all_figures_and_one_fabric() -> None:
    found = hardware({"nodes": GROUPS})

    written = resolved_hardware(found.kinds, found.fabric)

    assert list(written) == ["nodes", "fabric"]
    keys = ("node", "count", "accelerator", "power")
    assert [at(written, "nodes", 0, key) for key in keys] == ["dgx-h100", 2, "h200-sxm", "11 kW"]
    assert at(written, "nodes", 1, "nics", "bandwidth") == "12.5 GB/s"
    assert "fabric" not in str(at(written, "nodes", 0))
    assert at(written, "nodes", 2, "node", "accelerator") == "l40s"
    assert at(written, "nodes", 2, "node", "fabric", "topology") == "leaf_spine"


def test_a_lone_group_is_written_as_a_cluster_of_one_kind() -> None:
    group = hardware({"nodes": [{"node": "dgx-h100", "count": 4}]})
    plain = hardware({"node": "dgx-h100", "nodes": 4})

    assert resolved_hardware(group.kinds, group.fabric) == resolved_hardware(plain.kinds, plain.fabric)


def test_shipped_parts_stay_named() -> None:
    node = load_node("dgx-h100")

    written = resolved_hardware(((node, 1),), node.fabric)

    assert [at(written, "node"), at(written, "host"), at(written, "nics", "model")] == ["dgx-h100", "dgx-h100", node.nic.name]

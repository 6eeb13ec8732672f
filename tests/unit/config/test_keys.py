"""Errors of objects, as the user meets them: with file, line and key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import clustersim
from clustersim.config.build import build
from clustersim.config.keys import dotted, refusal
from clustersim.config.load import load_scenario
from clustersim.documents.text import Data
from clustersim.errors import DomainError, ScenarioError, inside
from tests.unit.config.samples import TEXT, built
from tests.unit.config.samples import refusal as refused

GROUP: dict[str, Data] = {"node": "dgx-a100-40g", "count": 1}
INLINE: dict[str, Data] = {
    "accelerator": "a100-sxm4-80g",
    "accelerators_per_node": 8,
    "host": "dgx-a100",
    "nics": {"count": 8, "bandwidth": "100 Gbit/s", "latency": "1.5 us"},
    "scale_up": {"kind": "nvswitch", "bandwidth": "300 GB/s", "latency": "1 us"},
    "fabric": {"topology": "single_switch", "leaf": "qm9700-ndr", "nodes_per_leaf": 8},
}


def test_a_value_that_cannot_be_wired_is_shown_with_file_line_and_key(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(TEXT.replace("  nodes: 2\n", "  nodes: 2\n  fabric:\n    topology: torus\n    dimensions: [3]\n"), encoding="utf-8")

    with pytest.raises(ScenarioError) as caught:
        build(load_scenario(path))

    shown = f"{path}:17:17: cluster.fabric.dimensions: 3 = 3 places of a torus are not 2, as many as there are nodes and servers"
    assert str(caught.value).startswith(shown)


@pytest.mark.parametrize(
    ("cluster", "field"),
    [
        ({"node": "dgx-a100-40g", "nodes": 2, "scale_up": {"kind": "full_mesh", "nodes_per_domain": 2}}, "scale_up.nodes_per_domain"),
        ({"node": INLINE | {"scale_up": {"kind": "full_mesh", "nodes_per_domain": 2}}, "nodes": 2}, "node.scale_up.nodes_per_domain"),
        ({"nodes": [GROUP, GROUP | {"scale_up": {"kind": "cube_mesh"}}]}, "nodes.1.accelerator"),
        (
            {"node": INLINE | {"fabric": {"topology": "fat_tree", "leaf": "qm9700-ndr", "nodes_per_leaf": 1}}, "nodes": 2},
            "node.fabric.leaves_per_pod",
        ),
    ],
)
def test_the_key_is_the_one_that_was_written(cluster: dict[str, Data], field: str) -> None:
    assert refused(cluster=cluster).field == f"cluster.{field}"


def test_an_attribute_that_nobody_wrote_has_the_key_that_would_change_it() -> None:
    kind = ("cluster", "kinds", 1)

    assert dotted((*kind, "n_nics"), {"cluster": {"nodes": [GROUP, GROUP]}}) == "cluster.nodes.1.nics.count"
    assert dotted((*kind, "accelerator", "scale_up_links"), {"cluster": {"nodes": [GROUP, GROUP]}}) == "cluster.nodes.1.accelerator"
    assert dotted(("cluster", "kinds", 0, "nic", "latency_s"), {}) == "cluster.nics.latency"
    assert dotted(("cluster", "n_nodes"), {}) == "cluster.nodes"
    assert dotted(("cluster", "changes", 2, "between", 1), {}) == "cluster.links.2.between.1"


def test_a_setting_has_its_key_in_the_file_also_where_that_is_not_its_name() -> None:
    assert dotted(("training", "data_loader", "samples_per_s"), {}) == "training.data_loader.rate"
    assert dotted(("strategy", "data_parallel", "first_bucket_bytes"), {}) == "strategy.data_parallel.first_bucket"


def test_an_error_of_a_part_gets_the_way_to_the_part() -> None:
    with pytest.raises(DomainError) as caught, inside("cluster"), inside("kinds", 1):
        raise DomainError("too few", path=("n_nics",), hint="use more")

    assert (caught.value.path, str(caught.value)) == (("cluster", "kinds", 1, "n_nics"), "too few; use more")


def test_a_refusal_of_what_was_asked_for_names_the_key_that_is_in_the_way() -> None:
    error = refusal(DomainError("it has none", path=("cluster", "fabric", "in_network_reduction"), hint="use ring"), field="--algorithm")

    assert str(error) == "--algorithm: it has none (cluster.fabric.in_network_reduction); use ring"


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ("between: [leaf0, leaf0], state: down", "between", "'leaf0' stands at both ends"),
        ("bandwidth: 0 B/s", "bandwidth", "a link cannot have 0 B/s"),
        ("fraction: 0.0", "fraction", "0 is not a share of a bandwidth"),
        ("fraction: 1.5", "fraction", "1.5 is not a share of a bandwidth"),
        ("fraction: 0.5, bandwidth: 1 GB/s", "fraction", "bandwidth and fraction both say how fast the link is"),
        ("fraction: 0.5, state: down", "state", "a link that is down has no other properties"),
        ("half_duplex: true, state: down", "state", "a link that is down has no other properties"),
        ("half_duplex: true, direction: forward", "direction", "half duplex is about both directions"),
        ("between: [node0/nic0, node1/nic0], state: down", "between", "no link joins 'node0/nic0' and 'node1/nic0'"),
        ("between: [node0/nic0, leef], state: down", "between.1", "there is no 'leef'"),
    ],
)
def test_a_change_of_links_that_cannot_be_is_blamed_on_its_key(change: str, field: str, message: str) -> None:
    between = "" if "between" in change else "between: [node0/nic0, leaf0], "

    error = refused(f"cluster.links=[{{between: [node0/nic0, leaf0], fraction: 0.5}}, {{{between}{change}}}]")

    assert (error.field, error.message) == (f"cluster.links.1.{field}", message)
    assert error.hint


def test_a_link_may_be_slower_one_way() -> None:
    assert built("cluster.links=[{between: [node0/nic0, leaf0], fraction: 0.5, direction: forward}]").cluster.n_nodes == 2


def test_rooms_below_the_configuration_know_none_of_its_keys() -> None:
    rooms = ("collectives", "engine", "kernels", "network", "program", "parallel", "topology", "trace", "workloads")
    package = Path(clustersim.__file__).parent
    key = re.compile(r"ScenarioError|[\"'](cluster|model|strategy|training)\.\w")

    found = [
        f"{path.relative_to(package)}:{number}: {line.strip()}"
        for room in rooms
        for path in sorted((package / room).rglob("*.py"))
        # Descriptions of models are files of their own, with keys of their own.
        if path.parent.name != "reading"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if key.search(line)
    ]

    assert found == []

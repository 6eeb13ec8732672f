"""What a study of parameter servers and rings says, and what is said about mistakes in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clustersim.documents.text import parse_document
from clustersim.errors import ScenarioError
from clustersim.studies.comparison_file import COMPARISON, checked_comparison, read_comparison
from tests.unit.studies.comparison_sample import TEXT, comparison


def test_the_shipped_study_asks_what_it_promises() -> None:
    spec = read_comparison().spec

    assert spec.name == COMPARISON
    assert spec.oversubscription == [1, 2, 4, 8]
    assert spec.workers == [2, 4, 8, 16, 32, 64]
    assert [node.nic.bandwidth_bytes_per_s * 8 for node in read_comparison().nodes] == [10e9, 25e9, 100e9]


def test_each_adapter_makes_a_node_with_its_own_leaf_switch() -> None:
    ten, hundred = comparison().nodes

    assert (ten.nic.name, ten.fabric.leaf.name) == ("eth-10g", "eth-10g-tor")
    assert (hundred.nic.name, hundred.fabric.leaf.name) == ("eth-100g", "eth-100g-64p")
    assert {node.n_accelerators for node in (ten, hundred)} == {1}
    assert {node.fabric.nodes_per_leaf for node in (ten, hundred)} == {4}


def test_a_fabric_is_as_oversubscribed_as_asked() -> None:
    small = comparison()

    assert small.fabric(small.nodes[0], 8.0).oversubscription == 8.0


def test_there_are_never_more_servers_than_workers_and_once_as_many() -> None:
    small = comparison()

    assert small.server_counts(2) == (1, 2)
    assert small.server_counts(3) == (1, 2, 3)
    assert small.server_counts(8) == (1, 2, 4, 8)


def test_a_file_of_ones_own_is_read(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(TEXT, encoding="utf-8")

    assert read_comparison(path).spec == comparison().spec


def test_the_example_of_the_documentation_is_read() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "parameter-server-or-ring.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)

    example = checked_comparison(parse_document(text, "mine.yaml"))

    assert example.spec.name == "mine"
    assert [node.nic.name for node in example.nodes] == ["cx7-roce-200g"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("question: Who is faster?\n", "", "small.yaml:1:1: question: 'question' is missing; add 'question: ...'"),
        ("workers: [2, 8]", "workers: [2, 8]\nworkerz: 2", "small.yaml:12:1: workerz: unknown field 'workerz'; did you mean 'workers'?"),
        ("workers: [2, 8]", "workers: [1, 8]", "small.yaml:11:11: workers.0: 1 is out of range; write a number that is at least 2"),
        ("workers: [2, 8]", "workers: [2, 8, 8]", "small.yaml:11:17: workers.2: not in ascending order; write each value once"),
        ("workers: [2, 8]", "workers: [8, 2]", "small.yaml:11:14: workers.1: not in ascending order"),
        ("[1, 2, 4]\nsizes", "[4]\nsizes", "small.yaml:12:11: servers.0: 4 servers are more than 2 workers"),
        ("oversubscription: [1, 8]", "oversubscription: [0.5]", "small.yaml:10:20: oversubscription.0: 0.5 is out of range"),
        ("sizes: [1 KB, 100 MB]", "sizes: [1000, 100 MB]", "small.yaml:13:9: sizes.0: 1000 has no unit"),
        ("sizes: [1 KB, 100 MB]", "sizes: [0 KB, 100 MB]", "small.yaml:13:9: sizes.0: '0 KB' is out of range"),
        ("smallest: 1 KB", "smallest: 1 GB", "small.yaml:14:44: crossover_sizes.largest: the largest size is not larger than the smallest"),
        ("shown: {workers: 8", "shown: {workers: 4", "small.yaml:15:18: shown.workers: 4 is not compared; write one of 2, 8"),
        ("servers: [1, 2], size", "servers: [1, 3], size", "small.yaml:15:30: shown.servers: 3 is not compared; write one of 1, 2, 4"),
        ("size: 100 MB}", "size: 10 MB}", "small.yaml:15:44: shown.size: the size that is shown is not compared; write one of sizes"),
        ("node: pcie-a100-80g", "node: pcie-a100-81g", "small.yaml:4:9: cluster.node: unknown node 'pcie-a100-81g'; did you mean"),
        ("nic: eth-10g,", "nic: eth-11g,", "small.yaml:8:11: adapters.0.nic: unknown nic 'eth-11g'; did you mean"),
        ("leaf: eth-100g-64p", "leaf: eth-100g-65p", "small.yaml:9:27: adapters.1.leaf: unknown switch 'eth-100g-65p'"),
        ("accelerators_per_node: 1", "accelerators_per_node: 2", "small.yaml:5:26: cluster.accelerators_per_node: a worker is a node with"),
        ("accelerators_per_node: 1", "accelerators_per_node: 1\n  nics: {count: 2}", "cluster.nics.count: a worker has one adapter, not 2"),
        ("topology: leaf_spine", "topology: single_switch", "small.yaml:6:22: cluster.fabric.topology: the network is a leaf_spine"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_study_is_one_error_with_its_place(old: str, new: str, message: str) -> None:
    assert old in TEXT

    with pytest.raises(ScenarioError) as caught:
        checked_comparison(parse_document(TEXT.replace(old, new, 1), "small.yaml"))

    assert message in str(caught.value)

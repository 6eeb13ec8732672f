"""Descriptions of fabrics as they are shown to others: without GUIDs, with several topologies, and of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.apps.importing.entries import ImportOptions
from clustersim.apps.importing.importing import Imported, import_files
from clustersim.errors import ScenarioError
from tests.unit.apps.importing.found import at

ALL = [(unit, node, rail) for unit in range(2) for node in range(4) for rail in range(8)]
"""Units, nodes and rails of a fabric."""


def written(tmp_path: Path, text: str, cluster: str | None = "dgx-h100") -> Imported:
    path = tmp_path / "fabric"
    path.write_text(text, encoding="utf-8")
    return import_files([str(path)], ImportOptions(cluster=cluster))


def dumped(guid: str, leaves: tuple[str, str] = ("leaf-0", "leaf-1"), host: str = "node{} mlx5_0") -> str:
    """Return what ibnetdiscover prints of two leaves with two nodes each below one spine, without vendors."""
    lines: list[str] = []
    for number, leaf in enumerate(leaves):
        lines += [f'Switch\t65 "S-{guid}"\t\t# "MF0;{leaf}:MQM9700/U1" enhanced port 0 lid 14 lmc 0']
        lines += [f'[{port}]\t"H-{guid}"[1]({guid})\t\t# "{host.format(2 * number + port)}" lid 5 4xNDR' for port in (1, 2)]
        lines += [f'[{port}]\t"S-{guid}"[{port}]\t\t# "MF0;spine:MQM9700/U1" lid 6 4xNDR' for port in (33, 34)]
    return "\n".join([*lines, f'Switch\t65 "S-{guid}"\t\t# "MF0;spine:MQM9700/U1" enhanced port 0 lid 6 lmc 0'])


@pytest.mark.parametrize("guid", ["<redacted>", "xxxx"])
def test_switches_are_told_apart_by_their_names_where_guids_are_taken_out(tmp_path: Path, guid: str) -> None:
    found = written(tmp_path, dumped(guid))

    assert at(found.data, "cluster.nodes") == 4
    assert at(found.data, "cluster.fabric.nodes_per_leaf") == 2
    assert at(found.data, "cluster.fabric.oversubscription") == 1.0
    (bandwidth,) = (key for key in found.keys if key.to == "cluster.nics.bandwidth")
    assert (bandwidth.line, bandwidth.note) == (2, "that of the shipped node")


def test_adapters_of_a_node_at_a_leaf_each_are_rails(tmp_path: Path) -> None:
    port = "SW  1 {1} 0x{0}{3} 4x NDR - {2} ( 'leaf {0}{3}' - '{4}' )"
    lines = [port.format(unit, node, f"CA 1 1 0x{unit}f{node}{rail}", rail, f"n{unit}{node} mlx5_{rail}") for unit, node, rail in ALL]
    lines += [port.format(unit, 8 + node, "SW 1 1 0xaa", rail, "spine") for unit, node, rail in ALL if node < 2]

    fabric = at(written(tmp_path, "\n".join(lines)).data, "cluster.fabric")

    assert fabric == {"topology": "rail_optimized", "nodes_per_leaf": 4, "leaves_per_pod": 0, "oversubscription": 2.0}


@pytest.mark.parametrize(("unnamed", "nodes"), [(8, ["n1", "n2"]), (1, ["n1", "n2"]), (8, ["n1"])])
def test_a_manager_and_adapters_without_a_name_are_left_out_beside_nodes_of_several_adapters(
    tmp_path: Path, unnamed: int, nodes: list[str]
) -> None:
    lines: list[str] = []
    for rail in range(8):
        lines += [f'Switch\t65 "S-{rail}"\t\t# "MF0;leaf-{rail}:MQM9700/U1" enhanced port 0 lid 14 lmc 0']
        named = [*(["manager mlx5_0"] if rail == 0 else []), *(f"{node} HCA" for node in nodes)]
        named += ["MT4129 ConnectX7   Mellanox Technologies"] if rail < unnamed else []
        lines += [f'[{port}]\t"H-{rail}{port}"[1]({port})\t\t# "{name}" lid 5 4xNDR' for port, name in enumerate(named, start=1)]

    found = written(tmp_path, "\n".join(lines))

    assert at(found.data, "cluster.nodes") == len(nodes)
    lost = {key.key: key.value for key in found.keys if key.how == "not_modelled"}
    assert lost == {"adapters.left_out": unnamed, "nodes.others": "manager"}


def test_two_switches_without_guids_and_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="port 1 of S-x MF0;leaf:MQM9700/U1 is listed twice"):
        written(tmp_path, dumped("x", ("leaf", "leaf")))


def test_adapters_without_the_name_of_a_node_are_told_of(tmp_path: Path) -> None:
    found = written(tmp_path, dumped("x", host="MT4129 ConnectX7   Mellanox Technologies"))

    assert ("adapters.unnamed", 4) in [(key.key, key.value) for key in found.keys if key.how == "not_modelled"]


SEVERAL = """- cluster_default: false
  topology: all
  tree: {switches: [{switch: one, nodes: "n[1-4]"}]}
- cluster_default: true
  topology: halves
  tree: {switches: [{switch: a, nodes: "n[1-2]"}, {switch: b, nodes: "n[3-4]"}, {switch: top, children: "a,b"}]}
"""


def test_the_default_of_several_topologies_of_slurm_is_read(tmp_path: Path) -> None:
    found = written(tmp_path, SEVERAL)

    assert at(found.data, "cluster.fabric.nodes_per_leaf") == 2
    assert ("topologies.others", "all") in [(key.key, key.value) for key in found.keys]


JOB = "JobId=7 JobName=train\n   NumNodes=16 NumTasks=128\n   {2}TRES=cpu=96,node=16,gres/gpu={0}\n   TresPerNode=gres/gpu:{1}\n"


@pytest.mark.parametrize(
    ("count", "resources", "kind", "node"),
    [(128, "h100:8", "", "dgx-h100"), (64, "gb200:4", "Req", "gb200-nvl72"), (128, "h100:8", "Alloc", "dgx-h100")],
)
def test_a_job_that_scontrol_shows_counts_nodes_and_accelerators(tmp_path: Path, count: int, resources: str, kind: str, node: str) -> None:
    found = written(tmp_path, JOB.format(count, resources, kind) + JOB.replace("7", "8", 1).format(16, "h100:1", ""), None)

    assert at(found.data, "cluster") == {"node": node, "nodes": 16}
    assert ("allocations.others", "8") in [(key.key, key.value) for key in found.keys if key.how == "not_modelled"]


@pytest.mark.parametrize(
    ("asked", "nodes", "told"), [("#SBATCH --nodes=4\n", 4, True), ("#SBATCH --nodes=16\n", 16, False), ("", 16, False)]
)
def test_nodes_of_which_a_script_asks_for_others_are_told_of(tmp_path: Path, asked: str, nodes: int, told: bool) -> None:
    (job := tmp_path / "job").write_text(JOB.format(128, "h100:8", "Alloc"), encoding="utf-8")
    (script := tmp_path / "train.sh").write_text(f"#!/bin/bash\n{asked}srun python train.py --model Qwen/Qwen3-8B\n", encoding="utf-8")

    found = import_files([str(job), str(script)], ImportOptions(framework="transformers", overrides=("training.seq_length=2048",)))

    assert at(found.data, "cluster.nodes") == nodes
    assert [bool(key.note) for key in found.keys if key.key == "nodes.count"] == [told]


@pytest.mark.parametrize(("name", "nearest"), [("gaudi3", ""), ("h100_nvl", "; pcie-h200-nvl comes nearest")])
def test_accelerators_that_no_shipped_node_has_are_named(tmp_path: Path, name: str, nearest: str) -> None:
    cluster = rf"--cluster NAME \(a shipped node or cluster{nearest}\)"
    with pytest.raises(ScenarioError, match=f"no file says which shipped node comes near to {name}: {cluster}"):
        written(tmp_path, JOB.format(128, f"{name}:8", ""), None)


def test_adapters_of_aws_tell_an_instance_without_names_of_accelerators(tmp_path: Path) -> None:
    card = '<pci class="0x020000" link_speed="16.0 GT/s PCIe"><nic><net name="rdmap79s0" speed="100000"/></nic></pci>'
    switch = f'<pci class="0x060400"><pci class="0x030200" link_speed="32.0 GT/s PCIe"/>{4 * card}</pci>'

    found = written(tmp_path, f'<system version="1"><cpu>{8 * switch}</cpu></system>', None)

    assert at(found.data, "cluster.node") == "aws-p5"

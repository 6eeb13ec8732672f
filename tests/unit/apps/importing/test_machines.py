"""Descriptions of machines: the node they are of, and fabrics switch by switch."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from clustersim.apps.importing.entries import ImportOptions
from clustersim.apps.importing.importing import Imported, import_files
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from tests.unit.apps.importing.found import at

FILES: Final = Path(__file__).parent / "files"
MEGATRON: Final = (
    "pretrain_gpt.py --num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 --max-position-embeddings 1024"
    " --micro-batch-size 1 --global-batch-size 20 --vocab-size 32000 --bf16 --tensor-model-parallel-size 2"
)


def imported(name: str, cluster: str | None = None, nodes: int | None = None) -> dict[str, Data]:
    found = import_files([str(FILES / name)], ImportOptions(cluster=cluster, nodes=nodes)).data
    return {key: value for key, value in found.items() if key == "cluster"}


def written(tmp_path: Path, text: str, cluster: str | None = None, name: str = "machine") -> Imported:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return import_files([str(path)], ImportOptions(cluster=cluster))


GRAPH: Final = [
    {"switch": "leaf0", "nodes": [0, 1], "adapters": [*range(8)]},
    {"switch": "leaf1", "nodes": [2, 3], "adapters": [*range(8)]},
]
"""Switches of an InfraGraph with two leaves."""


@pytest.mark.parametrize(
    ("name", "cluster", "expected"),
    [
        ("nccl-p4d.xml", None, {"node": "aws-p4d", "nodes": 1}),
        ("nccl-ndv5.xml", None, {"node": "azure-nd-h100-v5", "nodes": 1}),
        ("nccl-ndv5.xml", "hgx-h200", {"node": "hgx-h200", "nodes": 1}),
        ("kubernetes-nodes.yaml", None, {"node": "dgx-a100-40g", "nodes": 1, "accelerators_per_node": 1}),
        (
            "slurm-tree.topology.conf",
            "dgx-h100",
            {"nodes": 96, "fabric.topology": "fat_tree", "fabric.nodes_per_leaf": 8, "fabric.leaves_per_pod": 2},
        ),
        ("topograph-nvl72.yaml", "gb200-nvl72", {"nodes": 72, "fabric.topology": "fat_tree", "fabric.nodes_per_leaf": 18}),
        ("infragraph-clos.yaml", "dgx-h100", {"nodes": 4, "nics": {"count": 4, "bandwidth": "100 GB/s"}, "fabric.topology": "leaf_spine"}),
        ("ibnetdiscover.out", "dgx-h100", {"nodes": 5, "fabric.topology": "graph", "fabric.link_bandwidth": "400 Gbit/s"}),
    ],
)
def test_a_description_gives_a_cluster(name: str, cluster: str | None, expected: dict[str, Data]) -> None:
    found = imported(name, cluster)["cluster"]

    assert {key: at(found, key) for key in expected} == expected


def test_a_plane_stands_for_those_that_the_file_leaves_out() -> None:
    graph = at(imported("ibnetdiscover.out", "dgx-h100"), "cluster.fabric.graph")

    assert isinstance(graph, list)
    assert len(graph) == 3 * 8
    assert graph[1] == {"switch": "LEAF-02.plane0", "nodes": [2, 3], "adapters": [0], "to": {"SPINE-01.plane0": 2, "SPINE-02.plane0": 1}}


def test_ports_that_ibnetdiscover_lists_are_cables(tmp_path: Path) -> None:
    path = tmp_path / "ports.out"
    path.write_text(
        "CA   134  1 0x7cfe9003003b4bde 4x EDR - SW  1719 10 0x7cfe9003009ce5b0 ( 'o0001 HCA-1' - 'leaf1' )\n"
        "SW  1719 10 0x7cfe9003009ce5b0 4x EDR - CA   134  1 0x7cfe9003003b4bde ( 'leaf1' - 'o0001 HCA-1' )\n"
        "SW  1719  1 0x7cfe9003009ce5b0 4x EDR - SW  1516  1 0x7cfe900300b07320 ( 'leaf1' - 'spine' )\n"
        "SW  2052 35 0x506b4b03005c2740 4x EDR - CA  1432  1 0x506b4b0300cc02a6 ( 'leaf2' - 'p0001 HCA-1' )\n"
        "SW  2052  1 0x506b4b03005c2740 4x EDR - SW  1516  2 0x7cfe900300b07320 ( 'leaf2' - 'spine' )\n"
        "SW  2052 37 0x506b4b03005c2740 4x ???                                    'leaf2'\n"
        "SW  1516  2 0x7cfe900300b07320 4x EDR - SW  2052  1 0x506b4b03005c2740 ( 'spine' - 'leaf2' )\n",
        encoding="utf-8",
    )

    fabric = at(import_files([str(path)], ImportOptions(cluster="dgx-h100")).data, "cluster.fabric")

    assert fabric == {"topology": "rail_optimized", "nodes_per_leaf": 1, "leaves_per_pod": 0, "oversubscription": 1.0}


def test_a_job_and_a_fabric_are_one_scenario(tmp_path: Path) -> None:
    path = tmp_path / "job.txt"
    path.write_text(MEGATRON, encoding="utf-8")

    found = import_files([str(path), str(FILES / "ibnetdiscover.out")], ImportOptions(cluster="dgx-h100")).data

    assert (at(found, "cluster.nodes"), at(found, "cluster.fabric.topology"), at(found, "strategy.tp")) == (5, "graph", 2)


def test_a_file_of_hosts_counts_nodes_and_processes(tmp_path: Path) -> None:
    job, hosts = tmp_path / "job.sh", tmp_path / "hostfile"
    job.write_text(f"deepspeed --hostfile hostfile {MEGATRON}\n", encoding="utf-8")
    hosts.write_text("# five nodes\n" + "".join(f"gpu-{index} slots=4\n" for index in range(5)), encoding="utf-8")

    found = import_files([str(job), str(hosts)], ImportOptions(cluster="dgx-h100")).data

    assert (at(found, "cluster.nodes"), at(found, "cluster.accelerators_per_node")) == (5, 4)


@pytest.mark.parametrize(
    "slices",
    [
        "  MIG 3g.20gb     Device  0: (UUID: MIG-7089)\n",
        "|  0    1   0   0  |     37MiB / 40192MiB    | 42      0 |  3   0    2    0    0 |\n",
    ],
)
def test_slices_of_an_accelerator_are_told_of(tmp_path: Path, slices: str) -> None:
    found = written(tmp_path, f"GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c89)\n{slices}")

    assert [key.value for key in found.keys if key.how == "not_modelled"] == ["1 of MIG"]


@pytest.mark.parametrize("text", ["GPU 0,1,2,3,4,5,6,7: NVIDIA B200\n", "".join(f"GPU {at}: NVIDIA B200\n" for at in range(8))])
def test_the_environment_that_pytorch_or_sglang_reports_names_accelerators(tmp_path: Path, text: str) -> None:
    assert at(written(tmp_path, f"CUDA available: True\n{text}").data, "cluster") == {"node": "dgx-b200", "nodes": 1}


def test_nodes_that_the_job_does_not_use_are_left_out() -> None:
    graph = at(imported("ibnetdiscover.out", "dgx-h100", nodes=3), "cluster.fabric.graph")

    assert isinstance(graph, list)
    assert [at(switch, "nodes") for switch in graph[:3]] == [[0, 1], [2], None]


def smi(cell: str, count: int) -> str:
    head = "        " + "  ".join(f"GPU{index}" for index in range(count))
    rows = [f"GPU{row}  " + "  ".join("X" if row == column else cell for column in range(count)) for row in range(count)]
    return "\n".join((head, *rows, "Legend:", "  X = Self")) + "\n"


@pytest.mark.parametrize(
    ("cell", "count", "node"),
    [
        ("NV18", 8, "dgx-h100"),
        ("NV12", 8, "dgx-a100-80g"),
        ("NV6", 16, "dgx2-v100-32g"),
        ("NV6", 4, "jupiter-gh200"),
        ("NV18", 4, "gb200-nvl72"),
    ],
)
def test_links_between_accelerators_tell_the_node(tmp_path: Path, cell: str, count: int, node: str) -> None:
    assert at(written(tmp_path, smi(cell, count)).data, "cluster.node") == node


def test_bridges_between_pairs_of_boards_are_no_node_with_a_switch(tmp_path: Path) -> None:
    rows = [["X" if row == column else "NV12" if row // 2 == column // 2 else "SYS" for column in range(4)] for row in range(4)]
    text = "  GPU0 GPU1 GPU2 GPU3\n" + "".join(f"GPU{row} {' '.join(cells)}\n" for row, cells in enumerate(rows))

    with pytest.raises(ScenarioError, match=r"no file says the accelerators: .*; pcie-a100-80g comes nearest"):
        written(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "".join(f"GPU {index}: NVIDIA H200 (UUID: GPU-{index})\n" for index in range(8))
            + smi("NV18", 8).replace("  GPU0", "\x1b[4m GPU0"),
            {"node": "hgx-h200", "nodes": 1},
        ),
        (
            "| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: 12.4 |\n"
            + "".join(f"|   {index}  NVIDIA L40S          On  | 00000000:0{index}:00.0 Off |   0 |\n" for index in range(4)),
            {"node": "pcie-l40s", "accelerators_per_node": 4},
        ),
        (
            '<?xml version="1.0" encoding="UTF-0"?><system version="1"><cpu>'
            '<pci class="0x030200" vendor="0x10de" device="0x2335"/></cpu></system>',
            {"node": "hgx-h200", "accelerators_per_node": 1},
        ),
        ("name, memory.total [MiB]\n" + "NVIDIA H100 80GB HBM3, 81559 MiB\n" * 8, {"node": "dgx-h100", "nodes": 1}),
        ("===NVSMI LOG===\n" + "GPU 0:1:0.0\n    Product Name      : NVIDIA H200\n" * 8, {"node": "hgx-h200", "nodes": 1}),
        (
            "   GPU0 GPU1 GPU2 GPU3\nGPU0 X NV1 NV1 NV2\nGPU1 NV1 X NV2 NV1\nGPU2 NV1 NV2 X NV2\nGPU3 NV2 NV1 NV2 X\n",
            {"node": "dgx1-v100-16g", "accelerators_per_node": 4},
        ),
        (
            '{"Instances": ['
            + ", ".join(f'{{"InstanceType": "p5.48xlarge", "NetworkNodes": ["nn-0", "nn-1", "nn-{node // 2}x"]}}' for node in range(4))
            + "]}",
            {"node": "aws-p5", "nodes": 4, "fabric.topology": "leaf_spine", "fabric.nodes_per_leaf": 2},
        ),
        (
            "NAME   STATUS  ROLES   AGE  VERSION  LABELS\n"
            + "".join(
                f"n{index}  Ready  <none>  1d  v1.29.0  a=b,node.kubernetes.io/instance-type=Standard_ND96isr_H200_v5\n"
                for index in range(3)
            ),
            {"node": "hgx-h200", "nodes": 3},
        ),
        (
            "apiVersion: v1\nitems:\n"
            + "".join(
                f"- kind: Node\n  metadata: {{name: n{index}, labels: {{node.kubernetes.io/instance-type: p5.48xlarge,"
                f" topology.k8s.aws/network-node-layer-3: nn{index // 2}}}}}\n"
                for index in range(4)
            ),
            {"node": "aws-p5", "fabric.topology": "leaf_spine", "fabric.nodes_per_leaf": 2},
        ),
        (
            "apiVersion: v1\nitems:\n"
            "- kind: Node\n  metadata: {name: g, labels: {nvidia.com/gpu.product: NVIDIA-H200, nvidia.com/gpu.count: '8'}}\n"
            "- kind: Node\n  metadata: {name: c, labels: {node.kubernetes.io/instance-type: e2-standard-4}}\n",
            {"node": "hgx-h200", "nodes": 1},
        ),
        (
            "".join(
                f"Name:               gpu-{index}\nRoles:              <none>\nLabels:             a/b=c\n"
                "                    nvidia.com/gpu.product=NVIDIA-H200\nCapacity:\n  nvidia.com/gpu:  8\n"
                for index in range(2)
            ),
            {"node": "hgx-h200", "nodes": 2},
        ),
        (
            "=== ROCm System Management Interface ===\n"
            + "".join(f"GPU[{index}]\t\t: Card Series: \t\tAMD Instinct MI300X\n" for index in range(8)),
            {"node": "mi300x-oam", "nodes": 1},
        ),
        (
            "".join(f"GPU {index}: NVIDIA H100 PCIe (UUID: GPU-{index})\n" for index in range(8)),
            {"node": "pcie-a100-80g", "accelerator": "h100-pcie-80g"},
        ),
        ("GPU 0: NVIDIA GH200 480GB (UUID: GPU-0)\n", {"node": "gh200", "nodes": 1}),
        ("kind: Node\nmetadata: {labels: {cloud.google.com/gke-accelerator: nvidia-h100-mega-80gb}}\n", {"node": "gcp-a3-mega"}),
        (
            "kind: Node\nmetadata: {labels: {nvidia.com/gpu.product: A100-SXM4-80GB-MIG-1g.10gb, nvidia.com/gpu.count: '56'}}\n",
            {"nodes": 1},
        ),
        (smi("NV18", 8) + "".join(f"rdmap{index}s0 {8 * 'PIX '}\n" for index in range(16)), {"node": "aws-p5en", "nics": None}),
        (
            "switches:\n- {name: s1, switches: [l1, l2]}\n- {name: l1, capacity_blocks: [c1]}\n- {name: l2, capacity_blocks: [c2]}\n"
            "capacity_blocks:\n- {name: c1, type: H100, nodes: [n1, n2]}\n- {name: c2, type: H100, nodes: [n3, n4]}\n",
            {"node": "dgx-h100", "nodes": 4, "fabric.topology": "leaf_spine", "fabric.nodes_per_leaf": 2},
        ),
        (
            "NodeName=login1 CPUs=8\nNodeName=n[001-032] Gres=gpu:h100:8 CPUs=192\nPartitionName=batch Nodes=ALL\n",
            {"node": "dgx-h100", "nodes": 32, "accelerators_per_node": None},
        ),
        (
            "devices:\n- {name: server, components: [{name: board, choice: device, count: 2}, {name: nic, choice: nic, count: 8}]}\n"
            "- {name: board, components: [{name: xpu, description: NVIDIA H100 SXM5, choice: xpu, count: 4}]}\n"
            "- {name: sw, components: [{name: port, choice: port, count: 16}]}\n"
            "links: [{name: eth, physical: {bandwidth: {choice: gigabits_per_second, gigabits_per_second: 200}}}]\n"
            "instances: [{name: host, device: server, count: 4}, {name: leaf, device: sw, count: 2}]\n"
            "edges:\n"
            "- {ep1: {instance: 'host[0:2]', component: nic}, ep2: {instance: 'leaf[0]', component: 'port[0:16]'},"
            " scheme: one2one, link: eth}\n"
            "- {ep1: {instance: 'host[2:]', component: nic}, ep2: {instance: 'leaf[-1]', component: port},"
            " scheme: one2one, link: eth}\n",
            {"node": "dgx-h100", "nodes": 4, "accelerators_per_node": None, "nics.bandwidth": "200 Gbit/s", "fabric.graph": GRAPH},
        ),
    ],
)
def test_names_of_accelerators_and_instances_tell_the_node(tmp_path: Path, text: str, expected: dict[str, Data]) -> None:
    found = written(tmp_path, text).data["cluster"]

    assert {key: at(found, key) for key in expected} == expected


@pytest.mark.parametrize(
    "text",
    [
        "SwitchName=l0 Level=0 LinkSpeed=1 Nodes=n[00-07]\nSwitchName=l1 Level=0 LinkSpeed=1 Nodes=n[08-15]\n"
        "SwitchName=s0 Level=1 LinkSpeed=1 Nodes=n[00-15] Switches=l[0-1]\n",
        "kind: ConfigMap\napiVersion: v1\ndata:\n  topology.conf: |\n    SwitchName=l0 Nodes=n[00-07]\n    SwitchName=l1 Nodes=n[08-15]\n"
        "    SwitchName=s0 Switches=l[0-1]\n",
        "- topology: t\n  cluster_default: true\n  tree:\n    switches:\n      - switch: l0\n        nodes: n[00-07]\n"
        "      - switch: l1\n        nodes: n[08-15]\n      - switch: s0\n        children: l[0-1]\n",
    ],
)
def test_all_forms_of_a_topology_of_slurm_are_read(tmp_path: Path, text: str) -> None:
    found = written(tmp_path, text, "dgx-h100").data

    assert (at(found, "cluster.nodes"), at(found, "cluster.fabric.nodes_per_leaf")) == (16, 8)


NODES_OF_SCONTROL: Final = "".join(
    f"NodeName={name} Arch=x86_64 CoresPerSocket=56\n   CPUAlloc=0 CPUTot=224\n   Gres={resources}\n   NodeAddr={name}\n\n"
    for name, resources in (("login1", "(null)"), ("n1", "gpu:h100:8(S:0-1)"), ("n2", "gpu:h100:8(S:0-1)"))
)
UNLIKE_NODES: Final = (
    "NodeName=DEFAULT Gres=gpu:h100:8  # most\n  NodeName=n[01-32] CPUs=192\nNodeName=v[1-2] Gres=gpu:a40:4 CPUs=64\nNodeName=l1 Gres=x:1\n"
)


@pytest.mark.parametrize(
    ("text", "count", "others"),
    [(NODES_OF_SCONTROL, 2, "1 of no accelerator"), (UNLIKE_NODES, 32, "1 of no accelerator, 2 of gpu:a40:4")],
)
def test_of_unlike_nodes_of_slurm_those_of_the_most_nodes_count(tmp_path: Path, text: str, count: int, others: str) -> None:
    found = written(tmp_path, text)

    assert found.data["cluster"] == {"node": "dgx-h100", "nodes": count}
    assert [key.value for key in found.keys if key.how == "not_modelled"] == [others]


@pytest.mark.parametrize(("resources", "count"), [("gpu:4", 4), ("nvme:1,gpu", 1), ("gpu:4,nvme:1", 4)])
def test_untyped_accelerators_of_slurm_are_counted(tmp_path: Path, resources: str, count: int) -> None:
    found = written(tmp_path, f"NodeName=login Gres=(null)\nNodeName=n[1-3] Gres={resources}\n", "dgx-h100").data

    assert (at(found, "cluster.nodes"), at(found, "cluster.accelerators_per_node")) == (3, count)


def test_labels_of_nodes_name_their_switches(tmp_path: Path) -> None:
    labels = "nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3, cloud.provider.com/topology-rack: r"
    nodes = "".join(f"- kind: Node\n  metadata: {{name: n{number}, labels: {{{labels}{number // 2}}}}}\n" for number in range(3))

    found = written(tmp_path, f"apiVersion: v1\nitems:\n{nodes}").data

    assert (at(found, "cluster.node"), at(found, "cluster.nodes"), at(found, "cluster.fabric.topology")) == ("dgx-h100", 3, "graph")
    assert isinstance(graph := at(found, "cluster.fabric.graph"), list)
    assert [at(switch, "to") for switch in graph] == [None, {"core": 1}, {"core": 1}]


def test_an_instance_of_a_cloud_is_a_shipped_node(tmp_path: Path) -> None:
    path = tmp_path / "job.txt"
    path.write_text(MEGATRON, encoding="utf-8")

    found = import_files([str(path)], ImportOptions(cluster="p5.48xlarge", nodes=5)).data

    assert at(found, "cluster.node") == "aws-p5"


@pytest.mark.parametrize(
    ("before", "after", "node"),
    [
        ("#SBATCH --nodes=5\n#SBATCH --gpus-per-node=gh200:4\nsrun ", "", "jupiter-gh200"),
        ("#SBATCH --nodes=5\n#SBATCH --gres=gpu:h100:8\nsrun ", "", "dgx-h100"),
        ('xpk workload create --device-type=h200-141gb-8 --num-nodes=5 --command "python ', '"', "hgx-h200"),
    ],
)
def test_a_scheduler_is_asked_for_accelerators_by_name(tmp_path: Path, before: str, after: str, node: str) -> None:
    path = tmp_path / "job.sh"
    path.write_text(f"#!/bin/bash\n{before}{MEGATRON}{after}\n", encoding="utf-8")

    found = import_files([str(path)], ImportOptions()).data

    assert (at(found, "cluster.node"), at(found, "cluster.nodes")) == (node, 5)


EDGE: Final = (
    "devices:\n- {{name: server, components: [{{name: xpu, choice: xpu, count: 8}}, {{name: nic, choice: nic, count: 8}}]}}\n"
    "- {{name: sw, components: [{{name: port, choice: port, count: 16}}]}}\nlinks: []\n"
    "instances: [{{name: host, device: server, count: 2}}, {{name: leaf, device: sw, count: 1}}]\n"
    "edges:\n- {{ep1: {{instance: '{host}', component: nic}}, ep2: {{instance: '{leaf}', component: '{port}'}}, scheme: one2one}}\n"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Machine (1008GB total)\n  Package L#0\n", "lstopo --of xml"),
        ("<graphs version='1'><graph id='0'/></graphs>", "is a graph of NCCL"),
        ("<system version='1'><cpu>", "is not XML"),
        ("<system version='1'></system>", "has no accelerators"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><system version='1'/>", "declares entities"),
        ("<system version='1'>" + "<pci>" * 200, "is nested too deeply"),
        (EDGE.format(host="host", leaf="leaf[5]", port="port"), "ep2: is at no component of an instance in the file"),
        (EDGE.format(host="host", leaf="leaf[-2]", port="port"), "ep2: is at no component of an instance in the file"),
        (EDGE.format(host="host", leaf="leaf", port="port[16]"), "ep2: is at no component of an instance in the file"),
        (EDGE.format(host="hosts", leaf="leaf", port="port"), "ep1: is at no component of an instance in the file"),
        ("SwitchName=s0 Nodes=n[1-999999999]\n", "names more than 100000 nodes"),
        ("SwitchName=s0 Switches=s1\n", "names no node"),
        ("SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[2-3]\n", "machine:2: node n2 hangs at a and at b.* line 1 names it too"),
        ("SwitchName=s0 Nodes=n[1-4]\n", "no file says the accelerators: --cluster NAME"),
        ("PARTITION AVAIL TIMELIMIT NODES STATE NODELIST\ngpu* up 7-00:00:00 12 idle dgx[001-012]\n", "scontrol show nodes"),
        ("xtuner train internlm2_chat_7b_qlora_oasst1_e3 --deepspeed deepspeed_zero2\n", "its options are not read"),
        ("CA 'mlx5_0'\n\tCA type: MT4129\n\tPort 1:\n\t\tRate: 400\n", "is a description of a cluster .ibstat.*ibnetdiscover write"),
    ],
)
def test_a_description_that_cannot_be_read_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        written(tmp_path, text)


def test_a_fabric_with_fewer_nodes_than_the_job_is_refused() -> None:
    with pytest.raises(ScenarioError, match="names 5 nodes, and the job has 6"):
        imported("ibnetdiscover.out", "dgx-h100", nodes=6)


def test_nodes_at_no_switch_are_left_out_beside_those_at_some(tmp_path: Path) -> None:
    blocks = "".join(f'- {{switch: pod-{n}, nodes: ["gpu-[0{2 * n + 1}-0{2 * n + 2}]"]}}\n' for n in range(2))
    text = f"switches:\n  core: {{switches: [pod-0, pod-1]}}\nblocks:\n{blocks}- nodes: ['cpu-[01-02]']\n"

    found = written(tmp_path, text, "dgx-h100")

    assert at(found.data, "cluster.nodes") == 4
    assert [key.value for key in found.keys if key.how == "not_modelled"] == ["cpu-01, cpu-02"]

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clustersim.documents.files import data_path
from clustersim.documents.text import read_document
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import (
    load_accelerator,
    load_cluster,
    load_host,
    load_nic,
    load_node,
    load_switch,
    profile_names,
    read_cluster,
    read_node,
    read_spec,
)
from clustersim.hardware.profile_schema import AcceleratorSpec


def shipped(folder: str) -> list[str]:
    return sorted(path.stem for path in (data_path("hardware_profiles") / folder).glob("*.yaml"))


PROMISED_NODES = (
    *("dgx1-v100-16g", "dgx1-v100-32g", "dgx2-v100-32g", "dgx-a100-40g", "dgx-a100-80g", "dgx-h100", "hgx-h200", "dgx-b200", "dgx-b300"),
    *("gb200-nvl72", "gb300-nvl72", "hgx-a800", "hgx-h800", "mi300x-oam", "aws-p3dn", "aws-p4d", "aws-p5"),
    *("pcie-a100-80g", "pcie-l40s", "pcie-rtx4090", "dgx1-p100", "aws-p2-k80"),
)

ACCELERATOR = """\
name: toy
title: A toy
vendor: nvidia
generation: toy
peak_flops: {fp32: 1 TFLOP/s, bf16: 2 TFLOP/s}
memory: 16 GB
memory_bandwidth: 1 TB/s
pcie: {generation: 4, lanes: 16, bandwidth: 31.5 GB/s}
multiprocessors: 10
sources:
  - title: A data sheet
    url: https://example.org
    accessed: 2026-11-20
    covers: [peak_flops, memory, memory_bandwidth, pcie, multiprocessors]
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "toy.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_there_are_enough_profiles() -> None:
    assert len(profile_names("accelerators")) >= 24
    assert len(profile_names("nodes")) >= 18


def test_every_promised_node_is_shipped() -> None:
    assert [name for name in PROMISED_NODES if name not in profile_names("nodes")] == []


def test_every_promised_reference_cluster_is_shipped() -> None:
    promised = {
        "superpod-a100",
        "superpod-h100",
        "superpod-b200",
        "meta-24k-roce",
        "leaf-spine-oversubscribed",
        "nvl72-rack",
        "selene-a100",
    }

    assert promised <= set(profile_names("clusters"))


def test_every_accelerator_loads_and_is_sane() -> None:
    for name in profile_names("accelerators"):
        accelerator = load_accelerator(name)

        assert accelerator.name == name, name
        assert "fp32" in accelerator.peak_flops_per_s, name
        # Kepler of 2014 to Blackwell Ultra of 2025, with room on both sides.
        assert 1e12 < max(accelerator.peak_flops_per_s.values()) < 2e16, name
        assert 8e9 < accelerator.memory_bytes < 500e9, name
        assert 1e11 < accelerator.memory_bandwidth_bytes_per_s < 1e13, name
        assert 10 <= accelerator.n_multiprocessors <= 400, name
        assert accelerator.pcie_bandwidth_bytes_per_s in {15.75e9, 31.5e9, 63e9, 121e9}, name
        assert (accelerator.scale_up_links == 0) == (accelerator.scale_up_bandwidth_bytes_per_s == 0), name


def test_the_ridge_point_of_every_accelerator_is_sane() -> None:
    for name in profile_names("accelerators"):
        accelerator = load_accelerator(name)

        ridges = [peak / accelerator.memory_bandwidth_bytes_per_s for peak in accelerator.peak_flops_per_s.values()]

        # FLOP for each byte of memory traffic at which compute and memory take equally long.
        assert min(ridges) > 5, name
        assert max(ridges) < 2000, name


def test_a_narrower_number_is_never_slower() -> None:
    for name in profile_names("accelerators"):
        peaks = load_accelerator(name).peak_flops_per_s

        ordered = [peaks[precision] for precision in ("fp32", "tf32", "bf16", "fp8") if precision in peaks]

        assert ordered == sorted(ordered), name
        assert peaks.get("fp16", peaks["fp32"]) >= peaks["fp32"], name


def test_what_the_driver_reports_is_close_to_the_data_sheet() -> None:
    for name in profile_names("accelerators"):
        spec, _ = read_spec(AcceleratorSpec, data_path("hardware_profiles") / "accelerators" / f"{name}.yaml")

        # A data sheet's GB are mostly GiB, 7.4 % more; error correction in GDDR and the driver take up to a sixteenth.
        memory_bytes = vars(spec)["memory"]
        assert memory_bytes * 0.93 < load_accelerator(name).memory_bytes < memory_bytes * 1.08, name


def test_every_node_loads_and_is_sane() -> None:
    for name in profile_names("nodes"):
        node = load_node(name)

        assert node.name == name, name
        assert 1 <= node.n_accelerators <= 16, name
        assert 1 <= node.n_nics <= 32, name
        assert 1 <= node.accelerators_per_pcie_switch <= node.n_accelerators, name
        assert node.power_w is None or node.power_w > node.n_accelerators * (node.accelerator.power_w or 0) * 0.6, name
        wired = node.scale_up.kind != "pcie"
        assert wired == (node.accelerator.scale_up_bandwidth_bytes_per_s > 0), name


def test_the_ports_of_a_leaf_are_fast_enough_and_as_many_as_its_reference_fabric_needs() -> None:
    for name in profile_names("nodes"):
        node = load_node(name)
        fabric = node.fabric

        adapters_per_leaf = fabric.nodes_per_leaf * (1 if fabric.topology == "rail_optimized" else node.n_nics)

        assert fabric.leaf.port_bandwidth_bytes_per_s >= node.nic.bandwidth_bytes_per_s, name
        assert adapters_per_leaf < fabric.leaf.n_ports * fabric.leaf.port_bandwidth_bytes_per_s / node.nic.bandwidth_bytes_per_s, name


def test_every_reference_cluster_loads() -> None:
    for name in profile_names("clusters"):
        cluster = load_cluster(name)

        assert cluster.name == name, name
        assert cluster.title, name
        assert cluster.n_nodes >= cluster.fabric.nodes_per_leaf or cluster.node.scale_up.nodes_per_domain == cluster.n_nodes, name


def test_every_host_loads_and_is_sane() -> None:
    for name in shipped("hosts"):
        host = load_host(name)

        assert host.n_sockets in {1, 2, 4}, name
        assert 1e11 < host.memory_bytes < 1e13, name
        assert host.memory_bandwidth_bytes_per_s > host.socket_bandwidth_bytes_per_s, name
        assert host.storage_bandwidth_bytes_per_s is None or 1e9 < host.storage_bandwidth_bytes_per_s < 1e11, name
        written = host.storage_write_bandwidth_bytes_per_s
        assert (written is None) is (host.storage_bandwidth_bytes_per_s is None), name
        # Flash is written no faster than it is read.
        assert not written or not host.storage_bandwidth_bytes_per_s or 0.4 <= written / host.storage_bandwidth_bytes_per_s <= 1.0, name


def test_every_adapter_loads_and_is_sane() -> None:
    for name in shipped("nics"):
        nic = load_nic(name)

        assert 1.25e9 <= nic.bandwidth_bytes_per_s <= 100e9, name
        assert 1e-7 < nic.latency_s < 1e-4, name


def test_every_switch_loads_and_is_sane() -> None:
    for name in shipped("switches"):
        switch = load_switch(name)

        assert 32 <= switch.n_ports <= 144, name
        assert 1.25e9 <= switch.port_bandwidth_bytes_per_s <= 100e9, name
        assert 5e-8 < switch.latency_s < 1e-5, name


def test_an_nvl72_node_is_one_tray_of_a_domain_of_72() -> None:
    node = load_node("gb200-nvl72")

    assert node.n_accelerators * node.scale_up.nodes_per_domain == 72


def test_the_roce_cluster_is_seven_to_one_above_the_pod() -> None:
    cluster = load_cluster("meta-24k-roce")

    assert cluster.n_nodes * cluster.node.n_accelerators == 24576
    assert cluster.fabric.core_oversubscription == 7
    assert cluster.fabric.leaves_per_pod * cluster.fabric.nodes_per_leaf * cluster.node.n_accelerators == 3072


def test_figures_that_everything_rests_on_are_those_of_the_data_sheets() -> None:
    a100, h100 = load_accelerator("a100-sxm4-80g"), load_accelerator("h100-sxm5-80g")

    assert (a100.peak_flops_per_s["fp16"], a100.memory_bandwidth_bytes_per_s) == (312e12, 2.039e12)
    assert (h100.peak_flops_per_s["bf16"], h100.peak_flops_per_s["fp8"]) == (989e12, 1979e12)
    assert (h100.memory_bandwidth_bytes_per_s, h100.scale_up_bandwidth_bytes_per_s) == (3.35e12, 450e9)
    assert h100.memory_bytes == 81559 * 2**20


@pytest.mark.parametrize(
    ("load", "name", "message", "hint"),
    [
        (load_accelerator, "h100", "unknown accelerator 'h100'", "did you mean one of h100-500w, h100-pcie-80g, h100-sxm5-80g?"),
        (load_accelerator, "h200-smx", "unknown accelerator 'h200-smx'", "did you mean 'h200-sxm'?"),
        (load_node, "dgx-h10", "unknown node 'dgx-h10'", "did you mean 'dgx-h100'?"),
        (load_node, "DGX_H100", "unknown node 'DGX_H100'", "did you mean 'dgx-h100'?"),
        (load_switch, "qm9701-ndr", "unknown switch 'qm9701-ndr'", "did you mean 'qm9700-ndr'?"),
        (load_nic, "cx7-ndrr", "unknown nic 'cx7-ndrr'", "did you mean 'cx7-ndr'?"),
        (load_cluster, "superpod-h1000", "unknown cluster 'superpod-h1000'", "did you mean 'superpod-h100'?"),
    ],
)
def test_an_unknown_name_proposes_the_nearest(load: Callable[[str], object], name: str, message: str, hint: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(name)

    assert (caught.value.message, caught.value.hint) == (message, hint)


@pytest.mark.parametrize("name", ["", "zzzzzz", "../../etc/passwd.yaml", "/etc/passwd"])
def test_a_name_that_resembles_none_lists_all(name: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_host(name)

    assert caught.value.hint is not None
    assert caught.value.hint.startswith("use one of aws-p2, ")


@pytest.mark.parametrize(
    ("right", "wrong", "message", "line", "column"),
    [
        ("1 TB/s", "1000", "1000 has no unit", 7, 19),
        ("1 TB/s", "1 TB", "'1 TB' is not a bandwidth", 7, 19),
        ("16 GB", "-16 GB", "-16 GB is negative", 6, 9),
        ("16 GB", "0 GB", "'0 GB' is out of range", 6, 9),
        ("16 GB", ".nan", ".nan is not a finite number", 6, 9),
        ("16 GB", "nan GB", "'nan GB' is not a size", 6, 9),
        ("16 GB", "[16 GB]", "['16 GB'] is not a size", 6, 9),
        ("memory: 16", "memmory: 16", "unknown field 'memmory'", 6, 1),
        ("memory: 16", "name: 16", "key 'name' is given twice", 6, 1),
        ("multiprocessors: 10", "multiprocessors: ten", "'ten' is not a whole number", 9, 18),
        ("multiprocessors: 10", "multiprocessors: 0", "0 is out of range", 9, 18),
        ("lanes: 16", "lanes: 1.5", "1.5 is not a whole number", 8, 30),
        ("bf16: 2", "bf17: 2", "'bf17' is not one of fp32, tf32, fp16, bf16, fp8, fp4", 5, 31),
        ("{fp32: 1 TFLOP/s, bf16: 2 TFLOP/s}", "{}", "a mapping: dictionary should have at least 1 item", 5, 13),
        ("vendor: nvidia", "vendor: N V", "'N V' does not have the form", 3, 9),
        ("name: toy", "name: tox", "'tox' is not the name of the file", 1, 7),
        ("title: A toy\n", "", "'title' is missing", 1, 1),
        ("accessed: 2026-11-20", "accessed: yesterday", "'yesterday' does not have the form", 13, 15),
        ("https://example.org", "example.org", "'example.org' is not an address", 12, 10),
        ("https://example.org", "memory", "a source with url 'memory' needs a note", 11, 5),
        ("https://example.org", "derived", "a source with url 'derived' needs a note", 11, 5),
        ("covers: [peak_flops,", "covers: [peak_flop,", "no source covers 'peak_flops.fp32'", 5, 14),
    ],
)
def test_a_bad_profile_is_one_clear_error_with_line_and_column(
    write: Callable[[str], Path], right: str, wrong: str, message: str, line: int, column: int
) -> None:
    with pytest.raises(ScenarioError) as caught:
        read_spec(AcceleratorSpec, write(ACCELERATOR.replace(right, wrong, 1)))

    assert message in caught.value.message
    assert caught.value.place is not None
    assert (caught.value.place.line, caught.value.place.column) == (line, column)


def node_text(**changes: str) -> str:
    lines = {
        "name": "toy",
        "title": "A toy",
        "accelerator": "h100-sxm5-80g",
        "accelerators_per_node": "4",
        "scale_up": "{kind: nvswitch}",
        "host": "dgx-h100",
        "nics": "{model: cx7-ndr, count: 4}",
        "accelerators_per_pcie_switch": "1",
        "fabric": "{topology: leaf_spine, leaf: qm9700-ndr, spine: qm9700-ndr, nodes_per_leaf: 8}",
        "sources": "[{title: T, url: derived, note: N, accessed: 2026-11-20, covers: "
        "[accelerators_per_node, nics, accelerators_per_pcie_switch, fabric]}]",
    }
    return "".join(f"{key}: {value}\n" for key, value in {**lines, **changes}.items())


def test_a_node_is_put_together_from_the_profiles_that_it_names(write: Callable[[str], Path]) -> None:
    node = read_node(write(node_text()))

    assert node.accelerator is load_accelerator("h100-sxm5-80g")
    assert node.host is load_host("dgx-h100")
    assert node.nic is load_nic("cx7-ndr")
    assert node.fabric.spine is load_switch("qm9700-ndr")


@pytest.mark.parametrize(
    ("change", "field", "line"),
    [
        ({"accelerator": "h100-sxm5-80"}, "accelerator", 3),
        ({"host": "dgx-h1000"}, "host", 6),
        ({"nics": "{model: cx77, count: 4}"}, "nics.model", 7),
        ({"fabric": "{topology: leaf_spine, leaf: qm970, spine: qm9700-ndr, nodes_per_leaf: 8}"}, "fabric.leaf", 9),
        ({"fabric": "{topology: leaf_spine, leaf: qm9700-ndr, spine: x, nodes_per_leaf: 8}"}, "fabric.spine", 9),
        ({"fabric": "{topology: ring, leaf: qm9700-ndr, spine: x, nodes_per_leaf: 8}"}, "fabric.topology", 9),
    ],
)
def test_a_node_that_names_an_unknown_part_is_refused_at_that_place(
    write: Callable[[str], Path], change: dict[str, str], field: str, line: int
) -> None:
    with pytest.raises(ScenarioError) as caught:
        read_node(write(node_text(**change)))

    assert caught.value.field == field
    assert caught.value.place is not None
    assert caught.value.place.line == line


def test_a_cluster_that_names_an_unknown_node_is_refused(write: Callable[[str], Path]) -> None:
    path = data_path("hardware_profiles") / "clusters" / "superpod-h100.yaml"
    text = path.read_text(encoding="utf-8").replace("name: superpod-h100", "name: toy").replace("node: dgx-h100", "node: dgx-x100")

    with pytest.raises(ScenarioError, match="unknown node 'dgx-x100'") as caught:
        read_cluster(write(text))

    assert caught.value.field == "node"


def test_profiles_name_no_place_on_a_machine() -> None:
    for path in sorted(data_path("hardware_profiles").glob("*/*.yaml")):
        text = path.read_text(encoding="utf-8")
        assert "/home/" not in text
        assert "/tmp/" not in text
        # Tables of measured kernels have their sources in a file beside them.
        assert "sources" in read_document(path).data or (path.parent / "sources.yaml").is_file()

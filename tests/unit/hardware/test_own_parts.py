"""Parts of one's own: as a mapping, as a file, from nothing or from a shipped one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clustersim.apps.run.running import run_built
from clustersim.config.build import Built, build
from clustersim.config.load import load_scenario
from clustersim.config.resolve import resolved_scenario
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import load_accelerator

NEXT = (
    "{vendor: acme, peak_flops: {bf16: 3 PFLOP/s, fp32: 100 TFLOP/s}, memory: 384 GB, memory_bandwidth: 12 TB/s,"
    " scale_up: {bandwidth: 900 GB/s}, pcie: {bandwidth: 126 GB/s}, multiprocessors: 160, power: 1.4 kW}"
)
PARTS = (
    f"accelerator: {NEXT}",
    "accelerator: {base: h100-sxm5-80g, memory: 96 GB}",
    "host: {base: dgx-h100, memory: 4 TB}",
    "nics: {model: {base: cx7-ndr, bandwidth: 800 Gbit/s}}",
    "fabric: {leaf: {base: qm9700-ndr, ports: 128}, spine: {base: qm9700-ndr, name: other, latency: 1 us}}",
)


def built_with(tmp_path: Path, part: str, node: str = "dgx-h100") -> Built:
    text = f"version: 1\nname: own\nmodel: llama3.2-1b\ncluster:\n  node: {node}\n  nodes: 2\n  {part}\n"
    path = tmp_path / "own.yaml"
    path.write_text(f"{text}training: {{global_batch_size: 16, seq_length: 1024}}\nstrategy: {{zero_stage: 1}}\n", encoding="utf-8")
    return build(load_scenario(path))


@pytest.mark.parametrize("part", PARTS)
def test_a_resolved_scenario_holds_the_figures_and_runs_to_the_same(tmp_path: Path, part: str) -> None:
    built = built_with(tmp_path, part)

    resolved = resolved_scenario(built)
    again = build(load_scenario(json.loads(json.dumps(resolved))))

    assert resolved_scenario(again) == resolved
    assert run_built(again).step_time_s == run_built(built).step_time_s


def test_other_figures_are_those_of_the_base(tmp_path: Path) -> None:
    own = built_with(tmp_path, PARTS[1]).cluster.node.accelerator
    base = load_accelerator("h100-sxm5-80g")

    # What the driver reports of the base is not what is fitted in here.
    assert own.memory_bytes == 96e9
    assert own.memory_bandwidth_bytes_per_s == base.memory_bandwidth_bytes_per_s
    assert own.name == "own-h100-sxm5-80g"


def test_a_file_counts_from_the_scenario_and_names_the_part(tmp_path: Path) -> None:
    (tmp_path / "next.yaml").write_text(NEXT, encoding="utf-8")

    built = built_with(tmp_path, "accelerator: next.yaml")

    assert built.cluster.node.accelerator.name == "next"
    assert built.cluster.node.accelerator.vendor == "acme"
    assert run_built(built).metrics.step_time_s == run_built(built_with(tmp_path, PARTS[0])).metrics.step_time_s


def test_a_node_is_a_file_too_and_can_be_changed(tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text("base: dgx-h100\nnics: {bandwidth: 200 Gbit/s}\naccelerators_per_node: 4\n", encoding="utf-8")

    node = built_with(tmp_path, "nics: {count: 2}", node="node.yaml").cluster.node

    assert (node.n_accelerators, node.n_nics, node.nic.bandwidth_bytes_per_s) == (4, 2, 25e9)


def test_an_accelerator_that_nobody_measured_has_a_wider_interval(tmp_path: Path) -> None:
    widths: list[float] = []
    for part in ("accelerator: h100-sxm5-80g", PARTS[1]):
        bar = run_built(built_with(tmp_path, part)).metrics.error_bar
        assert bar is not None
        widths.append(bar.most_fraction / bar.least_fraction)

    assert widths[1] > widths[0]


@pytest.mark.parametrize(
    ("part", "field", "message"),
    [
        ("accelerator: {base: h10}", "cluster.accelerator.base", "there is no accelerator 'h10' to start from"),
        ("accelerator: {base: h100-sxm5-80g, memory: 96}", "cluster.accelerator.memory", "96 has no unit"),
        ("accelerator: {base: h100-sxm5-80g, memry: 1 GB}", "cluster.accelerator.memry", "unknown field 'memry'"),
        ("accelerator: {base: a10, name: h200-sxm}", "cluster.accelerator.name", "'h200-sxm' is the name of a shipped accelerator"),
        ("nics: {model: {latency: 1 us}}", "cluster.nics.model", "own-nic lacks bandwidth (collectives and sends between nodes)"),
        ("host: nope.yaml", "cluster.host", "nope.yaml: no such file"),
    ],
)
def test_a_part_that_is_wrong_has_its_place(tmp_path: Path, part: str, field: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        built_with(tmp_path, part)

    assert (caught.value.field, caught.value.message) == (field, message)
    assert caught.value.place is not None
    assert caught.value.place.line == 7


def test_all_that_is_missing_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        built_with(tmp_path, "accelerator: {memory: 96 GB, peak: 1 PFLOP/s}")

    assert all(f"{name} (" in caught.value.message for name in ("peak_flops", "memory_bandwidth", "pcie", "multiprocessors"))
    assert "has unknown fields 'peak' (did you mean 'peak_flops'?) and lacks peak_flops" in caught.value.message
    assert all(f"{name} (" in (caught.value.hint or "") for name in ("scale_up", "generation", "power"))


def test_two_accelerators_do_not_share_a_name(tmp_path: Path) -> None:
    group = "{{node: dgx-h100, count: 1, accelerator: {{base: h100-sxm5-80g, memory: {memory} GB}}}}"
    path = tmp_path / "two.yaml"
    groups = ", ".join(group.format(memory=memory) for memory in (80, 96))
    training = "training: {global_batch_size: 16, seq_length: 1024}\n"
    path.write_text(f"version: 1\nname: two\nmodel: llama3.2-1b\ncluster: {{nodes: [{groups}]}}\n{training}", encoding="utf-8")

    with pytest.raises(ScenarioError, match="have the name 'own-h100-sxm5-80g'"):
        build(load_scenario(path))

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from clustersim.apps.collective.collective_times import CollectiveRequest, collective_cluster, collective_rows
from clustersim.apps.run.result import Result
from clustersim.apps.run.rundir import write_run_directory
from clustersim.apps.run.running import run, run_built
from clustersim.config.build import build
from clustersim.config.load import load_scenario
from clustersim.config.machine import hardware_of
from clustersim.config.node_groups import Hardware, check_alike, in_place, read_constants, with_constants
from clustersim.config.scenario_schema import ClusterSpec
from clustersim.documents.check import located, validate_document
from clustersim.documents.text import Data, plain_document
from clustersim.errors import ScenarioError
from clustersim.hardware.calibrations import calibration_for, calibration_of_generation, calibration_path
from clustersim.hardware.catalog import load_accelerator, load_node
from clustersim.hardware.profile_schema import Checked
from clustersim.network.in_flight import TICK_S

H100: dict[str, Data] = {"node": "dgx-h100", "count": 2}
A100: dict[str, Data] = {"node": "dgx-a100-80g", "count": 3}
INLINE: dict[str, Data] = {
    "accelerator": "a100-sxm4-80g",
    "accelerators_per_node": 8,
    "host": "dgx-a100",
    "nics": {"count": 8, "bandwidth": "100 Gbit/s", "latency": "1.5 us"},
    "scale_up": {"kind": "full_mesh", "bandwidth": "300 GB/s", "latency": "1 us"},
    "fabric": {"topology": "single_switch", "leaf": "qm9700-ndr", "nodes_per_leaf": 8},
}


class Setting(Checked):
    cluster: ClusterSpec


def hardware(*groups: Data, **others: Data) -> Hardware:
    document = plain_document({"cluster": {"nodes": list(groups), **others}}, "test.yaml")
    try:
        return hardware_of(validate_document(Setting, document).cluster, document)
    except ScenarioError as error:
        raise error if error.place else located(error, document) from error


def refusal(*groups: Data, **others: Data) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        hardware(*groups, **others)
    return caught.value


def test_groups_stand_in_the_order_in_which_they_are_written() -> None:
    found = hardware(H100, A100)

    assert [(node.name, count) for node, count in found.kinds] == [("dgx-h100", 2), ("dgx-a100-80g", 3)]
    assert (found.node.name, found.n_nodes) == ("dgx-h100", 5)
    assert [node.name for node in found.nodes] == ["dgx-h100"] * 2 + ["dgx-a100-80g"] * 3


def test_the_fabric_is_that_of_the_first_kind_unless_one_is_given() -> None:
    given: Data = {"topology": "leaf_spine", "oversubscription": 2}

    assert hardware(A100, H100).fabric == load_node("dgx-a100-80g").fabric
    changed = hardware(A100, H100, fabric=given).fabric
    assert changed == replace(load_node("dgx-a100-80g").fabric, topology="leaf_spine", oversubscription=2.0)


def test_parts_are_replaced_in_the_group_that_names_them() -> None:
    found = hardware({**H100, "accelerator": "h200-sxm"}, {**A100, "nics": {"bandwidth": "100 Gbit/s"}})

    first, second = (node for node, _ in found.kinds)
    assert (first.accelerator.name, second.accelerator.name) == ("h200-sxm", "a100-sxm4-80g")
    assert (second.nic.bandwidth_bytes_per_s, second.nic.latency_s) == (12.5e9, load_node("dgx-a100-80g").nic.latency_s)
    assert first.nic == load_node("dgx-h100").nic


def test_a_node_of_a_group_may_be_described_in_full() -> None:
    (_, (inline, count)) = hardware(H100, {"node": INLINE, "count": 4, "power": "6 kW"}).kinds

    assert (inline.name, inline.scale_up.kind, inline.power_w, count) == ("inline", "full_mesh", 6000.0, 4)


def test_one_group_is_a_cluster_of_one_kind() -> None:
    assert hardware(H100).kinds == ((load_node("dgx-h100"), 2),)


def test_figures_that_nobody_has_seen_are_named_for_every_kind_but_not_for_fabrics_that_are_not_used() -> None:
    def alone(group: dict[str, Data]) -> tuple[str, ...]:
        return hardware(group).unseen

    found = hardware(H100, A100).unseen

    assert set(alone(H100)) <= set(found) <= set(alone(H100)) | set(alone(A100))
    assert not any(name.startswith("dgx-a100-80g.fabric") for name in found)


@pytest.mark.parametrize(
    ("groups", "others", "field", "message", "hint"),
    [
        ([], {}, "cluster.nodes", "no node is named", "write such as [{node: dgx-h100, count: 4}"),
        ([H100], {"node": "dgx-h100"}, "cluster.node", "node and groups of nodes both say", "delete it, or write a number"),
        ([H100], {"name": "superpod-h100"}, "cluster.name", "name and groups of nodes both say", "delete it, or write a number"),
        ([H100], {"nics": {"count": 4}}, "cluster.nics", "nics stands beside groups of nodes", "into the groups"),
        ([H100, {**A100, "fabric": {"seed": 1}}], {}, "cluster.nodes.1.fabric", "no fabric of its own", "beside nodes"),
        ([H100, {"node": "dgx-a100-80g"}], {}, "cluster.nodes.1.count", "'count' is missing", "add"),
        ([{"count": 3}], {}, "cluster.nodes.0.node", "'node' is missing", "add"),
        ([{**H100, "count": 0}], {}, "cluster.nodes.0.count", "0 is out of range", "more than 0"),
        ([H100, {**A100, "node": "dgx-a100"}], {}, "cluster.nodes.1.node", "unknown node 'dgx-a100'", "dgx-a100-80g"),
        ([H100, {**A100, "nic": {}}], {}, "cluster.nodes.1.nic", "unknown field 'nic'", "did you mean 'nics'?"),
        ([H100, {**A100, "nics": {"cuont": 3}}], {}, "cluster.nodes.1.nics.cuont", "unknown field 'cuont'", "did you mean 'count'?"),
        ([H100, {**A100, "host": "dgx"}], {}, "cluster.nodes.1.host", "unknown host 'dgx'", "did you mean"),
    ],
)
def test_a_mistake_is_named_at_its_place(groups: list[Data], others: dict[str, Data], field: str, message: str, hint: str) -> None:
    error = refusal(*groups, **others)

    assert error.field == field
    assert message in error.message
    assert hint in str(error.hint)


@pytest.mark.parametrize("nodes", ["four", {"count": 3}, 2.5])
def test_nodes_are_a_number_or_groups(nodes: Data) -> None:
    document = plain_document({"cluster": {"nodes": nodes, "node": "dgx-h100"}}, "test.yaml")

    with pytest.raises(ScenarioError, match="is not a whole number or a list") as caught:
        validate_document(Setting, document)

    assert caught.value.field == "cluster.nodes"


def test_kinds_with_different_numbers_of_accelerators_are_refused() -> None:
    error = refusal(H100, {"node": "dgx2-v100-32g", "count": 1})

    assert error.message == "dgx2-v100-32g has 16 accelerators, and dgx-h100 has 8"
    assert error.field == "cluster.nodes.1.accelerators_per_node"
    assert "accelerators_per_node: 8" in str(error.hint)


def test_kinds_with_different_numbers_of_adapters_are_alike() -> None:
    check_alike([load_node("dgx-h100"), load_node("aws-p4d")])

    assert hardware(H100, {"node": "aws-p4d", "count": 1}).n_nodes == 3


EXAMPLE = "llama3-8b-8xh100"


def constants_file(folder: Path, *changes: tuple[str, str], generation: str = "hopper", name: str = "mine") -> Path:
    """Write a shipped calibration with another name and some changes."""
    text = calibration_path(generation).read_text(encoding="utf-8")
    for old, new in ((f"^name: {generation}$", f"name: {name}"), *changes):
        text, n_found = re.subn(old, new, text, flags=re.MULTILINE)
        assert n_found == 1, old
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


SLOW = (r"^memory_fraction: .*$", "memory_fraction: 0.4")


def result(*overrides: str) -> Result:
    return run(EXAMPLE, set=["training.global_batch_size=64", *overrides])


def codes(found: Result) -> set[str]:
    return {flag.code for flag in found.flags}


def constants_refusal(*overrides: str) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        result(*overrides)
    return caught.value


def test_constants_of_ones_own_change_the_time_of_a_step(tmp_path: Path) -> None:
    same, slow = constants_file(tmp_path), constants_file(tmp_path, SLOW, name="slow")

    shipped, copied, halved = (result(*given) for given in ([], [f"cluster.calibration={same}"], [f"cluster.calibration={slow}"]))

    assert copied.step_time_s == shipped.step_time_s
    assert halved.step_time_s > 1.02 * shipped.step_time_s


def test_a_calibration_is_found_beside_the_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "scenarios"
    folder.mkdir()
    constants_file(folder, SLOW)
    scenario = folder / "own.yaml"
    scenario.write_text(
        "model: llama3-8b\ncluster: {node: dgx-h100, nodes: 1, calibration: mine.yaml}\n"
        "training: {global_batch_size: 64}\nstrategy: {tp: 8}\n"
    )
    monkeypatch.chdir(tmp_path)

    assert build(load_scenario(scenario)).cluster.node.accelerator.calibration is not None


def test_the_hash_follows_what_stands_in_the_file_and_not_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    paths = [constants_file(tmp_path / "a"), constants_file(tmp_path / "b"), constants_file(tmp_path, SLOW)]

    shipped, *hashes = [result(*given).scenario_hash for given in ([], *([f"cluster.calibration={path}"] for path in paths))]

    assert hashes[0] == hashes[1]
    assert len({shipped, hashes[0], hashes[2]}) == 3


def test_a_run_directory_keeps_the_constants_and_its_resolved_scenario_runs_to_the_same_numbers(tmp_path: Path) -> None:
    first = result(f"cluster.calibration={constants_file(tmp_path, SLOW)}")

    folder = write_run_directory(first, tmp_path / "runs", plots=False)
    again = run(folder / "resolved.yaml")

    assert (folder / "mine.yaml").read_text(encoding="utf-8") == (tmp_path / "mine.yaml").read_text(encoding="utf-8")
    assert (again.step_time_s, again.scenario_hash) == (first.step_time_s, first.scenario_hash)


def test_assumed_constants_are_named_after_the_file(tmp_path: Path) -> None:
    found = result(f"cluster.calibration={constants_file(tmp_path)}")

    (message,) = [flag.message for flag in found.flags if flag.code == "assumed_constants"]
    assert "mine.launch.kernel" in message


def test_a_calibration_of_another_generation_is_used_and_flagged(tmp_path: Path) -> None:
    path = constants_file(tmp_path, generation="ampere")

    found = result(f"cluster.calibration={path}")

    (message,) = [flag.message for flag in found.flags if flag.code == "foreign_calibration"]
    assert message == "mine is a calibration of ampere, and h100-sxm5-80g is hopper"
    assert "foreign_calibration" not in codes(result())


def test_a_calibration_of_a_sister_is_flagged_as_the_shipped_one_would_be(tmp_path: Path) -> None:
    path = constants_file(tmp_path, (r"^accelerators: .*$", "accelerators: [h200-sxm]"))

    assert "related_calibration" in codes(result(f"cluster.calibration={path}"))


def test_of_a_mixed_cluster_only_nodes_of_its_generation_take_a_calibration() -> None:
    own = replace(calibration_of_generation("hopper"), name="mine")

    kinds = in_place(own, ((load_node("dgx-a100-80g"), 2), (load_node("dgx-h100"), 1)))

    assert [calibration_for(node.accelerator).name for node, _ in kinds] == ["ampere", "mine"]
    assert [count for _, count in kinds] == [2, 1]


def test_a_calibration_of_no_generation_in_the_cluster_serves_all_of_it() -> None:
    own = replace(calibration_of_generation("volta"), name="mine")

    kinds = in_place(own, ((load_node("dgx-a100-80g"), 2), (load_node("dgx-h100"), 1)))

    assert [calibration_for(node.accelerator).name for node, _ in kinds] == ["mine", "mine"]


def test_a_study_may_ask_what_other_constants_predict() -> None:
    shipped = calibration_of_generation("hopper")
    scenario = load_scenario(EXAMPLE, ["training.global_batch_size=64"])

    plain, slow, other = (
        run_built(build(scenario, constants=given)).step_time_s
        for given in (None, {"hopper": replace(shipped, memory_fraction=0.4)}, {"ampere": replace(shipped, memory_fraction=0.4)})
    )

    assert slow > 1.02 * plain
    assert other == plain
    assert calibration_for(load_accelerator("h100-sxm5-80g")) == shipped


def test_nodes_without_constants_to_take_stay_the_same() -> None:
    kinds = ((load_node("dgx-h100"), 1),)

    assert with_constants({}, kinds) == kinds


def test_collectives_take_the_constants_too(tmp_path: Path) -> None:
    path = constants_file(tmp_path, (r"ring: \{start: [^,]*,", "ring: {start: 500 us,"))
    request = CollectiveRequest(op="all_reduce", algorithm="ring", sizes_bytes=(1024.0,))

    shipped_s, own_s = (
        collective_rows(collective_cluster("dgx-h100", None, given), request)[0][0].time_s
        for given in ([], [f"cluster.calibration={path}"])
    )

    start_s = calibration_of_generation("hopper").network.families["ring"].start_s
    assert own_s - shipped_s == pytest.approx(500e-6 - start_s, abs=2 * TICK_S)


def test_a_file_that_is_not_there_is_named_with_the_nearest(tmp_path: Path) -> None:
    constants_file(tmp_path)

    error = constants_refusal(f"cluster.calibration={tmp_path / 'mone.yaml'}")

    assert "there is no file" in error.message
    assert error.field == "cluster.calibration"
    assert error.hint == "did you mean 'mine.yaml'?"


def test_a_mistake_in_the_file_has_its_line(tmp_path: Path) -> None:
    error = constants_refusal(f"cluster.calibration={constants_file(tmp_path, ('memory_fraction: 0.8', 'memory_fraction: 8'))}")

    assert error.field == "memory_fraction"
    assert error.place is not None
    assert error.place.file.endswith("mine.yaml")
    lines = (tmp_path / "mine.yaml").read_text(encoding="utf-8").splitlines()
    assert error.place.line == lines.index("memory_fraction: 8") + 1


def test_an_accelerator_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    path = constants_file(tmp_path, (r"^accelerators: .*$", "accelerators: [h100-smx5-80g]"))

    with pytest.raises(ScenarioError, match="'h100-smx5-80g', which is no known accelerator") as caught:
        read_constants(path.name, str(tmp_path / "scenario.yaml"))

    assert caught.value.hint == "did you mean 'h100-sxm5-80g'?"

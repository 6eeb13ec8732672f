"""Measured constants of one's own take the place of the shipped ones, and a result says so."""

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
from clustersim.config.node_groups import in_place, read_constants, with_constants
from clustersim.errors import ScenarioError
from clustersim.hardware.calibrations import calibration_for, calibration_of_generation, calibration_path
from clustersim.hardware.catalog import load_accelerator, load_node

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


def refusal(*overrides: str) -> ScenarioError:
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
    assert own_s - shipped_s == pytest.approx(500e-6 - start_s, rel=1e-9)


def test_a_file_that_is_not_there_is_named_with_the_nearest(tmp_path: Path) -> None:
    constants_file(tmp_path)

    error = refusal(f"cluster.calibration={tmp_path / 'mone.yaml'}")

    assert "there is no file" in error.message
    assert error.field == "cluster.calibration"
    assert error.hint == "did you mean 'mine.yaml'?"


def test_a_mistake_in_the_file_has_its_line(tmp_path: Path) -> None:
    error = refusal(f"cluster.calibration={constants_file(tmp_path, ('memory_fraction: 0.8', 'memory_fraction: 8'))}")

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

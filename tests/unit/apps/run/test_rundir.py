"""The run directory: complete or not there, and the same bytes every time but for the manifest."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from clustersim.apps.run import rundir
from clustersim.apps.run.result import Result
from clustersim.apps.run.rundir import results_document, write_run_directory
from clustersim.apps.run.running import run
from clustersim.config.load import load_scenario
from clustersim.documents.text import Data, parse_document
from clustersim.errors import ScenarioError
from tests.unit.config.samples import MODEL, TEXT, small

FILES = [
    "breakdown.csv", "links.csv", "manifest.json", "memory.csv", "memory_over_time.csv",
    "plots/breakdown.png", "plots/memory.png", "plots/memory_over_time.png", "plots/pipeline.png",
    "report.html", "resolved.yaml", "results.json", "scenario.yaml", "summary.md", "trace.json.gz",
]  # fmt: skip


@pytest.fixture(scope="module")
def result() -> Result:
    return run(small())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("plots", [True, False])
def test_every_promised_file_is_there_and_a_repeated_run_writes_the_same_bytes(result: Result, tmp_path: Path, plots: bool) -> None:
    folder = write_run_directory(result, tmp_path, plots=plots)
    first, again = contents(folder), contents(write_run_directory(run(small()), tmp_path / "b", plots=plots))

    assert folder == tmp_path / "small" / result.scenario_hash
    assert list(first) == list(again) == [name for name in FILES if plots or not name.startswith(("plots/", "report."))]
    assert sorted(json.loads(first["manifest.json"])["files"]) == list(first)
    assert {name for name in first if first[name] != again[name]} <= {"manifest.json"}


def test_the_scenario_is_kept_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text("# mine\n" + TEXT, encoding="utf-8")

    folder = write_run_directory(run(path, set=["strategy.tp=4"]), tmp_path, plots=False)

    assert (folder / "scenario.yaml").read_text(encoding="utf-8") == "# mine\n" + TEXT
    assert json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["overrides"] == ["strategy.tp=4"]


def test_the_resolved_scenario_gives_the_same_results_and_the_same_hash(result: Result, tmp_path: Path) -> None:
    folder = write_run_directory(result, tmp_path, plots=False)

    again = run(folder / "resolved.yaml")

    assert again.scenario_hash == result.scenario_hash
    # The flags differ: a figure that the scenario gives is no longer the profile's, with the profile's doubts.
    assert {**results_document(again), "flags": []} == {**results_document(result), "flags": []}
    assert (
        load_scenario(folder / "resolved.yaml").document.data
        == parse_document((folder / "resolved.yaml").read_text(encoding="utf-8"), "x").data
    )


def test_the_results_are_the_document_without_the_wall_time(result: Result, tmp_path: Path) -> None:
    folder = write_run_directory(result, tmp_path, plots=False)
    kept = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    document = json.loads(json.dumps(result.to_dict()))

    wall_s, events_per_s = (document["engine"].pop(name) for name in ("wall_s", "events_per_s"))

    assert kept == document
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["engine_wall_s"], manifest["engine_events_per_s"]) == (wall_s, events_per_s)
    assert events_per_s == pytest.approx(document["engine"]["events"] / wall_s, rel=1e-12)
    assert document["engine"]["n_tasks"] > 0


def test_the_trace_is_compressed_json_without_a_time_in_its_header(result: Result, tmp_path: Path) -> None:
    raw = (write_run_directory(result, tmp_path, plots=False) / "trace.json.gz").read_bytes()

    assert raw[4:8] == bytes(4)
    assert json.loads(gzip.decompress(raw))["traceEvents"]


def test_an_earlier_run_is_replaced_as_a_whole(result: Result, tmp_path: Path) -> None:
    folder = write_run_directory(result, tmp_path, plots=False)
    (folder / "stale.txt").write_text("old", encoding="utf-8")

    write_run_directory(result, tmp_path, plots=False)

    assert not (folder / "stale.txt").exists()
    assert [path.name for path in folder.parent.iterdir()] == [result.scenario_hash]


def failing(error: BaseException) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("broken"), MemoryError()])
def test_an_interruption_leaves_nothing_behind(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(rundir, "_manifest", failing(error))

    with pytest.raises(type(error)):
        write_run_directory(result, tmp_path / "runs", plots=False)

    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_is_removed_by_the_next_one(result: Result, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    for name in (f".{'0' * 8}.{gone.pid}.new", f".{'1' * 8}.{os.getpid()}.new"):
        (tmp_path / "small" / name).mkdir(parents=True)
        (tmp_path / "small" / name / "scenario.yaml").touch()

    write_run_directory(result, tmp_path, plots=False)

    assert sorted(path.name for path in (tmp_path / "small").iterdir()) == [f".{'1' * 8}.{os.getpid()}.new", result.scenario_hash]


OPEN = small(
    model={key: value for key, value in MODEL.items() if key != "model_type"},
    training={"global_batch_size": 32},
    strategy={"tp": 2, "placement": "auto", "prefetch": 3},
    jobs=[{"nodes": 1, "scenario": {"model": {**MODEL}, "training": {"global_batch_size": 32}, "checks": ["mfu > 0"]}}],
)
CHEAP = ["1f1b", "bert-large-2xv100", "gpt-10b-zero-offload-v100", "gpt2-servers-25g", "gpt2-xl-h100-and-a100", "two-jobs-one-fabric"]


@pytest.mark.parametrize("source", [*CHEAP, OPEN, small(cluster={"name": "selene-a100", "nodes": 2})], ids=[*CHEAP, "open", "cluster"])
def test_a_resolved_scenario_run_again_gives_the_same_bytes_flags_included(source: str | dict[str, Data], tmp_path: Path) -> None:
    first = write_run_directory(run(source), tmp_path / "a", plots=False)

    second = write_run_directory(run(first / "resolved.yaml"), tmp_path / "b", plots=False)

    assert second.name == first.name
    before, after = contents(first), contents(second)
    assert {name for name in before if before[name] != after[name]} <= {"manifest.json", "scenario.yaml"}
    assert json.loads(before["results.json"])["flags"]


def test_an_interruption_keeps_the_earlier_run(result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(write_run_directory(result, tmp_path, plots=False))
    monkeypatch.setattr(rundir, "_manifest", failing(KeyboardInterrupt()))

    with pytest.raises(KeyboardInterrupt):
        write_run_directory(result, tmp_path, plots=False)

    assert contents(tmp_path / "small" / result.scenario_hash) == before
    assert [path.name for path in (tmp_path / "small").iterdir()] == [result.scenario_hash]


def test_a_folder_that_cannot_be_written_is_one_clear_error(result: Result, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file", encoding="utf-8")

    with pytest.raises(ScenarioError, match=r"cannot write the run directory .*runs.*; choose another folder with --out"):
        write_run_directory(result, tmp_path / "runs")

    assert (tmp_path / "runs").read_text(encoding="utf-8") == "a file"


def test_the_manifest_records_all_that_the_package_depends_on_and_nothing_else() -> None:
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [name for names in (project["optional-dependencies"][each] for each in ("fast", "html")) for name in names]

    assert [each.partition(">=")[0] for each in project["dependencies"]] == list(rundir.LIBRARIES)
    assert [each.partition(">=")[0] for each in extras] == list(rundir.OPTIONAL)


def test_the_manifest_alone_holds_times_and_versions(result: Result, tmp_path: Path) -> None:
    folder = write_run_directory(result, tmp_path, plots=False)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))

    assert {"clustersim", "python", *rundir.LIBRARIES} <= set(manifest["versions"])
    assert set(manifest["versions"]) <= {"clustersim", "python", *rundir.LIBRARIES, *rundir.OPTIONAL}
    assert all(manifest["versions"].values())
    assert manifest["written_at"].endswith("+00:00")
    for name in ("results.json", "resolved.yaml", "summary.md"):
        text = (folder / name).read_text(encoding="utf-8")
        assert "written_at" not in text
        assert manifest["written_at"][:10] not in text

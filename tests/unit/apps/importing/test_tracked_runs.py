"""Folders of experiment trackers are jobs with a measured step time."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from clustersim.apps.importing.entries import ImportOptions
from clustersim.apps.importing.importing import import_files
from clustersim.apps.importing.opening import open_measured
from clustersim.apps.importing.tracked_runs import read_tracked, tracked_folder
from clustersim.cli.app import main
from clustersim.errors import ScenarioError
from tests.unit.apps.importing.found import at

TRAINER = {
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 8,
    "model_name_or_path": "meta-llama/Meta-Llama-3-8B",
    "max_length": 4096,
    "bf16": True,
    "gradient_checkpointing": True,
    "fsdp": "full_shard auto_wrap",
}
STEP_S = 4.0


def wandb(folder: Path, summary: dict[str, object], *, files: str = "files") -> str:
    """Write the folder of a run as Weights & Biases has it."""
    own = folder / files
    own.mkdir(parents=True)
    keys = [f"{key}:\n  desc: null\n  value: {json.dumps(value)}" for key, value in TRAINER.items()]
    tracker = "wandb_version: 1\n\n_wandb:\n  desc: null\n  value:\n    python_version: 3.11.9\n"
    (own / "config.yaml").write_text(tracker + "\n".join(keys) + "\n", encoding="utf-8")
    (own / "wandb-summary.json").write_text(json.dumps({"_step": 9, "_runtime": 80.0, **summary}), encoding="utf-8")
    (own / "wandb-metadata.json").write_text(json.dumps({"gpu": "NVIDIA H100 80GB HBM3", "gpu_count": 8}), encoding="utf-8")
    return str(folder)


def mlflow(folder: Path, metrics: dict[str, str]) -> str:
    """Write the folder of a run as the file store of MLflow has it."""
    for kind, each in (("params", {key: str(value) for key, value in TRAINER.items()}), ("metrics", metrics)):
        for key, text in each.items():
            path = folder / kind / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return str(folder)


@pytest.mark.parametrize("files", ["files", "."])
def test_a_run_of_weights_and_biases_is_a_job_on_its_device(tmp_path: Path, files: str) -> None:
    source = wandb(tmp_path / "run", {"train/train_steps_per_second": 1 / STEP_S}, files=files)

    found = import_files([source], ImportOptions(nodes=1))

    assert found.data["model"] == "llama3-8b"
    assert found.data["cluster"] == {"node": "dgx-h100", "nodes": 1}
    assert found.measured is not None
    assert found.measured.step_time_s == pytest.approx(STEP_S)
    assert not any(key.key.startswith("_wandb") for key in found.keys)


def test_a_run_of_mlflow_is_a_job_with_the_median_of_its_steps(tmp_path: Path) -> None:
    reports = "".join(f"17000000{n:05} {value} {n}\n" for n, value in enumerate((90.0, 4.1, 4.0, 3.9)))
    source = mlflow(tmp_path / "run", {"perf/step_time_s": reports, "loss": "1700000000000 2.5 3\n"})

    found = open_measured(source, ["cluster.node=dgx-h100", "cluster.nodes=1"])

    assert found is not None
    assert (found[1].step_time_s, found[1].n_steps) == (STEP_S, 3)


@pytest.mark.parametrize(
    ("metric", "value"),
    [("iteration-time", STEP_S), ("time_metrics/end_to_end(s)", STEP_S), ("elapsed_time_per_iteration_ms", 1e3 * STEP_S)],
)
def test_step_times_are_known_by_the_names_of_frameworks(tmp_path: Path, metric: str, value: float) -> None:
    folder = tracked_folder(wandb(tmp_path / "run", {metric: value}))

    assert folder is not None
    (job, machine) = read_tracked(folder)
    assert job.measured is not None
    assert job.measured.step_time_s == pytest.approx(STEP_S)
    assert [(entry.value, entry.line) for entry in machine.entries] == [("NVIDIA H100 80GB HBM3", 1), (8, 1)]


def test_a_run_without_a_step_time_is_a_job_all_the_same(tmp_path: Path) -> None:
    unfinished, logged = wandb(tmp_path / "run", {"loss": 2.0}), mlflow(tmp_path / "abc", {})
    (tmp_path / "abc" / "meta.yaml").write_text("run_id: abc\n", encoding="utf-8")

    with pytest.raises(ScenarioError, match="the number of nodes, only the 8 accelerators of one: --nodes 1 where it is alone"):
        import_files([unfinished], ImportOptions(cluster="dgx-h100"))
    assert import_files([unfinished], ImportOptions(nodes=1)).measured is None
    (tmp_path / "run" / "files" / "wandb-summary.json").unlink()
    assert import_files([unfinished], ImportOptions(nodes=1)).measured is None
    assert import_files([logged], ImportOptions(nodes=1, cluster="dgx-h100")).measured is None
    (tmp_path / "run" / "files" / "config.yaml").unlink()
    with pytest.raises(ScenarioError, match=r"run/files: has no config.yaml"):
        import_files([unfinished], ImportOptions(nodes=1))


def test_a_folder_of_one_run_is_that_run_and_one_of_several_names_them(tmp_path: Path) -> None:
    run = mlflow(tmp_path / "0" / "abc", {"loss": "1 2.5 3\n"})
    (tmp_path / "0" / "a-link").symlink_to(run)

    assert tracked_folder(str(tmp_path / "0")) == tracked_folder(str(tmp_path)) == Path(run)
    mlflow(tmp_path / "0" / "def", {"loss": "1 2.5 3\n"})
    with pytest.raises(ScenarioError, match=r"holds 2 tracked runs; name one of them, such as .*abc, "):
        tracked_folder(str(tmp_path / "0"))


def test_measured_stands_beside_predicted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = wandb(tmp_path / "run", {"train/train_steps_per_second": 1 / STEP_S})

    assert main(["compare", source, "-s", "cluster.nodes=1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("run against run (measured): ")
    assert re.search(r"^step time +4 s ", out, re.MULTILINE)


def test_what_is_no_tracked_run_is_none(tmp_path: Path) -> None:
    (tmp_path / "params").mkdir()

    assert tracked_folder(str(tmp_path)) is None
    assert tracked_folder("starter") is None


def test_a_broken_configuration_has_its_file(tmp_path: Path) -> None:
    source = wandb(tmp_path / "run", {})
    (tmp_path / "run" / "files" / "config.yaml").write_text("- a\n- b\n", encoding="utf-8")

    with pytest.raises(ScenarioError, match=r"config.yaml: is not a mapping of keys to values"):
        import_files([source], ImportOptions())


def test_a_configuration_of_weights_and_biases_alone_is_a_job_with_its_model_and_device(tmp_path: Path) -> None:
    dimensions = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256}
    logged = {**TRAINER, "model_type": "llama", "intermediate_size": 14336, "max_length": 20, **dimensions}
    logged.pop("model_name_or_path")
    adapters = {"default": {"peft_type": "LORA", "r": 16}}
    tracker = {"e": {"opndi1": {"gpu": "NVIDIA H100 80GB HBM3", "gpu_count": 4}}}
    keys = {"_wandb": tracker, **logged, "peft_config": adapters}
    path = tmp_path / "config.yaml"
    path.write_text("".join(f"{key}:\n  value: {json.dumps(value)}\n" for key, value in keys.items()), encoding="utf-8")

    found = import_files([str(path)], ImportOptions(nodes=1, overrides=("training.seq_length=2048",))).data

    assert str(found["model"]).startswith("llama3")
    assert found["cluster"] == {"node": "dgx-h100", "nodes": 1, "accelerators_per_node": 4}
    assert (at(found, "training.lora_rank"), at(found, "training.lora_layers")) == (16, ["q", "v"])

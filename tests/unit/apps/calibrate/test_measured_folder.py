"""The script of microbenchmarks needs PyTorch alone, and the folder that it writes is calibrated to."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from clustersim.apps.calibrate.fit_accelerator import CalibrationRequest, calibrate
from clustersim.apps.calibrate.measured_folder import measured_folder, script
from clustersim.cli.app import main
from clustersim.errors import ScenarioError
from clustersim.hardware.calibrations import constant
from clustersim.hardware.catalog import load_accelerator
from tests.unit.apps.calibrate.making import A100, BASE, Trace, attention_file, known, products_file

DISPATCH_S = 1.25 * constant(BASE, "launch.dispatch")
PEAK_BYTES = 84_987_740_160


def folder(path: Path, **about: object) -> str:
    """Write what the script writes on an A100 of 80 GB."""
    path.mkdir()
    truth = known({"gemm.sustained_fraction.default": 0.7})
    products_file(path / "products.csv", truth)
    attention_file(path / "attention.csv", truth)
    node = {"clustersim_measurements": 1, "device": "NVIDIA A100-SXM4-80GB", "memory_bytes": PEAK_BYTES, "launch_dispatch_s": DISPATCH_S}
    (path / "node.json").write_text(json.dumps({**node, "launches": 150, **about}), encoding="utf-8")
    return str(path)


def test_the_script_imports_pytorch_and_the_standard_library_alone() -> None:
    tree = ast.walk(ast.parse(script()))
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
        for node in tree
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }

    assert {name.partition(".")[0] for name in imported} - sys.stdlib_module_names == {"torch"}


def test_the_script_writes_a_folder_that_another_device_is_refused_by(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="runs the script")
    (tmp_path / "measure.py").write_text(script(), encoding="utf-8")

    subprocess.run([sys.executable, "measure.py", "--quick"], cwd=tmp_path, check=True, capture_output=True)

    assert {path.name for path in (tmp_path / "measured").iterdir()} == {
        "products.csv",
        "attention.csv",
        "collectives.csv",
        "trace.json.gz",
        "node.json",
    }


def test_the_command_writes_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "-o", str(tmp_path / "measure.py")]) == 0
    assert main(["measure"]) == 0
    assert capsys.readouterr().out == script() == (tmp_path / "measure.py").read_text(encoding="utf-8")


def test_a_folder_is_read_as_its_files_are_and_the_host_time_with_them(tmp_path: Path) -> None:
    path = folder(tmp_path / "measured")
    files = CalibrationRequest(accelerator=A100, gemm=(f"{path}/products.csv",), attention=(f"{path}/attention.csv",))

    found = calibrate(CalibrationRequest(accelerator=A100, measured=(path,)), "mine")

    changes = {change.name: change.after for change in found.changes}
    assert changes["launch.dispatch"] == pytest.approx(DISPATCH_S, rel=1e-3)
    alone = {change.name: change.after for change in calibrate(files, "mine").changes}
    assert {name for name in changes if name not in alone} == {"launch.dispatch"}
    assert changes["gemm.sustained_fraction.default"] == pytest.approx(0.7, rel=0.01)


def test_a_host_time_that_is_far_from_the_base_is_told_and_not_taken_from_the_trace_either(tmp_path: Path) -> None:
    path = folder(tmp_path / "measured", launch_dispatch_s=100 * DISPATCH_S)
    trace = Trace()
    for _ in range(20):
        trace.kernel("aten::mm", [(4096, 4096), (4096, 4096)], 700.0)
    trace.write(Path(path) / "trace.json.gz")

    found = calibrate(CalibrationRequest(accelerator=A100, measured=(path,)), "mine")

    assert "launch.dispatch" not in {change.name for change in found.changes}
    assert ["is not taken" in line for line in found.notices if "launch.dispatch" in line] == [True]


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"device": "Tesla V100-SXM2-16GB", "memory_bytes": 16_935_682_048}, "is of Tesla V100-SXM2-16GB with 16.9 GB, and a100-sxm4-80g"),
        ({"memory_bytes": 42_297_524_224}, "is of NVIDIA A100-SXM4-80GB with 42.3 GB, and a100-sxm4-80g with 85.9 GB is calibrated"),
        ({"device": "cpu", "memory_bytes": None}, "is of cpu, and a100-sxm4-80g"),
        ({"device": None}, "does not say which device it is of"),
        ({"clustersim_measurements": 2}, "has no 'clustersim_measurements': 1; run the script of this version"),
    ],
)
def test_a_folder_of_another_device_is_refused(tmp_path: Path, about: dict[str, object], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        measured_folder(folder(tmp_path / "measured", **about), load_accelerator(A100))


def test_what_is_no_folder_of_measurements_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="is no folder of measurements; name the folder that the script"):
        measured_folder(str(tmp_path / "nothing"), load_accelerator(A100))
    (tmp_path / "node.json").write_text('{"clustersim_measurements": 1, "device": "a100"}', encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"holds no measurements; expected are products.csv"):
        measured_folder(str(tmp_path), load_accelerator(A100))

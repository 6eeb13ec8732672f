"""From measurements to a file that loads: what was fitted, what stayed, and to which files."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from clustersim.apps.calibrate.fit_accelerator import Calibrated, CalibrationRequest, calibrate, write_calibration
from clustersim.documents.text import read_document
from clustersim.errors import ScenarioError
from clustersim.hardware.calibrations import constant, read_calibration
from tests.unit.apps.calibrate.making import A100, BASE, Trace, attention_file, known, products_file

TRUTH = known({"gemm.sustained_fraction.default": 0.7, "gemm.depth_overhead": 120.0, "attention.flash_2.forward.fraction": 0.7})


@pytest.fixture
def measured(tmp_path: Path) -> CalibrationRequest:
    gemm = products_file(tmp_path / "gemm.csv", TRUTH)
    return CalibrationRequest(accelerator=A100, gemm=(gemm,), attention=(attention_file(tmp_path / "attention.csv", TRUTH),))


def sources(found: Calibrated, tmp_path: Path) -> list[dict[str, object]]:
    path = tmp_path / f"{found.name}.yaml"
    write_calibration(found, path)
    listed = read_document(path).data["sources"]
    assert isinstance(listed, list)
    return [dict(source) for source in listed if isinstance(source, dict)]


def test_the_file_loads_and_holds_what_was_fitted(measured: CalibrationRequest, tmp_path: Path) -> None:
    found = calibrate(measured, "mine")
    write_calibration(found, tmp_path / "mine.yaml")

    read = read_calibration(tmp_path / "mine.yaml")

    assert (read.name, read.generation, read.accelerators) == ("mine", "ampere", (A100,))
    assert read.gemm == found.calibration.gemm
    assert read.attention == found.calibration.attention
    assert constant(read, "gemm.sustained_fraction.default") == pytest.approx(0.7, rel=0.01)
    assert read.network == BASE.network
    assert read.launch == BASE.launch


def test_every_measured_file_is_named_with_its_hash_and_how_well_it_is_met(measured: CalibrationRequest, tmp_path: Path) -> None:
    own = [source for source in sources(calibrate(measured, "mine"), tmp_path) if source["url"] == "measured"]

    assert [source["title"] for source in own] == ["gemm: gemm.csv", "attention: attention.csv"]
    assert own[0]["sha256"] == sha256((tmp_path / "gemm.csv").read_bytes()).hexdigest()
    fit = own[0]["fit"]
    assert isinstance(fit, dict)
    assert fit["rows"] == 60
    assert fit["mean_error_fraction"] < 0.01 < fit["mean_error_before_fraction"]


def test_sources_of_the_base_keep_what_was_not_measured(measured: CalibrationRequest, tmp_path: Path) -> None:
    listed = sources(calibrate(measured, "mine"), tmp_path)

    covers = {cover for source in listed if source["url"] != "measured" for cover in source["covers"]}  # pyright: ignore[reportGeneralTypeIssues]
    assert not any(cover.startswith(("gemm.sustained", "gemm.depth", "gemm.tiles", "attention.flash_2")) for cover in covers)
    assert any(cover.startswith("attention.flash_1") for cover in covers)
    assert {"memory_fraction", "launch.dispatch", "network.multiprocessors"} <= covers


def test_a_result_says_what_was_not_measured(measured: CalibrationRequest, tmp_path: Path) -> None:
    found = calibrate(measured, "mine")
    write_calibration(found, tmp_path / "mine.yaml")

    notes = dict(read_calibration(tmp_path / "mine.yaml").notes)

    assert notes["partly_calibrated"] == (
        "not measured, and kept from ampere: gemm.under_load, gemm.unaligned_fraction, gemm.power_exponent, "
        "gemm.clock_spread, gemm.under_load_ranks, attention.flash_1, memory_fraction, launch, network"
    )


def test_equal_measurements_give_equal_bytes(measured: CalibrationRequest) -> None:
    assert calibrate(measured, "mine").text == calibrate(measured, "mine").text


def test_errors_fall_and_are_told_for_each_part(measured: CalibrationRequest) -> None:
    found = calibrate(measured, "mine")

    assert [part.name for part in found.parts] == ["gemm", "attention"]
    for part in found.parts:
        assert part.after.mean_absolute_error_fraction < 0.01 < part.before.mean_absolute_error_fraction
        assert abs(part.worst_error_fraction) >= part.after.median_absolute_error_fraction
    assert {change.part for change in found.changes} == {"gemm", "attention"}
    assert "launch.dispatch" in found.kept


def test_a_file_of_ones_own_can_be_the_base(measured: CalibrationRequest, tmp_path: Path) -> None:
    write_calibration(calibrate(measured, "first"), tmp_path / "first.yaml")

    again = calibrate(CalibrationRequest(accelerator=A100, base=str(tmp_path / "first.yaml"), gemm=measured.gemm), "second")

    assert again.base == "first"
    assert again.calibration.attention == read_calibration(tmp_path / "first.yaml").attention
    assert again.parts[0].before.mean_absolute_error_fraction < 0.01


def test_an_accelerator_without_a_calibration_starts_from_the_borrowed_one(tmp_path: Path) -> None:
    (tmp_path / "gemm.csv").write_text("m,n,k,dtype,time_ms\n4096,4096,4096,fp16,9.1\n", encoding="utf-8")

    found = calibrate(CalibrationRequest(accelerator="p100-sxm2-16g", gemm=(str(tmp_path / "gemm.csv"),)), "mine")

    assert (found.base, found.generation, found.accelerator) == ("ampere", "pascal", "p100-sxm2-16g")
    write_calibration(found, tmp_path / "mine.yaml")
    assert read_calibration(tmp_path / "mine.yaml").generation == "pascal"


def test_what_a_trace_tells_is_read_off_and_used_by_what_follows(tmp_path: Path) -> None:
    trace = Trace()
    for _ in range(20):
        trace.kernel("aten::add", [(8192, 8192), (8192, 8192)], 300.0, gap_us=5.0)
    trace.kernel("aten::mm", [(4096, 4096), (4096, 4096)], 700.0)
    path = trace.write(tmp_path / "trace.json")

    found = calibrate(CalibrationRequest(accelerator=A100, trace=(path,)), "mine")

    values = {change.name: change.after for change in found.changes}
    assert values["launch.kernel"] == 5e-6
    assert values["launch.dispatch"] == 4e-5
    assert 0.5 < values["memory_fraction"] < 0.75
    assert [part.name for part in found.parts] == ["gemm"]
    listed = sources(found, tmp_path)
    assert [source["title"] for source in listed[:2]] == ["trace: trace.json", "gemm: trace.json"]
    assert "launch.kernel from 20 samples" in str(listed[0]["note"])


def write_rows(path: Path, rows: str) -> str:
    path.write_text(f"m,n,k,dtype,time_us\n{rows}", encoding="utf-8")
    return str(path)


def test_a_fit_that_is_in_doubt_says_so_in_the_file_until_it_is_fitted_anew(measured: CalibrationRequest, tmp_path: Path) -> None:
    apart = "".join(f"8192,8192,8192,bf16,{time_us}\n" for time_us in (5000, 15000))
    doubtful = calibrate(CalibrationRequest(accelerator=A100, gemm=(write_rows(tmp_path / "two.csv", apart),)), "first")
    write_calibration(doubtful, tmp_path / "first.yaml")
    anew = calibrate(CalibrationRequest(accelerator=A100, base=str(tmp_path / "first.yaml"), gemm=measured.gemm), "second")
    beside = calibrate(CalibrationRequest(accelerator=A100, base=str(tmp_path / "first.yaml"), attention=measured.attention), "third")
    for found in (anew, beside):
        write_calibration(found, tmp_path / f"{found.name}.yaml")

    first, second, third = (dict(read_calibration(tmp_path / f"{name}.yaml").notes) for name in ("first", "second", "third"))

    assert "off the measured times" in first["doubtful_gemm"]
    assert "too few different measurements (1) for" in first["doubtful_gemm"]
    assert all(doubt.removeprefix("gemm: ") in first["doubtful_gemm"] for doubt in doubtful.doubts)
    assert "off the measured times" not in second.get("doubtful_gemm", "")
    assert third["doubtful_gemm"] == first["doubtful_gemm"]


def test_what_cannot_be_calibrated_is_refused() -> None:
    for request, message in (
        (CalibrationRequest(accelerator=A100), "nothing is given to fit to"),
        (CalibrationRequest(accelerator="a100", gemm=("x.csv",)), "unknown accelerator 'a100'"),
        (CalibrationRequest(accelerator=A100, base="ampre", gemm=("x.csv",)), "there is no calibration of 'ampre'"),
        (CalibrationRequest(accelerator=A100, nccl=("x.txt",)), "nothing says which nodes the collectives ran on"),
    ):
        with pytest.raises(ScenarioError, match=message):
            calibrate(request, "mine")


def test_a_file_that_cannot_be_written_is_told(measured: CalibrationRequest, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot write"):
        write_calibration(calibrate(measured, "mine"), tmp_path)

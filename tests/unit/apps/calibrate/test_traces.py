"""A trace of the profiler gives products with their kernels, gaps, and what host and memory reach."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from clustersim.apps.calibrate.fit_products import products_part
from clustersim.apps.calibrate.measurements import measured_file
from clustersim.apps.calibrate.trace_file import read_trace
from clustersim.apps.calibrate.trace_readings import TraceResult, trace_result
from clustersim.errors import ScenarioError
from clustersim.workloads.operators import Gemm
from tests.unit.apps.calibrate.making import BASE, SHAPES, TARGET, Trace, in_bursts, known

BIG = (8192, 8192)
BANDWIDTH = TARGET.accelerator.memory_bandwidth_bytes_per_s


Shape = tuple[int, int]


def add_us(share: float) -> float:
    """Return how long the addition of two big matrices in 16 bits takes at some share of the bandwidth."""
    return 3 * 8192 * 8192 * 2 / (share * BANDWIDTH) * 1e6


def busy(n_kernels: int = 30) -> Trace:
    """Return a trace whose accelerator has more to do than the host: kernels follow each other after 2 us."""
    trace = Trace()
    for _ in range(n_kernels):
        trace.kernel("aten::add", [BIG, BIG], add_us(0.8))
    return trace


def result(tmp_path: Path, trace: Trace) -> TraceResult:
    return trace_result(trace.write(tmp_path / "trace.json"), TARGET)


def readings(found: TraceResult) -> dict[str, float]:
    return {reading.name: reading.value for reading in found.readings}


def test_gaps_intervals_and_memory_are_read_off(tmp_path: Path) -> None:
    found = readings(result(tmp_path, busy()))

    assert found["launch.kernel"] == pytest.approx(2e-6, rel=1e-6)
    assert found["launch.dispatch"] == pytest.approx(40e-6, rel=1e-6)
    assert found["memory_fraction"] == pytest.approx(0.8, rel=1e-6)


def test_a_gap_in_which_nothing_was_issued_is_none_of_the_stream(tmp_path: Path) -> None:
    trace = busy(15)
    for _ in range(15):  # the host is slower: the stream waits for it
        trace.kernel("aten::relu", [(8, 8)], 1.0, dispatch_us=400.0)

    found = {reading.name: reading for reading in result(tmp_path, trace).readings}

    assert found["launch.kernel"].value == pytest.approx(2e-6, rel=1e-6)
    assert found["launch.kernel"].n_samples < 30


def test_waits_and_pauses_are_no_time_to_issue_a_kernel(tmp_path: Path) -> None:
    trace = busy(12)
    trace.wait()
    for _ in range(12):
        trace.kernel("aten::add", [BIG, BIG], add_us(0.8))
    trace.host_us += 50_000.0  # something between steps
    trace.kernel("aten::add", [BIG, BIG], add_us(0.8))

    assert readings(result(tmp_path, trace))["launch.dispatch"] == pytest.approx(40e-6, rel=1e-6)


def test_small_kernels_say_nothing_of_memory(tmp_path: Path) -> None:
    trace = Trace()
    for _ in range(20):
        trace.kernel("aten::add", [(1024, 1024), (1024, 1024)], 1.0)

    found = result(tmp_path, trace)

    assert "memory_fraction" not in readings(found)
    assert "trace.json: 0 samples of memory_fraction are too few" in found.notices


def test_products_have_the_time_of_their_kernels_and_the_shapes_of_their_operators(tmp_path: Path) -> None:
    trace = busy(12)
    trace.kernel("aten::addmm", [(512,), (2048, 1024), (1024, 512)], 30.0)
    trace.kernel("aten::bmm", [(16, 128, 64), (16, 64, 256)], 9.0, kind="c10::BFloat16")
    trace.kernel("aten::mm", [(64, 64), (64, 64)], 5.0, kind="float")

    found = result(tmp_path, trace)

    assert [(each.gemm, each.precision) for each in found.products] == [
        (Gemm(2048, 512, 1024), "fp16"),
        (Gemm(128, 256, 64, batch=16), "bf16"),
    ]
    assert [each.time_s for each in found.products] == pytest.approx([30e-6, 9e-6])
    assert all(each.kernel_alone for each in found.products)
    assert "trace.json: 1 products in fp32 are left out, which may have run in tf32" in found.notices


@pytest.mark.parametrize(
    ("left", "right", "at_once"),
    [((2048, 768), (768, 50304), 16), ((2048, 768), (768, 50257), 2), ((50257, 2048), (2048, 768), 2)],
)
def test_rows_of_an_odd_size_are_read_number_by_number(tmp_path: Path, left: Shape, right: Shape, at_once: int) -> None:
    trace = busy(12)
    trace.kernel("aten::mm", [left, right], 1e4)

    (product,) = result(tmp_path, trace).products

    assert product.gemm.vector_bytes == at_once


def test_the_constants_of_made_up_products_are_found_again(tmp_path: Path) -> None:
    truth = known({"gemm.sustained_fraction.default": 0.7})
    card, gap_us = in_bursts(TARGET, truth, "fp16"), truth.launch.kernel_s * 1e6
    trace = busy(12)
    for m, n, k in SHAPES:
        trace.kernel("aten::mm", [(m, k), (k, n)], card.kernel_s(Gemm(m, n, k)) * 1e6 - gap_us)
    path = trace.write(tmp_path / "trace.json")

    part = products_part([], TARGET, trace_result(path, TARGET).products, [measured_file(path)])
    found = part.fitted(TARGET, BASE)

    assert len(part.measured) == len(SHAPES)
    assert found.values["ampere", "gemm.sustained_fraction.default"] == pytest.approx(0.7, rel=0.01)


def test_kernels_without_an_id_are_joined_through_their_launch(tmp_path: Path) -> None:
    trace = busy(12)
    trace.kernel("aten::mm", [(512, 512), (512, 512)], 10.0)
    assert all("External id" not in event["args"] for event in trace.events if event.get("cat") == "kernel")  # pyright: ignore[reportOperatorIssue]

    assert len(result(tmp_path, trace).products) == 1


def test_a_packed_trace_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": busy().events}).encode()))

    assert len(read_trace(str(path)).kernels) == 30


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("{", "is not JSON: expecting property name enclosed in double quotes", 1),
        ('{"events": []}', "is no trace: 'traceEvents' is missing", None),
        ('{"traceEvents": []}', "holds no kernels", None),
        ('{"traceEvents": [\n {"ph": "X", "cat": "kernel", "ts": "noon", "dur": 1}]}', "'noon' is not a time in microseconds", 2),
    ],
)
def test_a_broken_trace_is_refused_with_its_place(tmp_path: Path, text: str, message: str, line: int | None) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ScenarioError) as caught:
        read_trace(str(path))

    assert caught.value.message == message
    assert caught.value.place is not None
    assert (caught.value.place.file, caught.value.place.line) == (str(path), line)


def test_a_trace_that_says_nothing_is_refused(tmp_path: Path) -> None:
    trace = Trace()
    trace.kernel("aten::relu", [(8, 8)], 1.0)

    with pytest.raises(ScenarioError, match=r"trace\.json says nothing of any constant"):
        result(tmp_path, trace)


def test_a_reading_that_rests_on_few_samples_is_told(tmp_path: Path) -> None:
    few, many = (result(tmp_path, busy(n_kernels)).notices for n_kernels in (30, 120))

    assert "trace.json: launch.kernel rests on 29 samples only" in few
    assert not any("rests on" in notice for notice in many)


def test_a_reading_that_is_far_from_the_base_is_told_and_not_taken(tmp_path: Path) -> None:
    trace = Trace()
    for _ in range(30):
        trace.kernel("aten::add", [BIG, BIG], add_us(0.8), gap_us=0.5, dispatch_us=100.0)

    found = result(tmp_path, trace)

    assert set(readings(found)) == {"launch.dispatch", "memory_fraction"}
    (notice,) = (each for each in found.notices if "not taken" in each)
    assert notice.startswith("trace.json: launch.kernel from 2.5 us to 500 ns (1/5.0) is not taken")


def test_a_trace_of_which_nothing_is_believed_is_refused(tmp_path: Path) -> None:
    trace = Trace()
    for _ in range(30):
        trace.kernel("aten::relu", [(8, 8)], 400.0, gap_us=48.9, dispatch_us=300.0)

    with pytest.raises(ScenarioError, match=r"says nothing of any constant that is believed") as caught:
        result(tmp_path, trace)

    assert caught.value.hint is not None
    assert "launch.kernel from 2.5 us to 48.9 us (19.6 times)" in caught.value.hint


def test_a_trace_without_shapes_says_how_to_record_them(tmp_path: Path) -> None:
    trace = busy()
    trace.events = [event for event in trace.events if event.get("cat") != "cpu_op"]

    assert (
        "trace.json: no shapes of operators; the profiler of PyTorch records them with record_shapes=True"
        in result(tmp_path, trace).notices
    )

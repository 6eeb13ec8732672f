"""Traces of a run beside its prediction, class of kernels by class of kernels."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from clustersim.apps.calibrate.trace_file import is_trace, read_trace
from clustersim.apps.compare.kernel_names import UNKNOWN, kernel_names, measured_steps, steps_of
from clustersim.apps.compare.predicted_kernels import predicted_step
from clustersim.apps.compare.trace_comparison import ClassDifference, TraceComparison, TraceRequest, compare_traces
from clustersim.apps.run.running import run
from clustersim.config.load import load_scenario
from clustersim.errors import ScenarioError

RUN = "llama3-8b-8xh100"
GEMM, FLASH, NORM, GATHER = "nvjet_tst_128x256", "void flash_fwd_kernel<...>", "rms_norm_kernel", "ncclDevKernel_AllGather_RING_LL"
DEVICE = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000}
Kernel = tuple[str, float, float]
"""Name, start and duration, in microseconds."""
STEP: tuple[Kernel, ...] = ((GEMM, 10, 500), (FLASH, 510, 200), (GATHER, 600, 300), (NORM, 710, 90))


def write(
    path: Path,
    kernels: Iterable[Kernel] = STEP,
    *,
    steps: Mapping[str, tuple[float, float]] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    rank: int | None = 0,
    n_ranks: int = 8,
    device: Mapping[str, object] | None = DEVICE,
) -> str:
    """Write a trace in which the host issues each kernel when it starts."""
    marked = {"ProfilerStep#3": (0.0, 1000.0)} if steps is None else steps
    events: list[dict[str, object]] = [
        {"ph": "X", "cat": "user_annotation", "name": name, "ts": start, "dur": end - start, "pid": 1, "tid": 1, "args": {}}
        for name, (start, end) in {**marked, **(ranges or {})}.items()
    ]
    for number, (name, start, duration) in enumerate(kernels, start=1):
        ids = {"correlation": number}
        events += [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start, "dur": 1, "pid": 1, "tid": 1, "args": ids},
            {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": duration, "pid": 0, "tid": 7, "args": {**ids, "device": 0}},
        ]
    about = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": n_ranks}}
    named = {} if device is None else {"deviceProperties": [device]}
    path.write_text(json.dumps({**named, **about, "traceEvents": events}), encoding="utf-8")
    return str(path)


def compared(*traces: str, **options: str) -> TraceComparison:
    return compare_traces(TraceRequest(run=RUN, traces=traces, **options))  # pyright: ignore[reportArgumentType] - all are texts


def by_name(found: TraceComparison) -> dict[str, ClassDifference]:
    return {each.name: each for each in found.classes}


def test_kernels_are_summed_by_class_and_the_step_is_divided(tmp_path: Path) -> None:
    found = compared(write(tmp_path / "t.json"))

    assert {name: each.measured.seconds for name, each in by_name(found).items() if each.measured.seconds} == pytest.approx(
        {"products": 500e-6, "attention": 200e-6, "all-gather": 300e-6, "norms and elementwise": 90e-6, "no kernel runs": 110e-6}
    )
    assert (found.measured.step_s, found.measured.computing_s, found.measured.exposed_s) == pytest.approx((1e-3, 790e-6, 100e-6))


def test_several_steps_are_a_mean_and_a_kernel_belongs_to_the_step_that_issued_it(tmp_path: Path) -> None:
    steps = {"ProfilerStep#3": (0.0, 1000.0), "ProfilerStep#4": (1000.0, 3000.0), "ProfilerStep#5": (3000.0, 3100.0)}
    trace = read_trace(write(tmp_path / "t.json", [(GEMM, 900, 400), (GEMM, 1500, 100)], steps=steps))

    found = measured_steps(trace, kernel_names(), "t.json")

    assert found.markers == ("ProfilerStep#3", "ProfilerStep#4")
    assert found.mean.step_s == pytest.approx(1.5e-3)
    assert found.mean.classes["products"].seconds == pytest.approx(250e-6)


@pytest.mark.parametrize(
    ("ends", "step_s", "kernels"),
    [
        ({"Optimizer.step#A": (500.0, 1000.0)}, 990e-6, [GEMM, FLASH, GATHER, NORM]),
        ({"Optimizer.step#A": (500.0, 590.0), "Optimizer.step#B": (800.0, 1000.0)}, 410e-6, [GATHER, NORM]),
    ],
)
def test_optimizers_end_the_steps_of_a_trace_that_marks_none(
    tmp_path: Path, ends: dict[str, tuple[float, float]], step_s: float, kernels: list[str]
) -> None:
    ((marker, issued),) = steps_of(read_trace(write(tmp_path / "t.json", steps=ends)), kernel_names(), "t.json")

    assert marker.end_s - marker.start_s == pytest.approx(step_s)
    assert [kernel.name for kernel in issued] == kernels


def test_kernels_that_were_issued_before_the_recording_belong_to_no_step(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "t.json"))
    document = json.loads(path.read_text(encoding="utf-8"))
    before = {"ph": "X", "cat": "kernel", "name": GEMM, "ts": 2, "dur": 5, "pid": 0, "tid": 7, "args": {"correlation": 99, "device": 0}}
    document["traceEvents"].append(before)
    path.write_text(json.dumps(document), encoding="utf-8")

    products = by_name(compared(str(path)))["products"].measured
    assert (products.seconds, products.n_kernels) == (pytest.approx(500e-6), 1)


def test_a_host_that_ran_ahead_of_its_kernels_is_told(tmp_path: Path) -> None:
    found = compared(write(tmp_path / "t.json", [(GEMM, 10, 2000)]))

    assert found.measured.idle_s == 0.0
    assert any(line.startswith("the host ran ahead") for line in found.remarks())


def test_what_an_optimizer_issues_is_the_optimizers_but_for_its_collectives(tmp_path: Path) -> None:
    ranges = {"Optimizer.step#Adam.step": (500.0, 700.0)}
    found = by_name(compared(write(tmp_path / "t.json", ranges=ranges)))

    assert found["optimizer"].measured.seconds == pytest.approx(200e-6)
    assert found["all-gather"].measured.seconds == pytest.approx(300e-6)


def test_the_operation_that_pytorch_names_stands_above_the_name_of_the_kernel(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "t.json", [("ncclDevKernel_SendRecv", 10, 100)]))
    path.write_text(path.read_text("utf-8").replace('"device": 0', '"device": 0, "Collective name": "all_to_allv"'), encoding="utf-8")

    assert by_name(compared(str(path)))["all-to-all"].measured.seconds == pytest.approx(100e-6)


def test_predicted_classes_make_up_the_predicted_step() -> None:
    result = run(RUN)
    step = predicted_step(result, 0).mean

    computing = ("products", "attention", "norms and elementwise", "optimizer")
    assert sum(step.classes[name].seconds for name in computing) == pytest.approx(step.computing_s)
    assert step.computing_s == pytest.approx(result.metrics.breakdown_s.compute + result.metrics.breakdown_s.optimizer)
    assert step.idle_s == pytest.approx(result.metrics.breakdown_s.host)
    # One all-gather of the weights, and 32 layers of fused attention forward and backward for 24 micro-batches.
    assert (step.classes["all-gather"].n_kernels, step.classes["attention"].n_kernels) == (1, 1536)


def test_a_class_at_another_pace_is_explained_by_its_constant(tmp_path: Path) -> None:
    step = predicted_step(run(RUN), 0).mean
    seconds, count = step.classes["products"].seconds, int(step.classes["products"].n_kernels or 0)
    each_us = 2.0 * seconds / count * 1e6
    kernels = [(GEMM, 10 + number * each_us, each_us) for number in range(count)]

    found = compared(write(tmp_path / "t.json", kernels, steps={"ProfilerStep#1": (0.0, 3e6 * seconds)}))

    products = by_name(found)["products"]
    assert products.of_step == pytest.approx(-1 / 3)
    name, change = products.because.rsplit(" ", 3)[0], products.because.rsplit(" ", 3)[1:]
    assert name == "hopper.gemm.sustained_fraction.bf16"
    assert float(change[2]) == pytest.approx(float(change[0]) / 2, rel=0.01)


def test_other_numbers_of_kernels_point_to_settings_and_collectives_to_links(tmp_path: Path) -> None:
    found = by_name(compared(write(tmp_path / "t.json", [(GEMM, 10, 1e8), (GATHER, 10, 1e8)], steps={"ProfilerStep#1": (0.0, 1e8)})))

    assert found["products"].because == "fewer kernels: strategy.recompute (full here), training.precision (bf16 here)"
    assert found["all-gather"].because.startswith("hopper.network.efficiency.nvlink ")
    assert found["all-gather"].because.endswith(" or waits for other ranks")
    assert found["attention"].because == "not measured: training.attention (flash here), strategy.recompute (full here)"


def test_names_of_the_users_own_stand_before_ours(tmp_path: Path) -> None:
    trace = write(tmp_path / "t.json", [("my_secret_kernel", 10, 100), (GEMM, 200, 100)])
    own = tmp_path / "names.yaml"
    own.write_text("classes:\n  - {class: attention, names: ['*secret*']}\n  - {class: mine, names: ['nvjet*']}\n", encoding="utf-8")

    without, with_own = compared(trace), compared(trace, names=str(own))

    assert by_name(without)[UNKNOWN].measured.seconds == pytest.approx(100e-6)
    assert any("my_secret_kernel" in line for line in without.remarks())
    assert UNKNOWN not in by_name(with_own)
    assert by_name(with_own)["attention"].measured.seconds == pytest.approx(100e-6)
    assert by_name(with_own)["mine"].measured.seconds == pytest.approx(100e-6)


def test_every_shipped_setting_is_a_key_of_a_scenario(tmp_path: Path) -> None:
    schema = json.dumps(load_scenario(RUN).spec.model_json_schema())
    settings = {setting for row in kernel_names().classes for setting in row.settings}

    assert settings
    assert [each for each in settings if f'"{each.rpartition(".")[2]}"' not in schema] == []


def test_traces_of_several_ranks_are_a_mean(tmp_path: Path) -> None:
    slow = [(GEMM, 10.0, 700.0)]
    found = compared(write(tmp_path / "a.json", rank=0), write(tmp_path / "b.json", slow, rank=5))

    assert found.ranks == (0, 5)
    assert by_name(found)["products"].measured.seconds == pytest.approx(600e-6)
    assert "mean of 2 ranks" in found.headline()


def test_traces_of_several_ranks_tell_waits_from_links(tmp_path: Path) -> None:
    seconds = predicted_step(run(RUN), 0).mean.classes["all-gather"].seconds
    late, early = [(GATHER, 10.0, 2e6 * seconds)], [(GATHER, 10.0, 6e6 * seconds)]
    steps = {"ProfilerStep#3": (0.0, 8e6 * seconds)}

    found = by_name(compared(write(tmp_path / "a.json", late, steps=steps), write(tmp_path / "b.json", early, rank=1, steps=steps)))

    waits, constant = found["all-gather"].because.split(", ")
    assert waits == f"{2e3 * seconds:.3g} ms of waits for other ranks"
    before, after = constant.removeprefix("hopper.network.efficiency.nvlink ").split(" -> ")
    assert float(after) == pytest.approx(float(before) / 2, rel=0.01)


def test_a_rank_beside_another_job_is_found_on_its_node() -> None:
    result = run("two-jobs-one-fabric")
    step = predicted_step(result, result.built.plan.n_ranks - 1).mean

    assert step.step_s == pytest.approx(result.step_time_s)
    assert step.classes["products"].seconds > 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": {}}, "t.json: does not mark its steps; call prof.step"),
        ({"steps": {"ProfilerStep#1": (5000.0, 6000.0)}}, "issues no kernel inside its steps"),
        ({"kernels": ()}, "holds no kernels"),
        ({"device": {"name": "Tesla V100-SXM2-16GB"}}, "is of Tesla V100-SXM2-16GB, and h100-sxm5-80g with .* is simulated"),
        ({"device": None}, "does not say which device it is of; .* add --device h100"),
        ({"n_ranks": 64}, "is of a job of 64 ranks, and the run has 8"),
        ({"rank": 9}, "is of rank 9, and the run has ranks 0 to 7"),
    ],
)
def test_a_trace_that_is_none_of_the_run_is_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    trace = write(tmp_path / "t.json", **changes)  # pyright: ignore[reportArgumentType] - the types of the table are those of the function

    with pytest.raises(ScenarioError, match=message):
        compared(trace)


def test_two_traces_of_one_rank_or_of_other_steps_are_refused(tmp_path: Path) -> None:
    first = write(tmp_path / "a.json")
    later = write(tmp_path / "b.json", rank=1, steps={"ProfilerStep#4": (0.0, 1000.0)})

    with pytest.raises(ScenarioError, match=r"b.json: is of ProfilerStep#4, and .*a.json of ProfilerStep#3; give traces of the same steps"):
        compared(first, later)
    with pytest.raises(ScenarioError, match=r"is of rank 0, as .*a.json is"):
        compared(first, write(tmp_path / "c.json"))


def test_kernels_of_two_devices_in_one_file_are_refused(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "t.json"))
    path.write_text(path.read_text("utf-8").replace('"device": 0', '"device": 1', 1), encoding="utf-8")

    with pytest.raises(ScenarioError, match="holds kernels of 2 devices; give one file for each rank"):
        compared(str(path))


def test_all_forms_tell_the_same(tmp_path: Path) -> None:
    found = compared(write(tmp_path / "t.json"))

    assert found.headline().startswith("A step takes 1 ms measured (rank 0, ProfilerStep#3) and ")
    assert all(len(row) == len(table.columns) for table in found.tables() for row in table.rows)
    assert "| all-gather | 300 us |" in " ".join(found.markdown().split())
    assert found.csv_text().count("\nclass,") == len(found.classes)
    assert json.loads(json.dumps(found.to_dict()))["measured"]["step_s"] == pytest.approx(1e-3)


def test_a_trace_of_the_real_profiler_is_read() -> None:
    trace = read_trace(str(Path(__file__).parent / "files" / "mi250-minitoy.json.gz"))

    found = measured_steps(trace, kernel_names(), "mi250")

    # The last step was cut off before it issued a kernel.
    assert found.markers == ("ProfilerStep#1",)
    assert {name: round(each.n_kernels or 0) for name, each in found.mean.classes.items()} == {
        "products": 2,
        "optimizer": 1,
        "norms and elementwise": 11,
        "host copies": 2,
    }
    assert not found.unknown


def nsys(path: Path, *, kernels: bool = True) -> str:
    """Write an export of Nsight Systems with one step of two kernels and a copy."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            """
            CREATE TABLE StringIds (id INTEGER, value TEXT);
            INSERT INTO StringIds VALUES (1, 'nvjet_tst_128x256'), (2, 'ncclDevKernel_AllGather_RING_LL');
            INSERT INTO StringIds VALUES (3, 'step 7'), (4, 'cudaLaunchKernel');
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, correlationId INTEGER, globalTid INTEGER, nameId INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1000, 2000, 1, 9, 4), (5000, 6000, 2, 9, 4), (9000, 9500, 3, 9, 4);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY
                (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, copyKind INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (900000, 950000, 0, 13, 3, 1);
            CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, text TEXT, textId INTEGER);
            INSERT INTO NVTX_EVENTS VALUES (0, 1000000, NULL, 3), (5, NULL, 'mark', NULL);
            CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, totalMemory INTEGER);
            INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100 80GB HBM3', 85000000000);
            """
        )
        if kernels:
            database.executescript(
                """
                CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL
                    (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, demangledName INTEGER);
                INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10000, 510000, 0, 7, 1, 1), (400000, 800000, 0, 20, 2, 2);
                """
            )
        database.commit()
    return str(path)


def test_calls_of_several_processes_in_an_export_are_told_apart_and_graphs_without_kernels_refused(tmp_path: Path) -> None:
    path = nsys(tmp_path / "report.sqlite", kernels=False)
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            """
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
                globalPid INTEGER, correlationId INTEGER, demangledName INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10000, 510000, 0, 7, 16777216, 1, 1), (400000, 800000, 1, 7, 33554432, 1, 2);
            DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME;
            INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (2000, 2500, 1, 16777219, 4), (300000, 300500, 1, 33554439, 4);
            """
        )

    assert [kernel.launched_s for kernel in read_trace(path).kernels] == pytest.approx([2e-6, 3e-4])
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER); INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1)"
        )
    with pytest.raises(ScenarioError, match="holds CUDA graphs as a whole, without their kernels; record it again with nsys profile"):
        read_trace(path)


def test_an_export_of_nsight_systems_is_read_as_a_trace(tmp_path: Path) -> None:
    path = nsys(tmp_path / "report.sqlite")
    found = by_name(compared(path))

    assert is_trace(path)
    assert {name: each.measured.seconds for name, each in found.items() if each.measured.seconds} == pytest.approx(
        {"products": 500e-6, "all-gather": 400e-6, "host copies": 50e-6, "no kernel runs": 160e-6}
    )


def test_an_export_without_kernels_or_another_database_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"SQLite format 3\0" + b"x" * 100)

    with pytest.raises(ScenarioError, match="holds no kernels: the table CUPTI_ACTIVITY_KIND_KERNEL is missing"):
        read_trace(nsys(tmp_path / "empty.sqlite", kernels=False))
    with pytest.raises(ScenarioError, match="is not an export of Nsight Systems that can be read"):
        read_trace(str(broken))

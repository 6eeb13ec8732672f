"""Traces that analysers of PyTorch profiles read: what they make of them is what a result has."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from clustersim.apps.run.result import Result
from clustersim.apps.run.running import run
from clustersim.measure.step_breakdown import ClassTimes, times_by_class
from clustersim.report.kineto import COMPUTE_TID, write_kineto
from clustersim.trace.columns import columns_of
from tests.golden.reference import reference_timeline

ANALYSER: Final = os.environ.get("CLUSTERSIM_HTA_PYTHON", "")
"""A Python with HolisticTraceAnalysis, which needs other versions of much that is tested here."""
PROGRAM: Final = """
import json, sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_dir=sys.argv[1])
parts = analysis.get_temporal_breakdown(visualize=False).set_index("rank").to_dict("index")
for rank, row in analysis.get_comm_comp_overlap(visualize=False).set_index("rank").to_dict("index").items():
    parts[rank] |= row
print("RESULT " + json.dumps(parts))
"""
Stretch = tuple[float, float]


@cache
def result_of(source: str, *overrides: str) -> Result:
    return run(source, set=overrides)


def traces(result: Result, folder: Path) -> dict[int, dict[str, Any]]:
    files = write_kineto(result.spans, folder)
    return {int(path.name.removeprefix("rank").removesuffix(".json.gz")): json.loads(gzip.decompress(path.read_bytes())) for path in files}


def kernels(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]


def merged(stretches: list[Stretch]) -> list[Stretch]:
    found: list[Stretch] = []
    for start, end in sorted(stretches):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def length(stretches: list[Stretch]) -> float:
    return sum(end - start for start, end in merged(stretches)) / 1e6


def stretches_of(trace: dict[str, Any], *, communicates: bool) -> list[Stretch]:
    return [(event["ts"], event["ts"] + event["dur"]) for event in kernels(trace) if event["name"].startswith("nccl") == communicates]


def ours(result: Result) -> dict[int, ClassTimes]:
    timeline = result.spans
    blocks = not result.built.plan.strategy.overlap_p2p
    times = times_by_class(columns_of(timeline.spans), len(timeline.rank_classes), timeline.duration_s, sends_block=blocks)
    return {rank_class.representative_rank: each for rank_class, each in zip(timeline.rank_classes, times, strict=True)}


def host_of(result: Result, rank: int) -> list[Stretch]:
    place = [each.representative_rank for each in result.spans.rank_classes].index(rank)
    own = [span for span in result.spans.spans if span.rank_class == place]
    # A pass that waits for its host ends with that: the kernels of a trace are issued before.
    starts = [(span.start_s if span.kind == "host" else span.end_s - span.host_s, span.end_s) for span in own]
    return [(1e6 * start_s, 1e6 * end_s) for start_s, end_s in starts if end_s > start_s]


RUNS = [("llama3-8b-8xh100", ("strategy.zero_stage=3",)), pytest.param("llama3-70b-h100-512", (), marks=pytest.mark.slow), ("1f1b", ())]


@pytest.mark.parametrize(("source", "overrides"), RUNS)
def test_computing_and_waiting_are_those_of_the_result(source: str, overrides: tuple[str, ...], tmp_path: Path) -> None:
    result = result_of(source, *overrides)

    # The temporal breakdown of Holistic Trace Analysis: kernels that compute, then kernels that communicate alone, then nothing.
    for rank, trace in traces(result, tmp_path).items():
        computing, moving = (stretches_of(trace, communicates=way) for way in (False, True))
        own = ours(result)[rank]
        # Every touching pair of kernels meets at a whole microsecond; ends that touch nothing may be half of one off.
        tolerance = 1e-6 * (len(computing) + len(moving)) ** 0.5 * 2 + 2e-4 * result.step_time_s
        assert length(computing) == pytest.approx(own.compute + own.optimizer, abs=tolerance)
        # What runs while the host is at work is hidden for a result; for an analyser no kernel computes then.
        busy = [*computing, *host_of(result, rank)]
        assert length([*busy, *moving]) - length(busy) == pytest.approx(sum(own.exposed.values()), abs=tolerance)


def test_overlap_is_that_of_the_result_where_one_dimension_communicates(tmp_path: Path) -> None:
    result = result_of("llama3-8b-8xh100", "strategy.zero_stage=3")
    ((rank, trace),) = traces(result, tmp_path).items()
    computing, moving = (stretches_of(trace, communicates=way) for way in (False, True))

    busy = [*computing, *host_of(result, rank)]
    hidden_s = length(busy) + length(moving) - length([*busy, *moving])
    own = ours(result)[rank]

    share = sum(own.hidden.values()) / (sum(own.hidden.values()) + sum(own.exposed.values()))
    assert hidden_s / length(moving) == pytest.approx(share, abs=2e-3)


@pytest.mark.slow
def test_no_two_kernels_of_a_stream_overlap(tmp_path: Path) -> None:
    for trace in traces(result_of("llama3-70b-h100-512"), tmp_path).values():
        streams: dict[int, list[Stretch]] = {}
        for event in kernels(trace):
            streams.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
        assert COMPUTE_TID in streams
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(streams[COMPUTE_TID])))


def test_every_kernel_was_launched_by_a_call(tmp_path: Path) -> None:
    trace = next(iter(traces(result_of("1f1b"), tmp_path).values()))

    calls = {event["args"]["correlation"] for event in trace["traceEvents"] if event.get("cat") == "cuda_runtime"}
    assert calls == {event["args"]["correlation"] for event in kernels(trace)}
    assert all(event["args"]["stream"] == event["tid"] for event in kernels(trace))


def test_there_is_a_file_for_each_class_that_says_whose_it_is_with_equal_bytes_for_equal_timelines(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        files = write_kineto(reference_timeline(), tmp_path / name)

        assert [path.name for path in files] == ["rank0.json.gz", "rank128.json.gz", "rank256.json.gz", "rank384.json.gz"]
        head = json.loads(gzip.decompress(files[1].read_bytes()))["distributedInfo"]
        assert head == {"backend": "nccl", "rank": 128, "world_size": 512}
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


@pytest.mark.skipif(
    not ANALYSER, reason="CLUSTERSIM_HTA_PYTHON names no Python with HolisticTraceAnalysis: its own figures are not compared"
)
def test_holistic_trace_analysis_itself_finds_the_same(tmp_path: Path) -> None:
    result = result_of("llama3-70b-h100-512")
    write_kineto(result.spans, tmp_path)

    done = subprocess.run(
        [ANALYSER, "-W", "ignore", "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True, cwd=tmp_path
    )

    found = json.loads(done.stdout.partition("RESULT ")[2])
    for rank, own in ours(result).items():
        assert found[str(rank)]["compute_time(us)"] / 1e6 == pytest.approx(own.compute + own.optimizer, abs=1e-4)
        assert found[str(rank)]["non_compute_time(us)"] / 1e6 == pytest.approx(sum(own.exposed.values()), abs=1e-4)
        # A moment in which two dimensions communicate counts once there, and once for each dimension here.
        share = sum(own.hidden.values()) / (sum(own.hidden.values()) + sum(own.exposed.values()))
        assert found[str(rank)]["comp_comm_overlap_pctg"] == pytest.approx(100 * share, abs=0.7)

"""Traces of all ranks of a job are replayed as they were, with another network, another overlap, and without stragglers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from clustersim.apps.records.chakra_records import is_execution_trace
from clustersim.apps.records.recorded_answer import RecordedAnswer, answered_records, recorded_files
from clustersim.cli.app import main
from clustersim.errors import EXIT_BAD_INPUT, ScenarioError

Kernel = tuple[str, int, float, float]
"""Name, stream, start and duration in milliseconds."""
REDUCE_MS = 4.0


def kineto(
    path: Path,
    kernels: Sequence[Kernel],
    *,
    rank: int = 0,
    n_ranks: int = 2,
    clock_ms: float = 0.0,
    group: Mapping[str, object] | None = None,
) -> str:
    """Write the trace of one rank, whose clock is ahead by so much."""
    members = str(list(range(n_ranks)))
    about = {"Process Group Name": "0", "Process Group Ranks": members, "Group size": n_ranks, "Collective name": "allreduce"} | dict(
        group or {}
    )
    end_ms = max((start + length for _, _, start, length in kernels), default=1.0)
    marker = {"name": "ProfilerStep#7", "cat": "user_annotation", "tid": 1, "ts": clock_ms * 1e3 - 1, "dur": end_ms * 1e3 + 2}
    events = [{"ph": "X", "pid": 9, "args": {}, **marker}]
    for name, stream, start_ms, length_ms in kernels:
        own = {"stream": stream, "device": rank, **(about if "nccl" in name else {})}
        times = {"ts": (start_ms + clock_ms) * 1e3, "dur": length_ms * 1e3}
        events.append({"ph": "X", "cat": "kernel", "name": name, "pid": rank, "tid": stream, **times, "args": own})
    document = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": n_ranks}, "traceEvents": events}
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def data_parallel(slow_ms: float = 12.0) -> list[list[Kernel]]:
    """Return two ranks that compute for 10 ms or longer, reduce beside 3 ms more, and update when both are done."""
    ranks: list[list[Kernel]] = []
    for own_ms in (10.0, slow_ms):
        ready_ms = max(10.0, slow_ms) + REDUCE_MS
        ranks.append(
            [
                ("gemm", 7, 0.0, own_ms),
                ("ncclDevKernel_AllReduce", 20, own_ms, ready_ms - own_ms),
                ("gemm", 7, own_ms, 3.0),
                ("adam", 7, max(ready_ms, own_ms + 3.0), 1.0),
            ]
        )
    return ranks


def written(tmp_path: Path, ranks: Sequence[Sequence[Kernel]], clocks_ms: Sequence[float] = (0.0, 0.0)) -> list[str]:
    found = enumerate(zip(ranks, clocks_ms, strict=True))
    return [kineto(tmp_path / f"rank{rank}.json", own, rank=rank, n_ranks=len(ranks), clock_ms=ahead) for rank, (own, ahead) in found]


def steps_ms(found: RecordedAnswer) -> list[float]:
    return [1e3 * each.step_time_s for each in (found.replayed, found.even, *found.asked)]


@pytest.mark.parametrize("clocks_ms", [(0.0, 0.0), (0.0, 5000.0)])
def test_traces_of_ranks_are_replayed_whatever_their_clocks(tmp_path: Path, clocks_ms: Sequence[float]) -> None:
    cases = ("fast:communication=0.5", "slow:communication=2", "none:overlap=none", "full:overlap=full")

    found = answered_records(written(tmp_path, data_parallel(), clocks_ms), cases)

    # Without stragglers both compute the mean, 11 ms. Half a reduction is hidden by the 3 ms beside it. Without overlap the first rank
    # computes them before it, as it began them earlier, and the other behind it.
    assert found.steps == (7,)
    assert found.recorded_s == pytest.approx([17e-3])
    assert steps_ms(found) == pytest.approx([17.0, 16.0, 16.0, 21.0, 21.0, 16.0], abs=1e-3)
    assert found.remarks == ()


def test_the_time_that_a_kernel_waits_for_its_host_is_an_operation_of_its_own(tmp_path: Path) -> None:
    source = kineto(tmp_path / "one.json", [("gemm", 7, 0.0, 2.0), ("gemm", 7, 5.0, 2.0)], n_ranks=1)

    found = answered_records([source], ["fast:host=0"])

    assert steps_ms(found) == pytest.approx([7.0, 7.0, 4.0], abs=1e-3)


def test_a_send_ends_at_both_ends_together(tmp_path: Path) -> None:
    ends = {"Collective name": "send", "Process Group Description": "PIPELINE_MODEL_PARALLEL_GROUP"}
    first = kineto(tmp_path / "0.json", [("gemm", 7, 0.0, 4.0), ("ncclDevKernel_SendRecv", 9, 4.0, 1.0)], group=ends | {"Dst Rank": 1})
    second = [("ncclDevKernel_SendRecv", 9, 0.0, 5.0), ("gemm", 7, 5.0, 2.0)]

    found = answered_records(
        [first, kineto(tmp_path / "1.json", second, rank=1, group=ends | {"Src Rank": 0})], ["slow:even=stage 1,products=2"]
    )

    assert steps_ms(found)[0] == pytest.approx(7.0, abs=1e-3)
    assert steps_ms(found)[-1] == pytest.approx(8.0 + 1.0 + 4.0, abs=1e-3)
    assert {"no stragglers in stage 0", "no stragglers in stage 1"} <= {each.name for each in found.parts}


def test_calls_that_cannot_be_the_same_last_as_recorded(tmp_path: Path) -> None:
    missing, apart = data_parallel(), data_parallel()
    missing[1].insert(0, ("ncclDevKernel_AllReduce", 20, 0.0, 1.0))
    apart[0] += [("ncclDevKernel_AllReduce", 20, 20.0, 1.0), ("ncclDevKernel_AllReduce", 20, 22.0, 1.0)]
    apart[1] += [("ncclDevKernel_AllReduce", 20, 20.0, 1.0), ("ncclDevKernel_AllReduce", 20, 40.0, 1.0)]

    for ranks, count in ((missing, 3), (apart, 6)):
        found = answered_records(written(tmp_path, ranks))

        assert found.replayed.step_time_s == pytest.approx(found.recorded_s[0], abs=1e-6)
        assert found.remarks == (f"{count} calls were not matched among these ranks, and last as recorded, with their waits",)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    files = written(tmp_path, data_parallel())

    assert answered_records(files[:1]).remarks == ("traces of 1 of 2 ranks: a collective begins when the last of these is there",)


def chakra(path: Path, nodes: Sequence[Mapping[str, object]]) -> str:
    path.write_text(json.dumps({"workload_graph": nodes}), encoding="utf-8")
    return str(path)


def test_nodes_of_an_execution_trace_wait_for_what_they_name(tmp_path: Path) -> None:
    def rank(own_us: int, reduce_us: int) -> list[dict[str, object]]:
        reduce = {"Id": 2, "Name": "r", "NodeType": 7, "data_deps": [1], "runtime": reduce_us, "comm_type": 0, "comm_size": 8}
        return [
            {"Id": 1, "Name": "gemm", "NodeType": 4, "runtime": own_us},
            {"Id": 3, "Name": "gemm", "NodeType": 4, "runtime": 1000, "data_deps": [1]},
            {"Id": 4, "Name": "adam", "NodeType": 4, "runtime": 500, "data_deps": [2, 3]},
            reduce,
        ]

    sources = [chakra(tmp_path / "t.0.json", rank(4000, 5000)), chakra(tmp_path / "t.1.json", rank(6000, 3000))]
    found = answered_records(sources, ["fast:all-reduce=0", "none:overlap=none"])

    assert found.recorded_s == ()
    assert steps_ms(found) == pytest.approx([9.5, 8.5, 7.5, 10.5], abs=1e-3)
    assert found.headline() == "A step of 2 ranks takes 9.5 ms replayed and 8.5 ms without stragglers, which cost 10.5 %."


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([], "holds no nodes"),
        ([{"Id": 1, "Name": "a", "NodeType": 4, "data_deps": [1]}], "has nodes that wait for each other"),
        ([{"Id": 1, "Name": "a", "NodeType": 7, "comm_type": 0}], "has no durations of its communication; give one that was captured"),
        ([{"Id": "x", "Name": "a", "NodeType": 4}], "is no whole execution trace"),
        ([7], "is no whole execution trace: holds something else"),
    ],
)
def test_broken_execution_traces_are_refused(tmp_path: Path, nodes: list[dict[str, object]], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        answered_records([chakra(tmp_path / "t.0.json", nodes)])


def test_the_trace_of_the_observer_alone_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    path.write_text('{"nodes": [{"id": 1, "name": "[pytorch|profiler|execution_trace|process]"}]}', encoding="utf-8")

    assert is_execution_trace(str(path))
    with pytest.raises(ScenarioError, match="is of PyTorch's observer, which records no kernels; join it"):
        answered_records([str(path)])


def test_the_command_takes_a_folder_or_several_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = written(tmp_path, data_parallel())

    assert recorded_files([str(tmp_path)]) == files
    assert main(["what-if", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("A step of 2 ranks takes 17 ms recorded (one step), 17 ms replayed, and 16 ms without")
    assert main(["what-if", *files, "--case", "x:overlap=some"]) == EXIT_BAD_INPUT
    assert "'some' is no overlap" in capsys.readouterr().err
    assert main(["what-if", files[0], files[0]]) == EXIT_BAD_INPUT
    assert "is of rank 0, as" in capsys.readouterr().err
    assert main(["what-if", "llama3-8b-h100-8", files[0]]) == EXIT_BAD_INPUT
    assert "only traces of one job are taken together" in capsys.readouterr().err

"""Output of nccl-tests is read, with any launcher; and constants of the network are found again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clustersim.apps.calibrate.fit_collectives import SMALL_WEIGHT, collectives_part
from clustersim.apps.calibrate.fitting import CalibrationTarget
from clustersim.apps.calibrate.nccl_tests import Ranks, TimedCollective, read_collectives
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import load_accelerator, load_node
from tests.unit.apps.calibrate.making import BASE, TARGET, known, nccl_text

SAMPLE = Path(__file__).parent / "all_reduce-2x8-a100.txt"
"""Measured on two BM.GPU.B4.8 (Oracle, oci-hpc-oke, docs/running-nccl-rccl-tests-from-slurm-operator.md), every third size or so."""
NODE = load_node("dgx-a100-80g")
TWO_NODES = ["a"] * 8 + ["b"] * 8


def read(tmp_path: Path, text: str, name: str = "run.txt", ranks: Ranks | None = None) -> list[TimedCollective]:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return read_collectives(str(path), ranks or Ranks())


def refusal(tmp_path: Path, text: str, name: str = "run.txt", ranks: Ranks | None = None) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        read(tmp_path, text, name, ranks)
    return caught.value


def test_a_real_output_is_read_with_hosts_and_ranks() -> None:
    found = read_collectives(str(SAMPLE), Ranks())

    assert len(found) == 10
    assert {(each.op, each.n_nodes, each.ranks_per_node) for each in found} == {("all_reduce", 2, 8)}
    assert (found[0].size_bytes, found[0].time_s) == (1024.0, pytest.approx(41.97e-6))
    assert found[-1].time_s == pytest.approx(34176e-6)


@pytest.mark.parametrize(
    ("program", "op"),
    [
        ("all_gather_perf", "all_gather"),
        ("alltoall_perf", "all_to_all"),
        ("sendrecv_perf", "send_recv"),
        ("all_reduce_perf_mpi", "all_reduce"),
    ],
)
def test_the_program_names_the_operation(tmp_path: Path, program: str, op: str) -> None:
    (found,) = read(tmp_path, nccl_text({1024: 40.0}, hosts=TWO_NODES, program=program))

    assert found.op == op


@pytest.mark.parametrize(("share", "op"), [(1.875, "all_reduce"), (0.9375, "reduce_scatter")])
def test_bus_bandwidth_tells_a_reduction_where_nothing_names_it_and_contradicts_no_name(tmp_path: Path, share: float, op: str) -> None:
    text = nccl_text({1024: 40.0}, hosts=TWO_NODES, program=None).rpartition("1024 ")[0]

    text += f"\n1024 256 float sum -1 40.0 100.0 {100 * share} 0 40.0 100.0 {100 * share} 0\n"

    (found,) = read(tmp_path, text)

    assert found.op == op
    assert refusal(tmp_path, text, "all_gather-2x8.txt").message == f"is named as all_gather, and has the bus bandwidth of {op}"


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (
            "count    type   redop     time",
            "134217728      33554432   float     sum     1861   72.11  126.19  5e-07   1860   72.14  126.24  5e-07",
        ),
        ("count    type     time", "134217728      33554432   float     1861   72.11  126.19  5e-07   1860   72.14  126.24  5e-07"),
        ("count type redop root time", "134217728 33554432 float none -1 1861 72.11 126.19 N/A 1860 72.14 126.24 N/A"),
    ],
)
def test_old_versions_print_fewer_columns_before_the_time(tmp_path: Path, columns: str, line: str) -> None:
    (found,) = read(tmp_path, f"#  size  {columns}\n{line}\n", "all_gather.txt", Ranks(n_nodes=1, per_node=8))

    assert found.time_s == pytest.approx(1861e-6)


def test_several_tests_of_one_log_are_told_apart(tmp_path: Path) -> None:
    text = "".join(nccl_text({1024: 40.0}, hosts=TWO_NODES, program=program) for program in ("all_reduce_perf", "alltoall_perf"))

    found = read(tmp_path, text)

    assert [(each.op, each.n_nodes, each.ranks_per_node) for each in found] == [("all_reduce", 2, 8), ("all_to_all", 2, 8)]


@pytest.mark.parametrize("label", ["[1,0]<stdout>:", "0: ", " 0: ", "worker-0.cluster: ", "[pod/nccl-0/main] ", "[rank0]: "])
def test_lines_may_carry_the_label_of_a_launcher(tmp_path: Path, label: str) -> None:
    plain, marked = (read(tmp_path, nccl_text({1024: 40.0, 0: 3.0}, hosts=TWO_NODES, prefix=prefix)) for prefix in ("", label))

    assert plain == marked
    assert len(plain) == 1  # a message of no bytes says nothing


def test_the_algorithm_that_the_library_was_told_is_read_from_its_log(tmp_path: Path) -> None:
    log = "0: node-1:812:812 [0] NCCL INFO NCCL_ALGO set by environment to NVLSTree\n"

    (found,) = read(tmp_path, log + nccl_text({1024: 40.0}, hosts=TWO_NODES, prefix="0: "))

    assert found.algorithm == "nvls_tree"


def test_the_algorithm_is_that_of_the_file_or_else_that_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = "all_reduce,1,8,ring,1048576,60\nall_reduce,1,8,,1048576,60\n"
    path.write_text("op,nodes,ranks_per_node,algorithm,bytes,time_us\n" + rows, encoding="utf-8")
    base = {"ampere": BASE}

    chosen, told, ring = (
        collectives_part([str(path)], TARGET, NODE, Ranks(), algorithm=name).predict(base) for name in (None, "Tree", "ring")
    )

    assert chosen[0] == told[0] == ring[0] == ring[1]
    assert told[1] not in (ring[1], chosen[1])


def test_ranks_that_the_file_does_not_list_are_given(tmp_path: Path) -> None:
    (found,) = read(tmp_path, nccl_text({1024: 40.0}, hosts=[]), ranks=Ranks(n_nodes=4, per_node=2))

    assert (found.n_nodes, found.ranks_per_node) == (4, 2)


def test_collectives_of_another_device_are_refused_unless_the_user_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.txt"
    path.write_text(nccl_text({1024: 40.0}, hosts=TWO_NODES, prefix="    ").replace("A100", "NVIDIA GB10"), encoding="utf-8")

    with pytest.raises(ScenarioError, match="is of NVIDIA GB10, and a100-sxm4-80g"):
        collectives_part([str(path)], TARGET, NODE, Ranks())

    assert len(collectives_part([str(path)], TARGET, NODE, Ranks(), device="a100").measured) == 1


def test_json_says_the_same_as_text(tmp_path: Path) -> None:
    result = {"size": 1024, "count": 256, "out_of_place": {"time": 40.0}, "in_place": {"time": 20.0}}
    in_place = {"size": 2048, "out_of_place": None, "in_place": {"time": 50.0}}
    devices = [{"rank": rank, "hostname": host} for rank, host in enumerate(TWO_NODES)]
    document = {"args": ["/opt/build/all_gather_perf", "-b", "8"], "config": {"devices": devices}, "results": [result, in_place]}

    found = read(tmp_path, json.dumps(document), "run.json")

    assert [(each.op, each.n_nodes, each.size_bytes, each.time_s) for each in found] == [
        ("all_gather", 2, 1024.0, pytest.approx(40e-6)),
        ("all_gather", 2, 2048.0, pytest.approx(50e-6)),
    ]


def test_a_table_may_hold_many_settings(tmp_path: Path) -> None:
    text = "op,nodes,ranks_per_node,algorithm,bytes,time_us\nall_reduce,1,8,ring,1048576,60\nall_to_all,2,4,,4096.0,30\n"

    found = read(tmp_path, text, "runs.csv")

    assert [(each.op, each.n_nodes, each.ranks_per_node, each.algorithm) for each in found] == [
        ("all_reduce", 1, 8, "ring"),
        ("all_to_all", 2, 4, "auto"),
    ]


def test_mistakes_are_told_with_what_would_be_right(tmp_path: Path) -> None:
    good = nccl_text({1024: 40.0}, hosts=TWO_NODES)

    assert "no measured collective" in refusal(tmp_path, "# nothing\n").message
    assert "no measured collective" in refusal(tmp_path, "{}", "a.json").message
    assert refusal(tmp_path, nccl_text({8: 1.0}, hosts=[])).hint == "add --nodes and --ranks-per-node"
    assert "different numbers of ranks: a 8, b 7" in refusal(tmp_path, nccl_text({8: 1.0}, hosts=TWO_NODES[:-1])).message
    assert "lists 16 ranks, and 4 nodes of 8 have 32" in refusal(tmp_path, good, ranks=Ranks(n_nodes=4)).message
    assert "'hypercube' is not simulated" in refusal(tmp_path, nccl_text({8: 1.0}, hosts=TWO_NODES, program="hypercube_perf")).message
    assert refusal(tmp_path, nccl_text({8: 1.0}, hosts=TWO_NODES, program=None)).hint == (
        "begin the name of the file with it, such as all_reduce-2x8.txt"
    )
    assert "'dance' is not known" in refusal(tmp_path, "op,nodes,ranks_per_node,bytes,time_us\ndance,1,8,8,1\n", "a.csv").message


def test_a_broken_line_has_its_place(tmp_path: Path) -> None:
    text = nccl_text({1024: 40.0, 2048: 41.0}, hosts=TWO_NODES).replace("-1  41  ", "-1  4l  ")

    error = refusal(tmp_path, text)

    assert error.message == "'4l' is not a time in microseconds"
    assert error.place is not None
    lines = text.splitlines()
    assert error.place.line is not None
    assert error.place.line == next(number for number, line in enumerate(lines, 1) if "4l" in line)
    column = lines[error.place.line - 1].index("4l") + 1
    assert error.place.column == column

    labelled = refusal(tmp_path, "".join(f"0: {line}\n" for line in lines))
    assert labelled.place is not None
    assert labelled.place.column == column + len("0: ")


def test_a_broken_result_of_json_has_its_place(tmp_path: Path) -> None:
    text = '{"args": ["all_reduce_perf"],\n "results": [\n  {"size": 8, "out_of_place": {"time": "soon"}}]}'

    error = refusal(tmp_path, text, "a.json", Ranks(n_nodes=1, per_node=8))

    assert error.message == "has no size and time"
    assert error.place is not None
    assert (error.place.line, error.place.column) == (3, 3)


def test_the_constants_of_made_up_collectives_are_found_again(tmp_path: Path) -> None:
    truth = {"network.families.ring.start": 50e-6, "network.efficiency.nvlink": 0.7}
    sizes = [2**power for power in range(14, 34)]
    empty = tmp_path / "all_gather.txt"
    empty.write_text(nccl_text(dict.fromkeys(sizes, 1.0), hosts=["a"] * 8, program="all_gather_perf"), encoding="utf-8")
    times = collectives_part([str(empty)], TARGET, NODE, Ranks()).predict({"ampere": known(truth)})
    path = tmp_path / "run.txt"
    made = {size: time_s * 1e6 for size, time_s in zip(sizes, times.tolist(), strict=True)}
    path.write_text(nccl_text(made, hosts=["a"] * 8, program="all_gather_perf"), encoding="utf-8")

    found = collectives_part([str(path)], TARGET, NODE, Ranks()).fitted(TARGET, BASE)

    for name, value in truth.items():
        assert found.values["ampere", name] == pytest.approx(value, rel=0.03), name
    assert abs(found.errors).mean() < 0.01
    assert ("ampere", "network.families.nvls.start") in found.kept
    assert ("ampere", "network.efficiency.nic") in found.kept


def test_a_real_output_is_met_better_than_before() -> None:
    target = CalibrationTarget(accelerator=load_accelerator("a100-sxm4-40g"), base=BASE)

    found = collectives_part([str(SAMPLE)], target, load_node("dgx-a100-40g"), Ranks()).fitted(target, BASE)

    assert abs(found.errors).mean() < 0.75 * abs(found.errors_before).mean()


def test_each_algorithm_is_a_measurement_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = "".join(f"all_reduce,1,8,{algorithm},1048576,60\n" for algorithm in ("ring", "ring", "tree"))
    path.write_text(f"op,nodes,ranks_per_node,algorithm,bytes,time_us\n{rows}", encoding="utf-8")

    part = collectives_part([str(path)], TARGET, NODE, Ranks())

    assert part.n_unlike == 2
    assert part.measured[2].what == "all_reduce of 1.05 MB among 1 x 8 by tree"


def test_small_messages_weigh_less() -> None:
    part = collectives_part(
        [str(SAMPLE)], CalibrationTarget(accelerator=load_accelerator("a100-sxm4-40g"), base=BASE), load_node("dgx-a100-40g"), Ranks()
    )

    assert [each.weight for each in part.measured] == [SMALL_WEIGHT] * 4 + [1.0] * 6


def test_nodes_with_another_accelerator_are_refused() -> None:
    with pytest.raises(ScenarioError, match="dgx-h100 has h100-sxm5-80g, and a100-sxm4-80g is calibrated"):
        collectives_part([str(SAMPLE)], TARGET, load_node("dgx-h100"), Ranks())


def test_an_algorithm_that_there_is_not_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("op,nodes,ranks_per_node,algorithm,bytes,time_us\nall_reduce,1,8,magic,8,60\n", encoding="utf-8")

    with pytest.raises(ScenarioError, match="there is no all_reduce by 'magic'"):
        collectives_part([str(path)], TARGET, NODE, Ranks())

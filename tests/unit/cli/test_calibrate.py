"""``clustersim calibrate``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from clustersim.documents.data import data_path
from tests.unit.cli.conftest import Cli

MEASUREMENTS = data_path("hardware_profiles") / "calibration" / "measurements"
SAMPLE = Path(__file__).parent.parent / "studies" / "calibration" / "all_reduce-2x8-a100.txt"
A100 = ("calibrate", "--accelerator", "a100-sxm4-80g")


def gemm_file(folder: Path) -> Path:
    path = folder / "gemm.csv"
    path.write_text("m,n,k,dtype,time_us\n4096,4096,4096,bf16,700\n8192,8192,8192,bf16,5200\n2048,4096,1024,bf16,120\n", encoding="utf-8")
    return path


def test_errors_and_constants_before_and_after_are_those_of_the_reviewed_table(cli: Cli, golden: Callable[[str, str], None]) -> None:
    outcome = cli("calibrate", "--accelerator", "a100-sxm4-40g", "--nccl", SAMPLE, "--node", "dgx-a100-40g", "-o", "net.yaml")

    assert outcome.code == 0
    golden("calibrate.txt", outcome.out)


def test_it_writes_a_file_and_says_how_to_use_it(cli: Cli, tmp_path: Path) -> None:
    outcome = cli(*A100, "--gemm", gemm_file(tmp_path), "-o", "mine.yaml")

    assert outcome.code == 0
    assert outcome.out.startswith("a100-sxm4-80g (ampere), fitted to one file from the constants of ampere\n")
    assert outcome.err == "wrote mine.yaml; use it with cluster.calibration: mine.yaml\n"
    assert (tmp_path / "mine.yaml").is_file()


def test_the_file_is_used_by_a_run(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "slow.csv"
    path.write_text("m,n,k,dtype,time_us\n" + "8192,8192,8192,bf16,9000\n" * 20, encoding="utf-8")
    cli(*A100, "--gemm", path, "-o", "slow.yaml")
    changes = ("-s", "cluster.node=dgx-a100-80g", "-s", "training.global_batch_size=64")

    shipped, own = (
        json.loads(cli("run", "llama3-8b-8xh100", *changes, *given, "--json", "--no-plots").out)
        for given in ((), ("-s", "cluster.calibration=slow.yaml"))
    )

    assert own["step_time_s"] > 1.4 * shipped["step_time_s"]
    assert own["scenario_hash"] != shipped["scenario_hash"]
    assert "partly_calibrated" in {flag["code"] for flag in own["flags"]}


def test_the_document_has_errors_and_constants_in_si_units(cli: Cli, tmp_path: Path) -> None:
    outcome = cli(*A100, "--gemm", gemm_file(tmp_path), "-o", "mine.yaml", "--json")

    found = json.loads(outcome.out)
    assert (found["schema_version"], found["accelerator"], found["generation"], found["base"]) == (1, "a100-sxm4-80g", "ampere", "ampere")
    (part,) = found["parts"]
    assert part["after"]["n_measurements"] == 3
    assert part["after"]["mean_absolute_error_fraction"] < part["before"]["mean_absolute_error_fraction"]
    assert {constant["name"] for constant in found["constants"]} >= {"gemm.sustained_fraction.default", "gemm.depth_overhead"}
    assert "launch.step" in found["kept"]


def test_what_was_left_out_goes_to_stderr(cli: Cli) -> None:
    outcome = cli(*A100, "--attention", MEASUREMENTS / "attention.csv", "-o", "mine.yaml")

    assert outcome.err.splitlines()[0] == "note: attention.csv: 102 rows of other accelerators are left out"


def test_a_mistake_ends_with_2_and_one_line_that_says_where(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "gemm.csv"
    path.write_text("m,n,k,dtype,time_us\n4096,4096,x,bf16,700\n", encoding="utf-8")

    outcome = cli(*A100, "--gemm", path, "-o", "mine.yaml")

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.splitlines()[0] == f"error: {path}:2:11: k: 'x' is not a number above zero"
    assert not (tmp_path / "mine.yaml").exists()


def test_nothing_is_read_before_the_name_of_the_file_is_right(cli: Cli) -> None:
    for name, message in (("mine.txt", "'mine.txt' is not the name of a calibration"), ("none/mine.yaml", "its folder does not exist")):
        outcome = cli(*A100, "--gemm", "none.csv", "-o", name)

        assert outcome.code == 2
        assert message in outcome.err


def test_nothing_to_fit_to_is_a_mistake(cli: Cli) -> None:
    outcome = cli(*A100, "-o", "mine.yaml")

    assert outcome.code == 2
    assert "nothing is given to fit to; add --gemm, --attention, --nccl, --trace or --steps with a file" in outcome.err

"""``clustersim calibrate``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from clustersim.documents.files import data_path
from tests.unit.apps.calibrate.making import Trace
from tests.unit.cli.conftest import Cli

MEASUREMENTS = data_path("hardware_profiles") / "calibration" / "measurements"
SAMPLE = Path(__file__).parent.parent / "apps" / "calibrate" / "all_reduce-2x8-a100.txt"
A100 = ("calibrate", "--accelerator", "a100-sxm4-80g")


def gemm_file(folder: Path) -> Path:
    path = folder / "gemm.csv"
    path.write_text("m,n,k,dtype,time_us\n4096,4096,4096,bf16,700\n8192,8192,8192,bf16,5200\n2048,4096,1024,bf16,120\n", encoding="utf-8")
    return path


def test_errors_and_constants_before_and_after_are_those_of_the_reviewed_table(cli: Cli, golden: Callable[[str, str], None]) -> None:
    outcome = cli("calibrate", "--accelerator", "a100-sxm4-40g", "--nccl", SAMPLE, "--node", "dgx-a100-40g", "-o", "net.yaml")

    assert outcome.code == 0
    golden("calibrate.txt", outcome.out)


def test_it_writes_a_file_says_how_to_use_it_and_has_a_document_in_si_units(cli: Cli, tmp_path: Path) -> None:
    outcome = cli(*A100, "--gemm", gemm_file(tmp_path), "-o", "mine.yaml")

    assert outcome.code == 0
    assert outcome.out.startswith("a100-sxm4-80g (ampere), fitted to 1 file from the constants of ampere\n")
    assert outcome.err.splitlines() == [
        "warning: gemm: too few different measurements (3) for 4 constants: gemm.depth_overhead, gemm.tiles.16384, gemm.tiles.4096"
        " keep their values; 5 more would fit them",
        "wrote mine.yaml; use it with cluster.calibration: mine.yaml",
    ]
    assert (tmp_path / "mine.yaml").is_file()
    found = json.loads(cli(*A100, "--gemm", gemm_file(tmp_path), "-o", "mine.yaml", "--json").out)
    assert (found["schema_version"], found["accelerator"], found["generation"], found["base"]) == (1, "a100-sxm4-80g", "ampere", "ampere")
    (part,) = found["parts"]
    assert part["after"]["n_measurements"] == 3
    assert part["after"]["mean_absolute_error_fraction"] < part["before"]["mean_absolute_error_fraction"]
    assert {constant["name"] for constant in found["constants"]} == {"gemm.sustained_fraction.default"}
    assert {"gemm.depth_overhead", "launch.step"} <= set(found["kept"])


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


def trace_file(folder: Path, *, device: str | None = "NVIDIA A100-SXM4-80GB", gap_us: float = 2.0) -> Path:
    trace = Trace()
    trace.device = None if device is None else {"name": device, "totalGlobalMem": 85_899_345_920}
    for _ in range(120):
        trace.kernel("aten::add", [(8192, 8192), (8192, 8192)], 250.0, gap_us=gap_us)
    return Path(trace.write(folder / "trace.json"))


def test_a_trace_alone_is_read_off(cli: Cli, tmp_path: Path) -> None:
    outcome = cli(*A100, "--trace", trace_file(tmp_path), "-o", "mine.yaml")

    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert lines[0] == "a100-sxm4-80g (ampere), read off 1 trace from the constants of ampere"
    assert "Errors of predicted times" not in lines
    launch = "launch.further, launch.step, launch.product, launch.waited_send"
    assert lines[-1] == f"Not moved by these measurements, and kept from ampere: gemm, attention, {launch}, network"


def test_a_trace_of_another_accelerator_is_refused_and_no_file_is_written(cli: Cli, tmp_path: Path) -> None:
    trace = trace_file(tmp_path, device="Tesla V100-SXM2-32GB")

    outcome = cli(*A100, "--trace", trace, "-o", "mine.yaml")

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(
        f"error: {trace}: is of Tesla V100-SXM2-32GB with 85.9 GB, and a100-sxm4-80g with 85.9 GB is calibrated; "
    )
    assert not (tmp_path / "mine.yaml").exists()


def test_the_user_says_what_a_trace_is_of_that_does_not_say_it(cli: Cli, tmp_path: Path) -> None:
    trace = trace_file(tmp_path, device=None)

    silent, said, wrong = (
        cli(*A100, "--trace", trace, *given, "-o", "mine.yaml") for given in ((), ("--device", "a100"), ("--device", "v100"))
    )

    assert silent.code == 2
    assert silent.err == f"error: {trace}: does not say which device it is of; if it was recorded on a100-sxm4-80g, add --device a100\n"
    assert said.code == 0
    assert wrong.code == 2
    assert "--device: 'v100' is not a100-sxm4-80g" in wrong.err


def test_a_reading_that_is_far_from_the_base_is_not_taken(cli: Cli, tmp_path: Path) -> None:
    outcome = cli(*A100, "--trace", trace_file(tmp_path, gap_us=48.9), "-o", "mine.yaml")

    assert outcome.code == 0
    assert "launch.kernel from 2.5 us to 48.9 us (19.6 times) is not taken" in outcome.err
    assert "launch.kernel," in outcome.out.splitlines()[-1]


def test_the_algorithm_of_collectives_can_be_told(cli: Cli) -> None:
    a100 = ("calibrate", "--accelerator", "a100-sxm4-40g", "--nccl", SAMPLE, "--node", "dgx-a100-40g", "-o", "net.yaml")

    tree = cli(*a100, "--algorithm", "Tree")
    none = cli(*a100, "--algorithm", "magic")

    assert tree.code == 0
    assert "network.families.tree.start" in tree.out
    assert "network.families.ring" in tree.out.splitlines()[-1]
    assert none.code == 2
    assert "there is no all_reduce by 'magic'" in none.err


def test_nothing_is_read_before_the_name_of_the_file_is_right(cli: Cli) -> None:
    for name, message in (("mine.txt", "'mine.txt' does not say its format"), ("none/mine.yaml", "its folder does not exist")):
        outcome = cli(*A100, "--gemm", "none.csv", "-o", name)

        assert outcome.code == 2
        assert message in outcome.err


def test_nothing_to_fit_to_is_a_mistake(cli: Cli) -> None:
    outcome = cli(*A100, "-o", "mine.yaml")

    assert outcome.code == 2
    assert (
        "nothing is given to fit to; add --measured with a folder, or --gemm, --attention, --nccl, --trace or --steps with a file"
        in outcome.err
    )

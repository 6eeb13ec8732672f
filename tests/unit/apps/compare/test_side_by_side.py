"""The comparison as people read it, and as data."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from clustersim.apps.compare.compared_runs import side_by_side
from clustersim.apps.compare.side_by_side import ComparedRun, SideBySide
from clustersim.documents.text import Data
from clustersim.report.text_tables import shown, shown_alike

BREAKDOWN: dict[str, Data] = {"compute": 1.5, "exposed_communication": {"tp": 0.5, "pp": 0.0}, "bubble": 1e-12}


def made(name: str, tp: int, step_s: float, **more: Data) -> ComparedRun:
    results: dict[str, Data] = {
        "step_time_s": step_s, "tokens_per_s": 1e6 / step_s, "mfu": 0.8 / step_s, "breakdown_s": BREAKDOWN,
        "memory": {"fits": tp > 1, "peak_bytes": 70e9},
    }  # fmt: skip
    resolved: dict[str, Data] = {"strategy": {"tp": tp}}
    return ComparedRun(source=name, name=name, scenario_hash=name * 8, resolved=resolved, results={**results, **more})


def compared(*more: ComparedRun) -> SideBySide:
    return side_by_side([made("a", 1, 2.0), made("b", 2, 1.6, checks=[{"holds": True}, {"holds": False}]), *more])


def table(heading: str, *more: ComparedRun) -> dict[str, tuple[str, ...]]:
    found = next(each for each in compared(*more).tables(short=False) if each.heading == heading)
    return {row[0]: row[1:] for row in found.rows}


def test_the_first_line_answers() -> None:
    line = "b against a (a does not fit in memory, and cannot be chosen): +25.0 %, 625,000 instead of 500,000 tokens/s, a step -20.0 %"

    assert compared().verdicts == (line,)


def test_of_runs_that_do_not_fit_the_first_line_says_so_and_what_is_not_decided() -> None:
    runs = side_by_side([made(name, 1, step_s, error_bar=bar(name)) for name, step_s in (("a", 2.0), ("b", 1.6))])

    assert runs.to_dict()["verdicts"] == [{"label": "b", "against": "a", "faster": "not decided", "text": runs.verdicts[0]}]
    assert runs.verdicts[0].startswith("b against a (neither fits in memory, and neither can be chosen): +25.0 %, ")
    assert runs.verdicts[0].endswith("; within the error bars: not decided")


def test_of_runs_of_unlike_work_and_machines_the_first_line_says_so_first() -> None:
    runs = side_by_side([made(name, 2, 2.0, gpus=n, model_flops_per_step=n * 1e9) for name, n in (("a", 8), ("b", 16))])

    assert runs.verdicts[0].startswith("b against a (2 times the model FLOPs for each token, 16 instead of 8 GPUs): as fast, ")


def test_a_run_of_many_times_the_speed_is_told_in_times() -> None:
    runs = side_by_side([made("a", 2, 2.0), made("b", 2, 0.02)])

    assert runs.verdicts[0].startswith("b against a: 100.0 times, ")


def test_prices_of_one_row_have_equal_decimals() -> None:
    key = "cost.per_million_tokens.usd"

    assert shown_alike(key, [1.5, 1.514, None]) == ["1.50 USD", "1.51 USD", "-"]
    assert shown_alike(key, [0.0153])[0] == shown(key, 0.0153)


def bar(machine: str, most: float = 1.3) -> Data:
    return {"least_fraction": 0.9, "most_fraction": most, "ratio_most_fraction": 1.1, "machine": machine}


@pytest.mark.parametrize(("machine", "said"), [("one", "yes"), ("other", "not decided")])
def test_what_lies_within_the_error_bars_is_said_to_be_not_decided(machine: str, said: str) -> None:
    runs = side_by_side([made("a", 2, 2.0, error_bar=bar("one")), made("b", 4, 1.6, error_bar=bar(machine))])

    line = "b against a: +25.0 %, 625,000 instead of 500,000 tokens/s, a step -20.0 %"
    line += "; within the error bars: not decided" if said == "not decided" else ""
    assert runs.verdicts == (line,)
    assert f"{line}." in runs.markdown()
    assert runs.to_dict()["verdicts"] == [{"label": "b", "against": "a", "faster": said, "text": line}]


def test_runs_of_an_earlier_version_are_compared_without_a_decision() -> None:
    assert compared().to_dict()["verdicts"] == [{"label": "b", "against": "a", "faster": None, "text": compared().verdicts[0]}]


def test_a_run_beside_itself_is_as_fast_and_not_undecided() -> None:
    one = made("a", 1, 2.0, error_bar=bar("one"))

    assert side_by_side([one, one]).verdicts[0].endswith("as fast, 500,000 tokens/s")


def test_a_run_that_is_as_fast_is_said_to_be() -> None:
    assert side_by_side([made("a", 2, 2.0), made("b", 4, 2.0)]).verdicts == ("b against a: as fast, 500,000 tokens/s",)


def test_of_another_model_its_name_alone_is_shown_to_people() -> None:
    one, other = (
        replace(made(name, 1, 2.0), resolved={"model": {"name": name, "hidden_size": size}, "strategy": {"tp": size}})
        for name, size in (("a", 1), ("b", 2))
    )

    short, *_ = side_by_side([one, other]).tables()

    assert short.heading == "What differs, 2 of 3 keys; clustersim compare RUN... --csv has all"
    assert [row[0] for row in short.rows] == ["model.name", "strategy.tp"]


def test_the_accelerator_and_the_layout_come_before_parts_of_the_machine_which_may_be_left_out() -> None:
    many: dict[str, Data] = {f"part{place}": place for place in range(40)}
    one, other = (
        replace(
            made(name, 1, 2.0),
            resolved={
                "cluster": {**{key: f"{name}{key}" for key in many}, "accelerator": {"memory": name, "name": name}},
                "strategy": {"tp": name},
            },
        )
        for name in ("a", "b")
    )

    short, *_ = side_by_side([one, other]).tables()

    assert [row[0] for row in short.rows][:3] == ["cluster.accelerator.name", "strategy.tp", "cluster.part0"]


def test_what_differs_comes_before_the_figures() -> None:
    assert [each.heading for each in compared().tables(short=False)] == ["What differs", "Speed", "Where the step goes"]
    assert table("What differs") == {"strategy.tp": ("1", "2")}


def test_figures_have_relative_columns_against_the_first() -> None:
    rows = table("Speed", made("c", 4, 4.0))

    assert rows["step time"] == ("2 s", "1.6 s", "-20.0 %", "4 s", "+100.0 %")
    assert rows["MFU"] == ("40.0 %", "50.0 %", "+25.0 %", "20.0 %", "-50.0 %")
    assert rows["peak memory"] == ("65.2 GiB", "65.2 GiB", "=", "65.2 GiB", "=")
    assert rows["fits in memory"] == ("no", "yes", "", "yes", "")
    assert rows["checks that hold"] == ("-", "1 of 2", "", "-", "")


def test_parts_that_take_no_time_are_left_out_of_the_breakdown() -> None:
    assert table("Where the step goes") == {"compute": ("1.5 s", "1.5 s", "="), "exposed TP": ("500 ms", "500 ms", "=")}


def test_a_long_value_of_the_scenario_is_cut_in_tables_and_whole_in_data() -> None:
    layers: list[Data] = [1] * 50
    first, second = made("a", 1, 2.0), made("b", 1, 2.0)
    both = side_by_side([first, ComparedRun(source="b", name="b", scenario_hash="b", resolved={"layers": layers}, results=second.results)])

    row = next(row for row in both.tables(short=False)[0].rows if row[0] == "layers")
    assert row[1] == "-"
    assert len(row[2]) == 40
    assert row[2].endswith("...")
    assert {each.key: each.values for each in both.differences}["layers"] == (None, layers)


def test_markdown_has_the_same_tables_and_escapes_bars() -> None:
    text = side_by_side([made("a|b", 1, 2.0), made("c", 2, 1.6)]).markdown()

    assert text.startswith("# a\\|b against c\n\nc against a\\|b (a\\|b does not fit in memory, and cannot be chosen): +25.0 %")
    assert "## What differs\n\n| key         | a\\|b | c   |\n| ----------- | ---- | --- |\n| strategy.tp | 1    | 2   |" in text
    assert text.endswith("|\n")


def test_markdown_reads_no_code_and_no_html_from_names() -> None:
    text = side_by_side([made("<b>x</b>", 1, 2.0), made("`rm`", 2, 1.6)]).markdown()

    assert text.count("<b>") == text.count(r"\<b>")
    assert r"\<b>x\</b>" in text
    assert r"\`rm\`" in text
    assert "strategy.tp" in text


def test_csv_has_no_cell_that_begins_a_formula() -> None:
    first, second = made("=a", 1, 2.0), made("b", 1, 2.0)
    other = ComparedRun(source="b", name="b", scenario_hash="b", resolved={"x": "=HYPERLINK()", "y": None}, results=second.results)

    cells = [cell for row in csv.reader(io.StringIO(side_by_side([first, other]).csv_text())) for cell in row]

    assert "'=HYPERLINK()" in cells
    assert "'=a" in cells
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@", "\t", "-"))]


def test_scenarios_that_do_not_differ_are_said_not_to() -> None:
    assert "The scenarios do not differ." in side_by_side([made("a", 1, 2.0)] * 2).markdown()


def test_csv_has_every_figure_as_it_is() -> None:
    rows = {row["key"]: row for row in csv.DictReader(io.StringIO(compared().csv_text()))}

    assert rows["strategy.tp"] == {"kind": "scenario", "key": "strategy.tp", "a": "1", "b": "2", "relative b": ""}
    assert float(rows["step_time_s"]["b"]) == 1.6
    assert float(rows["step_time_s"]["relative b"]) == pytest.approx(-0.2)
    assert rows["breakdown_s.bubble"]["a"] == "1e-12"


def test_the_document_is_json_with_every_figure() -> None:
    found = json.loads(json.dumps(compared().to_dict(), allow_nan=False))

    assert [run["label"] for run in found["runs"]] == ["a", "b"]
    assert found["differences"] == [{"key": "strategy.tp", "values": [1, 2]}]
    assert found["figures"][0] == {"key": "step_time_s", "values": [2.0, 1.6], "relative": [0.0, pytest.approx(-0.2)]}


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("step_time_s", None, "-"),
        ("time_to_train_s", 86400.0 * 30, "30 days"),
        ("memory.peak_bytes", 7e10, "65.2 GiB"),
        ("bubble_fraction", 0.1234, "12.3 %"),
        ("gpus", 16384.0, "16,384"),
        ("tflops_per_gpu", 370.46, "370.5"),
        ("cost.training.usd", 126.7e6, "126.7 MUSD"),
        ("cost.training.gpu_hours", 33777396.0, "33,777,396"),
        ("cost.training.energy_kwh", 29.62e6, "29.62 GWh"),
        ("cost.training.emissions_kg_co2e", 11254165.0, "11,254 t"),
        ("cost.step.emissions_kg_co2e", 11.4, "11.4 kg"),
        ("cost.power.facility_w", 14.92e6, "14.92 MW"),
    ],
)
def test_figures_are_shown_in_the_unit_of_their_key(key: str, value: float | None, text: str) -> None:
    assert shown(key, value) == text

"""Answers of the page over its address, to its own requests and to made-up ones."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from clustersim.apps.run.rundir import write_run_directory
from clustersim.apps.run.running import run
from clustersim.apps.ui.controls import controls, values_of
from clustersim.apps.ui.layouts import layout_rows
from clustersim.apps.ui.link import PREFIX, document_of, link_of
from clustersim.apps.ui.local_server import make_app
from clustersim.apps.ui.workers import WorkerError, Workers
from clustersim.config.load import load_scenario
from clustersim.report.facts import headline, memory_text
from tests.unit.apps.ui.visiting import BASE, Visitor, picked, texts_in

pytest.importorskip("dash", reason="dash is not installed: the page is not tried")

SECRET = {**BASE, "cluster": {**BASE["cluster"], "calibration": "/etc/passwd"}}


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Visitor:
    return Visitor(make_app(runs=tmp_path_factory.mktemp("runs"), first="llama3-8b-8xh100").test_client())


@pytest.fixture
def visitor_of() -> Callable[[Path], Visitor]:
    return lambda runs: Visitor(make_app(runs=runs, first="starter").test_client())


def test_a_scenario_is_shown_with_the_figures_of_a_run(visitor: Visitor) -> None:
    told = visitor.shows(BASE, control_strategy_tp="2")

    result = run(BASE, set=["strategy.tp=2"])
    assert told["current"]["data"] == {**BASE, "strategy": {"zero_stage": 1, "tp": 2}}
    peak = ("peak memory", memory_text(result.metrics.memory.peak_bytes))
    assert texts_in(told["figures"]["children"]) == " ".join(f"{name} {value}" for name, value in (*headline(result.metrics), peak))
    assert told["answer"]["className"] == ""
    assert "tp: 2" in told["yaml"]["children"]


def test_what_does_not_fit_is_said_and_a_false_check_named(visitor: Visitor) -> None:
    told = visitor.shows({**BASE, "model": "llama3-70b", "checks": ["mfu > 2"]})

    assert told["answer"]["className"] == "failing"
    assert "does not fit" in texts_in(told["verdict"]["children"])
    assert "mfu > 2 is false" in texts_in(told["verdict"]["children"])


def test_a_mistake_leaves_the_last_result(visitor: Visitor) -> None:
    told = visitor.shows(BASE, control_strategy_tp="5")

    assert "5 does not divide" in told["control-strategy-tp-error"]["children"]
    assert told["answer"]["className"] == "stale"
    assert "figures" not in told


def test_a_link_is_opened_and_what_is_no_link_is_refused_beside_what_is_there(visitor: Visitor) -> None:
    opened = visitor.loads("address.hash", address=link_of(BASE))
    refused = visitor.loads("address.hash", address=f"{PREFIX}!!", base=BASE)

    assert opened["base"]["data"] == BASE
    assert opened["control-model"]["value"] == "gpt2"
    assert "damaged" in refused["load-error"]["children"]
    assert "base" not in refused


@pytest.mark.parametrize(
    "link",
    ["#", "#other", "#scenario", PREFIX, f"{PREFIX}%00", f"{PREFIX}{'A' * 5000}", link_of(SECRET), link_of({"model": "../../etc/passwd"})],
)
def test_an_address_that_holds_nonsense_opens_what_the_page_begins_with(visitor: Visitor, link: str) -> None:
    told = visitor.loads("address.hash", address=link)

    assert told["base"]["data"] == load_scenario("llama3-8b-8xh100").document.data
    assert bool(told["load-error"]["children"]) == link.startswith(PREFIX)


@pytest.mark.parametrize("name", ["startr", "../starter.yaml", "run ../../etc/x", "/etc/passwd", "run starter/00000000"])
def test_nothing_is_opened_but_examples_and_runs_of_the_folder(visitor: Visitor, name: str) -> None:
    told = visitor.loads("start.value", start=name, base=BASE)

    assert f"there is no '{name}' to start from" in told["start-error"]["children"]
    assert "base" not in told


def test_a_run_outside_the_folder_is_not_opened_through_a_link(visitor_of: Callable[[Path], Visitor], tmp_path: Path) -> None:
    folder = write_run_directory(run("starter"), tmp_path / "elsewhere", plots=False)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "starter").symlink_to(folder.parent)

    told = visitor_of(tmp_path / "runs").loads("start.value", start=f"run starter/{folder.name}", base=BASE)

    assert "to start from" in told["start-error"]["children"]


def test_a_file_that_a_run_names_is_not_even_opened(visitor_of: Callable[[Path], Visitor], tmp_path: Path) -> None:
    folder = write_run_directory(run("starter"), tmp_path, plots=False)
    scenario = folder / "scenario.yaml"
    scenario.write_text(scenario.read_text(encoding="utf-8").replace("model: llama3-8b", "model: /none/there.yaml"), encoding="utf-8")

    told = visitor_of(tmp_path).loads("start.value", start=f"run starter/{folder.name}", base=BASE)

    assert told["start-error"]["children"].startswith("no file is read here")


def test_a_click_on_a_layout_loads_it_into_what_is_shown_now(visitor: Visitor) -> None:
    # A layout that others are faster than, so that they are found.
    slow = {**BASE, "strategy": {"tp": 4, "zero_stage": 1}}
    table = visitor.told("plan-table.children", "plan.n_clicks", plan=1, current=slow)
    rows = table["plan-rows"]["data"]
    shown_now = {**slow, "training": {**BASE["training"], "global_batch_size": 32}}

    told = visitor.loads(picked(1), picked=[None, 1, None], plan_rows=rows, current=shown_now, base=slow)

    assert rows == [dict(row.changes) for row in layout_rows(slow).rows]
    said = texts_in(table["plan-table"]["children"])
    assert said.startswith("Found for gpt2 on 8 GPUs, batch 16. layout step MFU memory ")
    assert said.index("The full search is clustersim plan scenario.yaml") < said.index("Tried: ")
    assert table["plan"]["children"] == "Look again"
    assert told["base"]["data"]["training"]["global_batch_size"] == 32
    assert told["base"]["data"]["strategy"]["tp"] == rows[1]["strategy.tp"]


@pytest.mark.parametrize(
    ("place", "held"),
    [
        (0, {"picked": [None], "plan_rows": [{"strategy.tp": 2}], "current": BASE}),
        (0, {"picked": [1], "plan_rows": [{"strategy.tp": 2}], "current": None}),
        (0, {"picked": [1], "plan_rows": [], "current": BASE}),
        (3, {"picked": [1, 1, 1, 1], "plan_rows": [{"strategy.tp": 2}], "current": BASE}),
    ],
    ids=["drawn and not clicked", "nothing is shown", "no layouts", "a row that is not there"],
)
def test_a_button_that_leads_to_no_layout_changes_nothing(visitor: Visitor, place: int, held: dict[str, Any]) -> None:
    assert "base" not in visitor.loads(picked(place), base=BASE, **held)


def test_layouts_are_forgotten_with_another_start(visitor: Visitor) -> None:
    told = visitor.told("plan-table.children", "start.value", start="starter", current=BASE)

    assert told == {"plan-table": {"children": None}, "plan-rows": {"data": []}, "plan": {"children": "Look for layouts"}}


@pytest.mark.parametrize(
    ("current", "message"),
    [
        ({**BASE, "model": "llama3.1-405b"}, "No layout of the common schedules fits"),
        (SECRET, "no file is read here"),
        ({**BASE, "strategy": {"zero_stage": 9}}, "9"),
        (None, "'model' is missing"),
    ],
)
def test_why_there_are_no_layouts_is_said(visitor: Visitor, current: object, message: str) -> None:
    told = visitor.told("plan-table.children", "plan.n_clicks", plan=1, current=current)

    assert message in texts_in(told["plan-table"]["children"])
    assert told["plan-rows"]["data"] == []


def test_what_is_kept_is_what_is_shown_until_it_is_forgotten(visitor: Visitor) -> None:
    assert visitor.told("kept.data", "keep.n_clicks", keep=1, current=BASE) == {"kept": {"data": BASE}}
    assert visitor.told("kept.data", "forget.n_clicks", forget=1, current=BASE) == {"kept": {"data": None}}
    assert visitor.loads("go-back.n_clicks", go_back=1, kept=BASE, base={})["base"]["data"] == BASE
    assert "base" not in visitor.loads("go-back.n_clicks", go_back=1, kept=None, base=BASE)


def test_a_comparison_answers_first_and_nothing_stands_beside_nothing(visitor: Visitor) -> None:
    other = {**BASE, "strategy": {"zero_stage": 3}}

    told = visitor.told("comparison.children", "current.data", kept=BASE, current=other)

    assert texts_in(told["comparison"]["children"]).startswith("now against kept: ")
    assert "kept: gpt2" in texts_in(told["comparison"]["children"])
    assert visitor.told("comparison.children", "kept.data", kept=None, current=BASE) == {"comparison": {"children": []}}


@pytest.mark.parametrize(("kept", "current"), [(SECRET, BASE), (BASE, SECRET)])
def test_no_file_is_read_by_way_of_what_the_page_is_said_to_hold(visitor: Visitor, kept: object, current: object) -> None:
    told = visitor.told("comparison.children", "kept.data", kept=kept, current=current)

    assert texts_in(told["comparison"]["children"]).startswith("cluster.calibration: no file is read here")
    assert "cluster.calibration: no file is read here" in visitor.shows(SECRET)["mistake"]["children"]


def test_what_is_too_large_is_told_with_the_command_that_runs_it(visitor: Visitor) -> None:
    told = visitor.shows({**BASE, "cluster": {"node": "dgx-h100", "nodes": 100_000}})

    assert told["mistake"]["children"] == (
        "800,000 GPUs are more than the 131,072 that this page simulates;"
        " save 'The scenario as a file' below as scenario.yaml, and run: clustersim run scenario.yaml"
    )
    assert "nodes: 100000" in told["yaml"]["children"]
    assert document_of(told["link"]["href"]) == {**BASE, "cluster": {"node": "dgx-h100", "nodes": 100_000}}
    assert (told["answer"]["className"], told["busy"]["hidden"]) == ("stale", True)


def test_a_comparison_and_a_search_that_are_too_large_are_told_too(visitor: Visitor) -> None:
    large = {**BASE, "steps": 201}

    compared = visitor.told("comparison.children", "current.data", kept=BASE, current=large)
    layouts = visitor.told("plan-table.children", "plan.n_clicks", plan=1, current=large)

    assert texts_in(compared["comparison"]["children"]).startswith("201 steps are more than the 200 that this page simulates; save ")
    assert texts_in(layouts["plan-table"]["children"]).endswith("run: clustersim plan scenario.yaml")


def test_a_bug_is_told_on_the_page(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise WorkerError("IndexError: list index out of range (one, line 7)")

    monkeypatch.setattr(Workers, "call", fail)

    told = visitor.shows({**BASE, "name": "never-asked-before"})

    assert told["mistake"]["children"].startswith("bug: IndexError: list index out of range (one, line 7). This is a mistake in clustersim")
    assert told["mistake"]["children"].endswith("run: clustersim --traceback run scenario.yaml")


def test_the_newest_request_of_a_page_wins(visitor: Visitor) -> None:
    # Half a minute of work.
    slow = {
        "model": "llama3-70b",
        "cluster": {"node": "dgx-h100", "nodes": 64, "jitter": {"sigma": 0.01}},
        "training": {"global_batch_size": 2048},
        "strategy": {"tp": 8, "pp": 8},
        "steps": 200,
    }
    held = {control.name.replace("-", "_"): value for control, value in zip(controls(), values_of(slow), strict=True)}
    with ThreadPoolExecutor(1) as threads:
        older = threads.submit(visitor.ask, "figures.children", "base.data", base=slow, visit={"id": "one"}, **held)
        sleep(1)

        newer = visitor.ask("figures.children", "base.data", base=BASE, visit={"id": "one"})

    assert (older.result().status_code, newer.status_code) == (204, 200)


def test_a_result_is_remembered(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    first = visitor.shows(BASE, control_strategy_tp="4")
    monkeypatch.setattr(Workers, "call", lambda *_: pytest.fail("it is replayed"))

    assert visitor.shows(BASE, control_strategy_tp="4") == first
    compared = visitor.told("comparison.children", "kept.data", kept=first["current"]["data"], current=first["current"]["data"])
    assert texts_in(compared["comparison"]["children"]).startswith("now against kept: as fast")

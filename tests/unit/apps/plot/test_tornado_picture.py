"""The tornado of a what-if that is named: asked anew, or read from what was written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import clustersim
from clustersim.apps.plot.plots import asked_tornado
from clustersim.errors import ScenarioError
from clustersim.report.pictures import Tornado

SMALL = "llama3-8b-8xh100"
CASES = """
scenario: llama3-8b-8xh100
cases: {divided: {strategy.tp: 8}}
sensitivity: [accelerator_speed=0.5..2, cluster.scale_up.bandwidth=45..450 GB/s]
break_even: cluster.scale_up.bandwidth=45..450 GB/s
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Return the document of a what-if, in a file."""
    path = tmp_path / "answer.json"
    answer = clustersim.what_if(SMALL, ["divided:strategy.tp=8"], sensitivity=["accelerator_speed=0.5..2"])
    path.write_text(json.dumps(answer.to_dict()), encoding="utf-8")
    return path


def test_a_scenario_alone_is_varied_by_the_figures_of_its_hardware() -> None:
    picture = asked_tornado([SMALL])

    assert {bar.input for bar in picture.sensitivity.inputs} >= {"accelerator_speed", "cluster.scale_up.bandwidth", "cluster.nics.latency"}
    assert picture.subtitle.startswith(f"{SMALL}: one figure varied at a time")
    assert picture.finding.startswith("tokens/s depends most on accelerator_speed: ")
    assert picture.sensitivity.value == pytest.approx(clustersim.run(SMALL).to_dict()["tokens_per_s"], rel=1e-12)


def test_a_what_if_is_varied_by_the_figures_that_it_names(tmp_path: Path) -> None:
    file = tmp_path / "question.yaml"
    file.write_text(CASES, encoding="utf-8")

    picture = asked_tornado([str(file)])

    assert [bar.input for bar in picture.sensitivity.inputs] == ["accelerator_speed", "cluster.scale_up.bandwidth"]


def test_what_is_set_holds_for_the_tornado_too() -> None:
    assert asked_tornado([SMALL], ["strategy.tp=8"]).sensitivity.value < asked_tornado([SMALL]).sensitivity.value


def test_a_written_answer_is_drawn_as_the_answer_itself(written: Path) -> None:
    again = clustersim.what_if(SMALL, ["divided:strategy.tp=8"], sensitivity=["accelerator_speed=0.5..2"])

    assert asked_tornado([str(written)]) == again.tornado


def test_a_figure_that_moves_nothing_is_said_to_move_nothing(written: Path) -> None:
    document = json.loads(written.read_text(encoding="utf-8"))
    (varied,) = document["sensitivity"]["inputs"]
    varied["values_at_low"]["base"] = varied["values_at_high"]["base"] = document["sensitivity"]["value"]

    assert Tornado.model_validate(document).finding == "tokens/s of base does not depend on any of these figures"


def test_an_end_at_which_a_case_cannot_be_chosen_has_no_bar_and_a_note(written: Path) -> None:
    document = json.loads(written.read_text(encoding="utf-8"))
    (varied,) = document["sensitivity"]["inputs"]
    varied["values_at_low"]["base"], varied["best_at_low"] = None, "divided"
    document["sensitivity"]["inputs"].append({**varied, "input": "cluster.nics.bandwidth"})

    picture = Tornado.model_validate(document)

    assert picture.sensitivity.inputs[0].ends("base")[0] is None
    assert picture.sensitivity.inputs[0].name("base").endswith("\ndivided becomes best")
    assert picture.subtitle.endswith("; the choice turns on accelerator_speed and cluster.nics.bandwidth")


def test_nothing_can_be_set_in_an_answer(written: Path) -> None:
    with pytest.raises(ScenarioError, match="in which nothing can be set; name the scenario instead"):
        asked_tornado([str(written)], ["strategy.tp=8"])


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ('{"sensitivity": null}', "sensitivity: no figure was varied one at a time; ask again with --sensitivity hardware"),
        ("{}", "sensitivity: no figure was varied one at a time; ask again with --sensitivity hardware"),
        ('{"sensitivity": {}}', "sensitivity.case: 'case' is missing; add \"case\": ..."),
        ("[1, 2]", 'is not a mapping; write a mapping in braces: {"key": ...}'),
        (
            '{"scenario": "a", "metric": "b", "sensitivity": {"case": "base", "value": "x", "inputs": []}}',
            "sensitivity.value: 'x' is not a number",
        ),
    ],
)
def test_a_file_that_is_no_answer_is_refused_with_its_place(tmp_path: Path, text: str, mistake: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(ScenarioError, match=rf"other\.json:1:\d+: .*{re.escape(mistake)}"):
        asked_tornado([str(file)])


@pytest.mark.parametrize("sources", [[], [SMALL, SMALL]])
def test_a_tornado_is_of_one_what_if(sources: list[str]) -> None:
    with pytest.raises(ScenarioError, match="'tornado' shows one what-if; name a scenario, a file with cases, or what 'what-if --json'"):
        asked_tornado(sources)

"""Sweeps in a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from clustersim.apps.importing.opening import open_scenario
from clustersim.apps.study.claims import read_question
from clustersim.apps.study.study_file import RUNS, StudyRequest, open_study
from clustersim.apps.study.sweep_question import asked_sweep
from clustersim.apps.study.what_if import asked_what_if
from clustersim.documents.files import data_path
from clustersim.documents.text import read_document
from clustersim.errors import ScenarioError
from tests.unit.apps.study.factories import SMALL
from tests.unit.apps.study.factories import written as question_file

STUDY = """\
name: mine
scenario: {model: gpt2, cluster: {node: dgx-a100-40g, nodes: 1}, training: {global_batch_size: 64, precision: bf16}}
set: {strategy.zero_stage: 1}
grid:
  strategy.tp: 1..8 times 2
  training.micro_batch_size: [1, 2]
zip:
  - {strategy.pp: [1, 2], strategy.schedule: [1f1b, gpipe]}
exclude:
  - strategy.tp * strategy.pp > 8
  - {strategy.schedule: gpipe, training.micro_batch_size: 2}
where: [mfu > 0.1]
sort: step_time_s
metrics: [mfu]
"""


def written(folder: Path, text: str = STUDY) -> Path:
    path = folder / "study.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_study_says_everything_that_the_command_line_can(tmp_path: Path) -> None:
    question = asked_sweep(written(tmp_path), StudyRequest())

    assert question.name == "mine"
    assert question.columns.keys == ("strategy.tp", "training.micro_batch_size", "strategy.pp", "strategy.schedule")
    # 4 x 2 x 2, less tp 8 with pp 2 and gpipe with 2.
    assert len(question.points) == 11
    assert question.base.scenario({}).spec.strategy.zero_stage == 1
    assert ([each.text for each in question.objective.where], question.objective.quantity.text, question.columns.metrics) == (
        ["mfu > 0.1"],
        "step_time_s",
        ("mfu",),
    )


def test_the_command_line_adds_to_a_study(tmp_path: Path) -> None:
    asked = StudyRequest(
        over=("strategy.recompute=none,full",),
        exclude=("strategy.tp > 1",),
        changes=("strategy.zero_stage=2",),
        where=("hfu > 0.1",),
        metric="-mfu",
        metrics=("hfu",),
        seed=5,
    )

    question = asked_sweep(written(tmp_path), asked)

    assert len(question.points) == 6
    assert question.base.seed == 5
    assert question.base.scenario({}).spec.strategy.zero_stage == 2
    assert ([each.text for each in question.objective.where], question.objective.quantity.text) == (["mfu > 0.1", "hfu > 0.1"], "-mfu")
    assert question.columns.metrics == ("hfu",)


def test_the_scenario_of_a_study_may_stand_beside_it_or_be_a_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "model: gpt2\ncluster: {node: dgx-a100-40g, nodes: 1}\ntraining: {global_batch_size: 8, precision: bf16}\n", encoding="utf-8"
    )
    text = "grid: {strategy.tp: [1, 2]}\nscenario: "

    assert asked_sweep(written(tmp_path, f"{text}base.yaml\n"), StudyRequest()).base.scenario({}).spec.training.global_batch_size == 8
    assert asked_sweep(written(tmp_path, f"{text}gpt2-dp-8xv100\n"), StudyRequest()).base.scenario({}).name == "gpt2-dp-8xv100"
    assert asked_sweep(written(tmp_path, f"{text}base.yaml\n"), StudyRequest()).name == "study"


def test_a_scenario_is_swept_over_what_the_command_line_says() -> None:
    question = asked_sweep(
        "gpt2-dp-8xv100", StudyRequest(over=("strategy.tp=1,2", "strategy.zero_stage=0,1"), exclude=("strategy.tp == 2",))
    )

    assert question.name == "gpt2-dp-8xv100"
    assert [dict(point.values) for point in question.points] == [
        {"strategy.tp": 1, "strategy.zero_stage": 0},
        {"strategy.tp": 1, "strategy.zero_stage": 1},
    ]


SHIPPED = sorted((data_path("scenarios") / "studies").glob("*.yaml"))


def test_every_shipped_study_can_be_asked() -> None:
    names = [path.stem for path in SHIPPED if any(key in read_document(path).data for key in RUNS[:2])]
    questions = [asked_sweep(name, StudyRequest()) for name in names]

    assert "llama3-70b-layouts" in names
    assert [question.name for question in questions] == names
    assert all(len(question.points) > 10 for question in questions)


def test_one_file_is_asked_by_all_three_commands(tmp_path: Path) -> None:
    path = question_file(tmp_path, ("leave_out", "where: [links.nvlink_bytes > 0]\nleave_out"))
    alone = tmp_path / "alone.yaml"
    alone.write_text(f"scenario: {json.dumps(SMALL)}\ncases: {{a: {{strategy.tp: 2}}}}\n", encoding="utf-8")

    swept = asked_sweep(path, StudyRequest(over=("training.micro_batch_size=1,2",)))
    assert [point.name for point in swept.points] == [each for name in ("plain.4", "plain.8", "sharded.8") for each in (name, name)]
    assert swept.points[1].values == {"cluster.accelerators_per_node": 4, "training.micro_batch_size": 2}
    question, _ = asked_what_if(path, StudyRequest())
    assert [case.name for case in question.cases] == ["base", "plain.4", "plain.8", "sharded.8"]
    assert [each.text for each in question.objective.where] == ["links.nvlink_bytes > 0"]
    assert read_question(path).points == question.cases[1:]
    with pytest.raises(ScenarioError, match="question: is missing; ask with sweep or what-if, or add it"):
        read_question(alone)


@pytest.mark.parametrize("ask", [lambda path: asked_what_if(path, StudyRequest()), read_question])
def test_axes_are_for_sweeps_alone(tmp_path: Path, ask: Callable[[Path], object]) -> None:
    path = question_file(tmp_path, ("leave_out", "grid: {strategy.tp: [1, 2]}\nleave_out"))

    with pytest.raises(ScenarioError, match=r"grid: .*axes; ask with sweep"):
        ask(path)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("grid:", "girds:", 4, "unknown field 'girds'"),
        ("name: mine", "name: ../mine", 1, None),
        ("1..8 times 2", "8..1", 5, "the range '8..1' ends before it begins"),
        ("strategy.tp: 1..8", "strategy.ttp: 1..8", 10, "'strategy.tp' is not varied"),
        ("grid:", "grid:\n  strategy.ttp: [1, 2]", 5, "unknown field 'ttp'"),
        ("[1, 2]\nzip", "[1, x]\nzip", 6, "'x' is not a whole number"),
        ("[1f1b, gpipe]", "[1f1b]", 8, "'strategy.pp' has 2 values and 'strategy.schedule' has 1, and they move together"),
        ("strategy.tp * strategy.pp > 8", "strategy.cp > 8", 10, "'strategy.cp' is not varied"),
        ("{strategy.schedule: gpipe, ", "{strategy.shedule: gpipe, ", 11, "'strategy.shedule' is not varied"),
        ("mfu > 0.1", "mffu > 0.1", 12, "there is no metric 'mffu'"),
        ("sort: step_time_s", "sort: step_time", 13, "there is no metric 'step_time'"),
        ("metrics: [mfu]", "metrics: [mffu]", 14, "there is no metric 'mffu'"),
        ("model: gpt2", "model: gpt3000", 2, None),
        ("model: gpt2", "modell: gpt2", 2, "unknown field 'modell'"),
    ],
)
def test_a_mistake_in_a_study_has_its_line(tmp_path: Path, old: str, new: str, line: int, message: str | None) -> None:
    assert old in STUDY
    path = written(tmp_path, STUDY.replace(old, new, 1))

    with pytest.raises(ScenarioError) as caught:
        asked_sweep(path, StudyRequest())

    assert caught.value.place is not None
    assert (caught.value.place.file, caught.value.place.line) == (str(path), line)
    assert message is None or caught.value.message == message


def test_a_scenario_that_is_not_there_is_told_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "scenario: gpt2-dp-8xv10\ngrid: {strategy.tp: [1]}\n")

    with pytest.raises(ScenarioError, match=r"gpt2-dp-8xv10.*did you mean 'gpt2-dp-8xv100'") as caught:
        asked_sweep(path, StudyRequest())

    assert caught.value.place is not None
    assert caught.value.place.line == 1


@pytest.mark.parametrize("tp", [4, 8])
def test_the_batch_of_a_framework_follows_the_degrees_of_a_point_as_those_of_a_run(tp: int) -> None:
    titan = Path(__file__).parents[1] / "importing" / "files" / "torchtitan-llama3-70b.toml"
    changes = ("cluster.node=dgx-h100", "cluster.nodes=8")
    base = open_study(titan, StudyRequest(changes=changes)).base

    point = base.any_scenario({"strategy.tp": tp})

    assert point.document.data == open_scenario(str(titan), (*changes, f"strategy.tp={tp}")).document.data

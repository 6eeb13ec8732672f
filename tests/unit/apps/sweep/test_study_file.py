"""Sweeps in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.apps.sweep.study_file import AXES, SweepRequest, asked_question
from clustersim.documents.files import data_path
from clustersim.documents.text import read_document
from clustersim.errors import ScenarioError

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
    question = asked_question(written(tmp_path), SweepRequest())

    assert question.name == "mine"
    assert question.design.keys == ("strategy.tp", "training.micro_batch_size", "strategy.pp", "strategy.schedule")
    # 4 x 2 x 2, less tp 8 with pp 2 and gpipe with 2.
    assert len(question.points) == 11
    assert question.base.scenario({}).spec.strategy.zero_stage == 1
    assert ([each.text for each in question.where], question.sort.text, question.metrics) == (["mfu > 0.1"], "step_time_s", ("mfu",))


def test_the_command_line_adds_to_a_study(tmp_path: Path) -> None:
    asked = SweepRequest(
        over=("strategy.recompute=none,full",),
        exclude=("strategy.tp > 1",),
        changes=("strategy.zero_stage=2",),
        where=("hfu > 0.1",),
        sort="-mfu",
        metrics=("hfu",),
        seed=5,
    )

    question = asked_question(written(tmp_path), asked)

    assert len(question.points) == 6
    assert question.base.seed == 5
    assert question.base.scenario({}).spec.strategy.zero_stage == 2
    assert ([each.text for each in question.where], question.sort.text) == (["mfu > 0.1", "hfu > 0.1"], "-mfu")
    assert question.metrics == ("hfu",)


def test_the_scenario_of_a_study_may_stand_beside_it_or_be_a_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "model: gpt2\ncluster: {node: dgx-a100-40g, nodes: 1}\ntraining: {global_batch_size: 8, precision: bf16}\n", encoding="utf-8"
    )
    text = "grid: {strategy.tp: [1, 2]}\nscenario: "

    assert asked_question(written(tmp_path, f"{text}base.yaml\n"), SweepRequest()).base.scenario({}).spec.training.global_batch_size == 8
    assert asked_question(written(tmp_path, f"{text}gpt2-dp-8xv100\n"), SweepRequest()).base.scenario({}).name == "gpt2-dp-8xv100"
    assert asked_question(written(tmp_path, f"{text}base.yaml\n"), SweepRequest()).name == "study"


def test_a_scenario_is_swept_over_what_the_command_line_says() -> None:
    question = asked_question(
        "gpt2-dp-8xv100", SweepRequest(over=("strategy.tp=1,2", "strategy.zero_stage=0,1"), exclude=("strategy.tp == 2",))
    )

    assert question.name == "gpt2-dp-8xv100"
    assert [dict(point.values) for point in question.points] == [
        {"strategy.tp": 1, "strategy.zero_stage": 0},
        {"strategy.tp": 1, "strategy.zero_stage": 1},
    ]


SHIPPED = sorted((data_path("scenarios") / "studies").glob("*.yaml"))
SWEEPS = [path.stem for path in SHIPPED if any(key in read_document(path).data for key in AXES)]


@pytest.mark.parametrize("name", SWEEPS)
def test_every_shipped_study_can_be_asked(name: str) -> None:
    question = asked_question(name, SweepRequest())

    assert question.name == name
    assert len(question.points) > 10


def test_there_are_shipped_studies() -> None:
    assert "llama3-70b-layouts" in SWEEPS


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
        asked_question(path, SweepRequest())

    assert caught.value.place is not None
    assert (caught.value.place.file, caught.value.place.line) == (str(path), line)
    assert message is None or caught.value.message == message


def test_a_scenario_that_is_not_there_is_told_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "scenario: gpt2-dp-8xv10\ngrid: {strategy.tp: [1]}\n")

    with pytest.raises(ScenarioError, match=r"gpt2-dp-8xv10.*did you mean 'gpt2-dp-8xv100'") as caught:
        asked_question(path, SweepRequest())

    assert caught.value.place is not None
    assert caught.value.place.line == 1

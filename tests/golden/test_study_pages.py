"""Pages of studies say what the runs say; ``pytest --update-golden`` writes answers, verdicts and tables anew."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from clustersim.apps.study.claims import StudyAnswer, answered_question, question_titles, read_question

PAGES = Path(__file__).parents[2] / "docs" / "studies"
BLOCK = re.compile(r"(?P<mark><!-- answer -->\n)(?P<said>.*?)(?P<end><!-- end of answer -->\n)", re.DOTALL)
VERDICT = re.compile(r"^\| .+ \| \*\*(right|wrong)\*\* \|", re.MULTILINE)


@cache
def answer_to(name: str) -> StudyAnswer:
    return answered_question(read_question(name))


def page_block(answer: StudyAnswer) -> str:
    """Return the answer, the claims with their verdicts and the table as Markdown, as the page of the study has them."""
    title = answer.question.title
    claims = "\n".join(f"| {each.claim} | **{each.verdict}** | {each.found} |" for each in answer.judged)
    picture = f"```{{image}} ../_studies/{answer.question.name}.png\n:alt: {title}\n```"
    table = f"| introductions say | here it is | because the runs show |\n| --- | --- | --- |\n{claims}"
    return f"*{title}*\n\n**{answer.answer}**\n\n{table}\n\n{picture}\n\n{answer.tables()[0].markdown()}\n"


def test_every_question_has_a_page_and_every_page_a_question() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == set(question_titles())
    assert len(list(question_titles())) == 12


@pytest.mark.parametrize("name", list(question_titles()))
def test_a_page_says_what_the_runs_say(name: str, request: pytest.FixtureRequest) -> None:
    page = PAGES / f"{name}.md"
    text = page.read_text(encoding="utf-8")
    block = BLOCK.search(text)
    assert block is not None

    said = f"\n{page_block(answer_to(name))}\n"

    if request.config.getoption("--update-golden"):
        page.write_text(f"{text[: block.start('said')]}{said}{text[block.end('said') :]}", encoding="utf-8", newline="\n")
        return
    assert block["said"] == said


@pytest.mark.parametrize("name", list(question_titles()))
def test_verdicts_on_a_page_are_those_of_the_conditions(name: str) -> None:
    on_page = VERDICT.findall((PAGES / f"{name}.md").read_text(encoding="utf-8"))

    assert on_page == [claim.verdict for claim in answer_to(name).judged]


@pytest.mark.parametrize("name", list(question_titles()))
def test_a_page_has_the_command_the_reason_and_the_limits(name: str) -> None:
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")

    assert f"\nclustersim study {name}\n" in text
    assert all(len(text.partition(f"\n## {heading}\n")[2].strip()) > 100 for heading in ("Why", "Limits"))


@pytest.mark.parametrize("name", list(question_titles()))
def test_no_run_of_a_study_fails(name: str) -> None:
    assert {row.status for row in answer_to(name).rows} <= {"ok", "does not fit"}

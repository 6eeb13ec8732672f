from __future__ import annotations

from clustersim.apps.run.running import run
from clustersim.apps.run.verdict import markdown_verdict, verdict_lines

SMALL = ["training.global_batch_size=64"]


def test_a_step_without_budget_and_checks_has_its_lower_bound_alone() -> None:
    result = run("llama3-8b-8xh100", set=[*SMALL, "checks=[]"])

    assert verdict_lines(result) == ["", "Lower bound", f"  {result.bounds.sentence}"]
    assert markdown_verdict(result) == f"\n## Lower bound\n\n- {result.bounds.sentence}\n"


def test_a_token_budget_gives_the_time_of_the_whole_training() -> None:
    result = run("llama3-8b-8xh100", set=[*SMALL, "training.tokens=1T", "checks=[]"])

    assert verdict_lines(result)[1] == "Whole training"
    assert verdict_lines(result)[2].startswith("  1T tokens take ")
    assert "## Whole training" in markdown_verdict(result)


def test_failures_and_cost_have_sections_of_their_own() -> None:
    result = run("llama3-8b-8xh100", set=[*SMALL, "checks=[]", "cost.gpu_hour=2 USD", "reliability={node_mtbf: 1 year, restart: 5 min}"])

    lines = verdict_lines(result)

    assert [line for line in lines if line and not line.startswith(" ")] == ["Lower bound", "With failures", "Power and cost"]
    assert "\n## With failures\n\n- 99." in markdown_verdict(result)
    assert "\n## Power and cost\n\n- an accelerator draws " in markdown_verdict(result)


def test_a_check_says_whether_it_holds_and_its_value() -> None:
    result = run("llama3-8b-8xh100", set=[*SMALL, "checks=['mfu <= 0.0001', 'mfu >= 0.0001']"])

    lines = verdict_lines(result)

    assert lines[4] == "Checks"
    assert lines[5].startswith("  FALSE  mfu <= 0.0001")
    assert lines[6].startswith("  holds  mfu >= 0.0001")
    assert "| false |" in markdown_verdict(result)

"""A plan from Python, and how a notebook shows it."""

from __future__ import annotations

import clustersim


def test_a_plan_from_python_gives_a_scenario_that_runs_as_it_says() -> None:
    answer = clustersim.plan("gpt2", "dgx-a100-80g", nodes=1, only=["tp=1", "pp=1", "cp=1", "schedule=1f1b", "recompute=none"])

    winner = answer.search.winner
    assert winner is not None
    assert answer.scenario is not None
    assert clustersim.run(answer.scenario).step_time_s == winner.step_time_s
    assert str(answer).startswith(f"{answer.headline}\n\n")
    assert str(answer).splitlines()[2].split() == ["step", "slower", "MFU", "memory", "cost/step", "layout"]
    assert len(repr(answer)) < 100
    assert answer._repr_html_().startswith(f"<p><strong>{answer.headline}</strong></p>")

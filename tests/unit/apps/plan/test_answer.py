"""A plan from Python, and how a notebook shows it."""

from __future__ import annotations

from dataclasses import replace

import pytest

import clustersim
from clustersim.apps.plan.answer import margin_lines
from clustersim.apps.plan.asking import asked_of
from clustersim.apps.plan.drafts import Drafts
from clustersim.apps.plan.findings import Search, Tried
from clustersim.apps.plan.layout_table import layout_table
from clustersim.apps.plan.margins import Margin, Turn
from clustersim.apps.plan.search import fastest
from clustersim.measure.deciding import MARK
from clustersim.report.facts import percent_text


def test_a_plan_from_python_gives_a_scenario_that_runs_as_it_says() -> None:
    answer = clustersim.plan("gpt2", "dgx-a100-80g", nodes=1, only=["tp=1", "pp=1", "cp=1", "schedule=1f1b", "recompute=none"])

    winner = answer.search.winner
    assert winner is not None
    assert answer.scenario is not None
    assert clustersim.run(answer.scenario).step_time_s == winner.step_time_s
    first, table, *_ = str(answer).split("\n\n")
    assert first.startswith(f"{answer.headline()}\nfits with ")
    assert ["step", "slower", "MFU", "memory", "cost/step", "layout"] in [line.split() for line in table.splitlines()]
    assert len(repr(answer)) < 100
    interval_s = winner.result.metrics.step_time_interval_s
    assert interval_s is not None
    ends = [percent_text(winner.result.metrics.mfu * winner.step_time_s / each_s) for each_s in reversed(interval_s)]
    assert any(f" ({ends[0]} to {ends[1]}); the highest published" in line for line in answer.sections["What the choice turns on"])
    assert answer.search.others
    assert any(f" replays and {len(answer.search.others)} of other kinds; " in line for line in answer.sections["Certificate"])
    assert all(f"\n\n{heading}\n" in str(answer) for heading, lines in answer.sections.items() if lines)
    assert answer.assumed
    assert str(answer).count("assumed: ") == len(answer.assumed)
    answer.search.tried[0] = replace(winner, bound_s=2.0 * winner.step_time_s)
    assert answer.search.below_bound
    assert "ended early" not in str(answer)
    assert answer._repr_html_().startswith(f"<p><strong>{answer.headline()}</strong></p>")


def test_a_turn_says_whose_step_another_layout_is_shorter_than() -> None:
    turn = Turn(condition="network at half its bandwidth", step_time_s=42.5, gain_fraction=0.15, layout="tp 8")

    assert turn.text == "tp 8 wins with a step of 42.5 s, 15.0 % shorter than the 50 s of the first"
    assert replace(turn, safer=True).lines == [
        "If the network may be slower, tp 8 is safer: the error bars do not tell it from the first, and on half of the network"
        " its step is 15.0 % shorter.",
        *turn.lines,
    ]


def test_more_memory_for_another_layout_says_whether_it_is_decided() -> None:
    found = [
        Margin(resource="memory", step_time_s=9.7, gain_fraction=0.017, layout="tp 4", decided=False),
        Margin(resource="HBM bandwidth", step_time_s=9.8, gain_fraction=0.007),
    ]

    assert margin_lines(found) == [
        "  10 % more memory: 1.7 % shorter, with tp 4; within the error bars: not decided",
        "  10 % more HBM bandwidth: 0.7 % shorter",
    ]


def test_of_layouts_within_the_error_bars_the_fastest_of_those_with_the_fewest_burdens_wins() -> None:
    answer = clustersim.plan("gpt2", "dgx-a100-80g", nodes=1, only=["tp=1", "pp=1", "cp=1", "recompute=none"])
    one = answer.search.tried[0]
    burdens = ("offloads", "is tight in memory")
    found = Search()
    for place, zero_stage in enumerate((2, 1, 1)):
        result = replace(one.result, metrics=replace(one.result.metrics, step_time_s=1.0 / (1.0 - 0.01 * place)))
        layout = replace(one.layout, zero_stage=zero_stage)
        found.tried.append(Tried(layout=layout, bound_s=0.5, result=result, burdens=burdens[:zero_stage]))

    assert found.winner is found.tried[1]
    words = "the fastest is 1.0 % shorter, within the error bars, but is tight in memory"
    assert found.choice == f"{words}: {found.tried[0].layout.words()}"
    assert replace(answer, search=found).to_dict()["choice"] == found.choice
    assert layout_table(found.replayed).rows[1][1] == f"1.0 % faster {MARK}"


def test_the_plainer_layout_is_the_fastest_of_all_plain_ones_and_not_of_those_that_were_replayed_anyway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    overrides = ["training.global_batch_size=32", "training.seq_length=1024"]
    limits = ["pp=1", "cp=1", "micro_batch_size=1,2", "recompute=none", "offload=none"]
    every, of_tp_2 = (
        asked_of("llama3.2-1b", "dgx-a100-40g", nodes=1, overrides=overrides, limits=[*limits, tp]) for tp in ("tp=1,2,4", "tp=2,4")
    )
    plain = fastest(Drafts(of_tp_2.base), of_tp_2.space).fastest
    monkeypatch.setattr(Drafts, "burdens", lambda _drafts, layout: ("is heavy",) if layout.family.tp == 1 else ())
    monkeypatch.setattr("clustersim.apps.plan.findings.is_near", lambda _best, _other: True)
    monkeypatch.setattr("clustersim.apps.plan.search.undecided_ratios", lambda _one, _other: (0.1, 10.0))

    found = fastest(Drafts(every.base), every.space)

    assert plain is not None
    assert found.winner is not None
    assert found.winner.layout == plain.layout
    assert found.fastest is not found.winner
    assert found.complete
    assert sum(found.counts.values()) == found.n_layouts - 1

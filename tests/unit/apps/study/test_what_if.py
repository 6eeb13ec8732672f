"""A what-if from end to end."""

from __future__ import annotations

from pathlib import Path

import pytest

import clustersim
from clustersim.apps.study.sampled import check_method, sampled
from clustersim.apps.study.sensitivity import inputs_of
from clustersim.apps.study.study_file import StudyRequest
from clustersim.apps.study.what_if import WhatIfAnswer, answered, asked_what_if
from clustersim.errors import ScenarioError
from tests.unit.apps.study.factories import SMALL

TWO = ("training.global_batch_size=64", "cluster.nodes=2")
CHAT = "serve-llama3-70b-chat"
WIDE = "wide:strategy.tp=4"


def ask(*cases: str, break_even: str | None = None, sensitivity: tuple[str, ...] = (), where: tuple[str, ...] = ()) -> WhatIfAnswer:
    return clustersim.what_if(SMALL, cases or (WIDE,), set=TWO, break_even=break_even, sensitivity=sensitivity, where=where)


def test_numbers_are_those_of_runs() -> None:
    answer = ask()

    assert answer.numbers == {
        "base": clustersim.run(SMALL, set=TWO).metrics.tokens_per_s,
        "wide": clustersim.run(SMALL, set=[*TWO, "strategy.tp=4"]).metrics.tokens_per_s,
    }
    assert answer.best == "base"


def test_the_first_line_answers() -> None:
    answer = ask()
    numbers = answer.numbers
    assert numbers["base"]
    assert numbers["wide"]

    share = 100 * (numbers["base"] / numbers["wide"] - 1)
    assert answer.headline() == f"base is best: tokens_per_s {numbers['base']:,.0f}, {share:.1f} % more than wide"
    assert ask("same:strategy.tp=1").headline().endswith("as much as same")
    assert ask(where=("mfu > 0.99",)).headline() == "No case can be chosen: base: mfu > 0.99 is false; wide: mfu > 0.99 is false"
    assert ask("odd:strategy.tp=5").headline().startswith("base is the only case that can be chosen, with tokens_per_s ")
    with pytest.raises(ScenarioError, match="no case is named"):
        clustersim.what_if(SMALL)


def test_the_base_has_the_rate_of_adapters_in_the_unit_of_its_cases() -> None:
    assert "(bandwidth 200 Gbit/s)" in ask("slow:cluster.nics.bandwidth=100 Gbit/s").case_table().rows[0][1]


def test_cases_within_the_error_bars_are_not_decided_and_said_so() -> None:
    answer = ask(WIDE, "a80:cluster.node=dgx-a100-80g")
    document = answer.to_dict()

    assert answer.better("base", "wide") == "yes"
    assert answer.better("base", "a80") == "not decided"
    assert answer.best == "a80"
    assert " is ahead of base, not decided: " in answer.headline()
    assert document["undecided"] == answer.undecided == ["base"]
    assert {row[0]: row[3].endswith(", not decided") for row in answer.case_table().rows}["a80"]
    cases = document["cases"]
    assert isinstance(cases, list)
    assert [case["better_than_base"] for case in cases if isinstance(case, dict)] == [None, "no", "not decided"]


def test_a_case_that_cannot_run_stands_there_with_the_reason() -> None:
    rows = ask("odd:strategy.tp=5").case_table().rows

    assert rows[1][0] == "odd"
    assert rows[1][2] == "-"
    assert "5 does not divide" in rows[1][-1]


def test_a_tornado_has_the_longest_bar_first_and_its_ends_are_runs() -> None:
    answer = ask(sensitivity=("hardware", "cluster.nics.count=4..8"))

    found = answer.sensitivity
    assert found is not None
    swings = [bar.swing("base") for bar in found.inputs]
    assert swings == sorted(swings, reverse=True)
    names = [bar.input for bar in found.inputs]
    assert sorted(names) == [
        "accelerator_speed",
        "cluster.nics.bandwidth",
        "cluster.nics.count",
        "cluster.nics.latency",
        "cluster.scale_up.bandwidth",
        "cluster.scale_up.latency",
    ]
    assert names[0] == "accelerator_speed"
    bar = next(bar for bar in found.inputs if bar.input == "cluster.nics.bandwidth")
    for number, text in ((bar.values_at_low, "20 GB/s"), (bar.values_at_high, "30 GB/s")):
        assert number["base"] == clustersim.run(SMALL, set=[*TWO, f"cluster.nics.bandwidth={text}"]).metrics.tokens_per_s


def test_computing_twice_as_fast_halves_computation() -> None:
    question, options = asked_what_if(SMALL, StudyRequest(sensitivity=("accelerator_speed=0.5..2",), metric="breakdown_s.compute"))

    slow, usual, fast = (
        question.rows(values)[0].outcome.figures["breakdown_s.compute"]
        for values in (options.inputs[0].values(0.5), {}, options.inputs[0].values(2.0))
    )

    # Each item is a whole number of ticks.
    assert (slow / usual, fast / usual) == pytest.approx((2.0, 0.5), rel=1e-7)


def test_figures_on_which_the_decision_turns_are_told() -> None:
    wide, narrow = "cluster.nics.bandwidth=0.1..50 GB/s", "accelerator_speed=0.9..1.1"
    cases = ["wide:strategy.tp=8"]
    answer = clustersim.what_if("llama3-8b-8xh100", cases, set=["cluster.nodes=2"], break_even=wide, sensitivity=(wide, narrow))

    assert answer.break_even is not None
    assert answer.sensitivity is not None
    assert [bar.input for bar in answer.sensitivity.deciding] == ["cluster.nics.bandwidth"]
    *_, first, second = answer.lines()
    assert first.startswith("Break-even: wide is best up to cluster.nics.bandwidth ")
    assert ", base is best from " in first
    assert second == "The decision turns on cluster.nics.bandwidth: wide is best at 0.1 GB/s, base is best at 50 GB/s"
    picture = answer.tornado
    assert picture.finding.startswith("tokens/s of base depends most on cluster.nics.bandwidth: ")
    assert picture.subtitle.endswith("; the choice turns on cluster.nics.bandwidth")
    assert picture.sensitivity.inputs[0].name("base").endswith("\nwide becomes best")
    table = answer.tornado_table(answer.sensitivity)
    assert len(table.columns) == len(table.rows[0])
    assert table.rows[0][-2:] == ("wide", "base")


def test_without_a_turn_that_is_told_too() -> None:
    answer = ask(break_even="cluster.nics.bandwidth=20..25 GB/s", sensitivity=("cluster.nics.bandwidth=20..25 GB/s",))

    assert answer.lines() == [
        "Break-even: none; base is best from cluster.nics.bandwidth 20 GB/s to 25 GB/s",
        "base stays best whatever figure is varied",
    ]
    document = answer.to_dict()
    assert document["best"] == "base"
    assert document["break_even"] == {
        "key": "cluster.nics.bandwidth",
        "low": "20 GB/s",
        "high": "25 GB/s",
        "best_at_low": "base",
        "undecided": None,
        "crossings": [],
    }
    assert isinstance(document["sensitivity"], dict)


def test_accelerators_are_varied_together_beside_a_straggler() -> None:
    question, _ = asked_what_if(SMALL, StudyRequest(changes=("cluster.stragglers=[{ranks: 3, slowdown: 1.5}]",)))

    speed = inputs_of(question, ["hardware"])[0]

    others, slow = ({"ranks": ranks, "slowdown": slowdown} for ranks, slowdown in ((["0-2", "4-7"], 2.0), (["3-3"], 3.0)))
    assert speed.values(0.5) == {"cluster.stragglers": [others, slow]}


@pytest.mark.parametrize(("method", "samples", "runs"), [("morris", 3, 18), ("sobol", 4, 32)])
def test_sampling_finds_the_figure_that_matters(method: str, samples: int, runs: int) -> None:
    pytest.importorskip("SALib")
    question, _ = asked_what_if(SMALL, StudyRequest(cases=("wide:strategy.tp=2",)))
    inputs = inputs_of(question, ["accelerator_speed=0.5..2", "cluster.nics.latency=1..2 us"])

    found, again = (sampled(question, inputs, "base", check_method(method), samples=samples) for _ in range(2))

    assert [effect.input for effect in found.inputs] == ["accelerator_speed", "cluster.nics.latency"]
    # One node sends nothing over its adapters.
    assert max(map(abs, found.inputs[1].of_value.values())) < 1e-9
    assert (found.best_fraction, found.runs) == (1.0, runs)
    assert found == again


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (StudyRequest(method="x"), "'x' is no method"),
        (StudyRequest(sensitivity=("accelerator_speed=0..1",)), "a speed is above 0"),
        (StudyRequest(sensitivity=("steps=1..2", "steps=1..3")), "'steps' is varied twice"),
        (StudyRequest(break_even="steps=1..2"), "the base alone breaks even with nothing"),
        (StudyRequest(cases=("a:steps=2",), break_even="steps=1..2"), "case a sets 'steps' itself"),
    ],
)
def test_what_makes_no_sense_is_refused(asked: StudyRequest, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        asked_what_if(SMALL, asked)

    assert caught.value.message == message


def test_sobol_wants_a_power_of_two_and_not_too_many_runs() -> None:
    question, _ = asked_what_if(SMALL, StudyRequest())
    inputs = inputs_of(question, ["accelerator_speed=0.5..2"])

    with pytest.raises(ScenarioError, match="12 is no power of two"):
        sampled(question, inputs, "base", "sobol", samples=12)
    with pytest.raises(ScenarioError, match="runs are more than 20,000"):
        sampled(question, inputs, "base", "morris", samples=100_000)


def test_a_file_says_all_of_it() -> None:
    question, options = asked_what_if("llama3-8b-slow-network", StudyRequest())

    assert [case.name for case in question.cases] == ["base", "tensor-parallel", "sharded"]
    assert options.span is not None
    assert len(options.inputs) == 3


def test_a_mistake_in_a_file_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    for text, line in (
        ("scenario: llama3-8b-8xh100\ncases:\n  base: {strategy.tp: 2}\n", 3),
        ("cases: {a: {strategy.tp: 2}}\nscenari: x\n", 2),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ScenarioError) as caught:
            asked_what_if(path, StudyRequest())
        assert caught.value.place is not None
        assert caught.value.place.line == line


def test_a_printed_answer_is_a_page() -> None:
    answer = ask()

    lines = str(answer).splitlines()
    assert lines[0] == answer.headline()
    assert lines[2].split() == ["case", "changes", "tokens_per_s", "against", "base"]
    assert [line.split()[0] for line in lines[3:]] == ["base", "wide"]
    assert repr(answer) == f"<WhatIfAnswer: {answer.headline()}>"


def test_a_single_text_stands_for_a_list_of_it() -> None:
    one = clustersim.what_if(SMALL, WIDE, set="cluster.nodes=2", where="mfu > 0")

    assert one.numbers == clustersim.what_if(SMALL, [WIDE], set=["cluster.nodes=2"], where=["mfu > 0"]).numbers
    assert clustersim.run(SMALL, set="cluster.nodes=2").gpus == 16


def test_a_service_is_judged_by_any_of_its_figures() -> None:
    few = ["requests.count=80", "requests.warmup=0"]
    rate = clustersim.what_if(CHAT, ["wide:serving.tp=8"], set=few)
    asked = StudyRequest(cases=("wide:serving.tp=8",), changes=tuple(few), metric="tpot_s.p50", sensitivity=("hardware",))
    latency = answered(*asked_what_if(CHAT, asked))

    assert rate.question.objective.quantity.text == "e2e_s.mean"
    assert rate.lines()[0].startswith("Throughput is the rate that requests come at in base and wide")
    assert latency.best == "wide"
    assert latency.sensitivity is not None
    assert latency.sensitivity.inputs[0].input == "accelerator_speed"


def test_throughput_at_a_rate_decides_nothing_and_that_of_full_batches_may() -> None:
    few = ("requests.count=40", "requests.warmup=0")
    cases = ("wide:serving.tp=8", "half:serving.replicas=1")
    asked, most = (
        answered(*asked_what_if(CHAT, StudyRequest(cases=cases, changes=few, metric=metric)))
        for metric in ("output_tokens_per_s", "full_load_output_tokens_per_s")
    )

    assert asked.better("wide", "base") == asked.better("half", "base") == "not decided"
    assert most.better("half", "base") == "no"


def test_a_service_whose_clients_wait_is_judged_by_its_throughput() -> None:
    waiting = ("requests.arrival=closed", "requests.concurrency=8", "requests.rate=null", "requests.count=16", "requests.warmup=0")
    found = clustersim.what_if(CHAT, ["wide:serving.tp=8"], set=waiting)

    assert found.question.objective.quantity.text == "output_tokens_per_s_per_gpu"
    assert found.question.objective.higher_is_better
    assert found.lines() == []


def test_the_speed_of_accelerators_and_their_links_are_varied_for_a_service() -> None:
    asked = ["accelerator_speed=0.8..1.25", "cluster.scale_up.bandwidth=225..900 GB/s", "requests.rate=2..4 /s"]
    found = clustersim.what_if(CHAT, ["wide:serving.tp=8"], set=["requests.count=40", "requests.warmup=0"], sensitivity=asked)

    assert found.sensitivity is not None
    bars = {bar.input: bar for bar in found.sensitivity.inputs}
    assert bars.pop("requests.rate").low == "2 /s"
    for bar in bars.values():
        assert bar.values_at_low["wide"] is not None
        assert bar.values_at_high["wide"] is not None
        assert bar.values_at_low["wide"] > bar.values_at_high["wide"]


def test_a_notebook_shows_the_answer_and_its_tornado_if_figures_were_varied() -> None:
    answer = clustersim.what_if(SMALL, ["wide:strategy.tp=2"])

    assert answer._repr_html_().startswith(f"<p><strong>{answer.headline()}</strong></p>")
    assert dir(answer.plot) == ["tornado"]
    with pytest.raises(ScenarioError, match="no figure was varied one at a time"):
        answer.plot.tornado()

"""Result of a run: metrics as attributes, the document of ``run --json``, the frame."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from unittest.mock import patch

import pytest
from rich.console import Console

import clustersim
from clustersim.apps.run.bound import run_bound
from clustersim.apps.run.result import MeasuredChanges, Result, print_result, verdict_sections
from clustersim.apps.run.running import run, step_metrics
from clustersim.config.checks import CheckResult
from clustersim.measure.metrics import BoundPart, BoundsReport, Metrics
from clustersim.notices import Flag
from tests.golden.reference import reference_metrics, reference_timeline
from tests.unit.config.samples import built

BOUNDS = BoundsReport(
    bound_s=1.0,
    path_s=1.0,
    link_s=0.1,
    peak_s=0.4,
    bound_fraction=0.9,
    binding="compute",
    binding_s=0.8,
    parts=(BoundPart(name="compute", seconds=0.8),),
    sentence="bound by computation",
)


def result(*, fits: bool = True, holds: bool = True) -> Result:
    spans = reference_timeline()
    metrics = reference_metrics(spans)
    return Result(
        metrics=replace(metrics, memory=replace(metrics.memory, fits=fits)),
        spans=spans,
        checks=(CheckResult(check="mfu >= 0.1", value=0.2, values={"mfu": 0.2}, holds=holds),),
        time_to_train_s=None,
        lower_bound=lambda: BOUNDS,
        cost=None,
        goodput=None,
        scenario_hash="0123abcd",
        resolved={"name": "reference"},
        built=built(),
        seed=0,
    )


def test_every_metric_is_an_attribute() -> None:
    made = result()

    assert {"mfu", "step_time_s", "to_dict"} < set(dir(made))
    for name in Metrics.__dataclass_fields__:
        assert getattr(made, name) == getattr(made.metrics, name)


def test_an_attribute_that_is_not_there_has_the_nearest_name() -> None:
    with pytest.raises(AttributeError, match=r"^'Result' has no attribute 'step_tme_s'; did you mean 'step_time_s'\?$"):
        _ = result().step_tme_s


def test_the_package_lists_what_it_offers() -> None:
    assert [name for name in dir(clustersim) if not name.startswith("__")] == ["Result", "compare", "plan", "run", "sweep", "what_if"]


def test_bounds_are_worked_out_once_and_when_they_are_asked_for() -> None:
    run = clustersim.run("mixtral-8x22b-5d")
    with patch("clustersim.apps.run.bound.run_bound", side_effect=run_bound) as work:
        assert not work.called
        assert run.bounds is run.bounds
        assert work.call_count == 1


def test_the_first_round_of_a_contended_replay_gives_the_bound_that_a_replay_for_it_gives() -> None:
    run = clustersim.run("mixtral-8x22b-5d")

    assert run.spans.alone is not None
    assert run_bound(run.built, alone=run.spans.alone) == run_bound(run.built)


def test_a_step_whose_bound_is_long_enough_is_replayed_without_contention_alone() -> None:
    run = clustersim.run("mixtral-8x22b-5d")

    bounded = step_metrics(run.built, limit_s=run.bounds.path_s)

    assert (bounded.step_time_s, bounded.engine.events) == (run.bounds.path_s, 0)


def test_a_step_in_which_nothing_was_contended_is_its_own_bound() -> None:
    run = clustersim.run("llama3-8b-8xh100")
    with patch("clustersim.apps.run.bound.run_bound") as work:
        bounds = run.bounds

    alone = run_bound(run.built)
    assert not work.called
    assert (bounds.path_s, bounds.link_s) == (alone.path_s, alone.link_s)
    assert {part.name: part.seconds for part in bounds.parts} == {name: part_s for name, part_s in alone.parts_s.items() if part_s}


def test_the_document_is_that_of_the_metrics_and_what_was_asked() -> None:
    made = result()

    document = json.loads(json.dumps(made.to_dict()))

    assert list(document) == [*made.metrics.to_dict(), "time_to_train_s", "bounds", "cost", "goodput", "checks", "scenario_hash"]
    assert document["schema_version"] == 1
    assert document["checks"] == [{"check": "mfu >= 0.1", "value": 0.2, "values": {"mfu": 0.2}, "holds": True, "decided": True}]
    assert document["memory"]["by_stage"][0]["stage"] == 0


@pytest.mark.parametrize(("fits", "holds", "ok"), [(True, True, True), (False, True, False), (True, False, False)])
def test_it_is_well_when_it_fits_and_every_check_holds(fits: bool, holds: bool, ok: bool) -> None:
    assert result(fits=fits, holds=holds).ok is ok


def test_the_timeline_is_a_frame_with_one_row_for_each_span() -> None:
    made = result()

    frame = made.timeline()

    assert len(frame) == len(made.spans.spans)
    assert list(frame.columns)[:9] == ["rank_class", "stream", "kind", "name", "micro_batch", "start_s", "end_s", "bytes", "flops"]


@pytest.mark.parametrize("code", ["host_memory", "server_memory"])
def test_a_host_with_too_little_memory_is_not_ok(code: str) -> None:
    made = result()
    short = replace(made, metrics=replace(made.metrics, flags=(Flag(code=code, message="too little"),)))

    assert made.ok
    assert not short.ok
    assert [flag.code for flag in short.host_shortages] == [code]


@pytest.mark.parametrize("changes", [(), ("-5.0 %: recomputation none; -s strategy.recompute=none",)])
def test_the_bottleneck_is_printed_unless_a_change_shortens_the_step(changes: tuple[str, ...]) -> None:
    console = Console(file=StringIO(), width=100, color_system=None)
    with console.capture() as printed:
        print_result(result(), console, measured=MeasuredChanges(changes=changes, remarks=("not replayed: 3 more changes",)))

    assert ("\nBottleneck\n" not in printed.get()) is bool(changes)
    assert "\n  not replayed: 3 more changes\n" in printed.get()


def test_a_printed_result_is_the_page_that_run_prints() -> None:
    text = str(result())

    assert repr([result()]).startswith("[<Result reference: step time ")
    assert len(repr(result())) < 120
    # As on a terminal of 100 columns; the fields of the classes inside were 90,000 characters.
    assert 500 < len(text) < 5_000
    assert max(map(len, text.splitlines())) <= 100
    assert text.splitlines()[0] == "reference"
    assert "\nWhere the step goes (mean over ranks)\n" in text
    assert "\nBottleneck\n  Step time is bound by" in text
    assert "\nChecks\n  mfu >= 0.1 holds (20.0 %)\n" in text
    # Links and the lower bound are for those who ask.
    assert "Busiest links" not in text
    assert "Lower bound" not in text


SMALL = ["training.global_batch_size=64"]


def test_a_step_without_budget_and_checks_has_its_lower_bound_alone_and_none_that_equals_it() -> None:
    above, equal = replace(result(), checks=()), run("llama3-8b-8xh100", set=[*SMALL, "checks=[]"])

    assert verdict_sections(above) == (("Lower bound", (BOUNDS.sentence,)),)
    assert verdict_sections(equal) == ()


def test_a_token_budget_gives_the_time_of_the_whole_training() -> None:
    result = run("llama3-8b-8xh100", set=[*SMALL, "training.tokens=1T", "checks=[]"])

    ((heading, (sentence,)),) = verdict_sections(result)
    assert heading == "Whole training"
    assert result.time_to_train_s == 1e12 / result.metrics.tokens_per_s
    assert sentence.startswith("1T tokens take ")


def test_failures_and_cost_have_sections_of_their_own() -> None:
    result = run("llama3-8b-8xh100", set=[*SMALL, "checks=[]", "cost.gpu_hour=2 USD", "reliability={node_mtbf: 1 year, restart: 5 min}"])

    sections = dict(verdict_sections(result))

    assert list(sections) == ["With failures", "Power and cost"]
    assert sections["With failures"][0].startswith("goodput 99.")
    assert sections["Power and cost"][0].startswith("an accelerator draws ")


def test_checks_say_whether_they_hold_and_their_values_those_first_that_do_not() -> None:
    result = run("llama3-8b-8xh100", set=[*SMALL, "checks=['mfu >= 0.0001', 'mfu <= 0.0001']"])

    ((heading, lines),) = verdict_sections(result)

    assert heading == "Checks"
    assert lines[0].startswith("mfu <= 0.0001 is false (")
    assert lines[1].startswith("mfu >= 0.0001 holds (")


def test_the_head_of_a_report_names_adapters_and_packed_documents() -> None:
    tuned = run("llama3-8b-8xh100", set=[*SMALL, "checks=[]", "training.lora_rank=16", "training.document_tokens=512"])

    assert "LoRA rank 16, packed documents of 512 tokens" in " ".join(str(tuned).split())
    assert tuned.trained == "LoRA rank 16, packed documents of 512 tokens"


def test_the_interval_says_that_an_accelerator_is_the_users_own() -> None:
    own = run("llama3-8b-8xh100", set=[*SMALL, "checks=[]", "cluster.accelerator={base: b200-sxm, name: x9}"])

    (said,) = [flag.message for flag in own.flags if flag.code == "interval_not_measured"]
    assert said.startswith("no run of x9, an accelerator of your own, was measured; the interval")

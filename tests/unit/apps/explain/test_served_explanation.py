"""Explanations of serving runs."""

from __future__ import annotations

import json

import pytest

from clustersim.apps.explain.explanation import explain
from clustersim.apps.explain.served_explanation import ServedExplanation
from clustersim.apps.serve.deployment import build_serving
from clustersim.apps.serve.deployment_run import run_serving
from clustersim.config.load import read_source
from clustersim.config.overriding import parse_override
from clustersim.config.serving_scenario import checked_serving

CHAT = "serve-llama3-70b-chat"
FEW = ("requests.count=100", "requests.warmup=0")


def explained(*overrides: str, changes: bool = True) -> ServedExplanation:
    found = explain(CHAT, (*FEW, *overrides), changes=changes)
    assert isinstance(found, ServedExplanation)
    return found


def test_a_gain_is_the_difference_that_the_change_makes_in_a_run_of_its_own() -> None:
    found = explained()
    best = found.gains[0]
    changes = [parse_override(each) for each in (*FEW, *best.change.overrides)]
    again = run_serving(build_serving(checked_serving(read_source(CHAT), changes))).metrics.e2e_s
    base = found.result.metrics.e2e_s

    assert again is not None
    assert base is not None
    assert 1.0 - again.mean / base.mean == pytest.approx(best.saved_fraction, rel=1e-12)
    assert best.better_than_base == "not decided"
    assert found.lines()[-1].endswith("less, within the error bars: not decided.")
    assert found.tables()[1].rows[0][0].endswith(" % *")
    assert [gain.saved_fraction for gain in found.gains] == sorted((gain.saved_fraction for gain in found.gains), reverse=True)


def test_an_overload_is_no_gain_and_other_gpus_and_the_slo_are_told() -> None:
    crowded = ("cluster.node=dgx-h100", "serving.precision=bf16", "serving.replicas=1", "model=llama3-70b")
    found = explained(*crowded, "requests.count=400", "requests.rate=6 /s", "slo={ttft_p99: 1 s}")

    assert found.result.metrics.requests.refused
    assert found.overloaded == ("tp 2 instead of 4",)
    assert [gain.metrics.gpus for gain in found.gains][:2] == [8, 4]
    assert "SLO of TTFT p99, 1 s: " in found.lines()[3]
    assert "tp 8 instead of 4 on 8 GPUs instead of 4, " in found.lines()[4]
    assert "; on as many GPUs weights in fp8 instead of bf16 (changes the model), " in found.lines()[4]
    assert found.lines()[5] == "Requests would come faster than they are answered with tp 2 instead of 4."
    assert found.tables()[1].rows[0][3:6:2] == ("8", "TTFT p99 met")


def test_changes_that_cannot_be_run_are_counted() -> None:
    assert explained("serving.tp=8").n_impossible >= 1


def test_without_changes_nothing_is_replayed() -> None:
    found = explained(changes=False)
    assert (found.gains, found.n_tried) == ((), 0)
    assert [table.heading for table in found.tables()] == ["Terms of an engine step, mean over steps", "Constants"]


def test_front_end_and_engine_are_the_time_to_the_first_token() -> None:
    found = explained(changes=False)
    engine = found.result.built.pools[0].model.engine
    tokens = float(found.result.run.requests.input_tokens.mean())
    assert found.frontend_s == pytest.approx(engine.frontend_base_s + engine.frontend_per_token_s * tokens, rel=1e-12)
    assert "in the front end" in found.lines()[0]
    metrics = found.result.metrics
    assert f"{100 * metrics.output_tokens_per_s / metrics.full_load_output_tokens_per_s:.1f} % of what full batches" in found.lines()[2]


def test_every_constant_has_a_source_and_the_document_is_json() -> None:
    found = explained(changes=False)
    assert all(constant.sources for constant in found.constants)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["scenario"] == CHAT

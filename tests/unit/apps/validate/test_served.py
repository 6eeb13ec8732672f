from __future__ import annotations

import pytest

from clustersim.apps.validate.served import (
    METRICS,
    ServedResult,
    served_result,
    served_rows,
    served_source_names,
    summaries,
    validate_served,
)
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import profile_names


def _result(name: str, measured: float, predicted: float) -> ServedResult:
    return ServedResult(
        id=name,
        source_id="any",
        load="1/1",
        model="any",
        node="any",
        engine="vllm",
        precision="bf16",
        accelerators=1,
        measured={"tpot_s": measured},
        predicted={"tpot_s": predicted},
        baseline={"tpot_s": 2.0 * measured},
    )


@pytest.mark.parametrize("name", served_source_names())
def test_each_shipped_row_names_a_node_and_has_a_measurement(name: str) -> None:
    rows = list(served_rows(name))

    assert len({row.id for row in rows}) == len(rows) > 2
    assert {row.scenario["cluster"]["node"] for row in rows} <= set(profile_names("nodes"))  # type: ignore[index, call-overload]
    assert all(row.measured and set(row.measured) <= set(METRICS) for row in rows)
    assert all(value > 0.0 for row in rows for value in row.measured.values())


def test_errors_are_summed_up_by_metric() -> None:
    (summary,) = summaries([_result("a", 1.0, 1.1), _result("b", 1.0, 0.8), _result("c", 1.0, 1.0)])

    assert summary.metric == "tpot_s"
    assert summary.n_rows == 3
    assert summary.median == pytest.approx(0.1)
    assert summary.p90 == pytest.approx(0.18)
    assert summary.bias == pytest.approx(0.0)
    assert summary.baseline_median == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("source", "row", "metric"),
    [
        ("inferencex", "ix-1941", "tpot_s"),
        ("aiconfigurator", "na-0775", "tpot_s"),
        ("inference_bench", "ar-1998", "output_tokens_per_s"),  # vLLM of 2024 reads a cache for each of seven heads
        ("tensorrt_llm", "tr-0936", "output_tokens_per_s"),  # prompts in nvfp4
    ],
)
def test_a_published_run_is_met_within_a_tenth(source: str, row: str, metric: str) -> None:
    (chosen,) = (each for each in served_rows(source) if each.id == row)

    assert abs(served_result(chosen).errors[metric]) < 0.1


def test_a_source_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(ScenarioError, match="unknown source 'vllm'") as caught:
        validate_served(["vllm"])

    assert "inferencex" in str(caught.value)


@pytest.mark.parametrize("row_id", ["ls-00", "ls-03"], ids=["full cache", "two accelerators without NVLink"])
def test_requests_take_as_long_as_measured(row_id: str) -> None:
    found = served_result(next(row for row in served_rows("llmservingsim") if row.id == row_id))

    assert found.errors["tpot_s"] == pytest.approx(0.0, abs=0.03)  # the goal; 0.038 where preempted prompts are computed anew
    assert found.errors["ttft_s"] == pytest.approx(0.0, abs=0.05)

"""Steps of a production job without stragglers, by the publisher of its records and by a replay of them."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Final

import pytest

from clustersim.apps.records.recorded_answer import RecordedAnswer, answered_records

RECORDS: Final = Path(__file__).parent / "stragglers" / "trace-ST.parquet"
WITHOUT_STRAGGLERS_S: Final = 1.8433
"""``step_t_noblk``, the same for all steps."""
WITHOUT_DELAYS_S: Final = {
    23: 2.3397,
    25: 2.3334,
    33: 2.1029,
    34: 2.0583,
    36: 2.0898,
    259: 2.1687,
    261: 2.1801,
    263: 2.185,
    264: 2.1755,
    266: 2.1701,
    273: 2.1781,
    276: 2.1814,
    278: 2.1747,
    288: 2.1681,
    514: 2.1792,
    516: 2.1565,
    519: 2.1846,
    525: 2.1808,
    526: 2.1656,
    530: 2.1711,
    535: 2.1816,
    538: 2.1577,
    1010: 2.168,
    1012: 2.169,
    1021: 2.1614,
    1023: 2.1621,
    1026: 2.1751,
    1028: 2.1793,
    1029: 2.133,
    1039: 2.1734,
    1043: 2.1507,
    1048: 2.1715,
}
"""``step_t_nodelay``."""
STATED: Final = 0.03
"""The replay has the dependencies that the records show, and not those of the framework."""


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def answer() -> RecordedAnswer:
    pytest.importorskip("duckdb", reason="reads Parquet")
    return answered_records([str(RECORDS)])


def test_each_step_is_replayed_as_published(answer: RecordedAnswer) -> None:
    replayed = dict(zip(answer.steps, answer.replayed.step_times_s, strict=True))

    assert replayed == pytest.approx(WITHOUT_DELAYS_S, rel=STATED)


def test_the_step_without_stragglers_is_that_published(answer: RecordedAnswer) -> None:
    assert list(answer.even.step_times_s) == pytest.approx([WITHOUT_STRAGGLERS_S] * len(answer.steps), rel=STATED)


def test_the_last_stage_is_found_to_be_the_slow_one(answer: RecordedAnswer) -> None:
    # Published: a slowdown of 1.23 with the stragglers of stage 3 alone, and of at most 1.00 with those of another stage alone.
    stages = {each.changes["even"]: each.step_time_s for each in answer.parts if "stage" in str(each.changes["even"])}

    assert min(stages, key=lambda each: stages[each]) == "stage 3"
    assert all(seconds >= answer.replayed.step_time_s for stage, seconds in stages.items() if stage != "stage 3")


def test_stragglers_cost_what_was_published(answer: RecordedAnswer) -> None:
    slowdown = fmean(answer.replayed.step_times_s) / fmean(answer.even.step_times_s)

    assert slowdown == pytest.approx(1.1787, rel=STATED)

"""Parts of the step, and percentages that sum to 100.0 as printed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.measure.metrics import Breakdown, ByDimension
from clustersim.report.shares import PART_COLOURS, PART_LABELS, hidden_communication, percentages, step_seconds, step_shares
from tests.golden.reference import reference_metrics, reference_timeline

METRICS = reference_metrics(reference_timeline())


@given(st.lists(st.floats(min_value=0.0, max_value=1e6), min_size=1, max_size=12))
def test_printed_percentages_sum_to_100(values: list[float]) -> None:
    printed = percentages(values)

    tenths = sum(round(10 * percent) for percent in printed)
    assert tenths == (1000 if math.fsum(values) > 0 else 0)


@given(st.lists(st.floats(min_value=1e-3, max_value=1e3), min_size=1, max_size=12))
def test_no_percentage_is_off_by_a_tenth(values: list[float]) -> None:
    printed = percentages(values)

    total = math.fsum(values)
    for value, percent in zip(values, printed, strict=True):
        # The largest-remainder method rounds each value up or down to a neighbouring tenth.
        assert abs(percent - 100 * value / total) < 0.1 + 1e-9


def test_percentages_of_a_part_sum_to_that_part() -> None:
    assert percentages([1.0, 1.0, 1.0], 57.3) == (19.1, 19.1, 19.1)
    assert percentages([2.0, 1.0], 10.0) == (6.7, 3.3)
    assert percentages([0.0, 0.0]) == (0.0, 0.0)
    assert percentages([]) == ()


def test_shares_of_parts_that_took_time_sum_to_the_step() -> None:
    # Round-off is not a part.
    shares = step_shares(replace(METRICS, breakdown_s=replace(METRICS.breakdown_s, stall=1e-15)))

    assert [share.key for share in shares] == ["compute", "tp", "pp", "dp", "bubble", "optimizer", "host"]
    assert math.fsum(share.seconds for share in shares) == pytest.approx(METRICS.step_time_s, rel=1e-9)
    assert math.fsum(share.fraction for share in shares) == pytest.approx(1.0, rel=1e-12)
    assert round(math.fsum(share.percent for share in shares), 9) == 100.0


def test_only_waiting_is_idle() -> None:
    breakdown = Breakdown(compute=1.0, exposed_communication=ByDimension(), bubble=1.0, stall=1.0, optimizer=1.0, host=1.0)

    shares = step_shares(replace(METRICS, breakdown_s=breakdown))

    assert [share.key for share in shares if share.is_idle] == ["bubble", "stall"]


def test_every_part_has_seconds_and_a_colour() -> None:
    assert list(step_seconds(METRICS)) == list(PART_LABELS)
    assert set(PART_COLOURS) == set(PART_LABELS)


def test_hidden_communication_is_listed_by_dimension() -> None:
    hidden = hidden_communication(METRICS)

    assert [dimension for dimension, _ in hidden] == ["pp", "dp"]
    # Half of a 20 ms backward pass hides ten of the sixteen milliseconds that the four buckets take.
    assert dict(hidden)["dp"] == pytest.approx(10e-3, rel=1e-9)

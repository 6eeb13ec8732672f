"""Bubble in closed form."""

from __future__ import annotations

import pytest

from clustersim.measure.step_breakdown import BUBBLES_S, PassTimes, PipelineShape, closed_form_bubble, pass_times
from clustersim.parallel.schedules import SCHEDULES
from tests.golden.reference import reference_timeline


def pipe(schedule: str, p: int = 4, m: int = 8, v: int = 1) -> PipelineShape:
    return PipelineShape(schedule=schedule, n_stages=p, n_micro_batches=m, virtual_stages=v)


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 16), (8, 8)])
def test_the_bubble_of_1f1b_depends_on_stages_and_micro_batches_alone(p: int, m: int) -> None:
    timeline = reference_timeline(p, m)

    assert closed_form_bubble(pipe("1f1b", p, m), timeline) == pytest.approx((p - 1) / (m + p - 1), rel=1e-12)


def test_chunks_divide_the_bubble() -> None:
    timeline = reference_timeline(4, 8, 2)

    assert closed_form_bubble(pipe("interleaved_1f1b", v=2), timeline) == pytest.approx(3 / (8 * 2 + 3), rel=1e-12)


def test_weight_gradients_fill_the_bubble() -> None:
    times = PassTimes(forward_s=1.0, backward_s=2.0, weight_s=1.0)

    # Sea AI Lab, table 2: (p - 1)(t_f + t_b - t_w) and (p - 1)(t_f + t_b - 2 t_w), with t_b that of the input gradient.
    assert BUBBLES_S["zb_h1"](pipe("zb_h1"), times) == 3 * (1.0 + 1.0 - 1.0)
    assert BUBBLES_S["zb_h2"](pipe("zb_h2"), times) == 0.0


def test_where_there_is_no_pipeline_or_no_formula_there_is_none() -> None:
    assert closed_form_bubble(pipe("1f1b", p=1), reference_timeline()) is None
    assert closed_form_bubble(pipe(""), reference_timeline()) is None


def test_every_formula_is_that_of_a_schedule() -> None:
    assert set(BUBBLES_S) <= set(SCHEDULES)


def test_times_of_passes_are_those_made_by_hand() -> None:
    times = pass_times(pipe("1f1b"), reference_timeline())

    # 8.4 ms of layers and 1.6 ms of tensor-parallel communication there; 20 ms back.
    assert times.forward_s == pytest.approx(10e-3, rel=1e-9)
    assert times.both_s == times.forward_s + times.backward_s

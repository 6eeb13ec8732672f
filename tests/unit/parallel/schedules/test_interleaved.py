"""Interleaved 1F1B as in Megatron-LM: chunks of a stage take turns, a round of p micro-batches each."""

from __future__ import annotations

import pytest

from clustersim.parallel.schedules.interleaved import interleaved_1f1b
from clustersim.parallel.schedules.one_f_one_b import one_f_one_b
from clustersim.parallel.schedules.order import StageOrder, backward, forward
from tests.unit.parallel.factories import peak_in_flight


def n_warm_up(order: StageOrder) -> int:
    """Return the forward passes before the first backward pass, less the one that is paired with it."""
    return next(position for position, step in enumerate(order) if step.goes_back) - 1


def test_the_last_of_two_stages_takes_turns_between_its_chunks() -> None:
    last = interleaved_1f1b(2, 4, 2)[1]

    assert last == (
        *(forward(0), forward(1)),
        *(forward(0, 1), backward(0, 1), forward(1, 1), backward(1, 1)),
        *(forward(2), backward(0), forward(3), backward(1)),
        *(forward(2, 1), backward(2, 1), forward(3, 1), backward(3, 1)),
        *(backward(2), backward(3)),
    )


@pytest.mark.parametrize(("p", "m", "v"), [(2, 4, 2), (4, 8, 2), (4, 16, 3), (8, 64, 3)])
def test_warm_up_is_that_of_megatron(p: int, m: int, v: int) -> None:
    orders = interleaved_1f1b(p, m, v)

    assert [n_warm_up(order) for order in orders] == [2 * (p - stage - 1) + (v - 1) * p for stage in range(p)]


def test_the_last_stage_goes_back_as_soon_as_its_last_chunk_has_gone_forward_even_with_as_many_micro_batches_as_stages() -> None:
    *_, last = interleaved_1f1b(4, 4, 2)

    assert [step.goes_back for step in last] == [False] * 4 + [False, True] * 4 + [True] * 4


@pytest.mark.parametrize(("p", "m", "v"), [(2, 4, 2), (4, 8, 2), (8, 64, 3)])
def test_the_first_stage_keeps_one_plus_p_minus_1_over_p_v_of_its_layers_p_times(p: int, m: int, v: int) -> None:
    # Korthikanti et al., section 4.2.3: L (1 + (p - 1) / (p v)) layers, of which a chunk has L / (p v).
    peak = peak_in_flight(interleaved_1f1b(p, m, v)[0], [1.0] * v)

    assert peak == p * v + p - 1


def test_later_stages_keep_two_chunks_less_each() -> None:
    peaks = [peak_in_flight(order, [1.0] * 2) for order in interleaved_1f1b(4, 8, 2)]

    assert peaks == [11, 9, 7, 5]


def test_chunks_may_differ_in_what_they_keep() -> None:
    heavy_first, heavy_last = (peak_in_flight(interleaved_1f1b(2, 4, 2)[0], sizes) for sizes in ([3.0, 1.0], [1.0, 3.0]))

    assert heavy_first > heavy_last


def test_backward_passes_begin_with_the_last_chunk() -> None:
    for order in interleaved_1f1b(4, 8, 3):
        first = next(step for step in order if step.goes_back)

        assert first == backward(0, 2)


def test_a_single_chunk_keeps_more_than_1f1b_because_it_warms_up_twice_as_long() -> None:
    once, twice = (n_warm_up(schedule(4, 8, 1)[0]) for schedule in (one_f_one_b, interleaved_1f1b))

    assert (once, twice) == (3, 6)

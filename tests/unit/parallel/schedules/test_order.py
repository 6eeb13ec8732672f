from __future__ import annotations

from clustersim.parallel.schedules.order import Pass, backward, forward, input_gradient, side_by_side, weight_gradient
from tests.unit.parallel.factories import peak_in_flight


def test_a_pass_is_known_by_direction_micro_batch_and_chunk() -> None:
    assert forward(3, 1) == Pass("F", micro_batch=3, chunk=1)
    assert backward(3) == Pass("B", micro_batch=3, chunk=0)


def test_the_peak_counts_what_each_chunk_keeps() -> None:
    order = (forward(0, 0), forward(0, 1), backward(0, 1), backward(0, 0))

    assert peak_in_flight(order, [3.0, 5.0]) == 8.0


def test_what_a_backward_pass_frees_is_free_for_the_next_forward_pass() -> None:
    assert peak_in_flight((forward(0), backward(0), forward(1), backward(1)), [2.0]) == 2.0


def test_a_micro_batch_whose_weight_gradient_waits_keeps_what_that_needs() -> None:
    order = (forward(0), input_gradient(0), forward(1), weight_gradient(0), input_gradient(1), weight_gradient(1))

    assert peak_in_flight(order, [5.0], [3.0]) == 8.0
    assert peak_in_flight(order, [5.0]) == 10.0


def test_passes_side_by_side_are_equal_to_passes_one_by_one() -> None:
    pair = side_by_side(forward(2), backward(1, 1))

    assert pair == (forward(2), backward(1, 1))
    assert [step.beside_next for step in pair] == [True, False]


def test_gradients_go_back_and_complete_weights_by_their_kind() -> None:
    steps = [forward(0), backward(0), input_gradient(0), weight_gradient(0)]

    assert [step.goes_back for step in steps] == [False, True, True, False]
    assert [step.makes_weight_gradients for step in steps] == [False, True, False, True]

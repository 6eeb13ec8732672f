"""Layers one after the other: who needs the gradient of its input, and who keeps it."""

from __future__ import annotations

from dataclasses import replace

from clustersim.workloads.kinds.call import chain, has_parameters
from clustersim.workloads.kinds.joining import View
from clustersim.workloads.kinds.normalization import Activation, Dropout, LinearLayer
from tests.unit.workloads.kinds.factories import FUSED

LINEAR = LinearLayer(input=(8,), features=8, bias=False)
ACTIVATION = Activation(input=(8,))


def test_nothing_needs_a_gradient_of_its_input_until_something_has_learnt() -> None:
    operators = chain((ACTIVATION, LINEAR, ACTIVATION), replace(FUSED, input_gradient=False))

    assert [bool(operator.kernels("input_gradient")) for operator in operators] == [False, False, True]


def test_all_have_one_where_the_first_does() -> None:
    assert all(operator.kernels("input_gradient") for operator in chain((ACTIVATION, LINEAR), FUSED))


def test_an_input_that_is_kept_elsewhere_is_not_kept_by_the_first_layer_alone() -> None:
    first, second = chain((LINEAR, LINEAR), replace(FUSED, input_kept=True))

    assert (first.saved_bytes, second.saved_bytes) == (0.0, 4 * 8 * 2.0)


def test_a_view_changes_nothing_about_what_is_kept() -> None:
    (operator,) = chain((View(output=(8,)), LINEAR), replace(FUSED, input_kept=True))

    assert operator.saved_bytes == 0.0


def test_only_layers_with_parameters_learn() -> None:
    assert has_parameters(LINEAR.operators(FUSED))
    assert not has_parameters(Dropout(input=(8,)).operators(FUSED))

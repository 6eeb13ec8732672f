"""A model as a list of layers."""

from __future__ import annotations

from dataclasses import replace

from clustersim.workloads.kinds.normalization import Activation, LinearLayer, SoftmaxLoss
from clustersim.workloads.layered import Layered
from tests.unit.workloads.kinds.factories import NUMERICS

FIRST, SECOND = LinearLayer(input=(8,), features=6, bias=True), LinearLayer(input=(6,), features=4, bias=False)
MODEL = Layered(
    name="perceptron",
    input=(8,),
    tokens_per_sample=1,
    layers=(FIRST, Activation(input=(6,)), SECOND, SoftmaxLoss(input=(4,))),
)


def test_parameters_and_flops_are_those_of_all_layers() -> None:
    assert MODEL.n_layers == 4
    assert MODEL.n_parameters == 9 * 6 + 6 * 4
    assert MODEL.forward_flops == 2 * (8 * 6 + 6 * 4)


def test_only_layers_behind_the_first_that_learns_have_a_gradient_of_their_input() -> None:
    needs = [bool(MODEL.layer_operators(layer, 2, NUMERICS)[0].kernels("input_gradient")) for layer in range(4)]

    assert needs == [False, True, True, True]


def test_layers_before_the_first_that_learns_do_nothing_backward() -> None:
    late = replace(MODEL, layers=(Activation(input=(8,)), *MODEL.layers))

    needs = [bool(late.layer_operators(layer, 2, NUMERICS)[0].kernels("input_gradient")) for layer in range(5)]

    assert needs == [False, False, True, True, True]

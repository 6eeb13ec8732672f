"""Properties of every model that is a list of layers."""

from __future__ import annotations

from math import isclose, prod

from hypothesis import given
from hypothesis import strategies as st

from clustersim.workloads.kinds.call import Layer, LayerCall
from clustersim.workloads.kinds.images import ConvolutionLayer, PoolLayer
from clustersim.workloads.kinds.joining import Concatenation, ResidualPath, View
from clustersim.workloads.kinds.normalization import Activation, Dropout, LinearLayer, NormLayer
from clustersim.workloads.layered import Layered
from clustersim.workloads.operators import Convolution
from tests.unit.workloads.kinds.factories import EAGER, FUSED, backward_bytes, forward_bytes, saved_bytes

SIDES = st.sampled_from([1, 2, 3, 5, 7])


@st.composite
def convolutions(draw: st.DrawFn, shape: tuple[int, int, int]) -> ConvolutionLayer:
    kernel = draw(st.tuples(SIDES, SIDES))
    return ConvolutionLayer(
        input=shape,
        filters=draw(st.sampled_from([4, 8, 12])),
        kernel=kernel,
        stride=draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        padding=(kernel[0] // 2, kernel[1] // 2),
        groups=draw(st.sampled_from([1, 2, 4])),
        bias=draw(st.booleans()),
    )


@st.composite
def models(draw: st.DrawFn) -> Layered:
    shape: tuple[int, int, int] = (4, draw(st.integers(3, 20)), draw(st.integers(3, 20)))
    start, layers = shape, list[Layer]()
    for _ in range(draw(st.integers(1, 5))):
        conv = draw(convolutions(shape))
        same = ConvolutionLayer(input=shape, filters=shape[0], kernel=(3, 3), stride=(1, 1), padding=(1, 1), groups=1, bias=False)
        layer: Layer = draw(
            st.sampled_from(
                [
                    conv,
                    NormLayer(input=shape, kind="batch", activated=True),
                    Activation(input=shape),
                    Dropout(input=shape),
                    PoolLayer(input=shape, kind="max", places=(max(1, shape[1] // 2), max(1, shape[2] // 2))),
                    ResidualPath(input=shape, layers=(same,), shortcut=(), activated=True),
                    Concatenation(input=shape, paths=((same,), (same, Activation(input=shape)), ())),
                ]
            )
        )
        layers.append(layer)
        channels, rows, columns = layer.output
        shape = (channels, rows, columns)
    layers += [View(output=(prod(shape),)), LinearLayer(input=(prod(shape),), features=3, bias=True)]
    return Layered(name="drawn", input=start, tokens_per_sample=1, layers=tuple(layers))


@given(models(), st.integers(1, 6))
def test_work_and_memory_grow_with_the_samples_and_parameters_do_not(model: Layered, samples: int) -> None:
    for layer in range(model.n_layers):
        one = model.layer_operators(layer, 1, FUSED.numerics)
        many = model.layer_operators(layer, samples, FUSED.numerics)
        assert [operator.parameters for operator in many] == [operator.parameters for operator in one]
        assert isclose(sum(operator.forward_flops for operator in many), samples * sum(operator.forward_flops for operator in one))
        assert isclose(saved_bytes(many), samples * saved_bytes(one))


@given(models())
def test_fused_kernels_never_move_more_than_eager_ones_forward(model: Layered) -> None:
    for layer in model.layers:
        assert forward_bytes(layer.operators(FUSED)) <= forward_bytes(layer.operators(EAGER))


@given(models())
def test_leaving_out_the_gradient_of_the_input_never_adds_work(model: Layered) -> None:
    for layer in model.layers:
        first = layer.operators(LayerCall(samples=4, numerics=FUSED.numerics, input_gradient=False))
        assert backward_bytes(first) <= backward_bytes(layer.operators(FUSED))
        assert forward_bytes(first) == forward_bytes(layer.operators(FUSED))


@given(models())
def test_every_layer_receives_what_the_one_before_it_gives(model: Layered) -> None:
    for index, layer in enumerate(model.layers):
        received = model.layer_input(index)
        assert received == (model.layers[index - 1].output if index else model.input)
        assert all(side >= 1 for side in layer.output)


@given(st.integers(1, 30), st.integers(1, 30), SIDES, st.integers(1, 4))
def test_a_convolution_of_one_row_and_column_is_a_linear_layer(inputs: int, outputs: int, samples: int, stride: int) -> None:
    point = Convolution(batch=samples, channels=inputs, height=1, width=1, filters=outputs, kernel=(1, 1), stride=(stride, stride))

    assert point.flops == 2 * samples * inputs * outputs
    assert point.traffic_bytes == 2 * (samples * inputs + inputs * outputs + samples * outputs)

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.workloads.linear import LinearShape, linear
from clustersim.workloads.operators import Gemm, KernelPhase, Operator, Stream
from clustersim.workloads.shapes import Numerics
from tests.unit.parallel.factories import gemms, traffic_bytes
from tests.unit.workloads.kinds.factories import NUMERICS

SHAPE = LinearShape(rows=96, inputs=5, outputs=7, bias=False, saved_rows=96)


def layer(shape: LinearShape = SHAPE, numerics: Numerics = NUMERICS) -> Operator:
    return linear("layer", shape, numerics)


@pytest.mark.parametrize(("direction", "shape"), [("forward", (96, 7, 5)), ("input_gradient", (96, 5, 7)), ("weight_gradient", (5, 7, 96))])
def test_each_product_has_the_shape_of_its_result(direction: KernelPhase, shape: tuple[int, int, int]) -> None:
    (product,) = gemms(layer().kernels(direction))

    assert (product.m, product.n, product.k) == shape


@pytest.mark.parametrize(("bias", "parameters"), [(False, 35), (True, 42)])
def test_a_bias_is_one_parameter_for_each_output(bias: bool, parameters: int) -> None:
    assert layer(replace(SHAPE, bias=bias)).parameters == parameters


def test_the_gradient_of_a_bias_reads_the_gradient_once_more() -> None:
    with_bias, without = layer(replace(SHAPE, bias=True)), layer()

    assert traffic_bytes(with_bias.kernels("weight_gradient")) - traffic_bytes(without.kernels("weight_gradient")) == 2 * 96 * 7
    assert with_bias.kernels("weight_gradient")[-1] == Stream(2 * 96 * 7, launches=2)  # the sum over rows, and its accumulation
    assert with_bias.kernels("forward") == without.kernels("forward")


def test_the_input_is_kept_as_far_as_this_rank_holds_it() -> None:
    assert layer().saved_bytes == 2 * 96 * 5
    assert layer(replace(SHAPE, saved_rows=12)).saved_bytes == 2 * 12 * 5


def test_fused_accumulation_adds_into_the_buffer_within_the_product() -> None:
    (product,) = layer().kernels("weight_gradient")

    assert product == Gemm(5, 7, 96, element_bytes=2.0, output_bytes=4.0, accumulates=True, vector_bytes=2)


def test_without_it_a_kernel_of_its_own_reads_the_gradient_and_reads_and_writes_the_buffer() -> None:
    product, adding = layer(numerics=replace(NUMERICS, fused_gradient_accumulation=False)).kernels("weight_gradient")

    assert product == Gemm(5, 7, 96, element_bytes=2.0, output_bytes=2.0, vector_bytes=2)
    assert adding == Stream(5 * 7 * (2 + 4 + 4))


def test_fp8_narrows_the_operands_and_what_is_kept_of_them() -> None:
    narrow = layer(numerics=replace(NUMERICS, gemm_element_bytes=1.0))
    products = gemms(narrow.kernels("forward") + narrow.kernels("input_gradient"))

    assert [(product.element_bytes, product.output_bytes) for product in products] == [(1.0, 2.0)] * 2
    assert narrow.saved_bytes == layer().saved_bytes / 2
    assert narrow.forward_flops == layer().forward_flops


def test_operands_in_8_bits_are_cast_with_their_transposes() -> None:
    narrow = layer(numerics=replace(NUMERICS, gemm_element_bytes=1.0))

    casts = [kernels[0] for kernels in (narrow.kernels("forward"), narrow.kernels("input_gradient"))]
    gained = [traffic_bytes(kernels) for kernels in (narrow.kernels("forward"), narrow.kernels("input_gradient"))]
    products = [traffic_bytes(tuple(gemms(kernels))) for kernels in (narrow.kernels("forward"), narrow.kernels("input_gradient"))]

    assert all(isinstance(cast, Stream) for cast in casts)
    # Two bytes are read and two are written for each number of input and of output gradient.
    rows = layer().saved_bytes / 2 / 5
    assert [all_ - product for all_, product in zip(gained, products, strict=True)] == [rows * 5 * 4, rows * 7 * 4]


def test_gradients_that_are_clipped_alone_are_read_and_written_before_they_are_added() -> None:
    plain = replace(NUMERICS, fused_gradient_accumulation=False)

    _, adding = layer(numerics=replace(plain, gradient_passes=3)).kernels("weight_gradient")

    assert adding == Stream(5 * 7 * (2 + 4 + 4 + 3 * 4))


@pytest.mark.parametrize(
    ("inputs", "outputs", "operand_bytes", "at_once"),
    [
        (768, 50304, 2.0, 16),
        (768, 50257, 2.0, 2),
        (50257, 768, 2.0, 2),
        (768, 30522, 2.0, 4),
        (1000, 8, 2.0, 16),
        (1000, 8, 1.0, 8),
        (3, 4, 4.0, 4),
    ],
)
def test_its_products_read_at_once_what_inputs_and_outputs_allow(inputs: int, outputs: int, operand_bytes: float, at_once: int) -> None:
    operator = layer(replace(SHAPE, inputs=inputs, outputs=outputs), replace(NUMERICS, gemm_element_bytes=operand_bytes))
    products = gemms(operator.kernels("forward") + operator.kernels("input_gradient") + operator.kernels("weight_gradient"))

    assert [product.vector_bytes for product in products] == [at_once] * 3


def test_the_number_of_rows_does_not_matter_to_that() -> None:
    (product,) = gemms(layer(replace(SHAPE, rows=97, inputs=768, outputs=768)).kernels("forward"))

    assert product.vector_bytes == 16

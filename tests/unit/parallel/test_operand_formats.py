"""Formats of operands in 8 bits, and layers that stay in 16."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from clustersim.parallel.stage_passes import ChunkPasses
from clustersim.parallel.stages import ModelChunk
from clustersim.program.tasks import Item
from clustersim.workloads.experts import GroupShape, grouped_linear
from clustersim.workloads.operators import Gemm, Stream
from clustersim.workloads.shapes import SCALINGS, Scaling
from tests.unit.parallel import factories
from tests.unit.parallel.factories import LLAMA, chunk_passes, collectives_of, local_of, make_plan

H = LLAMA.hidden_size


def cast_of(scaling: str, **layout: object) -> tuple[Stream, int]:
    """Return the cast of the input of a layer's first product, and its elements."""
    local = local_of(make_plan(LLAMA, precision="fp8", fp8_scaling=scaling, **layout))
    cast, product = next(each for each in local.layer(0) if each.name == "qkv").kernels("forward")
    assert isinstance(cast, Stream)
    assert isinstance(product, Gemm)
    return cast, product.m * product.k


@pytest.mark.parametrize(
    ("scaling", "bytes_each", "launches"),
    # Read in 16 bits, written twice in 8; a further read for the maximum; 4 bytes for 128 numbers, 1 byte for 32 or for 16 of half a byte.
    [
        ("delayed", 4.0, 1),
        ("tensor", 6.0, 4),
        ("row", 6.0, 2),
        ("block", 4.0 + 8 / 128, 1),
        ("mx", 4.0 + 2 / 32, 4),
        ("nvfp4", 7.0 + 2 / 16, 7),
    ],
)
def test_a_cast_reads_what_its_scales_need_and_writes_them(scaling: str, bytes_each: float, launches: int) -> None:
    cast, elements = cast_of(scaling)

    assert cast.traffic_bytes == pytest.approx(bytes_each * elements, rel=1e-12)
    assert cast.launches == launches


@pytest.mark.parametrize(("scaling", "launches"), [("delayed", 1), ("tensor", 16), ("row", 8), ("block", 4), ("mx", 7), ("nvfp4", 19)])
def test_rows_of_experts_are_cast_for_each_but_with_delayed_scales(scaling: Scaling, launches: int) -> None:
    numerics = replace(factories.NUMERICS, gemm_element_bytes=1.0, scaling=scaling, grouped_experts=True)
    shape = GroupShape(rows=(64,) * 4, inputs=128, outputs=256, bias=False)

    cast, _ = grouped_linear("experts_up", shape, numerics).kernels("forward")

    assert isinstance(cast, Stream)
    assert (cast.launches, cast.one_call) == (launches, True)


@pytest.mark.parametrize(
    ("scaling", "bytes_each"),
    # A quarter is read and written, and all is transposed where it shares a scale; rows are cast after they are gathered.
    [
        ("delayed", (2 + 1) / 4 + 2),
        ("tensor", (4 + 1) / 4 + 2),
        ("row", 6.0),
        ("block", (4.0 + 8 / 128) / 4),
        ("mx", (4.0 + 2 / 32) / 4),
        ("nvfp4", (7.0 + 2 / 16) / 4),
    ],
)
def test_a_rank_casts_its_slice_of_the_sequence_and_gathers_it(scaling: str, bytes_each: float) -> None:
    cast, elements = cast_of(scaling, tp=4, sequence_parallel=True)

    assert cast.traffic_bytes == pytest.approx(bytes_each * elements, rel=1e-12)


@pytest.mark.parametrize(
    ("scaling", "bytes_each", "ways"),
    [
        ("delayed", 1.0, 1),
        ("tensor", 1.0, 1),
        ("row", 2.0, 1),
        ("block", 1 + 4 / 128, 2),
        ("mx", 1 + 1 / 32, 2),
        ("nvfp4", 0.5 + 1 / 16, 2),
    ],
)
def test_what_products_take_in_8_bits_is_gathered_in_8_bits_and_sums_are_scattered_in_16(
    scaling: str, bytes_each: float, ways: int
) -> None:
    plan = make_plan(LLAMA, precision="fp8", fp8_scaling=scaling, tp=4, sequence_parallel=True)
    passes, elements = chunk_passes(plan), local_of(plan).whole.rows * H

    # Two products take a gradient, as it is and transposed, for which blocks are cast both ways; each pass takes an input in one way.
    blocks = (passes.layer_forward(), passes.layer_backward())
    moved = [[(each.op, each.bytes / elements) for each in collectives_of(block)] for block in blocks]
    inputs, gradients, sums = ("all_gather", bytes_each), ("all_gather", ways * bytes_each), ("reduce_scatter", 2.0)
    assert moved == [[inputs, sums] * 2, [gradients, inputs, sums] * 2]


def test_the_ends_and_layers_that_stay_in_16_bits_gather_16_bits() -> None:
    narrow, wide = (
        chunk_passes(make_plan(LLAMA, tp=4, sequence_parallel=True, **numbers))
        for numbers in ({"precision": "fp8", "bf16_layers": (1, 0)}, {"precision": "bf16"})
    )
    ends = ModelChunk(stage=0, chunk=0, start=0, n_layers=0, first=True, last=True, beside_first=True)

    def gathered(passes: ChunkPasses, *blocks: tuple[Item, ...]) -> list[float]:
        of_ends = [block.body for block in (*passes.forward(ends), *passes.backward(ends))]
        return [each.bytes for block in (*blocks, *of_ends) for each in collectives_of(block) if each.op == "all_gather"]

    first, of_wide = gathered(narrow, narrow.layer_forward(0)), gathered(wide, wide.layer_forward(0))
    assert first == of_wide != gathered(narrow, narrow.layer_forward(1))


def test_every_scaling_has_its_row() -> None:
    assert tuple(SCALINGS) == get_args(Scaling)


def test_layers_at_either_end_compute_in_16_bits() -> None:
    narrow, wide, mixed = (
        local_of(make_plan(LLAMA, precision=precision, bf16_layers=ends))
        for precision, ends in (("fp8", (0, 0)), ("bf16", (0, 0)), ("fp8", (1, 2)))
    )
    n_layers = LLAMA.n_layers

    assert [mixed.layer(layer) == wide.layer(layer) for layer in range(n_layers)] == [
        layer < 1 or layer >= n_layers - 2 for layer in range(n_layers)
    ]
    assert all(mixed.layer(layer) == narrow.layer(layer) for layer in range(1, n_layers - 2))
    assert sum(each.total for each in mixed.layer_weights()) == sum(each.total for each in narrow.layer_weights())

"""Pooling: shapes, and what indices cost."""

from __future__ import annotations

from dataclasses import replace

from clustersim.workloads.kinds.pooling import PoolLayer
from tests.unit.workloads.kinds.factories import EAGER, FUSED, backward_bytes, forward_bytes, saved_bytes

MEAN = PoolLayer(input=(16, 8, 8), kind="average", places=(4, 2))
LARGEST = replace(MEAN, kind="max")
IN_BYTES, OUT_BYTES, N_OUT = 4 * 16 * 64 * 2, 4 * 16 * 8 * 2, 4 * 16 * 8


def test_channels_stay_and_places_become_fewer() -> None:
    assert MEAN.output == (16, 4, 2)


def test_a_mean_is_one_read_and_one_write_each_way() -> None:
    for call in (FUSED, EAGER):
        assert forward_bytes(MEAN.operators(call)) == backward_bytes(MEAN.operators(call)) == IN_BYTES + OUT_BYTES


def test_an_eager_maximum_keeps_an_index_of_eight_bytes_and_scatters_into_zeros() -> None:
    operators = LARGEST.operators(EAGER)

    assert forward_bytes(operators) == IN_BYTES + OUT_BYTES + 8 * N_OUT
    assert backward_bytes(operators) == 2 * IN_BYTES + OUT_BYTES + 8 * N_OUT
    assert saved_bytes(operators) == IN_BYTES + 8 * N_OUT


def test_a_maximum_without_indices_reads_input_and_result_again() -> None:
    operators = LARGEST.operators(FUSED)

    assert backward_bytes(operators) == 2 * (IN_BYTES + OUT_BYTES)
    assert saved_bytes(operators) == IN_BYTES
    assert backward_bytes(LARGEST.operators(replace(FUSED, input_gradient=False))) == 0

"""A table of tokens, of its own or shared."""

from __future__ import annotations

from clustersim.workloads.kinds.tokens import EmbeddingLayer
from tests.unit.workloads.kinds.factories import FUSED, forward_bytes, parameters

LAYER = EmbeddingLayer(input=(6,), rows=100, features=8, shared=False)


def test_every_token_becomes_a_row_of_the_table() -> None:
    assert LAYER.output == (6, 8)
    assert parameters(LAYER.operators(FUSED)) == 800
    assert forward_bytes(LAYER.operators(FUSED)) == 2 * 4 * 6 * 8 * 2


def test_a_shared_table_is_counted_once() -> None:
    again = EmbeddingLayer(input=(6,), rows=100, features=8, shared=True)

    assert parameters(again.operators(FUSED)) == 0
    assert forward_bytes(again.operators(FUSED)) == forward_bytes(LAYER.operators(FUSED))

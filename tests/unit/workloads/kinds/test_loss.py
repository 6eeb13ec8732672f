"""Cross entropy in 32 bits, or on the logits as they are."""

from __future__ import annotations

from dataclasses import replace

from clustersim.workloads.kinds.loss import SoftmaxLoss
from tests.unit.workloads.kinds.factories import FUSED, NUMERICS, backward_bytes, forward_bytes, saved_bytes

LOSS = SoftmaxLoss(input=(6, 100))
LOGITS = 4 * 6 * 100


def test_logits_of_16_bits_are_widened_first() -> None:
    operators = LOSS.operators(FUSED)

    assert forward_bytes(operators) == LOGITS * (2 + 4 + 4 + 4)
    assert backward_bytes(operators) == LOGITS * (3 * 4 + 4 + 2)
    assert saved_bytes(operators) == LOGITS * 4


def test_logits_of_32_bits_are_not() -> None:
    operators = LOSS.operators(replace(FUSED, numerics=replace(NUMERICS, element_bytes=4.0)))

    assert forward_bytes(operators) == LOGITS * 8
    assert backward_bytes(operators) == LOGITS * 12


def test_a_fused_loss_makes_two_passes_each_way() -> None:
    operators = LOSS.operators(replace(FUSED, numerics=replace(NUMERICS, fused_loss=True)))

    assert forward_bytes(operators) == backward_bytes(operators) == LOGITS * 2 * 2
    assert saved_bytes(operators) == LOGITS * 2
    assert LOSS.output == (6, 100)

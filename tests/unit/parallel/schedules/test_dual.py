from __future__ import annotations

from clustersim.parallel.schedules.dualpipe import dualpipe
from clustersim.parallel.schedules.dualpipe_v import dualpipe_v
from clustersim.parallel.schedules.order import StageOrder


def text(order: StageOrder) -> str:
    """Return the passes of an order; those that run side by side are joined by a sign."""
    return "".join(f"{step.kind}{step.micro_batch}{'&' if step.beside_next else ' '}" for step in order).strip()


def test_the_first_stage_of_dualpipe_is_that_of_the_report() -> None:
    # DeepSeek-V3, figure 5, cut down to 4 stages and 8 micro-batches; 4 to 7 come from the other end.
    first = dualpipe(4, 8, 1)[0]

    assert text(first) == "F0 F1 F2 F4 I4 W4 F5 F3&B5 F6&B0 B6 F7&B1 B7 I2 W2 I3 W3"


def test_opposite_stages_of_dualpipe_do_the_same_with_the_other_half() -> None:
    orders = dualpipe(6, 12, 1)

    for stage in range(3):
        mirrored = [(step.kind, (step.micro_batch + 6) % 12, 1 - step.chunk) for step in orders[5 - stage]]
        assert [(step.kind, step.micro_batch, step.chunk) for step in orders[stage]] == mirrored


def test_where_the_two_streams_meet_the_first_passes_are_one_behind_the_other() -> None:
    middle = dualpipe(4, 8, 1)[1]

    assert text(middle).startswith("F0 F4 F1 F5 F2 B4 F6&B0")


def test_dualpipe_v_is_the_first_half_of_a_dualpipe_twice_as_long() -> None:
    cut, whole = dualpipe_v(3, 10, 2), dualpipe(6, 20, 1)

    for order, twin in zip(cut, whole[:3], strict=True):
        folded = [(step.kind, step.micro_batch % 10, step.chunk, step.beside_next) for step in twin]
        assert [(step.kind, step.micro_batch, step.chunk, step.beside_next) for step in order] == folded

"""Passes unfolded into layers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.report.unfolding import category_of, n_slices, to_ns, unfolded
from clustersim.trace.timeline import DetailBlock, Span, SpanDetail


def span_of(*blocks: DetailBlock, start_s: float = 0.0, end_s: float = 1.0) -> Span:
    return Span(rank_class=0, stream="compute", kind="forward", name="F", start_s=start_s, end_s=end_s, detail=blocks)


def block(repeat: int, *durations_s: float) -> DetailBlock:
    slices = tuple(
        SpanDetail(name=f"part {index}", kind="forward", dimension="", duration_s=duration) for index, duration in enumerate(durations_s)
    )
    return DetailBlock(name="layer", repeat=repeat, slices=slices)


def test_each_repetition_is_followed_by_its_parts() -> None:
    pieces = list(unfolded(span_of(block(2, 0.1, 0.2))))

    assert [(piece.name, piece.start_ns, piece.end_ns) for piece in pieces] == [
        ("layer 0", 0, 300_000_000),
        ("part 0", 0, 100_000_000),
        ("part 1", 100_000_000, 300_000_000),
        ("layer 1", 300_000_000, 600_000_000),
        ("part 0", 300_000_000, 400_000_000),
        ("part 1", 400_000_000, 600_000_000),
    ]


def test_a_block_that_is_not_repeated_has_no_number() -> None:
    assert next(unfolded(span_of(block(1, 0.5)))).name == "layer"


def test_parts_longer_than_the_span_are_shortened_alike() -> None:
    pieces = list(unfolded(span_of(block(1, 1.0, 3.0))))

    assert [(piece.start_ns, piece.end_ns) for piece in pieces[1:]] == [(0, 250_000_000), (250_000_000, 1_000_000_000)]


def test_what_takes_no_time_is_no_slice() -> None:
    assert [piece.name for piece in unfolded(span_of(block(1, 0.1, 0.0, 0.2)))] == ["layer", "part 0", "part 2"]
    assert list(unfolded(span_of(block(2, 0.0)))) == []


def test_bytes_and_flops_stay_with_their_part() -> None:
    detail = DetailBlock(
        name="layer", repeat=1, slices=(SpanDetail(name="x", kind="forward", dimension="", duration_s=0.1, bytes=3.0, flops=5.0),)
    )

    whole, part = unfolded(span_of(detail))

    assert (whole.bytes, whole.flops) == (0.0, 0.0)
    assert (part.bytes, part.flops) == (3.0, 5.0)


@pytest.mark.parametrize(("kind", "dimension", "category"), [("forward", "", "forward"), ("communication", "tp", "communication,tp")])
def test_categories_are_kind_and_dimension(kind: str, dimension: str, category: str) -> None:
    assert category_of(kind, dimension) == category


durations = st.lists(st.floats(min_value=0.0, max_value=0.7), min_size=1, max_size=4)


@given(
    st.lists(st.tuples(st.integers(min_value=1, max_value=5), durations), min_size=1, max_size=4), st.floats(min_value=0.0, max_value=1e4)
)
def test_pieces_are_in_order_and_inside_their_span(blocks: list[tuple[int, list[float]]], start_s: float) -> None:
    span = span_of(*(block(repeat, *parts) for repeat, parts in blocks), start_s=start_s, end_s=start_s + 1.0)

    pieces = list(unfolded(span))

    assert len(pieces) <= n_slices(span)
    assert all(piece.start_ns < piece.end_ns for piece in pieces)
    at_ns = to_ns(span.start_s)
    layer_end_ns = at_ns
    for piece in pieces:
        if piece.name.startswith("layer"):
            assert piece.start_ns >= layer_end_ns
            layer_end_ns = piece.end_ns
        else:
            assert at_ns <= piece.start_ns <= piece.end_ns <= layer_end_ns
            at_ns = piece.end_ns
    assert layer_end_ns <= to_ns(span.end_s)

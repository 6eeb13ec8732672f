"""What every pipeline schedule must be: complete, causal, free of deadlock, and as long as its closed form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.strategy.lower import lower
from clustersim.strategy.plan import Plan
from clustersim.strategy.schedules import SCHEDULES
from clustersim.strategy.schedules.order import Pass, StageOrder, backward, forward, peak_in_flight
from tests.unit.strategy.factories import make_plan

Shape = tuple[str, int, int, int]
PLAIN = [name for name in SCHEDULES if name != "interleaved_1f1b"]


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Return a schedule, stages, micro-batches and chunks that go together."""
    name, p = draw(st.sampled_from(list(SCHEDULES))), draw(st.integers(1, 9))
    if name == "interleaved_1f1b":
        p = max(p, 2)
        return name, p, p * draw(st.integers(1, 5)), draw(st.integers(2, 4))
    return name, p, draw(st.integers(1, 24)), 1


def orders_of(shape: Shape) -> tuple[StageOrder, ...]:
    name, p, m, v = shape
    return SCHEDULES[name](p, m, v)


def needs(stage: int, step: Pass, p: int, v: int) -> tuple[int, Pass] | None:
    """Return the pass of whatever stage that must come before: the chunk before it, or after it in the backward pass."""
    place = step.chunk * p + stage
    if step.backward:
        if place == p * v - 1:
            return stage, forward(step.micro_batch, step.chunk)
        chunk, neighbour = divmod(place + 1, p)
        return neighbour, backward(step.micro_batch, chunk)
    if place == 0:
        return None
    chunk, neighbour = divmod(place - 1, p)
    return neighbour, forward(step.micro_batch, chunk)


def end_times(orders: Sequence[StageOrder], v: int, *, forward_s: float, backward_s: float) -> dict[tuple[int, Pass], float]:
    """Return when each pass ends if every stage starts its next one as soon as it can; passes that never start are missing."""
    ended: dict[tuple[int, Pass], float] = {}
    at, free_s = [0] * len(orders), [0.0] * len(orders)
    moved = True
    while moved:
        moved = False
        for stage, order in enumerate(orders):
            while at[stage] < len(order):
                step = order[at[stage]]
                before = needs(stage, step, len(orders), v)
                if before is not None and before not in ended:
                    break
                start_s = max(free_s[stage], 0.0 if before is None else ended[before])
                free_s[stage] = ended[stage, step] = start_s + (backward_s if step.backward else forward_s)
                at[stage] += 1
                moved = True
    return ended


@given(shapes())
def test_every_micro_batch_goes_once_forward_and_once_back_through_every_chunk_of_every_stage(shape: Shape) -> None:
    _, p, m, v = shape
    wanted = Counter(make(micro_batch, chunk) for make in (forward, backward) for micro_batch in range(m) for chunk in range(v))

    orders = orders_of(shape)

    assert len(orders) == p
    assert all(Counter(order) == wanted for order in orders)


@given(shapes())
def test_no_pass_goes_back_before_it_went_forward(shape: Shape) -> None:
    for order in orders_of(shape):
        place = {step: position for position, step in enumerate(order)}
        assert all(place[forward(step.micro_batch, step.chunk)] < place[step] for step in order if step.backward)


@given(shapes())
def test_all_stages_together_come_to_an_end(shape: Shape) -> None:
    _, p, m, v = shape

    ended = end_times(orders_of(shape), v, forward_s=1.0, backward_s=2.0)

    assert len(ended) == 2 * p * m * v


def test_a_schedule_that_waits_for_itself_would_be_seen() -> None:
    stuck = ((forward(0), backward(0)), (backward(0), forward(0)))

    assert len(end_times(stuck, 1, forward_s=1.0, backward_s=1.0)) == 1


@given(shapes())
def test_nothing_is_left_in_flight(shape: Shape) -> None:
    _, _, m, v = shape

    for order in orders_of(shape):
        kept = Counter[int]()
        for step in order:
            kept[step.chunk] += -1 if step.backward else 1
            assert kept[step.chunk] >= 0
        assert not any(kept.values())
        assert 1 <= peak_in_flight(order, [1.0] * v) <= m * v


@given(st.sampled_from(["gpipe", "1f1b"]), st.integers(1, 9), st.integers(1, 24), st.integers(1, 5), st.integers(1, 5))
def test_gpipe_and_1f1b_take_m_plus_p_minus_1_passes_each_way(name: str, p: int, m: int, forward_s: int, backward_s: int) -> None:
    # Whole seconds, so that the closed form holds without round-off.
    ended = end_times(SCHEDULES[name](p, m, 1), 1, forward_s=forward_s, backward_s=backward_s)

    assert max(ended.values()) == (m + p - 1) * (forward_s + backward_s)


@given(st.integers(1, 9), st.integers(1, 24), st.integers(1, 5), st.integers(1, 5))
def test_layer_wise_parallelism_uses_one_stage_at_a_time(p: int, m: int, forward_s: int, backward_s: int) -> None:
    ended = end_times(SCHEDULES["naive"](p, m, 1), 1, forward_s=forward_s, backward_s=backward_s)

    assert max(ended.values()) == m * p * (forward_s + backward_s)


@given(st.integers(2, 9), st.integers(1, 5), st.integers(2, 4), st.integers(1, 5), st.integers(1, 5))
def test_interleaving_divides_the_bubble_by_the_chunks(p: int, rounds: int, v: int, forward_s: int, backward_s: int) -> None:
    m = rounds * p
    ended = end_times(SCHEDULES["interleaved_1f1b"](p, m, v), v, forward_s=forward_s, backward_s=backward_s)

    # Times are those of a chunk: ideal m v, bubble (p - 1) of them; Narayanan et al., SC 2021, section 2.2.
    assert max(ended.values()) == (m * v + p - 1) * (forward_s + backward_s)


@given(shapes())
def test_1f1b_never_keeps_more_than_gpipe_and_naive_keeps_one(shape: Shape) -> None:
    _, p, m, _ = shape
    naive, gpipe, one = ([peak_in_flight(order, [1.0]) for order in SCHEDULES[name](p, m, 1)] for name in ("naive", "gpipe", "1f1b"))

    assert all(a <= b <= c for a, b, c in zip(naive, one, gpipe, strict=True))


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize(("p", "m"), [(2, 1), (4, 8), (8, 3)])
@pytest.mark.parametrize("overlap_p2p", [False, True])
def test_a_lowered_schedule_can_run_to_its_end(name: str, p: int, m: int, overlap_p2p: bool) -> None:
    assert runs_to_its_end(make_plan(pp=p, schedule=name, global_batch_size=m, overlap_p2p=overlap_p2p))


@pytest.mark.parametrize(("p", "m", "v"), [(2, 2, 2), (4, 8, 2), (2, 8, 4)])
@pytest.mark.parametrize("overlap_p2p", [False, True])
def test_a_lowered_interleaved_schedule_can_run_to_its_end(p: int, m: int, v: int, overlap_p2p: bool) -> None:
    plan = make_plan(pp=p, schedule="interleaved_1f1b", virtual_stages=v, global_batch_size=m, overlap_p2p=overlap_p2p)

    assert runs_to_its_end(plan)


def runs_to_its_end(plan: Plan) -> bool:
    """Return whether an order of all tasks respects all dependencies."""
    tasks = lower(plan).tasks
    ended: set[int] = set()
    left = list(range(len(tasks)))
    while left:
        ready = [index for index in left if all(before in ended for before in tasks[index].after)]
        if not ready:
            return False
        ended.update(ready)
        left = [index for index in left if index not in ended]
    return True

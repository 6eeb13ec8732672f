"""Requirements of every pipeline schedule: complete, causal, free of deadlock, and as long as its closed form."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.parallel.lower import lower
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.schedules.execution import execute
from clustersim.parallel.schedules.order import EQUAL_COSTS, PassCosts, StageOrder, backward, forward, input_gradient
from clustersim.parallel.schedules.places import Places, looped
from clustersim.parallel.training_plan import Plan
from tests.unit.parallel.factories import make_plan, peak_in_flight

Shape = tuple[str, int, int, int]
PLAIN = ("naive", "gpipe", "1f1b")


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Return a schedule, stages, micro-batches and chunks that go together."""
    name = draw(st.sampled_from(list(SCHEDULES)))
    schedule = SCHEDULES[name]
    p = draw(st.integers(1 if name in PLAIN else 2, 9))
    p += p % 2 if schedule.in_pairs else 0
    m = draw(st.integers(1, 24))
    if schedule.whole_rounds:
        m = p * draw(st.integers(1, 5))
    if schedule.least_rounds:
        m = schedule.least_rounds * p + (2 if schedule.in_pairs else 1) * draw(st.integers(0, 8))
    return name, p, m, schedule.n_chunks or draw(st.integers(2, 4))


costs = st.builds(
    PassCosts,
    forward_s=st.integers(1, 9).map(float),
    input_s=st.integers(1, 9).map(float),
    weight_s=st.integers(1, 9).map(float),
    send_s=st.integers(0, 2).map(float),
    weight_fraction=st.sampled_from([0.4, 1.0, 1.2]),
)


def orders_of(shape: Shape, given_costs: PassCosts = EQUAL_COSTS) -> tuple[StageOrder, ...]:
    name, p, m, v = shape
    return SCHEDULES[name].orders(p, m, v, given_costs)


def places_of(shape: Shape) -> Places:
    name, p, _, v = shape
    return SCHEDULES[name].layout(p, v)


@settings(deadline=None)
@given(shapes(), costs)
def test_every_micro_batch_goes_once_forward_and_once_back_through_every_chunk_of_its_way(shape: Shape, given_costs: PassCosts) -> None:
    _, p, m, _ = shape
    places, orders = places_of(shape), orders_of(shape, given_costs)

    assert len(orders) == p
    for stage, order in enumerate(orders):
        expected = Counter((chunk, batch) for chunk, _, way in places.stops(stage) for batch in places.micro_batches(way, m))
        for kinds in ("F", "BI", "BW"):
            assert Counter((step.chunk, step.micro_batch) for step in order if step.kind in kinds) == expected


@settings(deadline=None)
@given(shapes(), costs)
def test_no_pass_comes_before_those_of_its_own_stage_that_it_needs(shape: Shape, given_costs: PassCosts) -> None:
    for order in orders_of(shape, given_costs):
        place = {step: position for position, step in enumerate(order)}
        for step in order:
            if step.kind != "F":
                before = input_gradient if step.kind == "W" else forward
                assert place[before(step.micro_batch, step.chunk)] < place[step]


@settings(deadline=None)
@given(shapes(), costs)
def test_all_stages_together_come_to_an_end(shape: Shape, given_costs: PassCosts) -> None:
    orders = orders_of(shape, given_costs)

    executed = execute(orders, places_of(shape), given_costs)

    assert executed.at == [len(order) for order in orders]


@settings(deadline=None)
@given(shapes(), costs)
def test_a_schedule_in_pairs_never_waits_for_itself_and_pairs_a_way_forward_with_a_way_back(shape: Shape, given_costs: PassCosts) -> None:
    for order in orders_of(shape, given_costs):
        for one, other in pairwise(order):
            if one.beside_next:
                assert (one.kind, other.kind) == ("F", "B")
                assert not other.beside_next


def test_a_schedule_that_waits_for_itself_is_seen() -> None:
    stuck = ((forward(0), backward(0)), (backward(0), forward(0)))

    assert execute(stuck, looped(2, 1), EQUAL_COSTS).at == [1, 0]


MOST_KEPT = {
    "naive": lambda p, m, v: 1,
    "gpipe": lambda p, m, v: m,
    "1f1b": lambda p, m, v: min(m, p),
    "interleaved_1f1b": lambda p, m, v: min(m * v, (v + 1) * p - 1),
    "breadth_first": lambda p, m, v: m * v,
    "zb_h1": lambda p, m, v: min(m, p),
    "zb_h2": lambda p, m, v: min(m, 2 * p - 1),
    "zb_2p": lambda p, m, v: min(m, 2 * p),
    "zb_v": lambda p, m, v: min(2 * m, 2 * p),
    "dualpipe": lambda p, m, v: p + 1,
    "dualpipe_v": lambda p, m, v: 2 * p + 1,
}
"""Chunks of micro-batches that a stage keeps at most, from the forward pass to the weight gradient."""


@given(shapes())
def test_no_stage_keeps_more_than_the_closed_form(shape: Shape) -> None:
    name, p, m, v = shape

    peaks = [peak_in_flight(order, [1.0] * 2 * v) for order in orders_of(shape)]

    # All micro-batches of interleaving are in flight where there are no more than stages.
    bound = m * v if name == "interleaved_1f1b" and m == p else MOST_KEPT[name](p, m, v)
    assert max(peaks) <= bound


@settings(deadline=None)
@given(st.integers(2, 9), st.integers(1, 30), costs)
def test_the_automatic_schedule_keeps_to_its_limit_whatever_passes_cost(p: int, m: int, given_costs: PassCosts) -> None:
    orders = SCHEDULES["zb_2p"].orders(p, m, 1, given_costs)
    later = given_costs.weight_fraction

    assert max(peak_in_flight(order, [1.0], [later]) for order in orders) <= 2 * p * max(1.0, later) + 1e-6


@pytest.mark.slow
@settings(deadline=None)
@given(st.integers(2, 9), st.integers(1, 30), costs)
def test_the_automatic_schedule_is_no_longer_than_those_by_hand(p: int, m: int, given_costs: PassCosts) -> None:
    def longest_s(name: str) -> float:
        return execute(SCHEDULES[name].orders(p, m, 1, given_costs), looped(p, 1), given_costs).longest_s

    assert longest_s("zb_2p") <= min(longest_s("zb_h1"), longest_s("zb_h2"))


LOWERED = [
    *((name, p, m, schedule.n_chunks or 2) for name, schedule in SCHEDULES.items() for p, m in ((2, 4), (8, 16))),
    ("interleaved_1f1b", 2, 2, 2),
    ("interleaved_1f1b", 2, 8, 4),
]


@pytest.mark.parametrize(("name", "p", "m", "v"), LOWERED)
@pytest.mark.parametrize("overlap_p2p", [False, True])
def test_a_lowered_schedule_can_run_to_its_end(name: str, p: int, m: int, v: int, overlap_p2p: bool) -> None:

    assert runs_to_its_end(make_plan(pp=p, schedule=name, virtual_stages=v, global_batch_size=m, overlap_p2p=overlap_p2p))


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

"""Breakdown of a step: by hand, at random, and for real runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.apps.run.simulation import simulate
from clustersim.hardware.catalog import load_node
from clustersim.measure.metrics import Breakdown, ByDimension
from clustersim.measure.step_breakdown import N_BUSIEST, ClassTimes, breakdown, busiest_links, tier_use, times_by_class
from clustersim.parallel.training_plan import Plan
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.trace.columns import columns_of
from clustersim.trace.timeline import DIMENSIONS, LinkUse, Meeting, RankClass, Span, Timeline
from tests.unit.parallel.factories import LLAMA, make_plan

Interval = tuple[float, float]
STEP_S = 10.0
BESIDE = {"dp": "dp", "dp_gather": "dp", "send_forward": "pp", "recv_backward": "pp", "tp": "tp"}


def compute(start_s: float, end_s: float, kind: str = "forward", **changes: object) -> Span:
    span = Span(rank_class=0, stream="compute", kind=kind, name=kind, start_s=start_s, end_s=end_s)
    return replace(span, **changes)


def moving(start_s: float, end_s: float, stream: str = "dp", *, rank_class: int = 0) -> Span:
    return Span(
        rank_class=rank_class,
        stream=stream,
        kind="communication",
        name=stream,
        start_s=start_s,
        end_s=end_s,
        dimension=BESIDE[stream],
    )


def times_of(*spans: Span, step_s: float = STEP_S, sends_block: bool = True) -> ClassTimes:
    return times_by_class(columns_of(spans), 1, step_s, sends_block=sends_block)[0]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    found: list[Interval] = []
    for start_s, end_s in sorted(intervals):
        if found and start_s <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end_s))
        else:
            found.append((start_s, end_s))
    return found


def exposed(times: ClassTimes) -> dict[str, float]:
    return {dimension: seconds for dimension, seconds in times.exposed.items() if seconds}


def hidden(times: ClassTimes) -> dict[str, float]:
    return {dimension: seconds for dimension, seconds in times.hidden.items() if seconds}


def total(times: ClassTimes) -> float:
    return times.compute + times.optimizer + times.host + times.idle + sum(times.exposed.values())


def test_what_the_host_holds_up_is_its_own_and_no_computation() -> None:
    times = times_of(compute(0.0, 4.0, host_s=1.5, exposed_s=(("tp", 1.0),)), compute(4.0, 6.0, "optimizer", host_s=0.5))

    assert (times.compute, times.optimizer, times.host) == (1.5, 1.5, 2.0)
    assert total(times) == STEP_S


def covered(intervals: list[Interval], at: float) -> bool:
    return any(start <= at < end for start, end in intervals)


def sum_of(parts: Breakdown) -> float:
    return parts.compute + parts.bubble + parts.stall + parts.optimizer + parts.host + sum(astuple(parts.exposed_communication))


# One rank class


def test_what_the_compute_stream_does_is_told_apart_by_its_kind() -> None:
    times = times_of(
        compute(0, 1, "host"), compute(1, 4), compute(4, 8, "backward"), compute(8, 9, "recompute"), compute(9, 10, "optimizer")
    )

    assert (times.host, times.compute, times.optimizer, times.idle) == (1.0, 8.0, 1.0, 0.0)


def test_where_nothing_happens_a_rank_is_idle() -> None:
    assert times_of(compute(2, 3), compute(5, 9)).idle == 2.0 + 2.0 + 1.0


def test_a_class_without_spans_is_idle_all_the_time() -> None:
    assert times_of().idle == STEP_S


def test_communication_beside_computation_is_hidden_and_in_a_gap_exposed() -> None:
    times = times_of(compute(0, 6), moving(4, 9))

    assert exposed(times) == {"dp": 3.0}
    assert hidden(times) == {"dp": 2.0}
    assert times.idle == 1.0


def test_a_gap_may_be_covered_in_pieces() -> None:
    times = times_of(compute(0, 1), moving(2, 3), moving(4, 6), moving(5, 7), compute(8, 10))

    assert exposed(times) == {"dp": 4.0}
    assert times.idle == 3.0


def test_one_stretch_of_communication_may_reach_over_several_gaps() -> None:
    times = times_of(compute(1, 2), moving(0, 10), compute(4, 5))

    assert exposed(times) == {"dp": 8.0}
    assert hidden(times) == {"dp": 2.0}


def test_the_same_moment_is_exposed_to_one_dimension_only() -> None:
    times = times_of(compute(0, 2), moving(2, 6, "dp"), moving(4, 8, "recv_backward"))

    assert sum(times.exposed.values()) == 6.0
    assert total(times) == STEP_S


def test_two_streams_of_one_dimension_do_not_count_twice() -> None:
    times = times_of(compute(0, 4), moving(2, 6, "dp"), moving(3, 5, "dp_gather"))

    assert exposed(times) == {"dp": 2.0}
    assert hidden(times) == {"dp": 2.0}


def test_sends_hold_up_a_rank_only_where_passes_wait_for_them() -> None:
    spans = (compute(0, 2), moving(2, 5, "send_forward"), compute(6, 10))

    waiting, overlapped = times_of(*spans), times_of(*spans, sends_block=False)

    assert (exposed(waiting), waiting.idle) == ({"pp": 3.0}, 1.0)
    assert (exposed(overlapped), overlapped.idle) == ({}, 4.0)
    assert hidden(overlapped) == {"pp": 3.0}


def test_receives_hold_up_a_rank_in_either_case() -> None:
    assert exposed(times_of(moving(0, 3, "recv_backward"), compute(3, 10), sends_block=False)) == {"pp": 3.0}


def test_collectives_inside_a_pass_are_taken_out_of_its_computation() -> None:
    times = times_of(compute(0, 10, exposed_s=(("tp", 2.5),), hidden_s=(("tp", 1.5),)))

    assert times.compute == 7.5
    assert (exposed(times), hidden(times)) == ({"tp": 2.5}, {"tp": 1.5})


def test_inline_and_other_communication_of_one_dimension_add_up() -> None:
    times = times_of(compute(0, 8, exposed_s=(("tp", 2.0),)), moving(8, 9, "tp"), compute(9, 10, "optimizer"))

    assert exposed(times) == {"tp": 3.0}


@st.composite
def one_class(draw: st.DrawFn, rank_class: int = 0) -> list[Span]:
    """Return passes one after the other with gaps, and communication anywhere beside them."""
    ends = sorted(draw(st.lists(st.floats(0, STEP_S), max_size=12)))
    spans: list[Span] = []
    for start_s, end_s in zip(ends[::2], ends[1::2], strict=False):
        kind = draw(st.sampled_from(["forward", "backward", "optimizer", "host"]))
        inline_s = draw(st.floats(0, 1)) * (end_s - start_s)
        inline = (("tp", inline_s),) if kind in ("forward", "backward") else ()
        spans.append(compute(start_s, end_s, kind, rank_class=rank_class, exposed_s=inline, hidden_s=inline))
    for _ in range(draw(st.integers(0, 8))):
        start_s, end_s = sorted((draw(st.floats(0, STEP_S)), draw(st.floats(0, STEP_S))))
        spans.append(moving(start_s, end_s, draw(st.sampled_from(list(BESIDE))), rank_class=rank_class))
    return spans


@given(one_class(), st.booleans())
def test_the_parts_of_any_step_sum_to_it(spans: list[Span], sends_block: bool) -> None:
    times = times_of(*spans, sends_block=sends_block)

    assert total(times) == pytest.approx(STEP_S, rel=1e-9)
    assert min(times.compute, times.optimizer, times.host, times.idle, *times.exposed.values(), *times.hidden.values()) >= -1e-12


@given(one_class(), st.booleans())
def test_exposed_and_hidden_make_all_communication_of_a_dimension(spans: list[Span], sends_block: bool) -> None:
    times = times_of(*spans, sends_block=sends_block)

    for dimension in DIMENSIONS:
        beside = union((span.start_s, span.end_s) for span in spans if span.dimension == dimension)
        inline_s = sum(seconds for span in spans for name, seconds in span.exposed_s + span.hidden_s if name == dimension)
        in_flight_s = sum(end - start for start, end in beside) + inline_s
        assert times.exposed.get(dimension, 0.0) + times.hidden.get(dimension, 0.0) == pytest.approx(in_flight_s, rel=1e-9, abs=1e-9)


@given(one_class())
def test_communication_that_may_not_block_never_makes_less_idle_time(spans: list[Span]) -> None:
    assert times_of(*spans, sends_block=False).idle >= times_of(*spans, sends_block=True).idle - 1e-9


# All rank classes


def timeline(*spans: Span, ranks: tuple[int, ...] = (8,)) -> Timeline:
    classes = tuple(
        RankClass(name=f"stage {stage}", stage=stage, representative_rank=0, ranks=np.arange(n_ranks))
        for stage, n_ranks in enumerate(ranks)
    )
    return Timeline(rank_classes=classes, spans=spans, step_time_s=STEP_S)


def test_the_breakdown_is_the_mean_over_ranks() -> None:
    steps = timeline(compute(0, 10), compute(0, 2, rank_class=1), ranks=(1, 3))

    parts, _ = breakdown(steps, sends_block=True, pipelined=True)

    assert parts.compute == (1 * 10 + 3 * 2) / 4
    assert parts.bubble == 3 * 8 / 4


def test_idle_time_is_bubble_in_a_pipeline_and_stall_without_one() -> None:
    steps = timeline(compute(0, 6))

    (piped, _), (plain, _) = (breakdown(steps, sends_block=True, pipelined=pipelined) for pipelined in (True, False))

    assert (piped.bubble, piped.stall) == (4.0, 0.0)
    assert (plain.bubble, plain.stall) == (0.0, 4.0)


def test_communication_of_every_dimension_has_its_place_and_the_rest_is_nothing() -> None:
    steps = timeline(compute(0, 4, exposed_s=(("tp", 1.0),)), moving(3, 6, "dp"), moving(6, 8, "recv_backward"))

    parts, overlapped = breakdown(steps, sends_block=True, pipelined=True)

    assert parts.exposed_communication == ByDimension(tp=1.0, dp=2.0, pp=2.0)
    assert overlapped == ByDimension(dp=1.0)


@given(st.lists(st.integers(1, 100), min_size=2, max_size=2).flatmap(lambda n: st.tuples(st.just(n), one_class(0), one_class(1))))
def test_the_means_of_any_classes_sum_to_the_step(drawn: tuple[list[int], list[Span], list[Span]]) -> None:
    ranks, first, second = drawn

    parts, _ = breakdown(timeline(*first, *second, ranks=tuple(ranks)), sends_block=False, pipelined=True)

    assert sum_of(parts) == pytest.approx(STEP_S, rel=1e-9)


PLANS = {
    "alone": make_plan(LLAMA, dp=8),
    "tensor": make_plan(LLAMA, tp=4, dp=2, sequence_parallel=True),
    "pipeline": make_plan(pp=4, dp=2),
    "gpipe": make_plan(pp=8, schedule="gpipe", recompute="full"),
    "interleaved": make_plan(tp=2, pp=4, schedule="interleaved_1f1b", virtual_stages=2, overlap_p2p=True),
    "zero 1": make_plan(dp=8, zero_stage=1, overlap=False),
    "zero 3": make_plan(LLAMA, dp=8, zero_stage=3),
    "across": make_plan(dp=2, tp=4, pp=2, placement=("dp", "pp", "tp", "cp", "ep")),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_the_parts_of_real_steps_sum_to_them(plan: Plan) -> None:
    plan = replace(plan, strategy=plan.strategy.changed(dp=plan.strategy.dp * 16 // plan.n_ranks))
    cluster = build_cluster(load_node("dgx-a100-80g"), 2)

    metrics, _ = simulate(plan, cluster, name="x", flags=())

    assert sum_of(metrics.breakdown_s) == pytest.approx(metrics.step_time_s, rel=1e-9)
    assert min(metrics.breakdown_s.compute, *astuple(metrics.overlapped_communication_s)) >= 0.0


# Links


def link(tier: str, n_links: int, size_bytes: float, peak: float) -> LinkUse:
    return LinkUse(tier=tier, name=tier, n_links=n_links, bandwidth_bytes_per_s=100.0, bytes=size_bytes, busy_s=1.0, peak_utilisation=peak)


def test_the_use_of_a_tier_is_bytes_over_what_all_its_links_could_carry() -> None:
    steps = replace(timeline(), links=(link("nic", 4, 250.0, 0.5), link("nic", 2, 500.0, 0.9), link("leaf", 1, 7.0, 0.1)))

    (nic,) = tier_use(steps, {"nic": (10, 1000.0)})

    assert (nic.tier, nic.bytes, nic.peak_utilisation) == ("nic", 4 * 250.0 + 2 * 500.0, 0.9)
    assert nic.mean_utilisation == 2000.0 / (1000.0 * STEP_S)


def test_a_tier_without_links_is_left_out_and_one_without_traffic_is_not() -> None:
    uses = tier_use(timeline(), {"spine": (0, 0.0), "leaf": (4, 100.0)})

    assert [(use.tier, use.mean_utilisation, use.peak_utilisation, use.bytes) for use in uses] == [("leaf", 0.0, 0.0, 0.0)]


def test_a_step_without_time_uses_nothing() -> None:
    steps = replace(timeline(), step_time_s=0.0, links=(link("nic", 1, 1.0, 1.0),))

    assert tier_use(steps, {"nic": (1, 1.0)})[0].mean_utilisation == 0.0


def test_the_busiest_links_are_those_that_carry_most_for_their_bandwidth() -> None:
    links = (link("nic", 4, 250.0, 0.5), link("leaf", 2, 500.0, 0.9), link("spine", 1, 7.0, 1.0))
    wide = replace(link("nvlink", 8, 900.0, 0.2), bandwidth_bytes_per_s=1000.0)

    busiest = busiest_links(replace(timeline(), links=(*links, wide)))

    assert [(use.name, use.mean_utilisation) for use in busiest] == [
        ("leaf", pytest.approx(0.5)),
        ("nic", pytest.approx(0.25)),
        ("nvlink", pytest.approx(0.09)),
        ("spine", pytest.approx(0.007)),
    ]


def test_a_busy_link_says_all_that_is_known_of_it() -> None:
    meetings = (Meeting(names=("a", "b"), seconds=2.0),)
    used = replace(link("nic", 4, 250.0, 0.5), name="nic 0", users=("b", "a"), meetings=meetings)

    (busy,) = busiest_links(replace(timeline(), links=(used,)))

    assert (busy.name, busy.tier, busy.n_links, busy.bytes, busy.peak_utilisation) == ("nic 0", "nic", 4, 250.0, 0.5)
    assert (busy.users, busy.meetings) == (("b", "a"), meetings)


def test_links_as_busy_as_each_other_stand_by_tier_and_name() -> None:
    same = [replace(link(tier, 1, 5.0, 0.5), name=name) for tier, name in (("nic", "b"), ("nic", "a"), ("leaf", "z"))]

    assert [use.name for use in busiest_links(replace(timeline(), links=tuple(same)))] == ["z", "a", "b"]


def test_links_that_carried_nothing_are_not_busy_and_of_the_rest_only_some_are_listed() -> None:
    many = tuple(replace(link("nic", 1, float(number), 0.5), name=f"{number}") for number in range(2 * N_BUSIEST))

    names = [use.name for use in busiest_links(replace(timeline(), links=many))]

    assert names == [f"{number}" for number in range(2 * N_BUSIEST - 1, N_BUSIEST - 1, -1)]
    assert busiest_links(replace(timeline(), links=many[:1])) == ()


def test_a_step_without_time_has_no_utilisation() -> None:
    steps = replace(timeline(), step_time_s=0.0, links=(link("nic", 1, 1.0, 1.0),))

    assert busiest_links(steps)[0].mean_utilisation == 0.0

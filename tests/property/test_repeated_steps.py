"""A step of many micro-batches replayed from a few: whatever the plan, it is the step in which all of them are replayed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.apps.run import repeating
from clustersim.apps.run.replaying import Conditions
from clustersim.apps.run.simulation import simulate
from clustersim.engine.passes import Passes, ReplaySettings
from clustersim.hardware.catalog import load_node
from clustersim.measure.metrics import Metrics
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.training_plan import Plan
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.trace.columns import Spans
from clustersim.trace.timeline import Timeline
from tests.unit.parallel.factories import LLAMA, make_plan

CLUSTER = build_cluster(load_node("dgx-h100"), 1)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Return plans of 8 ranks with up to 90 micro-batches for each replica."""
    pp, tp = draw(st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 2), (4, 1), (4, 2)]))
    name = draw(st.sampled_from(sorted(SCHEDULES))) if pp > 1 else "1f1b"
    schedule = SCHEDULES[name]
    step = pp if schedule.whole_rounds else 2
    n_micro_batches = step * draw(st.integers(pp, 90 // step))
    return make_plan(
        LLAMA,
        attention="flash",
        tp=tp,
        pp=pp,
        dp=8 // tp // pp,
        schedule=name,
        virtual_stages=schedule.n_chunks or 2,
        zero_stage=draw(st.sampled_from([0, 1, 2, 3])) if schedule.layout is SCHEDULES["1f1b"].layout else 0,
        no_sync=draw(st.booleans()),
        overlap=draw(st.booleans()),
        overlap_p2p=draw(st.booleans()),
        recompute=draw(st.sampled_from(["none", "full"])),
        global_batch_size=n_micro_batches * 8 // tp // pp,
    )


def simulated(plan: Plan, *, whole: bool) -> tuple[Metrics, Timeline]:
    conditions = Conditions(settings=ReplaySettings(passes=Passes(repeat=not whole)))
    with patch.object(repeating, "LEAST_PASSES", 0):
        return simulate(plan, CLUSTER, name="plan", flags=(), conditions=conditions)


def flat(document: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield the numbers and words of a document, each with where it is."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield from flat(value, f"{path}.{key}")
    elif isinstance(document, list | tuple):
        for place, value in enumerate(document):
            yield from flat(value, f"{path}.{place}")
    else:
        yield path, document


def told(metrics: Metrics) -> dict[str, object]:
    return {path: value for path, value in flat(asdict(metrics)) if not path.startswith(".engine")}


def shown(timeline: Timeline) -> list[tuple[object, ...]]:
    return [(span.rank_class, span.stream, span.kind, span.name, span.micro_batch, span.chunk, span.bytes) for span in timeline.spans]


def same(one: Iterable[float], other: Iterable[float]) -> bool:
    # Sums of up to 90 equal periods in another order.
    return np.allclose(list(one), list(other), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(plans())
def test_a_step_in_parts_is_the_whole_step(plan: Plan) -> None:
    (some, part), (every, whole) = simulated(plan, whole=False), simulated(plan, whole=True)

    found, expected = told(some), told(every)
    assert [(path, value) for path, value in found.items() if not isinstance(value, float)] == [
        (path, value) for path, value in expected.items() if not isinstance(value, float)
    ]
    assert same(*([value for value in each.values() if isinstance(value, float)] for each in (found, expected)))
    assert shown(part) == shown(whole)
    for column in ("start_s", "end_s"):
        assert same(*([getattr(span, column) for span in each.spans] for each in (part, whole)))
    for column in ("bytes", "busy_s"):
        assert same(*([getattr(link, column) for link in each.links] for each in (part, whole)))
    for one, other in zip(part.memory, whole.memory, strict=True):
        moments_s = np.linspace(0.0, whole.step_time_s, 1001)
        at = [np.interp(moments_s, curve.time_s, curve.total_bytes) for curve in (one, other)]
        # At a jump one or the other side is taken.
        assert np.mean(np.isclose(*at, rtol=1e-6)) > 0.99
        assert one.peak_bytes == pytest.approx(other.peak_bytes, rel=1e-9)


REGULAR = [name for name in SCHEDULES if name not in ("gpipe", "breadth_first")]


@pytest.mark.parametrize("schedule", REGULAR)
def test_more_micro_batches_cost_no_more_events(schedule: str) -> None:
    def plan_of(n_micro_batches: int) -> Plan:
        chunks = SCHEDULES[schedule].n_chunks or 2
        return make_plan(LLAMA, pp=2, dp=4, schedule=schedule, virtual_stages=chunks, global_batch_size=4 * n_micro_batches)

    few, many = (simulated(plan_of(n_micro_batches), whole=False) for n_micro_batches in (100, 400))

    assert few[0].engine.events == many[0].engine.events
    assert isinstance(many[1].spans, Spans)
    assert 4 * len(many[1].spans.columns.start_s) < len(many[1].spans)


def test_stages_that_keep_many_micro_batches_go_at_one_pace_only_when_they_have_filled_up() -> None:
    plan = make_plan(pp=4, dp=2, schedule="zb_h2", global_batch_size=2 * 128)

    (_, timeline), (_, whole) = (simulated(plan, whole=each) for each in (False, True))

    assert isinstance(timeline.spans, Spans)
    assert 2 * len(timeline.spans.columns.start_s) < len(timeline.spans) == len(whole.spans)
    assert timeline.step_time_s == pytest.approx(whole.step_time_s, rel=1e-9)


def test_a_window_of_a_long_step_shows_what_all_of_it_shows_there() -> None:
    _, timeline = simulated(make_plan(LLAMA, pp=2, dp=4, global_batch_size=400), whole=False)
    assert isinstance(timeline.spans, Spans)
    start_s, end_s = 0.4 * timeline.step_time_s, 0.5 * timeline.step_time_s

    within = timeline.spans.within(start_s, end_s)

    assert within == tuple(span for span in timeline.spans if span.start_s < end_s and span.end_s > start_s)
    assert 0 < len(within) < 0.2 * len(timeline.spans)


def test_a_short_step_is_replayed_whole_at_once() -> None:
    plan = make_plan(LLAMA, pp=2, dp=4, global_batch_size=4 * 100)

    _, timeline = simulate(plan, CLUSTER, name="plan", flags=())

    assert isinstance(timeline.spans, Spans)
    assert len(timeline.spans.columns.start_s) == len(timeline.spans)

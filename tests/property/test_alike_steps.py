"""Many steps that are alike, replayed from a few: whatever the plan, they are the steps of which each is replayed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.apps.run.replaying import Conditions
from clustersim.apps.run.simulation import simulate
from clustersim.engine.passes import Passes, ReplaySettings
from clustersim.engine.uneven_ranks import UnevenRanks
from clustersim.hardware.catalog import load_node
from clustersim.measure.metrics import Metrics
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.step_settings import DataLoader
from clustersim.parallel.training_plan import Plan
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.trace.columns import Spans
from clustersim.trace.timeline import Timeline
from tests.property.test_repeated_steps import flat, same, shown, told
from tests.unit.parallel.factories import make_plan

NODE = load_node("dgx-h100")
CLUSTER = build_cluster(NODE, 1)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Return plans of 8 ranks with a few micro-batches for each replica."""
    pp, tp = draw(st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 2), (4, 1)]))
    n_micro_batches = pp * draw(st.integers(1, 2))
    schedule = draw(st.sampled_from(["1f1b", "gpipe", "zb_h1", "zb_h2", "naive"])) if pp > 1 else "1f1b"
    return make_plan(
        tp=tp,
        pp=pp,
        dp=8 // tp // pp,
        schedule=schedule,
        virtual_stages=SCHEDULES[schedule].n_chunks or 2,
        zero_stage=draw(st.sampled_from([0, 1, 3])),
        overlap=draw(st.booleans()),
        overlap_p2p=draw(st.booleans()),
        data_loader=draw(
            st.sampled_from([None, *(DataLoader.model_validate({"rate": rate}) for rate in ("240 samples/s", "2400 samples/s"))])
        ),
        global_batch_size=n_micro_batches * 8 // tp // pp,
    )


SLOWDOWNS = st.dictionaries(st.integers(0, 7), st.sampled_from([0.7, 1.3, 2.0]), max_size=2)


def conditions(slowdowns: dict[int, float], n_steps: int) -> Conditions:
    return Conditions(uneven=UnevenRanks(slowdowns=slowdowns, nodes=(NODE,)) if slowdowns else None, n_steps=n_steps)


def simulated(plan: Plan, given_: Conditions, *, whole: bool = False) -> tuple[Metrics, Timeline]:
    given_ = replace(given_, settings=ReplaySettings(passes=Passes(repeat=not whole)))
    return simulate(plan, CLUSTER, name="plan", flags=(), conditions=given_)


def numbers(document: object) -> tuple[list[tuple[str, object]], list[float]]:
    """Return what is not a fraction, by its path, and the fractions."""
    found = list(flat(document))
    return [each for each in found if not isinstance(each[1], float)], [value for _, value in found if isinstance(value, float)]


def same_documents(one: object, other: object) -> bool:
    (words, sizes), (others, their_sizes) = numbers(one), numbers(other)
    assert words == others
    return same(sizes, their_sizes)


def same_links(one: Timeline, other: Timeline) -> bool:
    for link, their_link in zip(one.links, other.links, strict=True):
        (uses, sizes), (their_uses, their_sizes) = (
            zip(*each.bytes_of, strict=True) if each.bytes_of else ((), ()) for each in (link, their_link)
        )
        assert uses == their_uses
        # What is small beside the rest of a link is known no better than the rest, nor than what the link carries in the clock's last bit.
        least_bytes = 1e-12 * link.bytes + float(np.spacing(other.duration_s)) * link.bandwidth_bytes_per_s
        assert sizes == pytest.approx(their_sizes, rel=1e-9, abs=least_bytes)
        assert same_documents(asdict(replace(link, bytes_of=())), asdict(replace(their_link, bytes_of=())))
    return True


def ends(timeline: Timeline) -> Iterable[float]:
    return [moment_s for span in timeline.spans for moment_s in (span.start_s, span.end_s)]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(plans(), SLOWDOWNS, st.integers(7, 60))
def test_steps_of_which_a_few_are_replayed_are_those_of_which_all_are(plan: Plan, slowdowns: dict[int, float], n_steps: int) -> None:
    how = conditions(slowdowns, n_steps)
    (some, part), (every, whole) = simulated(plan, how), simulated(plan, how, whole=True)

    assert same_documents(told(some), told(every))
    assert part.steps is not None
    assert whole.steps is not None
    assert same_documents(asdict(part.steps), asdict(whole.steps))
    assert [(*each, span.step) for each, span in zip(shown(part), part.spans, strict=True)] == [
        (*each, span.step) for each, span in zip(shown(whole), whole.spans, strict=True)
    ]
    assert same(ends(part), ends(whole))
    assert same_links(part, whole)
    for one, other in zip(part.memory, whole.memory, strict=True):
        # As many as no number of steps divides, so that few are where a step ends.
        moments_s = np.linspace(0.0, whole.duration_s, 1010)
        at = [np.interp(moments_s, curve.time_s, curve.total_bytes) for curve in (one, other)]
        # At a jump one or the other side is taken.
        assert np.mean(np.isclose(*at, rtol=1e-6)) > 0.99
        assert one.peak_bytes == pytest.approx(other.peak_bytes, rel=1e-9)


@pytest.mark.parametrize("slowdowns", [{}, {3: 1.5}])
@pytest.mark.parametrize("pp", [1, 4])
def test_more_steps_cost_no_more_events(pp: int, slowdowns: dict[int, float]) -> None:
    plan = make_plan(pp=pp, dp=8 // pp, global_batch_size=32 // pp)

    few, many = (simulated(plan, conditions(slowdowns, n_steps)) for n_steps in (100, 1000))

    assert few[0].engine.events == many[0].engine.events
    assert isinstance(many[1].spans, Spans)
    assert 40 * len(many[1].spans.columns.start_s) < len(many[1].spans)


def test_a_window_of_many_steps_shows_what_all_of_them_show_there() -> None:
    _, timeline = simulated(make_plan(dp=8, global_batch_size=32), conditions({}, 50))
    assert isinstance(timeline.spans, Spans)
    start_s, end_s = 0.4 * timeline.duration_s, 0.5 * timeline.duration_s

    within = timeline.spans.within(start_s, end_s)

    assert within == tuple(span for span in timeline.spans if span.start_s < end_s and span.end_s > start_s)
    assert {span.step for span in within} == set(range(20, 25)) | {min(span.step for span in within), max(span.step for span in within)}

"""Layers gathered ahead: the time of a forward pass in closed form, through a whole replay."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from clustersim.engine.simulate import replay
from clustersim.parallel.lower import lower
from clustersim.parallel.training_plan import Plan
from clustersim.trace.timeline import Span
from clustersim.workloads.kinds.call import Layer
from clustersim.workloads.kinds.normalization import LinearLayer
from clustersim.workloads.layered import Layered
from tests.unit.engine.factories import make_machine
from tests.unit.parallel.factories import make_plan

ROUND_OFF = 1e-9
L, WIDTH = 6, 4096
LAYERS: tuple[Layer, ...] = (LinearLayer(input=(WIDTH,), features=WIDTH, bias=False),) * L
MODEL = Layered(name="equal layers", input=(WIDTH,), tokens_per_sample=1, layers=LAYERS)


def plan_of(samples: int, **changes: object) -> Plan:
    plan = make_plan(
        dp=8, zero_stage=3, no_sync=False, micro_batch_size=samples, global_batch_size=8 * samples, algorithm="ring", **changes
    )
    return replace(plan, model=MODEL)


def forward_of(plan: Plan) -> tuple[list[Span], list[Span]]:
    """Return gathers and passes of the way forward."""
    timeline, _ = replay(lower(plan), make_machine())
    passes = [span for span in timeline.spans if span.kind == "forward"]
    gathers = [span for span in timeline.spans if span.stream == "dp_gather"][: len(passes)]
    return gathers, passes


def duration_s(span: Span) -> float:
    return span.end_s - span.start_s


@pytest.mark.parametrize("samples", [16, 4096, 65536])
@pytest.mark.parametrize("changes", [{"prefetch": 0}, {"prefetch": 1}, {"prefetch": 4}, {"overlap": False}])
def test_equal_layers_take_the_longer_of_computing_and_gathering(samples: int, changes: dict[str, object]) -> None:
    gathers, passes = forward_of(plan_of(samples, **changes))
    compute_s, gather_s = duration_s(passes[0]), duration_s(gathers[0])

    took_s = passes[-1].end_s - gathers[0].start_s
    ahead = changes.get("prefetch") not in (0, None)
    expected_s = L * max(compute_s, gather_s) + min(compute_s, gather_s) if ahead else L * (compute_s + gather_s)
    assert took_s == pytest.approx(expected_s, rel=ROUND_OFF)


def test_the_cases_are_bound_by_gathering_and_by_computing() -> None:
    longer = [duration_s(gathers[0]) < duration_s(passes[0]) for gathers, passes in map(forward_of, (plan_of(16), plan_of(65536)))]

    assert longer == [False, True]


def test_what_is_kept_is_not_waited_for_again() -> None:
    timeline, _ = replay(lower(plan_of(16, reshard_after_forward=False)), make_machine())
    backward = [span for span in timeline.spans if span.kind == "backward"]

    assert all(later.start_s == earlier.end_s for earlier, later in pairwise(backward))

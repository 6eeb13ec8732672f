"""However strategies are mixed, the peak over time is the sum by category, and what leaves an accelerator makes it hold less."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.engine.simulate import replay
from clustersim.measure.memory_use import memory_curves
from clustersim.parallel.contributors import stage_holds
from clustersim.parallel.lower import lower
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.stage import stage_of
from clustersim.parallel.training_plan import Offload, Plan
from clustersim.program.holds import BACKWARD_PASS, FORWARD_TO_BACKWARD
from clustersim.workloads.token_routing import ExpertLoad
from clustersim.workloads.transformer_shape import Experts
from tests.unit.engine.factories import make_machine
from tests.unit.parallel.factories import LLAMA, held, make_plan, peak

DENSE = replace(LLAMA, n_layers=16, hidden_size=64, n_heads=8, n_kv_heads=4, head_dim=8, intermediate_size=192, vocab_size=1024)
SPARSE = replace(DENSE, experts=Experts(n_experts=4, top_k=2, intermediate_size=96))

mixes = st.fixed_dictionaries(
    {
        "pp": st.sampled_from([1, 2]),
        "schedule": st.sampled_from(list(SCHEDULES)),
        "zero_stage": st.integers(0, 3),
        "ep": st.sampled_from([1, 2]),
        "reshard_after_forward": st.booleans(),
        "keep_ends": st.booleans(),
        "prefetch": st.integers(0, 2),
        "no_sync": st.booleans(),
        "overlap": st.booleans(),
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "offload": st.sampled_from([Offload(), Offload(activations="host")]),
        "kernels": st.sampled_from(["fused", "eager"]),
        "seq_length": st.sampled_from([16, 256]),
        "expert_load": st.sampled_from([ExpertLoad(), ExpertLoad(kind="zipf", skew=1.0), ExpertLoad(kind="dirichlet", skew=0.3)]),
    }
)


def plan_of(mix: dict[str, object], **changes: object) -> Plan:
    mix = {**mix, **changes}
    name = str(mix["schedule"]) if mix["pp"] != 1 else "1f1b"
    chunks = (SCHEDULES[name].n_chunks or 2) if mix["pp"] != 1 else 1
    return make_plan(SPARSE, dp=4, attention="flash", global_batch_size=16, **{**mix, "schedule": name, "virtual_stages": chunks})


@settings(max_examples=30, deadline=None)
@given(mix=mixes)
def test_the_peak_over_time_of_every_mix_is_the_sum_by_category(mix: dict[str, object]) -> None:
    plan = plan_of(mix)
    timeline, _ = replay(lower(plan), make_machine())
    stages = range(plan.strategy.pp)

    curves = memory_curves(timeline, [stage_holds(stage_of(plan, stage)) for stage in stages])

    for curve in curves:
        stage = timeline.rank_classes[curve.rank_class].stage
        assert curve.peak_bytes == pytest.approx(peak(plan, stage), rel=1e-9)
        assert min(curve.activations_bytes) >= -1e-6
        assert curve.total_bytes[-1] == curve.total_bytes[0]


@settings(max_examples=30, deadline=None)
@given(mix=mixes)
def test_what_lives_elsewhere_is_not_held(mix: dict[str, object]) -> None:
    whole, sharded = (plan_of(mix, zero_stage=zero_stage) for zero_stage in (0, 3))

    for stage in range(whole.strategy.pp):
        assert held(sharded, stage, category="parameters") < held(whole, stage, category="parameters")
        away, here = (plan_of(mix, offload=Offload(activations=place)) for place in ("host", "accelerator"))
        assert held(away, stage, interval=FORWARD_TO_BACKWARD) < held(here, stage, interval=FORWARD_TO_BACKWARD)


@settings(max_examples=40, deadline=None)
@given(mix=mixes)
def test_the_fullest_place_holds_no_less_than_an_even_one(mix: dict[str, object]) -> None:
    even, uneven = (plan_of(mix, expert_load=load, offload=Offload()) for load in (ExpertLoad(), ExpertLoad(kind="zipf", skew=1.2)))

    for interval in (FORWARD_TO_BACKWARD, BACKWARD_PASS):
        assert held(uneven, interval=interval) >= held(even, interval=interval)

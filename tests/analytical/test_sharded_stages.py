"""Sharded gradients and parameters of pipeline stages: bytes, times and memory against closed forms, through whole replays.

Every pass of a chunk gathers its parameters where they are freed behind it: 2 m (d - 1) / d Psi numbers leave a rank in a step of m
micro-batches, and (d - 1) / d Psi where they stay whole until its end.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import fsum

import pytest

from clustersim.engine.simulate import replay
from clustersim.parallel.lower import lower
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.stage import stage_of
from clustersim.parallel.training_plan import Plan
from clustersim.program.holds import ALWAYS, GATHER_TO_LAST_PASS
from clustersim.trace.timeline import Span
from clustersim.workloads.transformer_shape import Experts
from tests.unit.engine.factories import make_machine, total_bytes
from tests.unit.parallel.factories import LLAMA, held, make_plan

ROUND_OFF = 1e-9
NUMBER_BYTES = 2.0
M = 8
"""Micro-batches of a replica."""

MODEL = replace(LLAMA, n_layers=8, hidden_size=64, n_heads=8, n_kv_heads=4, head_dim=8, intermediate_size=192, vocab_size=1024)
SPARSE = replace(MODEL, experts=Experts(n_experts=4, top_k=2, intermediate_size=96))


def plan_of(**changes: object) -> Plan:
    """Return a plan of two stages and four replicas."""
    model = SPARSE if changes.pop("sparse", False) else MODEL
    defaults: dict[str, object] = {"pp": 2, "dp": 4, "global_batch_size": 4 * M, "gradient_precision": "same", "algorithm": "ring"}
    return make_plan(model, **{"overlap_p2p": True, "no_sync": True, **defaults, **changes})


def sent_numbers(plan: Plan) -> float:
    """Return how many numbers leave all ranks together."""
    timeline, _ = replay(lower(plan), make_machine())
    return total_bytes(timeline, "nvlink") / (2 * NUMBER_BYTES)


def scheduled(name: str) -> dict[str, object]:
    return {"schedule": name, "virtual_stages": SCHEDULES[name].n_chunks or 2}


def numbers_of(plan: Plan) -> float:
    """Return what leaves all ranks where everything is gathered once."""
    sharding, each = plan.strategy.sharding, [stage_of(plan, stage).weights for stage in range(plan.strategy.pp)]
    ways = [(weights.dense, sharding.degree) for weights in each] + [(weights.expert, sharding.expert_degree) for weights in each]
    return plan.n_ranks / plan.strategy.pp * fsum(size * (degree - 1) / degree for size, degree in ways)


@pytest.mark.parametrize("name", [name for name in SCHEDULES if name not in ("dualpipe", "dualpipe_v")])
def test_stages_move_their_parameters_as_often_as_they_free_them(name: str) -> None:
    # ZeRO-1 sends the same between stages, reduces once and gathers once.
    without = sent_numbers(plan_of(**scheduled(name), zero_stage=1))
    cases: tuple[tuple[dict[str, object], int, int], ...] = (
        ({"zero_stage": 3}, 2 * M, 1),
        ({"zero_stage": 3, "no_sync": False}, 2 * M, M),
        ({"zero_stage": 3, "reshard_after_forward": False}, 1, 1),
        ({"zero_stage": 3, "prefetch": 0}, 2 * M, 1),
        ({"zero_stage": 3, "overlap": False}, 2 * M, 1),
        ({"zero_stage": 2}, 1, 1),
        ({"zero_stage": 2, "no_sync": False}, 1, M),
    )
    for changes, gathers, reductions in cases:
        plan = plan_of(**scheduled(name), **changes)
        more = sent_numbers(plan) - without
        assert more == pytest.approx((gathers + reductions - 2) * numbers_of(plan), rel=ROUND_OFF, abs=1.0), changes


@pytest.mark.parametrize("name", ["dualpipe", "dualpipe_v"])
@pytest.mark.parametrize("reshard", [True, False])
def test_passes_side_by_side_gather_like_others(name: str, reshard: bool) -> None:
    plan = plan_of(**scheduled(name), zero_stage=3, reshard_after_forward=reshard)
    # Two copies of the model each take half of the micro-batches.
    passes = M if name == "dualpipe" else 2 * M

    more = sent_numbers(plan) - sent_numbers(plan_of(**scheduled(name), zero_stage=1))

    assert more == pytest.approx(((passes if reshard else 1) - 1) * numbers_of(plan), rel=ROUND_OFF, abs=1.0)


@pytest.mark.parametrize(
    "changes", [{"ep": 2}, {"ep": 4}, {"tp": 2, "sequence_parallel": True, "ep": 4, "etp": 1, "dp": 2}, {"cp": 2, "dp": 2}]
)
def test_experts_are_gathered_among_those_who_hold_the_same(changes: dict[str, object]) -> None:
    degrees = {"sparse": True, "attention": "flash", **changes}
    batch = {"global_batch_size": M * int(str(degrees.get("dp", 4)))}
    plan = plan_of(zero_stage=3, **degrees, **batch)

    more = sent_numbers(plan) - sent_numbers(plan_of(zero_stage=1, **degrees, **batch))

    assert more == pytest.approx((2 * M - 1) * numbers_of(plan), rel=ROUND_OFF, abs=1.0)


def spans_of(plan: Plan, stage: int = 0) -> tuple[list[Span], list[Span]]:
    """Return gathers and passes of a stage."""
    timeline, _ = replay(lower(plan), make_machine())
    own = [span for span in timeline.spans if span.rank_class == stage]
    return [span for span in own if span.stream == "dp_gather"], [span for span in own if span.kind in ("forward", "backward")]


def duration_s(span: Span) -> float:
    return span.end_s - span.start_s


@pytest.mark.parametrize("seq_length", [16, 4096])
def test_a_pass_takes_the_longest_way_through_its_gathers_and_layers(seq_length: int) -> None:
    gathers, passes = spans_of(plan_of(zero_stage=3, seq_length=seq_length))
    ends, *layers = gathers[:5]

    # A layer waits for its parameters; they are gathered when the layer before the last one has ended.
    gathered_s, computed_s = duration_s(ends), [0.0, 0.0]
    for gather, layer in zip(layers, passes[:4], strict=True):
        gathered_s = max(gathered_s, computed_s[-2]) + duration_s(gather)
        computed_s.append(max(gathered_s, computed_s[-1]) + duration_s(layer))
    assert passes[3].end_s - ends.start_s == pytest.approx(computed_s[-1], rel=ROUND_OFF)


def test_what_is_gathered_ahead_is_not_waited_for() -> None:
    _, passes = spans_of(plan_of(zero_stage=3, seq_length=4096, schedule="gpipe"))

    forward = [span for span in passes if span.kind == "forward"]
    assert all(later.start_s == pytest.approx(earlier.end_s, rel=ROUND_OFF) for earlier, later in pairwise(forward))


def test_without_looking_ahead_every_pass_waits_for_all_it_needs() -> None:
    gathers, passes = spans_of(plan_of(zero_stage=3, schedule="gpipe", prefetch=0))

    # Every pass gathers the ends before its four layers.
    layers = list(zip([gather for number, gather in enumerate(gathers) if number % 5], passes, strict=True))
    assert all(gather.end_s <= own.start_s for gather, own in layers)
    assert all(own.end_s <= gather.start_s for (_, own), (gather, _) in pairwise(layers))


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved_1f1b", "zb_v"])
def test_gradients_that_add_up_are_whole_for_every_chunk(schedule: str) -> None:
    plan = plan_of(**scheduled(schedule), zero_stage=3, gradient_precision="fp32")

    for stage in range(2):
        whole = stage_of(plan, stage).weights.total
        assert held(plan, stage, category="gradients", interval=ALWAYS) == pytest.approx(4 * whole / 4, rel=1e-12)
        assert held(plan, stage, category="gradients") == pytest.approx(4 * whole, rel=1e-12)
        assert held(plan, stage, category="parameters") == pytest.approx(2 * whole / 4, rel=1e-12)
        kept = plan_of(**scheduled(schedule), zero_stage=3, reshard_after_forward=False)
        assert held(kept, stage, interval=GATHER_TO_LAST_PASS) == pytest.approx(2 * whole, rel=1e-12)
        assert held(plan, stage, interval=GATHER_TO_LAST_PASS) < 2 * whole


def test_both_copies_of_dualpipe_are_whole_at_once() -> None:
    plan = plan_of(**scheduled("dualpipe"), zero_stage=3)

    assert [held(plan, stage, interval=GATHER_TO_LAST_PASS) for stage in (0, 1)] == pytest.approx(
        [2 * stage_of(plan, stage).weights.total for stage in (0, 1)], rel=1e-12
    )


def test_experts_are_sharded_among_fewer() -> None:
    plan = plan_of(zero_stage=3, sparse=True, ep=2, attention="flash")
    weights = stage_of(plan, 0).weights

    assert held(plan, category="parameters") == pytest.approx(2 * (weights.dense / 4 + weights.expert / 2), rel=1e-12)

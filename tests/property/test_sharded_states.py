"""However the training state is sharded: the same work is done once, nothing is lost, and more ranks never hold more."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import fsum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.parallel.gradients import gradient_buckets
from clustersim.parallel.lower import lower
from clustersim.parallel.stage import stage_of
from clustersim.parallel.stages import model_chunks
from clustersim.parallel.training_plan import Plan
from clustersim.program.holds import ALWAYS, FORWARD_TO_BACKWARD, GATHER_TO_LAST_PASS, UPDATE
from clustersim.program.tasks import Communicate, Compute
from tests.unit.parallel.factories import GPT, LLAMA, held, kernels_of, local_of, make_plan

SMALL = replace(GPT, n_layers=3, hidden_size=64, n_heads=8, n_kv_heads=8, head_dim=8, intermediate_size=256, vocab_size=1024)
MODELS = (SMALL, replace(LLAMA, n_layers=3, hidden_size=64, n_heads=8, head_dim=8, intermediate_size=192, vocab_size=1024))

degrees = st.sampled_from([1, 2, 4, 8])
layouts = st.fixed_dictionaries(
    {
        "zero_stage": st.integers(0, 3),
        "shard_degree": degrees,
        "prefetch": st.integers(0, 4),
        "reshard_after_forward": st.booleans(),
        "keep_ends": st.booleans(),
        "no_sync": st.booleans(),
        "overlap": st.booleans(),
        "bucket_bytes": st.sampled_from([1.0, 1e5, 1e12]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "global_batch_size": st.sampled_from([8, 24]),
    }
)


def plan_of(layout: dict[str, object], model: int = 0) -> Plan:
    return make_plan(MODELS[model], dp=8, **layout)


def flops_of(plan: Plan) -> float:
    actions = [task.action for task in lower(plan).tasks if isinstance(task.action, Compute) and task.action.name in ("F", "B")]
    return fsum(kernel.flops for action in actions for kernel in kernels_of(action.blocks))


@settings(max_examples=40, deadline=None)
@given(layout=layouts, model=st.integers(0, 1))
def test_sharding_changes_no_work(layout: dict[str, object], model: int) -> None:
    plain = {key: layout[key] for key in ("recompute", "global_batch_size")}

    assert flops_of(plan_of(layout, model)) == pytest.approx(flops_of(plan_of(plain, model)), rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(layout=layouts, model=st.integers(0, 1))
def test_every_gradient_is_reduced_once_for_each_reduction(layout: dict[str, object], model: int) -> None:
    plan = plan_of(layout, model)
    reduced = [
        task.action.collective.bytes for task in lower(plan).tasks
        if isinstance(task.action, Communicate) and task.action.name == "gradients"
    ]  # fmt: skip
    times = 1 if plan.strategy.data_parallel.no_sync else plan.n_micro_batches

    assert fsum(reduced) == pytest.approx(4.0 * times * stage_of(plan, 0).weights.total, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(size=st.floats(1.0, 1e7), first=st.none() | st.floats(1.0, 1e7), pp=st.sampled_from([1, 3]), model=st.integers(0, 1))
def test_buckets_hold_everything_and_only_their_last_may_be_small(size: float, first: float | None, pp: int, model: int) -> None:
    plan = make_plan(MODELS[model], dp=8, pp=pp, bucket_bytes=size, first_bucket_bytes=first)

    for stage, (chunk,) in enumerate(model_chunks(plan.strategy, plan.model.n_layers)):
        buckets = gradient_buckets(local_of(plan), plan.strategy.data_parallel, chunk)
        assert fsum(bucket.parameters for bucket in buckets) == pytest.approx(stage_of(plan, stage).weights.total, rel=1e-12)
        # All buckets but the first, which has its own size, and the one that the model's end closes.
        full = sum(bucket.n_calls for bucket in buckets) - 2
        assert 4.0 * stage_of(plan, stage).weights.total >= full * size
        assert all(4.0 * bucket.parameters >= bucket.n_calls * size for bucket in buckets[1:-1])


@settings(max_examples=60, deadline=None)
@given(layout=layouts, model=st.integers(0, 1), optimizer=st.sampled_from(["adam", "sgd", "momentum", "adafactor", "lamb"]))
def test_a_larger_shard_group_holds_less_of_everything_that_is_always_there(layout: dict[str, object], model: int, optimizer: str) -> None:
    plans = [plan_of({**layout, "shard_degree": degree, "optimizer": optimizer}, model) for degree in (2, 4, 8)]

    for less, more in pairwise(reversed(plans)):
        for category, interval in (("parameters", ALWAYS), ("gradients", ALWAYS), ("optimizer", ALWAYS), ("optimizer", UPDATE)):
            assert held(less, category=category, interval=interval) <= held(more, category=category, interval=interval)
        for interval in (FORWARD_TO_BACKWARD, GATHER_TO_LAST_PASS):
            assert held(less, interval=interval) == held(more, interval=interval)


@settings(max_examples=30, deadline=None)
@given(prefetch=st.integers(0, 4))
def test_looking_further_ahead_holds_no_less(prefetch: int) -> None:
    changes: list[dict[str, object]] = [{"prefetch": prefetch}, {"prefetch": prefetch + 1}, {"reshard_after_forward": False}]

    near, far, all_of_them = (held(plan_of({"zero_stage": 3, **each}), interval=GATHER_TO_LAST_PASS) for each in changes)

    assert near <= far <= all_of_them

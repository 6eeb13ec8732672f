"""Bytes sent by each rank for a layer under tensor, sequence, context and expert parallelism, replayed and in closed form."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.engine.simulate import replay
from clustersim.parallel.lower import lower
from clustersim.parallel.stage import stage_of
from clustersim.parallel.training_plan import Plan
from clustersim.workloads.transformer import Transformer
from clustersim.workloads.transformer_shape import Experts
from tests.unit.engine.factories import make_machine, total_bytes
from tests.unit.parallel.factories import LLAMA, make_plan

ROUND_OFF = 1e-9
"""Flows are added up in shares of links."""

LAYERS = 4
S, H, E = 512, LLAMA.hidden_size, 2.0
MODEL = replace(LLAMA, n_layers=LAYERS)
SPARSE = replace(MODEL, experts=Experts(n_experts=16, top_k=2, intermediate_size=256, dense_layers=(0,)))
SPARSE_LAYERS = LAYERS - 1


def plan_of(model: Transformer = MODEL, **changes: object) -> Plan:
    fixed: dict[str, object] = {
        "seq_length": S,
        "attention": "flash",
        "gradient_precision": "same",
        "algorithm": "ring",
        "no_sync": True,
        "global_batch_size": changes.get("dp", 1),
    }
    return make_plan(model, **(fixed | changes))


def sent_bytes(plan: Plan) -> float:
    """Return what leaves each rank of a node in one step; every byte goes up one link and down another."""
    timeline, _ = replay(lower(plan), make_machine())
    return total_bytes(timeline, "nvlink") / (2 * plan.n_ranks)


def gradient_bytes(plan: Plan) -> float:
    """Return what a rank sends of all that while gradients are added up in rings."""
    weights, strategy = stage_of(plan, 0).weights, plan.strategy
    rings = ((weights.dense, strategy.replicas), (weights.expert, strategy.expert_replicas))
    return sum(2 * E * parameters * (n - 1) / n for parameters, n in rings)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_context_parallel_rings_pass_keys_forward_once_and_backward_twice(n: int) -> None:
    plan = plan_of(cp=n)
    keys_bytes = S / n * 2 * LLAMA.n_kv_heads * LLAMA.head_dim * E

    # n - 1 hops of keys and values each way, and n hops of their gradients.
    layer = (2 * (n - 1) + n) * keys_bytes
    assert sent_bytes(plan) - gradient_bytes(plan) == pytest.approx(LAYERS * layer, rel=ROUND_OFF)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_gathered_keys_cross_three_times(n: int) -> None:
    plan = plan_of(cp=n, context_parallel="all_gather")
    keys_bytes = S / n * 2 * LLAMA.n_kv_heads * LLAMA.head_dim * E

    assert sent_bytes(plan) - gradient_bytes(plan) == pytest.approx(LAYERS * 3 * (n - 1) * keys_bytes, rel=ROUND_OFF)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_ulysses_exchanges_heads_four_times(n: int) -> None:
    plan = plan_of(cp=n, context_parallel="ulysses")
    kv_heads = max(LLAMA.n_kv_heads, n)
    before = S / n * (LLAMA.n_heads + 2 * kv_heads) * LLAMA.head_dim * E
    behind = S / n * LLAMA.n_heads * LLAMA.head_dim * E

    layer = 2 * (before + behind) * (n - 1) / n
    assert sent_bytes(plan) - gradient_bytes(plan) == pytest.approx(LAYERS * layer, rel=ROUND_OFF)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_tokens_travel_to_their_experts_and_back_in_both_directions(n: int) -> None:
    plan = plan_of(SPARSE, dp=n, ep=n)
    rows = S * 2

    # Activations there and back and gradients there and back; scores go with tokens, and their gradients come back.
    layer = (4 * H * E + 2 * 4.0) * rows * (n - 1) / n
    assert sent_bytes(plan) - gradient_bytes(plan) == pytest.approx(SPARSE_LAYERS * layer, rel=ROUND_OFF)


@pytest.mark.parametrize(("ep", "n"), [(2, 4), (2, 8), (4, 8)])
def test_experts_that_several_ranks_hold_are_added_up_among_these(ep: int, n: int) -> None:
    plan = plan_of(SPARSE, dp=n, ep=ep)
    rows = S * 2

    assert plan.strategy.expert_replicas == n // ep
    layer = (4 * H * E + 2 * 4.0) * rows * (ep - 1) / ep
    assert sent_bytes(plan) - gradient_bytes(plan) == pytest.approx(SPARSE_LAYERS * layer, rel=ROUND_OFF)


def test_tokens_in_eight_bits_halve_the_way_there() -> None:
    whole, narrow = (sent_bytes(plan_of(SPARSE, dp=8, ep=8, dispatch_precision=precision)) for precision in ("same", "fp8"))

    assert whole - narrow == pytest.approx(SPARSE_LAYERS * S * 2 * H * 1.0 * 7 / 8, rel=ROUND_OFF)


@pytest.mark.parametrize("n", [2, 4])
def test_ranks_that_divide_experts_gather_what_each_received(n: int) -> None:
    alone = plan_of(SPARSE, tp=n, sequence_parallel=True, etp=1, ep=n)
    divided = plan_of(SPARSE, tp=n, sequence_parallel=True, etp=n, ep=1)
    rows = S / n * 2

    # Without expert parallelism each rank gathers the rows of all n, and scatters the sums: twice forward and twice backward.
    gathered = 4 * rows * n * H * E * (n - 1) / n
    exchanged = (4 * H * E + 2 * 4.0) * rows * (n - 1) / n
    assert sent_bytes(divided) - sent_bytes(alone) == pytest.approx(SPARSE_LAYERS * (gathered - exchanged), rel=ROUND_OFF)


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize(("sequence_parallel", "each"), [(False, 8), (True, 10)])
def test_a_tensor_parallel_layer_sends_its_activations_eight_times_or_ten(n: int, sequence_parallel: bool, each: int) -> None:
    shallow, deep = (plan_of(replace(MODEL, n_layers=layers), tp=n, sequence_parallel=sequence_parallel) for layers in (1, 5))

    # Four all-reduces count twice; with sequence parallelism four gathers, four scatters, and two gathers of saved inputs again.
    layer = each * S * H * E * (n - 1) / n
    assert sent_bytes(deep) - sent_bytes(shallow) == pytest.approx(4 * layer, rel=ROUND_OFF)

"""Maxima of operands in fp8, on which ranks agree behind every pass: what they add to a step in closed form."""

from __future__ import annotations

import pytest

from clustersim.engine.simulate import replay
from clustersim.parallel.lower import lower
from clustersim.program.tasks import Collective, Communicate
from tests.unit.engine.factories import LATENT_NETWORK, group_of, make_machine, solo_s
from tests.unit.parallel.factories import make_plan
from tests.unit.topology.factories import make_node

ROUND_OFF = 1e-9
MACHINE = make_machine(make_node(), 4, network=LATENT_NETWORK)


def step_s(**changes: object) -> float:
    """Return the time of a step in fp8 on four nodes."""
    layout: dict[str, object] = {"precision": "fp8", "micro_batch_size": 1, "overlap": False, **changes}
    timeline, _ = replay(lower(make_plan(**layout)), MACHINE)
    return max(span.end_s for span in timeline.spans)


def cost_s(**changes: object) -> float:
    """Return what the reduction of maxima adds to a step."""
    return step_s(**changes) - step_s(**{**changes, "fp8_amax_group": "none"})


def reduced_s(*ranks: int) -> float:
    """Return the time of an all-reduce that takes nothing but its latency."""
    return solo_s(Communicate(name="amax", collective=Collective(op="all_reduce", group=group_of(ranks), bytes=0.0)), MACHINE)


@pytest.mark.parametrize("n_micro_batches", [1, 2, 7])
def test_replicas_agree_once_behind_each_pass(n_micro_batches: int) -> None:
    cost = cost_s(dp=32, global_batch_size=32 * n_micro_batches)

    assert cost == pytest.approx(2 * n_micro_batches * reduced_s(*range(32)), rel=ROUND_OFF)


def test_ranks_of_a_tensor_parallel_group_agree_among_themselves() -> None:
    cost = cost_s(dp=4, tp=8, global_batch_size=4, fp8_amax_group="tensor")

    assert cost == pytest.approx(2 * reduced_s(*range(8)), rel=ROUND_OFF)


def test_agreement_costs_more_on_more_nodes() -> None:
    costs = [cost_s(dp=dp, global_batch_size=dp) for dp in (8, 16, 32)]

    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


@pytest.mark.parametrize("changes", [{"dp": 1}, {"dp": 32, "precision": "bf16"}, {"dp": 32, "fp8_scaling": "tensor"}])
def test_no_rank_agrees_alone_in_16_bits_or_by_its_own_maxima(changes: dict[str, object]) -> None:
    assert cost_s(global_batch_size=changes["dp"], **changes) == 0.0

"""Bytes that leave each rank in a step of data parallelism, against the closed forms, through a whole replay.

S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020, section 7: 2 Psi for data
parallelism and for stages 1 and 2, 3 Psi for stage 3; more exactly, (n - 1) / n of that on n ranks. Y. Zhao et al., "PyTorch FSDP",
VLDB 2023, section 3.2.2, for hybrid sharding.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.engine.simulate import replay
from clustersim.parallel.lower import lower
from clustersim.parallel.stage import stage_of
from clustersim.parallel.training_plan import Plan
from tests.unit.engine.factories import make_machine, total_bytes
from tests.unit.parallel.factories import LLAMA, layer_parameters, make_plan

ROUND_OFF = 1e-9
"""Flows are added up in shares of links."""

MODEL = replace(LLAMA, n_layers=4)
PSI = MODEL.n_parameters
ENDS = PSI - 4 * layer_parameters(MODEL)
NUMBER_BYTES = 2.0


def plan_of(n_ranks: int, **changes: object) -> Plan:
    defaults: dict[str, object] = {"global_batch_size": n_ranks, "gradient_precision": "same", "algorithm": "ring", "no_sync": False}
    return make_plan(MODEL, dp=n_ranks, **{**defaults, **changes})


def sent_numbers(n_ranks: int, **changes: object) -> float:
    """Return how many numbers leave each of some ranks of a node; every byte goes up one link and down another."""
    timeline, _ = replay(lower(plan_of(n_ranks, **changes)), make_machine())
    return total_bytes(timeline, "nvlink") / (2 * n_ranks * NUMBER_BYTES)


@pytest.mark.parametrize("n", [2, 8])
@pytest.mark.parametrize(
    ("changes", "volume"),
    [
        ({}, 2 * PSI),
        ({"zero_stage": 1}, 2 * PSI),
        ({"zero_stage": 2}, 2 * PSI),
        ({"zero_stage": 3}, 3 * PSI),
        ({"zero_stage": 3, "prefetch": 0}, 3 * PSI),
        ({"zero_stage": 3, "prefetch": 3}, 3 * PSI),
        ({"zero_stage": 3, "reshard_after_forward": False}, 2 * PSI),
        ({"zero_stage": 3, "keep_ends": True}, 3 * PSI - ENDS),
    ],
    ids=["dp", "zero-1", "zero-2", "zero-3", "waiting", "far ahead", "kept", "root unit"],
)
@pytest.mark.parametrize("overlap", [True, False])
def test_each_strategy_moves_its_numbers(n: int, changes: dict[str, object], volume: float, overlap: bool) -> None:
    assert sent_numbers(n, overlap=overlap, **changes) == pytest.approx(volume * (n - 1) / n, rel=ROUND_OFF)


@pytest.mark.parametrize("n", [2, 8])
def test_ranks_that_own_whole_tensors_sum_all_gradients_and_broadcast_all_weights(n: int) -> None:
    # An all-reduce, and broadcasts in which everybody but the owner of a tensor receives it.
    assert sent_numbers(n, zero_stage=1, gather="tensor") == pytest.approx(3 * PSI * (n - 1) / n, rel=ROUND_OFF)


def test_a_rank_that_owns_whole_tensors_keeps_the_largest_or_its_share() -> None:
    even, dealt = (stage_of(plan_of(8, zero_stage=1, gather=gather), 0) for gather in ("layer", "tensor"))
    table = MODEL.vocab_size * MODEL.hidden_size

    assert even.shard == pytest.approx(PSI / 8)
    assert dealt.shard == max(PSI / 8, table)
    assert dealt.n_owners == 8
    assert stage_of(plan_of(64, zero_stage=1, gather="tensor"), 0).n_owners < 64


@pytest.mark.parametrize("m", [1, 5])
@pytest.mark.parametrize(
    ("changes", "each", "once"),
    [
        # Volumes for each micro-batch, and once in a step.
        ({}, 2, 0),
        ({"no_sync": True}, 0, 2),
        ({"zero_stage": 1}, 1, 1),
        ({"zero_stage": 1, "no_sync": True}, 0, 2),
        ({"zero_stage": 2}, 1, 1),
        ({"zero_stage": 2, "no_sync": True}, 0, 2),
        ({"zero_stage": 3}, 3, 0),
        ({"zero_stage": 3, "no_sync": True}, 2, 1),
        ({"zero_stage": 3, "reshard_after_forward": False}, 2, 0),
        ({"zero_stage": 3, "reshard_after_forward": False, "no_sync": True}, 0, 2),
    ],
)
def test_micro_batches_repeat_what_is_not_kept(m: int, changes: dict[str, object], each: int, once: int) -> None:
    sent = sent_numbers(4, global_batch_size=4 * m, **changes)

    assert sent == pytest.approx((each * m + once) * PSI * 3 / 4, rel=ROUND_OFF)


@pytest.mark.parametrize("d", [1, 4])
@pytest.mark.parametrize(("zero_stage", "gathers"), [(2, 1), (3, 2)])
def test_hybrid_sharding_moves_whole_gradients_in_its_group_and_shards_between_copies(d: int, zero_stage: int, gathers: int) -> None:
    n = 8
    copies = n // d

    sent = sent_numbers(n, zero_stage=zero_stage, shard_degree=d)

    inside, between = (gathers + 1) * PSI * (d - 1) / d, 2 * PSI / d * (copies - 1) / copies
    assert sent == pytest.approx(inside + between, rel=ROUND_OFF)


@pytest.mark.parametrize("d", [1, 2, 4])
def test_optimizer_states_in_groups_add_the_gathering_of_weights_inside_them(d: int) -> None:
    # InternEvo's zero1 size: gradients are all-reduced over everybody, and a group gathers the weights that its ranks have updated.
    assert sent_numbers(8, zero_stage=1, shard_degree=d) == pytest.approx(2 * PSI * 7 / 8 + PSI * (d - 1) / d, rel=ROUND_OFF)


@pytest.mark.parametrize(
    ("changes", "numbers"),
    [
        ({"reduce_precision": "fp32"}, 1 + 1 + 2),
        ({"reduce_precision": "fp8"}, 1 + 1 + 0.5),
        ({"gather_precision": "fp8"}, 0.5 + 0.5 + 1),
        ({"gradient_precision": "fp32"}, 1 + 1 + 2),
        ({"gradient_precision": "fp32", "reduce_precision": "bf16"}, 1 + 1 + 1),
        ({"gather_precision": "fp32", "reduce_precision": "fp32"}, 6),
    ],
)
def test_the_precision_of_the_wire_sets_the_bytes(changes: dict[str, object], numbers: float) -> None:
    assert sent_numbers(8, zero_stage=3, **changes) == pytest.approx(numbers * PSI * 7 / 8, rel=ROUND_OFF)


@pytest.mark.parametrize("zero_stage", [2, 3])
def test_shard_groups_inside_nodes_leave_only_shards_to_the_network(zero_stage: int) -> None:
    def through_adapters(degree: int) -> float:
        timeline, _ = replay(lower(plan_of(16, zero_stage=zero_stage, shard_degree=degree)), make_machine(n_nodes=2))
        return total_bytes(timeline, "nic") / 2

    # Each of 16 ranks all-reduces an eighth with its partner in the other node: 2 * (1 / 2) / 8 of all gradients.
    assert through_adapters(8) == pytest.approx(16 * NUMBER_BYTES * PSI / 8, rel=ROUND_OFF)
    # Rings over both nodes pass everything through the adapters: 15 / 16 of it for each collective, out of both nodes.
    assert through_adapters(16) == pytest.approx(2 * zero_stage * NUMBER_BYTES * PSI * 15 / 16, rel=ROUND_OFF)

"""Whatever legal grid of 64 accelerators divides a model, dense or of experts, its work is done once."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import isclose

import pytest

from clustersim.parallel.lower import lower
from clustersim.parallel.training_plan import Plan
from clustersim.program.tasks import Compute
from clustersim.workloads.operators import FlashAttention
from clustersim.workloads.transformer import Transformer
from clustersim.workloads.transformer_shape import Experts
from tests.unit.parallel.factories import LLAMA, flops_of, kernels_of, make_plan, stage_model_flops

N_RANKS = 64
POWERS = (1, 2, 4, 8, 16, 32, 64)

DENSE = replace(LLAMA, n_layers=64, n_heads=64, n_kv_heads=64, head_dim=16)
SPARSE = replace(DENSE, experts=Experts(n_experts=64, top_k=2, intermediate_size=128, shared_size=256, dense_layers=(0, 1, 2)))

Grid = tuple[int, int, int, int, int, int]
"""Degrees dp, tp, pp, cp, ep, etp."""


def grids(model: Transformer) -> list[Grid]:
    """Return every legal grid of a model: expert parallelism lives in what the other dimensions leave of a stage."""
    dense = [
        (N_RANKS // (tp * pp * cp), tp, pp, cp) for tp, pp, cp in product(POWERS, POWERS, (1, 2, 4, 8)) if N_RANKS % (tp * pp * cp) == 0
    ]
    if model.experts is None:
        return [(*degrees, 1, degrees[1]) for degrees in dense]
    return [
        (dp, tp, pp, cp, ep, etp)
        for dp, tp, pp, cp in dense
        for ep, etp in product(POWERS, sorted({1, tp}))
        if dp * cp * tp % (ep * etp) == 0
    ]


def laid_out(model: Transformer, grid: Grid, **changes: object) -> Plan:
    dp, tp, pp, cp, ep, etp = grid
    degrees = {"dp": dp, "tp": tp, "pp": pp, "cp": cp, "ep": ep, "etp": etp, "sequence_parallel": tp > 1}
    fixed = {"attention": "flash", "seq_length": 1024, "global_batch_size": N_RANKS}
    return make_plan(model, **(fixed | degrees | changes))


@pytest.mark.parametrize("model", [DENSE, SPARSE], ids=["dense", "experts"])
def test_the_work_of_all_ranks_is_the_work_of_the_model(model: Transformer) -> None:
    for grid in grids(model):
        plan = laid_out(model, grid)
        dp, tp, pp, cp, _, _ = grid

        all_ranks = sum(stage_model_flops(plan, stage) for stage in range(pp)) * dp * tp * cp

        # Sums of products of powers of two and small numbers; the order of adding may still differ.
        assert isclose(all_ranks, flops_of(plan).model, rel_tol=1e-12), grid


@pytest.mark.parametrize(("context", "recompute"), [("ring", "none"), ("all_gather", "selective"), ("ulysses", "full"), ("ring", "full")])
@pytest.mark.parametrize(
    "grid", [(2, 2, 4, 4, 4, 1), (4, 2, 2, 4, 16, 2), (8, 1, 4, 2, 16, 1), (16, 4, 1, 1, 64, 1), (2, 2, 2, 8, 32, 1)], ids=str
)
def test_the_program_s_products_are_what_hfu_counts(grid: Grid, recompute: str, context: str) -> None:
    plan = laid_out(SPARSE, grid, recompute=recompute, context_parallel=context)
    dp, tp, _, cp, _, _ = grid

    flops = 0.0
    for task in lower(plan).tasks:
        if isinstance(task.action, Compute):
            flops += sum(_counted(plan, kernel) for kernel in kernels_of(task.action.blocks))

    assert isclose(flops * dp * tp * cp, flops_of(plan).hardware, rel_tol=1e-9)


def _counted(plan: Plan, kernel: object) -> float:
    """Return the FLOPs of a kernel as HFU counts them: a causal mask spares nothing, and the backward kernel's repetition is no work."""
    if not isinstance(kernel, FlashAttention):
        return kernel.flops  # pyright: ignore[reportAttributeAccessIssue] any kernel
    # Steps of a ring beyond the first do half of what counts as whole without a mask.
    unmasked = 2.0 if plan.strategy.cp > 1 and plan.strategy.context_parallel == "ring" and not kernel.causal else 1.0
    return unmasked * kernel.flops * (4 / 5 if kernel.backward else 1.0)

"""Selective recomputation by modules: what is repeated, and what is therefore not kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.parallel.recomputation import MODULES, SelectiveRecomputation
from clustersim.parallel.training_plan import Plan, RecomputeModule
from clustersim.workloads.operators import Operator
from clustersim.workloads.transformer_shape import Experts, LatentAttention
from tests.unit.parallel.factories import LLAMA, local_of, make_plan

LATENT = LatentAttention(q_lora_rank=64, kv_lora_rank=32, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32)
EXPERTS = Experts(n_experts=8, top_k=2, intermediate_size=256, shared_size=512, shared_gate=True, dense_layers=(0,))
EVERYTHING = replace(LLAMA, latent=LATENT, head_dim=48, n_kv_heads=8, experts=EXPERTS)


def plan_of(*modules: RecomputeModule, **changes: object) -> Plan:
    model = changes.pop("model", EVERYTHING)
    return make_plan(model, attention="flash", recompute="selective", recompute_modules=modules, **changes)  # pyright: ignore[reportArgumentType]


def repeated(plan: Plan, operators: tuple[Operator, ...]) -> tuple[Operator, ...]:
    return SelectiveRecomputation(plan.strategy.recompute_modules).repeated(local_of(plan), operators)


def kept_bytes(plan: Plan, operators: tuple[Operator, ...]) -> float:
    return SelectiveRecomputation(plan.strategy.recompute_modules).kept_bytes(local_of(plan), 0, operators)


def operators(plan: Plan) -> tuple[Operator, ...]:
    """Return a dense layer and one with experts."""
    return (*local_of(plan).layer(0), *local_of(plan).layer(1))


def test_every_module_names_operators_that_there_are() -> None:
    ranks = {"dp": 2, "ep": 2}
    known = {operator.name for operator in operators(plan_of(**ranks))} | {
        "qkv",
        "q",
        "experts_join",
        "experts_bias",
        "experts_pad",
        "experts_unpad",
    }

    for module in MODULES.values():
        assert {*module.repeats, *module.drops} <= known
        assert not module.needs or module.needs in known


@pytest.mark.parametrize("module", list(MODULES))
def test_what_is_dropped_is_made_again_from_what_is_kept(module: RecomputeModule) -> None:
    plan = plan_of(module)
    whole, again = operators(plan), repeated(plan, operators(plan))

    assert {operator.name for operator in again} == set(MODULES[module].repeats) & {operator.name for operator in whole}
    assert kept_bytes(plan, whole) < sum(operator.saved_bytes for operator in whole)


@pytest.mark.parametrize("module", ["latent_projections", "shared_experts", "experts"])
def test_a_module_that_a_model_does_not_have_changes_nothing(module: RecomputeModule) -> None:
    plan = plan_of(module, model=LLAMA)
    layer = local_of(plan).layer(0)

    assert repeated(plan, layer) == ()
    assert kept_bytes(plan, layer) == sum(operator.saved_bytes for operator in layer)


def test_attention_keeps_its_statistics_where_only_its_input_is_made_again() -> None:
    plan = plan_of("latent_projections")
    core = next(operator for operator in operators(plan) if operator.name == "attention")

    assert kept_bytes(plan, (core, *operators(plan))) - kept_bytes(plan, operators(plan)) == core.selective_bytes > 0.0


def test_a_router_keeps_its_scores_where_only_its_input_is_made_again() -> None:
    plan = plan_of("norms")
    router = next(operator for operator in operators(plan) if operator.name == "router")

    assert kept_bytes(plan, (router,)) == router.selective_bytes > 0.0

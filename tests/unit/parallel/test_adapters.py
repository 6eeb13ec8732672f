"""Low-rank adapters: the model is frozen, and two small products beside its linear layers are trained."""

from __future__ import annotations

from dataclasses import replace
from math import fsum

import pytest

from clustersim.engine.simulate import replay
from clustersim.errors import DomainError
from clustersim.parallel.contributors.model_state import ModelState
from clustersim.parallel.lower import lower
from clustersim.parallel.stage import stage_of
from clustersim.parallel.training_plan import Plan
from clustersim.workloads.adapters import NF4_BYTES
from clustersim.workloads.operators import Operator
from clustersim.workloads.reading.model_spec import load_model
from clustersim.workloads.transformer_shape import Experts
from tests.unit.engine.factories import make_machine, total_bytes
from tests.unit.parallel.factories import GPT, LLAMA, flops_of, gemms, held, local_of, make_plan

R = 8
H, F, Q, KV = 512, 1536, 512, 256
LINEAR = H * (Q + 2 * KV) + Q * H + 3 * H * F
"""Weights of the linear layers of a layer."""
EACH = R * ((H + Q) + 2 * (H + KV) + (Q + H) + 2 * (H + F) + (F + H))
"""Parameters of the adapters of a layer, one for each of seven weights."""
ALL = ("q", "k", "v", "output", "gate", "up", "down")


def adapted(**changes: object) -> Plan:
    return make_plan(LLAMA, **{"lora_rank": R, "lora_layers": ALL, **changes})


def operator(plan: Plan, name: str) -> Operator:
    return next(each for each in local_of(plan).layer(0) if each.name == name)


def refuse(plan: Plan) -> None:
    ModelState.refuse(plan.strategy, plan.strategy, model=plan.model, training=plan.training)


def test_an_adapter_has_its_rank_times_inputs_and_outputs() -> None:
    weights = stage_of(adapted(), 0).weights

    assert (weights.total, weights.frozen) == (16 * EACH, LLAMA.n_parameters)


def test_adapters_of_rank_16_beside_all_layers_of_llama_3_8b_are_42_million_as_peft_prints() -> None:
    plan = replace(adapted(lora_rank=16), model=load_model("llama3-8b").model)

    assert stage_of(plan, 0).weights.total == 41_943_040


@pytest.mark.parametrize(
    ("layers", "parameters"),
    [
        (("q", "v"), (H + Q) + (H + KV)),
        (("qkv",), H + Q + 2 * KV),
        (("gate_up", "down"), (H + 2 * F) + (F + H)),
        (("output",), Q + H),
    ],
)
def test_adapters_stand_beside_the_named_layers_alone_or_for_several(layers: tuple[str, ...], parameters: int) -> None:
    assert stage_of(adapted(lora_layers=layers), 0).weights.total == 16 * R * parameters


def test_memory_is_the_frozen_weights_and_the_state_of_the_adapters() -> None:
    plan, frozen = adapted(), LLAMA.n_parameters

    assert held(plan, category="parameters") == 2 * (frozen + 16 * EACH)
    assert held(plan, category="gradients") == 4 * 16 * EACH
    assert held(plan, category="optimizer") == 12 * 16 * EACH


def test_linear_weights_in_4_bits_leave_embedding_head_and_norms_as_they_are() -> None:
    saved = held(adapted(), category="parameters") - held(adapted(frozen_precision="nf4"), category="parameters")

    assert saved == pytest.approx(16 * LINEAR * (2 - NF4_BYTES))


def test_weights_in_4_bits_are_written_in_full_before_each_product() -> None:
    same, four = (operator(adapted(frozen_precision=kept), "mlp_down") for kept in ("same", "nf4"))

    for phase in ("forward", "input_gradient"):
        more = sum(each.traffic_bytes for each in four.kernels(phase)) - sum(each.traffic_bytes for each in same.kernels(phase))
        assert more == pytest.approx(F * H * (NF4_BYTES + 2))


@pytest.mark.parametrize("layers", [ALL, ("qkv", "output", "gate_up", "down"), ("q", "v")])
def test_frozen_products_have_one_gradient_and_adapters_two(layers: tuple[str, ...]) -> None:
    plan, tokens = adapted(lora_layers=layers, attention="flash"), 16 * 256
    whole, adapters = flops_of(make_plan(LLAMA, attention="flash")).model, stage_of(plan, 0).weights.total

    head = LLAMA.vocab_size * H
    assert flops_of(plan).model == whole - 2 * tokens * (16 * LINEAR + head) + 6 * tokens * adapters


def test_the_products_of_a_pass_are_those_that_are_counted() -> None:
    plan = adapted()
    operators = [each for layer in range(16) for each in local_of(plan).layer(layer)] + [*local_of(plan).back]
    done = fsum(
        gemm.flops
        for each in operators
        for phase in ("forward", "input_gradient", "weight_gradient")
        for gemm in gemms(each.kernels(phase))
    )

    assert done * plan.n_micro_batches == pytest.approx(flops_of(plan).model)


def test_the_products_of_the_adapters_go_to_their_rank_and_back() -> None:
    down = operator(adapted(), "mlp_down")

    assert [(each.k, each.n) for each in gemms(down.kernels("forward"))] == [(F, H), (F, R), (R, H)]
    assert [(each.k, each.n) for each in gemms(down.kernels("input_gradient"))] == [(H, R), (R, F), (H, F)]
    assert [(each.m, each.n) for each in gemms(down.kernels("weight_gradient"))] == [(F, R), (R, H)]


def test_a_frozen_layer_without_adapter_keeps_no_input_and_has_no_gradient_of_its_weight() -> None:
    plan = adapted(lora_layers=("q", "v"))
    up, norm = operator(plan, "mlp_up"), operator(plan, "norm_2")

    assert (up.saved_bytes, up.kernels("weight_gradient"), norm.kernels("weight_gradient")) == (0.0, (), ())
    assert norm.saved_bytes == operator(make_plan(LLAMA), "norm_2").saved_bytes
    # Attention needs its own result, whatever is trained.
    assert operator(plan, "projection").saved_bytes == operator(make_plan(LLAMA), "projection").saved_bytes


def test_an_adapted_layer_keeps_its_input_and_the_narrow_result_of_its_adapter() -> None:
    more = operator(adapted(), "mlp_down").saved_bytes - operator(make_plan(LLAMA), "mlp_down").saved_bytes

    assert more == 256 * R * 2


@pytest.mark.parametrize(("stage", "numbers"), [(0, 2 * 16 * EACH), (1, 2 * 16 * EACH), (3, 2 * LLAMA.n_parameters + 3 * 16 * EACH)])
def test_gradients_of_adapters_alone_are_reduced_and_all_weights_are_gathered(stage: int, numbers: int) -> None:
    plan = adapted(dp=4, zero_stage=stage, global_batch_size=4, gradient_precision="same", algorithm="ring", no_sync=False)
    timeline, _ = replay(lower(plan), make_machine())

    sent = total_bytes(timeline, "nvlink") / (2 * 4 * 2.0)
    assert sent == pytest.approx(numbers * 3 / 4, rel=1e-9)


@pytest.mark.parametrize("tp", [2, 4])
def test_the_ranks_of_a_divided_layer_share_its_columns_and_repeat_the_other_side(tp: int) -> None:
    plan = adapted(tp=tp)

    whole, divided = (3 * H + 2 * H) + 2 * H, (Q + 2 * KV + 2 * F) + (Q + F)
    assert stage_of(plan, 0).weights.total == 16 * R * (whole + divided / tp)


def test_experts_have_an_adapter_each_and_the_router_none() -> None:
    mixture = replace(LLAMA, experts=Experts(n_experts=4, top_k=2, intermediate_size=256))
    weights = stage_of(replace(adapted(lora_layers=("gate", "up", "down")), model=mixture), 0).weights

    assert weights.dense == 0
    assert weights.expert == 16 * 4 * R * (2 * (H + 256) + (256 + H))


def test_a_tied_head_has_no_gradients_to_share_between_stages() -> None:
    tied = replace(LLAMA, tied_embeddings=True)

    assert stage_of(replace(adapted(), model=tied), 0).weights.frozen == tied.n_parameters
    assert local_of(replace(adapted(), model=tied)).tied_parameters == 0.0


def test_full_recomputation_repeats_adapters_too() -> None:
    plan, whole = (adapted(recompute=kind, attention="flash") for kind in ("full", "none"))
    extra = flops_of(plan).hardware - flops_of(whole).hardware
    attention = fsum(each.forward_flops for each in local_of(whole).layer(0) if each.role == "core_attention")

    assert extra == pytest.approx(16 * (2 * 16 * 256 * (LINEAR + EACH) + 16 * attention))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": "muon"}, "Muon updates all parameters of a model"),
        ({"single_process": True}, "keep and update all parameters"),
        ({"frozen_precision": "nf4", "precision": "fp8"}, "not in 4 bits"),
    ],
)
def test_what_adapters_cannot_do_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(DomainError, match=message):
        refuse(adapted(**changes))


def test_a_gate_that_is_not_there_has_no_adapter() -> None:
    with pytest.raises(DomainError, match="its MLP has no gate"):
        refuse(replace(adapted(lora_layers=("gate",)), model=GPT))

"""Every second product is repeated: with queries, keys, values, output, gate, up and down, those of keys, output and up."""

from __future__ import annotations

import pytest

from clustersim.parallel.recomputation import AlternateRecomputation, repeated_shares
from clustersim.parallel.training_plan import Plan
from clustersim.program.tasks import Work
from clustersim.workloads.operators import Gemm
from tests.unit.parallel.factories import (
    GPT,
    LLAMA,
    chunk_passes,
    collectives_of,
    flops_of,
    gemms,
    layer_activation_bytes,
    local_of,
    make_plan,
    works_of,
)


def plan_of(**changes: object) -> Plan:
    return make_plan(LLAMA, recompute="alternate", **changes)


def test_keys_output_and_up_projection_are_repeated() -> None:
    query, key = LLAMA.n_heads * LLAMA.head_dim, LLAMA.n_kv_heads * LLAMA.head_dim

    assert repeated_shares(local_of(plan_of())) == {"qkv": key / (query + 2 * key), "projection": 1.0, "mlp_up": 0.5, "mlp_down": 0.0}


def test_without_gate_the_count_ends_with_the_last_product() -> None:
    shares = repeated_shares(local_of(make_plan(GPT)))

    assert (shares["mlp_up"], shares["mlp_down"]) == (0.0, 1.0)


def test_attention_is_kept_and_what_is_no_product_is_repeated() -> None:
    plan = plan_of()
    operators = local_of(plan).layer(0)
    repeated = {operator.name: operator for operator in AlternateRecomputation().repeated(local_of(plan), operators)}

    assert not {"attention", "mlp_down"} & repeated.keys()
    assert all(repeated[operator.name] == operator for operator in operators if operator.name.startswith(("norm", "rotary", "activation")))
    (up,) = gemms(repeated["mlp_up"].kernels("recompute"))
    assert up.n == local_of(plan).shape().intermediate_size


def test_the_repeated_products_are_the_hardware_flops_above_the_model_flops() -> None:
    plan = plan_of()
    works = [work for work in works_of(chunk_passes(plan).layer_backward()) if work.phase == "recompute"]
    repeated = sum(kernel.flops for work in works for kernel in work.kernels if isinstance(kernel, Gemm))
    sequences = plan.training.global_batch_size / plan.training.micro_batch_size

    assert flops_of(plan).hardware - flops_of(plan).model == pytest.approx(sequences * LLAMA.n_layers * repeated, rel=1e-12)


def test_what_a_row_split_layer_scatters_is_kept_and_what_is_gathered_again_serves_twice() -> None:
    plan = plan_of(tp=2, sequence_parallel=True)
    whole = chunk_passes(plan).layer_backward()
    without = chunk_passes(make_plan(LLAMA, tp=2, sequence_parallel=True)).layer_backward()

    assert [each.op for each in collectives_of(whole)][:2] == ["all_gather"] * 2
    assert len(collectives_of(whole)) == len(collectives_of(without))
    assert next(item.phase for item in whole if isinstance(item, Work)) == "recompute"


def test_a_layer_keeps_its_input_the_other_products_and_attention() -> None:
    plan = plan_of()
    local, rows = local_of(plan).shape(), local_of(plan).shape().rows
    query, key = LLAMA.n_heads * LLAMA.head_dim, LLAMA.n_kv_heads * LLAMA.head_dim
    columns = query + key + local.intermediate_size + LLAMA.hidden_size + query
    statistics = sum(operator.selective_bytes for operator in local_of(plan).layer(0))

    expected = rows * LLAMA.hidden_size * 2.0 + rows * columns * 2.0 + statistics
    assert AlternateRecomputation().kept_bytes(local_of(plan), 0, local_of(plan).layer(0)) == pytest.approx(expected, rel=1e-12)
    assert layer_activation_bytes(plan)[0] == pytest.approx(expected, rel=1e-12)

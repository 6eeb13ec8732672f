"""Modules that predict further tokens: what they add, and what they share with the head."""

from __future__ import annotations

from dataclasses import replace

from clustersim.workloads.ends import head_operators
from clustersim.workloads.layer import layer_operators
from clustersim.workloads.parameters import (
    further_prediction_parameters,
    layer_parameters,
    norm_parameters,
    parameters_as_published,
    total_parameters,
)
from clustersim.workloads.predictions import prediction
from clustersim.workloads.transformer_shape import Experts
from tests.unit.parallel.factories import LLAMA, NUMERICS, make_shape

H = 512
MIXED = replace(LLAMA, n_layers=3, n_mtp=1, experts=Experts(n_experts=4, top_k=2, intermediate_size=64, dense_layers=(0,)))


def test_a_module_has_a_layer_like_the_last_one() -> None:
    shape = make_shape(MIXED)

    assert prediction(MIXED, shape, NUMERICS).layer == layer_operators(MIXED, shape, NUMERICS, 2)
    assert prediction(MIXED, shape, NUMERICS).layer != layer_operators(MIXED, shape, NUMERICS, 0)


def test_a_module_joins_two_normalised_rows_and_predicts_with_the_head_s_matrix() -> None:
    module = prediction(MIXED, make_shape(MIXED), NUMERICS)

    names = [operator.name for operator in module.joining + module.head]
    assert names == [
        *("mtp_embedding", "mtp_norm_1", "mtp_norm_2", "mtp_join", "mtp_projection"),
        *("mtp_final_norm", "mtp_logits", "mtp_loss"),
    ]
    assert [operator.parameters for operator in module.head] == [H, 0, 0]


def test_its_head_plays_no_role_of_the_model_s_own() -> None:
    module = prediction(MIXED, make_shape(MIXED), NUMERICS)

    assert {operator.role for operator in module.head} == {"other"}
    assert {operator.role for operator in head_operators(MIXED, make_shape(MIXED), NUMERICS)} == {"other", "logits", "loss"}


def test_its_parameters_are_a_layer_a_projection_and_three_norms() -> None:
    module = prediction(MIXED, make_shape(MIXED), NUMERICS)
    expected = layer_parameters(MIXED, 2) + 2 * H * H + 3 * norm_parameters(MIXED)

    assert further_prediction_parameters(MIXED) == expected == sum(operator.parameters for operator in module.operators)


def test_a_published_count_may_leave_the_modules_out() -> None:
    main = replace(MIXED, published_scope="main")

    assert parameters_as_published(main) == total_parameters(replace(MIXED, n_mtp=0))
    assert parameters_as_published(MIXED) == total_parameters(MIXED)

"""Every shipped model has as many parameters as its makers say."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from clustersim.workloads.kinds.call import LayerCall
from clustersim.workloads.kinds.joining import Auxiliary
from clustersim.workloads.layered import Layered
from clustersim.workloads.operators import Operator
from clustersim.workloads.reading.model_fields import ModelSpec
from clustersim.workloads.reading.model_spec import load_model, model_names
from clustersim.workloads.transformer import Transformer
from tests.unit.parallel.factories import embedding_parameters
from tests.unit.workloads.kinds.factories import NUMERICS

MULTIPLY_ADDS = {
    "alexnet": 0.714,
    "inception-v3": 5.713,
    "resnet-101": 7.801,
    "resnet-152": 11.514,
    "resnet-50": 4.089,
    "vgg-16": 15.47,
}
"""Multiply-adds of one image, in 1e9: torchvision's table of weights (GFLOPS there)."""
ACTIVE = {
    "dbrx": "36",
    "deepseek-v2": "21",
    "llama4-maverick": "17",
    "llama4-scout": "17",
    "mixtral-8x22b": "39",
    "mixtral-8x7b": "12.9",
    "olmoe-1b-7b": "1.3",
    "phi-3.5-moe": "6.6",
    "qwen1.5-moe-a2.7b": "2.7",
    "qwen2-57b-a14b": "14",
    "qwen3-235b-a22b": "22",
}
"""Parameters that a token meets, in 1e9, as the makers print them."""
ACTIVE_WITHOUT_TABLE = {"deepseek-v3": "36.6", "gpt-oss-120b": "5.13", "gpt-oss-20b": "3.61", "kimi-k2": "32"}
TRAINED_WITH_DROPOUT = ("bert-", "gpt-1", "gpt-2", "gpt-3", "gpt-5", "gpt-7", "gpt2", "gpt3", "opt-", "starcoder2-")


@pytest.mark.parametrize(("name", "billions"), MULTIPLY_ADDS.items())
def test_an_image_takes_its_published_multiply_adds(name: str, billions: float) -> None:
    # torchvision counts inference, in which Inception's classifier aside is left out.
    aside = sum(operator.forward_flops for operator in aside_of(name))

    assert round((listed(name).forward_flops - aside) / 2e9, 3) == billions


def test_inception_without_its_classifier_aside_has_the_parameters_of_inference() -> None:
    aside = sum(operator.parameters for operator in aside_of("inception-v3"))

    assert listed("inception-v3").n_parameters - aside == 23_834_568


def test_gnmt_is_the_tensors_of_nvidia_s_training() -> None:
    """The matrices of the encoder, the attention and the decoder, as NVIDIA's tests of its optimizers list them."""
    lstm_1024, lstm_2048 = 4096 * 2048 + 2 * 4096, 4096 * 3072 + 2 * 4096
    encoder = 2 * lstm_1024 + lstm_2048 + 2 * lstm_1024
    attention = 2 * 1024 * 1024 + 1024 + 1 + 1024
    decoder = lstm_1024 + attention + 3 * lstm_2048

    assert listed("gnmt").n_parameters == 32320 * 1024 + encoder + decoder + 32320 * 1024 + 32320


def listed(name: str) -> Layered:
    """Return a shipped list of layers."""
    model = load_model(name).model
    assert isinstance(model, Layered)
    return model


def aside_of(name: str) -> list[Operator]:
    """Return what a shipped list of layers does for one sample in classifiers aside."""
    call = LayerCall(samples=1, numerics=NUMERICS)
    return [operator for layer in listed(name).layers if isinstance(layer, Auxiliary) for operator in layer.operators(call)]


def transformer(name: str) -> Transformer:
    """Return a shipped transformer."""
    model = load_model(name).model
    assert isinstance(model, Transformer)
    return model


@pytest.mark.parametrize(("name", "billions"), ACTIVE.items())
def test_a_token_meets_as_many_parameters_as_published(name: str, billions: str) -> None:
    count = Decimal(transformer(name).n_active) / 10**9

    assert count.quantize(Decimal(billions)) == Decimal(billions)


@pytest.mark.parametrize(("name", "billions"), ACTIVE_WITHOUT_TABLE.items())
def test_some_makers_leave_the_token_table_out(name: str, billions: str) -> None:
    count = Decimal(transformer(name).n_active - embedding_parameters(transformer(name))) / 10**9

    assert count.quantize(Decimal(billions)) == Decimal(billions)


def test_deepseek_v3_s_further_prediction_is_its_layer_and_what_joins_two_rows() -> None:
    model = transformer("deepseek-v3")
    joining = 2 * model.hidden_size**2 + 3 * model.hidden_size

    # README_WEIGHTS.md prints 11.5B, which is the layer alone.
    modules = model.n_parameters - replace(model, n_mtp=0).n_parameters
    assert modules == 11_610_067_968
    assert round((modules - joining) / 1e9, 1) == 11.5


def test_every_figure_of_a_model_has_a_source() -> None:
    for name in model_names():
        spec = load_model(name).spec
        covered = {item for source in spec.sources for item in source.covers}
        published = "published_parameters" if spec.published_parameters else "published_parameters_rounded"
        named = {"names"} if isinstance(spec, ModelSpec) and spec.names else set[str]()
        assert covered == {"shape", published} | named, name
        assert all(source.url.startswith("https://") for source in spec.sources), name


def test_a_shipped_model_has_its_name_and_its_published_parameters_and_nothing_is_assumed() -> None:
    for name in model_names():
        loaded = load_model(name)
        assert loaded.model.name == name
        # A count that is not the published one is flagged: `parameter_count`.
        assert {code for code, _ in loaded.flags} <= {"parallel_residual", "left_out"}, name


def test_a_shipped_transformer_says_its_context_and_whether_it_was_trained_with_dropout() -> None:
    models = [model for model in (load_model(name).model for name in model_names()) if isinstance(model, Transformer)]

    assert [model.name for model in models if model.max_positions < 512] == []
    assert [model.name for model in models if model.dropout != model.name.startswith(TRAINED_WITH_DROPOUT)] == []


def test_parallel_blocks_are_flagged() -> None:
    assert [code for code, _ in load_model("gpt-neox-20b").flags] == ["parallel_residual"]

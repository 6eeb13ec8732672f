"""A description of a model is checked as a whole, and built into a transformer."""

from __future__ import annotations

import pytest

from clustersim.documents.text import Data
from clustersim.workloads.reading.model_fields import ModelSpec, published_text
from tests.unit.config.inline_models import SMALL, inline, refused, without
from tests.unit.config.samples import transformer_of


def test_heads_must_divide_the_hidden_size_unless_their_width_is_given() -> None:
    error = refused(without(num_attention_heads=6))

    assert error.hint == "give head_dim, or use 1, 2, 4, 8, 16 or 32"
    assert transformer_of(inline(without(num_attention_heads=6, head_dim=16))).n_heads == 6


@pytest.mark.parametrize("kv_heads", [3, 8])
def test_key_and_value_heads_must_divide_the_heads(kv_heads: int) -> None:
    assert refused(without(num_key_value_heads=kv_heads)).hint == "use 1, 2 or 4"


def test_without_a_gate_the_mlp_is_four_times_as_wide_as_the_hidden_state() -> None:
    assert transformer_of(inline(without("intermediate_size", gated_mlp=False))).intermediate_size == 256


@pytest.mark.parametrize(
    ("dim", "multiple_of", "multiplier", "width"),
    [(4096, 1024, 1.3, 14336), (8192, 4096, 1.3, 28672), (16384, 4096, 1.2, 53248), (4096, 256, None, 11008)],
)
def test_torchtitan_s_rounding_gives_the_width_of_llama(dim: int, multiple_of: int, multiplier: float | None, width: int) -> None:
    sizes: dict[str, Data] = {"n_layers": 1, "dim": dim, "n_heads": 32, "vocab_size": 100, "multiple_of": multiple_of}

    model = transformer_of(inline({"model_type": "llama", **sizes, "ffn_dim_multiplier": multiplier}))

    assert model.intermediate_size == width


def test_a_count_that_differs_from_the_published_one_is_flagged() -> None:
    ((code, message),) = inline(without(published_parameters=5)).flags

    assert code == "parameter_count"
    assert "but 5 are published" in message


@pytest.mark.parametrize(("rounded", "agrees"), [("95K", None), ("0.1M", True), ("0.09M", False), ("0.10M", True)])
def test_a_rounded_count_is_compared_to_its_digits(rounded: str, agrees: bool | None) -> None:
    model = without(published_parameters_rounded=rounded)

    if agrees is None:
        assert refused(model).field == "model.published_parameters_rounded"
    else:
        assert (inline(model).flags == ()) is agrees


def test_the_description_has_a_schema() -> None:
    schema = ModelSpec.model_json_schema()

    assert {"hidden_size", "num_key_value_heads", "gated_mlp"} <= set(schema["properties"])
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("count", "text"),
    [
        ({"published_parameters": 8_030_261_248}, "8,030,261,248"),
        ({"published_parameters_rounded": "18.4B"}, "18.4B"),
        ({}, None),
    ],
)
def test_a_published_count_is_shown_as_it_was_printed(count: dict[str, Data], text: str | None) -> None:
    spec = inline({**SMALL, **count}).spec

    assert isinstance(spec, ModelSpec)
    assert published_text(spec) == text

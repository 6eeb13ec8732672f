"""A model as a list of layers: the document as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.documents.spots import Data
from clustersim.errors import ScenarioError
from clustersim.scenario.model_lists import LayeredSpec
from clustersim.scenario.model_spec import load_model
from clustersim.workload.kinds.dense import LinearLayer
from clustersim.workload.layered import Layered

SMALL: dict[str, Data] = {"input": [8], "layers": [{"linear": {"features": 4}}]}


def test_a_mapping_with_layers_is_a_list_of_layers() -> None:
    loaded = load_model(SMALL)

    assert loaded.model == Layered(name="model", input=(8,), tokens_per_sample=1, layers=(LinearLayer(input=(8,), features=4, bias=True),))
    assert loaded.flags == ()


def test_a_file_of_layers_is_named_after_itself_unless_it_says_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text("input: [8]\nlayers: [{linear: {features: 4}}]\n", encoding="utf-8")

    assert load_model(str(file)).model.name == "tiny"
    assert load_model({**SMALL, "name": "other"}).model.name == "other"


def test_a_count_that_differs_from_the_published_one_is_flagged() -> None:
    assert load_model({**SMALL, "published_parameters": 36}).flags == ()
    ((code, message),) = load_model({**SMALL, "published_parameters": 40}).flags

    assert (code, message) == ("parameter_count", "36 parameters are counted, but 40 are published")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"hidden_size": 8}, "model.hidden_size"),
        ({"input": [0]}, "model.input.0"),
        ({"input": [1, 2, 3, 4]}, "model.input"),
        ({"layers": []}, "model.layers"),
        ({"layers": 3}, "model.layers"),
        ({"tokens_per_sample": 0}, "model.tokens_per_sample"),
        ({"sources": [{"title": "x", "url": "y"}]}, "model.sources.0.covers"),
    ],
)
def test_an_error_of_the_whole_names_its_field(change: dict[str, Data], field: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_model({**SMALL, **change})

    assert caught.value.field is not None
    assert field in (caught.value.field, f"model.{caught.value.field}")


def test_the_input_is_needed() -> None:
    with pytest.raises(ScenarioError, match="'input' is missing"):
        load_model({"layers": SMALL["layers"]})


def test_the_list_has_a_schema() -> None:
    schema = LayeredSpec.model_json_schema()

    assert {"input", "layers"} <= set(schema["required"])
    assert {"conv", "residual", "concat", "repeat"} <= set(schema["$defs"]["LayerSpec"]["properties"])

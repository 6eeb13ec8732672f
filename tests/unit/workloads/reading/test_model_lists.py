"""A model as a list of layers: the document as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.workloads.kinds.normalization import LinearLayer
from clustersim.workloads.layered import Layered
from clustersim.workloads.operators import Recorded
from clustersim.workloads.reading.model_lists import LayeredSpec
from clustersim.workloads.reading.model_spec import MEASURED_SPEED, load_model

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


def test_layers_may_be_those_of_another_model() -> None:
    loaded = load_model({"layers": "resnet-50"})

    assert loaded.model == load_model("resnet-50").model
    assert isinstance(loaded.spec, LayeredSpec)
    assert load_model(loaded.spec.model_dump(mode="json", exclude_none=True)).model == loaded.model


@pytest.mark.parametrize(
    ("change", "message", "field"),
    [
        ({"layers": "gpt2"}, "gpt2 is a transformer", "layers"),
        ({"layers": "resnet-51"}, "there is no model 'resnet-51'", "layers"),
        ({"layers": [{"embedding": {"rows": 8, "features": 4}}], "samples_per_s": "1 samples/s"}, "no layer has FLOPs", "samples_per_s"),
    ],
)
def test_layers_that_cannot_be_had_or_timed_are_refused(change: dict[str, Data], message: str, field: str) -> None:
    with pytest.raises(ScenarioError, match=message) as caught:
        load_model({**SMALL, **change})

    assert caught.value.field == field


def test_a_measured_speed_is_divided_among_layers_by_their_flops() -> None:
    loaded = load_model({**SMALL, "layers": [{"linear": {"features": 4}}, {"linear": {"features": 12}}], "samples_per_s": "10 samples/s"})
    assert isinstance(loaded.model, Layered)
    operators = [operator for does in loaded.model.each_layer() for operator in does]

    kernels = [operator.kernels("forward", "input_gradient") for operator in operators]
    # 32 and 48 products; one third forward.
    shares = [(32 / 80 / 3, 2 * 32 / 80 / 3), (48 / 80 / 3, 2 * 48 / 80 / 3)]
    assert [[each.duration_s for each in some if isinstance(each, Recorded)] for some in kernels] == [
        pytest.approx([0.1 * share for share in some]) for some in shares
    ]
    assert [code for code, _ in loaded.flags] == [MEASURED_SPEED]


def test_the_input_is_needed() -> None:
    with pytest.raises(ScenarioError, match="'input' is missing"):
        load_model({"layers": SMALL["layers"]})


def test_the_list_has_a_schema() -> None:
    schema = LayeredSpec.model_json_schema()

    assert {"input", "layers"} <= set(schema["required"])
    assert {"conv", "residual", "concat", "repeat"} <= set(schema["$defs"]["LayerSpec"]["properties"])

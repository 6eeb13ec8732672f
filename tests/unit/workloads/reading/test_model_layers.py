"""Layers as users write them: shapes, defaults, and what is wrong at its place."""

from __future__ import annotations

import pytest

from clustersim.documents.text import Data, parse_document
from clustersim.errors import ScenarioError
from clustersim.workloads.kinds.call import Shape
from clustersim.workloads.layered import Layered
from clustersim.workloads.reading.model_layers import shape_text
from clustersim.workloads.reading.model_spec import load_model

IMAGE, SEQUENCE, TOKENS = "[3, 32, 32]", "[16, 8]", "[16]"


def model(layers: str, shape: str = IMAGE) -> Layered:
    """Return the model that a scenario with these lines as its layers describes."""
    lines = "\n".join(f"    {line}" for line in layers.strip("\n").splitlines())
    document = parse_document(f"name: test\nmodel:\n  input: {shape}\n  layers:\n{lines}\n", "scenario.yaml")
    found = load_model(document.data["model"], document=document).model
    assert isinstance(found, Layered)
    return found


def refused(layers: str, shape: str = IMAGE) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        model(layers, shape)
    return caught.value


@pytest.mark.parametrize(
    ("layer", "output"),
    [
        ("conv: {channels: 8, kernel: 3}", (8, 30, 30)),
        ("conv: {channels: 8, kernel: 3, padding: same}", (8, 32, 32)),
        ("conv: {channels: 8, kernel: [1, 7], padding: same}", (8, 32, 32)),
        ("conv: {channels: 8, kernel: 7, stride: 2, padding: 3}", (8, 16, 16)),
        ("conv: {channels: 6, kernel: 3, stride: [2, 1], padding: [1, 0], groups: 3}", (6, 16, 30)),
    ],
)
def test_a_convolution_gives_an_image(layer: str, output: Shape) -> None:
    assert model(f"- {layer}").layers[-1].output == output


@pytest.mark.parametrize(
    ("layer", "output"),
    [
        ("pool: {kind: max, kernel: 2}", (4, 16, 16)),
        ("pool: {kind: max, kernel: 3, stride: 2}", (4, 15, 15)),
        ("pool: {kind: max, kernel: 3, stride: 2, round_up: true}", (4, 16, 16)),
        ("pool: {kind: max, kernel: 2, stride: 2, padding: 1, round_up: true}", (4, 17, 17)),
        ("pool: {kind: average, to: 1}", (4, 1, 1)),
        ("pool: {kind: average, to: [2, 3]}", (4, 2, 3)),
        ("norm: batch", (4, 32, 32)),
        ("activation: gelu", (4, 32, 32)),
        ("dropout: 0.5", (4, 32, 32)),
        ("flatten", (4096,)),
        ("auxiliary: [flatten, {linear: {features: 3}}]", (4, 32, 32)),
        ("residual: {layers: [{conv: {channels: 4, kernel: 3, padding: 1}}], activation: relu}", (4, 32, 32)),
        ("concat: [[{conv: {channels: 5, kernel: 1}}], []]", (9, 32, 32)),
    ],
)
def test_what_follows_a_convolution_has_its_shape(layer: str, output: Shape) -> None:
    assert model(f"- conv: {{channels: 4, kernel: 1}}\n- {layer}").layers[-1].output == output


@pytest.mark.parametrize(
    ("layers", "shape", "output"),
    [
        ("- linear: {features: 5}", "[8]", (5,)),
        ("- linear: {features: 5, activation: tanh}", SEQUENCE, (16, 5)),
        ("- embedding: {rows: 100, features: 8}", TOKENS, (16, 8)),
        ("- lstm: {features: 5}", SEQUENCE, (16, 5)),
        ("- gru: {features: 5, bidirectional: true}", SEQUENCE, (16, 10)),
        ("- lstm: {features: 5}\n- keep: words\n- input: [4, 6]\n- attention: {over: words, features: 3}", SEQUENCE, (4, 11)),
        ("- lstm: {features: 5}\n- keep: words\n- linear: {features: 2}\n- join: words", SEQUENCE, (16, 7)),
        ("- linear: {features: 5}\n- loss: softmax", "[8]", (5,)),
    ],
)
def test_features_and_sequences_have_theirs(layers: str, shape: str, output: Shape) -> None:
    assert model(layers, shape).layers[-1].output == output


def test_what_attention_found_can_be_joined_again() -> None:
    layers = (
        "- lstm: {features: 5}\n- keep: words\n- attention: {over: words, features: 3, keep: found}\n- lstm: {features: 2}\n- join: found"
    )

    assert model(layers, SEQUENCE).layers[-1].output == (16, 2 + 5)


@pytest.mark.parametrize(
    ("layer", "parameters"),
    [
        ("conv: {channels: 8, kernel: 3}", 8 * 27 + 8),
        ("conv: {channels: 8, kernel: 3, bias: false}", 8 * 27),
        ("conv: {channels: 8, kernel: 3, norm: batch}", 8 * 27 + 16),
        ("conv: {channels: 8, kernel: 3, norm: batch, bias: true}", 8 * 27 + 8 + 16),
    ],
)
def test_a_norm_takes_the_place_of_a_bias(layer: str, parameters: int) -> None:
    assert model(f"- {layer}").n_parameters == parameters


def test_repeated_layers_have_parameters_of_their_own() -> None:
    repeated = model("- repeat: {times: 3, layers: [{conv: {channels: 4, kernel: 3, padding: 1}}, {activation: relu}]}")

    assert repeated.n_layers == 6
    assert repeated.n_parameters == (4 * 27 + 4) + 2 * (4 * 36 + 4)


@pytest.mark.parametrize(
    ("layer", "field", "message", "hint"),
    [
        ("conv: {chanels: 8, kernel: 3}", "conv.chanels", "unknown field 'chanels'", "did you mean 'channels'?"),
        ("convv: {channels: 8, kernel: 3}", "convv", "unknown field 'convv'", "did you mean 'conv'?"),
        ("conv: {channels: 8}", "conv.kernel", "'kernel' is missing", "add 'kernel: ...'"),
        ("conv: {channels: 8, kernel: [1, 2, 3]}", "conv.kernel", "a list of 3 is not", "write one number for both"),
        ("conv: {channels: 8, kernel: 40}", "conv.kernel", "40 x 40 does not fit into 32 x 32", "a smaller kernel or more padding"),
        ("conv: {channels: 8, kernel: 2, padding: same}", "conv.padding", "an even kernel", "give the padding"),
        ("conv: {channels: 8, kernel: 3, groups: 2}", "conv.groups", "2 groups do not divide the 3 channels that come in", "a divisor"),
        ("conv: {channels: 8, kernel: 3, groups: 3}", "conv.groups", "3 groups do not divide the 8 channels that go out", "a divisor"),
        ("conv: {channels: 8, kernel: 3, activation: rellu}", "conv.activation", "'rellu' is not one of", "did you mean 'relu'?"),
        ("pool: {kind: max}", "pool", "give either 'kernel' or 'to'", "to: 1 pools all"),
        ("pool: {kind: max, kernel: 40}", "pool.kernel", "40 x 40 does not fit", "or to: 1"),
        ("linear: {features: 8}", "linear", "takes features, and 3 x 32 x 32 come in", "put '- flatten' before it"),
        ("lstm: {features: 4}", "lstm", "takes a sequence", "tokens and features"),
        ("embedding: {rows: 3, features: 3}", "embedding", "takes tokens", "input: [128]"),
        ("join: nothing", "join", "nothing was kept as 'nothing'", "put '- keep: nothing' behind"),
        ("dropout: 1.5", "dropout", "1.5 is out of range", "less than 1"),
        ("relu", "", "'relu' is not a layer", "write a mapping"),
        ("flaten", "", "'flaten' is not a layer", "did you mean 'flatten'?"),
        ("{conv: {channels: 8, kernel: 3}, activation: relu}", "", "of one kind, not conv, activation", "begin a new entry"),
        ("{}", "", "of one kind, not no kind", "begin a new entry"),
        ("residual: {layers: [{conv: {channels: 8, kernel: 3}}]}", "residual", "8 x 30 x 30 cannot be added to 3 x 32 x 32", "shortcut"),
        ("concat: [[], [{conv: {channels: 8, kernel: 3}}]]", "concat.1", "cannot be put behind 3 x 32 x 32", "one size"),
        ("repeat: {times: 20000, layers: [flatten]}", "repeat.times", "20000 is out of range", "at most 10000"),
        ("repeat: {times: 9000, layers: [flatten, flatten]}", "repeat", "more than 10000 layers", "repeat fewer times"),
        ("flatten", "?", "no layer has parameters", "add a conv"),
    ],
)
def test_what_is_wrong_with_a_layer_is_said_at_its_place(layer: str, field: str, message: str, hint: str) -> None:
    error = refused(f"- {layer}")

    expected = "model.layers" if field == "?" else "model.layers.0" + (f".{field}" if field else "")
    assert error.field == expected
    assert message in error.message
    assert hint in (error.hint or "")
    assert error.place is not None
    assert error.place.line == 5


@pytest.mark.parametrize(
    ("layers", "shape", "message"),
    [
        ("- flatten\n- conv: {channels: 8, kernel: 3}", IMAGE, "a convolution takes an image, and 3072 come in"),
        ("- pool: {kind: max, kernel: 2}", SEQUENCE, "pooling takes an image"),
        ("- keep: whole\n- lstm: {features: 4}\n- attention: {over: whol, features: 3}", SEQUENCE, "nothing was kept as 'whol'"),
        ("- keep: words\n- input: [5, 8]\n- join: words", SEQUENCE, "differ in more than their features"),
        ("- keep: picture\n- input: [5, 8]\n- attention: {over: picture, features: 3}", IMAGE, "'picture' is not a sequence"),
    ],
)
def test_a_layer_that_does_not_fit_what_comes_in_is_refused(layers: str, shape: str, message: str) -> None:
    assert message in refused(layers, shape).message


def test_a_mistake_deep_inside_is_found_there() -> None:
    error = refused(
        "- residual:\n    layers:\n      - repeat:\n          times: 2\n          layers:\n            - conv: {channels: 8, kernel: 3}"
    )

    # The path fits; what it gives cannot be added.
    assert (error.field, error.place and error.place.line) == ("model.layers.0.residual", 6)


def test_shapes_are_shown_as_people_write_them() -> None:
    assert shape_text((64, 56, 56)) == "64 x 56 x 56"


def test_a_number_is_not_a_layer() -> None:
    data: dict[str, Data] = {"input": [8], "layers": [5]}

    with pytest.raises(ScenarioError, match="5 is not a mapping"):
        load_model(data)

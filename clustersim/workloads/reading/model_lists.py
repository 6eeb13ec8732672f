"""A model as a list of layers: the document, and the model that it means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from clustersim.errors import ScenarioError
from clustersim.hardware.profile_schema import Checked
from clustersim.units.fields import PositiveInt, SamplesPerSecond, mistake
from clustersim.workloads.kinds.call import IMAGE_SIDES, Layer, Shape
from clustersim.workloads.kinds.joining import Auxiliary, Concatenation, Path, ResidualPath, View
from clustersim.workloads.kinds.normalization import Activation, Dropout, NormKind, NormLayer, SoftmaxLoss
from clustersim.workloads.layered import Layered
from clustersim.workloads.reading.model_fields import ModelSourceSpec
from clustersim.workloads.reading.model_layers import (
    ActivationName,
    ConvSpec,
    DecoderAttentionSpec,
    EmbeddingSpec,
    Here,
    LinearSpec,
    PoolingSpec,
    RecurrentSpec,
    Side,
    Word,
    flattened,
    joined,
    shape_text,
)

MOST_LAYERS = 10_000
"""Most layers of one list, repetitions counted; a slip in a number must not fill the memory."""

Inputs = Annotated[list[Side], Field(min_length=1, max_length=IMAGE_SIDES)]


class ResidualSpec(Checked):
    """Layers added to their input, or to a shortcut of it."""

    layers: Layers = Field(min_length=1)
    shortcut: Layers = Field(default=[], description="Default: the input itself is added.")
    activation: ActivationName | None = Field(default=None, description="Of the sum.")


class RepeatSpec(Checked):
    """The same layers several times, each with its own parameters."""

    times: Annotated[PositiveInt, Field(le=MOST_LAYERS)]
    layers: Layers = Field(min_length=1)


class LayerSpec(Checked):
    """One layer: exactly one of the keys."""

    conv: ConvSpec | None = None
    linear: LinearSpec | None = None
    norm: NormKind | None = None
    activation: ActivationName | None = None
    dropout: Annotated[float, Field(strict=True, gt=0, lt=1)] | None = Field(default=None, description="Share that is set to zero.")
    pool: PoolingSpec | None = None
    flatten: Literal[True] | None = None
    embedding: EmbeddingSpec | None = None
    lstm: RecurrentSpec | None = None
    gru: RecurrentSpec | None = None
    attention: DecoderAttentionSpec | None = None
    residual: ResidualSpec | None = None
    concat: Annotated[list[Layers], Field(min_length=2)] | None = Field(default=None, description="Lists of layers side by side.")
    auxiliary: Annotated[Layers, Field(min_length=1)] | None = Field(default=None, description="Layers aside; what follows skips them.")
    repeat: RepeatSpec | None = None
    keep: Annotated[str, Field(min_length=1)] | None = Field(default=None, description="A name for what comes in.")
    join: str | None = Field(default=None, description="Puts what was kept behind the features.")
    input: Inputs | None = Field(default=None, description="A further input of the model, such as the sentence of a decoder.")
    loss: Literal["softmax"] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if len(self.model_fields_set) != 1:
            written = ", ".join(name for name in LayerSpec.model_fields if name in self.model_fields_set) or "no kind"
            hint = "begin a new entry with '-' for each layer"
            raise mistake(f"a layer is of one kind, not {written}", hint)
        return self

    def build(self, here: Here) -> Path:
        """Return the layers of this entry: one, or several where they are repeated."""
        (key,) = self.model_fields_set
        here = here.at(key)
        if self.repeat is not None:
            return self._repeated(self.repeat, here)
        layer = self._plain(here) or self._with_options(here) or self._with_layers(here)
        assert layer is not None  # one key is set, and each is one of theirs
        return (layer,)

    def _repeated(self, repeat: RepeatSpec, here: Here) -> Path:
        layers: list[Layer] = []
        for _ in range(repeat.times):
            layers += build_layers(repeat.layers, here.at("layers"), shape=layers[-1].output if layers else here.shape)
            _check_number(layers, here)
        return tuple(layers)

    def _plain(self, here: Here) -> Layer | None:
        layer: Layer | None = None
        if self.norm is not None:
            layer = NormLayer(input=here.shape, kind=self.norm)
        elif self.activation is not None:
            layer = Activation(input=here.shape)
        elif self.dropout is not None:
            layer = Dropout(input=here.shape)
        elif self.flatten is not None:
            layer = flattened(here)
        elif self.keep is not None:
            here.kept[self.keep] = here.shape
            layer = View(output=here.shape)
        elif self.join is not None:
            layer = joined(here, self.join)
        elif self.input is not None:
            layer = View(output=tuple(self.input))
        elif self.loss is not None:
            layer = SoftmaxLoss(input=here.shape)
        return layer

    def _with_options(self, here: Here) -> Layer | None:
        for spec in (self.conv, self.linear, self.pool, self.embedding, self.attention):
            if spec is not None:
                return spec.build(here)
        if self.lstm is not None:
            return self.lstm.build(here, "lstm")
        return self.gru.build(here, "gru") if self.gru is not None else None

    def _with_layers(self, here: Here) -> Layer | None:
        if self.residual is not None:
            return _residual(self.residual, here)
        if self.concat is not None:
            return _concatenation(self.concat, here)
        return Auxiliary(input=here.shape, layers=build_layers(self.auxiliary, here)) if self.auxiliary is not None else None


Layers = list[Annotated[LayerSpec, Word]]
for _holder in (ResidualSpec, RepeatSpec, LayerSpec):
    _holder.model_rebuild()


def _residual(spec: ResidualSpec, here: Here) -> Layer:
    layers = build_layers(spec.layers, here.at("layers"))
    shortcut = build_layers(spec.shortcut, here.at("shortcut"))
    given, beside = layers[-1].output, shortcut[-1].output if shortcut else here.shape
    if given != beside:
        message = f"{shape_text(given)} cannot be added to {shape_text(beside)}"
        raise here.refusal(message, "give a shortcut, such as a conv with kernel 1 of as many channels and the same stride")
    return ResidualPath(input=here.shape, layers=layers, shortcut=shortcut, activated=spec.activation is not None)


def _concatenation(specs: Sequence[Layers], here: Here) -> Layer:
    paths = tuple(build_layers(path, here.at(str(index))) for index, path in enumerate(specs))
    shapes = [path[-1].output if path else here.shape for path in paths]
    for index, shape in enumerate(shapes):
        if len(shape) != len(shapes[0]) or shape[1:] != shapes[0][1:]:
            message = f"{shape_text(shape)} cannot be put behind {shape_text(shapes[0])}"
            raise here.refusal(message, "let all paths give images of one size, by stride or padding", str(index))
    return Concatenation(input=here.shape, paths=paths)


def build_layers(specs: Sequence[LayerSpec], here: Here, *, shape: Shape | None = None) -> Path:
    """Return the layers of a list, each with the shape that the one before gives."""
    layers: list[Layer] = []
    shape = here.shape if shape is None else shape
    for index, spec in enumerate(specs):
        built = spec.build(Here(shape=shape, field=f"{here.field}.{index}", kept=here.kept))
        layers += built
        shape = built[-1].output
        _check_number(layers, here)
    return tuple(layers)


def _check_number(layers: Sequence[Layer], here: Here) -> None:
    if len(layers) > MOST_LAYERS:
        raise here.refusal(f"more than {MOST_LAYERS} layers", "repeat fewer times")


class LayeredSpec(Checked):
    """A model that is no transformer, layer by layer."""

    name: str | None = None
    description: str = ""
    input: Inputs = Field(description="Of one sample: channels, height and width; tokens and features; features; or tokens.")
    tokens_per_sample: PositiveInt = Field(default=1, description="What counts as throughput: 1 for an image, the tokens of a sentence.")
    layers: Layers = Field(min_length=1, max_length=MOST_LAYERS)
    published_parameters: PositiveInt | None = None
    samples_per_s: Annotated[SamplesPerSecond, Field(gt=0)] | None = Field(
        default=None,
        description="Of one accelerator alone, measured with the micro-batch of the scenario; layers then take their share by FLOPs.",
    )
    sources: tuple[ModelSourceSpec, ...] = ()

    def build(self, name: str) -> Layered:
        """Return the model.

        Raises
        ------
        ScenarioError
            Where a layer does not fit what comes in, or where nothing is learnt.
        """
        here = Here(shape=tuple(self.input), field="layers", kept={})
        model = Layered(
            name=name,
            input=here.shape,
            tokens_per_sample=self.tokens_per_sample,
            layers=build_layers(self.layers, here),
            published_parameters=self.published_parameters,
        )
        if model.n_parameters == 0:
            raise ScenarioError("no layer has parameters", field="layers", hint="add a conv, a linear or an embedding")
        if self.samples_per_s is None:
            return model
        if model.forward_flops == 0.0:
            raise ScenarioError("no layer has FLOPs by which a measured time is shared", field="samples_per_s", hint="leave it out")
        return replace(model, measured_s_per_flop=1.0 / (self.samples_per_s * model.forward_flops))

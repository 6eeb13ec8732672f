"""Layers as users write them: the keys of each kind, and the layer for a known input shape."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, StrictBool, model_validator

from clustersim.documents.near_names import did_you_mean
from clustersim.documents.text import is_sequence
from clustersim.errors import ScenarioError
from clustersim.hardware.profile_schema import Checked
from clustersim.units.fields import NonNegativeInt, PositiveInt, mistake
from clustersim.workloads.kinds.call import IMAGE_SIDES, SEQUENCE_SIDES, Layer, Shape
from clustersim.workloads.kinds.images import ConvolutionLayer, PoolLayer
from clustersim.workloads.kinds.joining import Chain, Join, Path, View
from clustersim.workloads.kinds.normalization import Activation, LinearLayer, NormLayer
from clustersim.workloads.kinds.sequences import AttentionLayer, CellKind, EmbeddingLayer, RecurrentLayer
from clustersim.workloads.operators import Pair, reach

ActivationName = Literal["relu", "relu6", "gelu", "silu", "sigmoid", "tanh", "hard_swish"]
"""All move the same bytes; the name is for the reader."""

PAIR: Final = 2
"""Rows and columns."""


def _one_or_two(value: object) -> object:
    if is_sequence(value) and len(value) != PAIR:
        message = f"a list of {len(value)} is not rows and columns"
        raise mistake(message, "write one number for both, or two such as [1, 7]")
    return value


Width = Annotated[PositiveInt, Field(le=10_000_000)]
Side = Annotated[PositiveInt, Field(le=100_000)]
Sides = Annotated[Side | tuple[Side, Side], BeforeValidator(_one_or_two)]
Padding = Annotated[NonNegativeInt | tuple[NonNegativeInt, NonNegativeInt], BeforeValidator(_one_or_two)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """Position of a layer: its input shape, its field of the document, and the shapes stored before it."""

    shape: Shape
    field: str
    kept: dict[str, Shape]
    """Grows while layers are built."""

    def refusal(self, message: str, hint: str, key: str | None = None) -> ScenarioError:
        """Return an error at the layer, or at one key of it."""
        return ScenarioError(message, field=f"{self.field}.{key}" if key else self.field, hint=hint)

    def at(self, key: str) -> Here:
        """Return a part of the layer."""
        return replace(self, field=f"{self.field}.{key}")


def shape_text(shape: Shape) -> str:
    """Return a shape in words.

    Examples
    --------
    >>> shape_text((64, 56, 56))
    '64 x 56 x 56'
    """
    return " x ".join(str(side) for side in shape)


class ConvSpec(Checked):
    """A convolution over an image, with what usually follows it."""

    channels: Width = Field(description="Of the result: the number of filters.")
    kernel: Sides = Field(description="Side of the filters, or rows and columns.")
    stride: Sides = 1
    padding: Padding | Literal["same"] = Field(default=0, description="On each side; same: as much as keeps the size at stride 1.")
    groups: PositiveInt = Field(default=1, description="Parts that channels fall into; as many as channels: depthwise.")
    bias: StrictBool | None = Field(default=None, description="Default: only without a norm, which would take it out again.")
    norm: Literal["batch"] | None = None
    activation: ActivationName | None = None

    def build(self, here: Here) -> Layer:
        """Return the convolution with norm and activation as one layer."""
        _need_image(here, "a convolution")
        channels, *image = here.shape
        kernel, stride, padding = pair(self.kernel), pair(self.stride), self._padding(here)
        for given, way in ((channels, "come in"), (self.channels, "go out")):
            if given % self.groups:
                hint = f"use a divisor of {channels} and {self.channels}"
                raise here.refusal(f"{self.groups} groups do not divide the {given} channels that {way}", hint, "groups")
        if any(reach(*side) < 1 for side in zip(image, kernel, stride, padding, strict=True)):
            message = f"a kernel of {shape_text(kernel)} does not fit into {shape_text(tuple(image))} with padding {shape_text(padding)}"
            raise here.refusal(message, "use a smaller kernel or more padding", "kernel")
        layers: list[Layer] = [
            ConvolutionLayer(
                input=here.shape,
                filters=self.channels,
                kernel=kernel,
                stride=stride,
                padding=padding,
                groups=self.groups,
                bias=self.norm is None if self.bias is None else self.bias,
            )
        ]
        return _followed(layers, norm=self.norm is not None, activation=self.activation is not None)

    def _padding(self, here: Here) -> Pair:
        if self.padding != "same":
            return pair(self.padding)
        rows, columns = pair(self.kernel)
        if rows % 2 == 0 or columns % 2 == 0:
            raise here.refusal("an even kernel cannot keep the size with equal padding on both sides", "give the padding", "padding")
        return rows // 2, columns // 2


class LinearSpec(Checked):
    """A matrix on the features of each sample or token."""

    features: Width
    bias: StrictBool = True
    activation: ActivationName | None = None

    def build(self, here: Here) -> Layer:
        """Return the matrix, and the activation as part of it."""
        if len(here.shape) == IMAGE_SIDES:
            message = f"a linear layer takes features, and {shape_text(here.shape)} come in"
            raise here.refusal(message, "put '- flatten' before it")
        return _followed([LinearLayer(input=here.shape, features=self.features, bias=self.bias)], activation=self.activation is not None)


class PoolingSpec(Checked):
    """The largest or the mean of windows over an image."""

    kind: Literal["max", "average"]
    kernel: Sides | None = Field(default=None, description="Of the windows.")
    to: Sides | None = Field(default=None, description="Instead of a kernel: places of the result; 1 for global pooling.")
    stride: Sides | None = Field(default=None, description="Default: the kernel.")
    padding: Padding = 0
    round_up: StrictBool = Field(default=False, description="A window that reaches beyond the edge counts too.")

    @model_validator(mode="after")
    def _kernel_or_places(self) -> Self:
        if (self.kernel is None) == (self.to is None):
            raise mistake("give either 'kernel' or 'to'", "to: 1 pools all")
        return self

    def build(self, here: Here) -> Layer:
        """Return the pooling."""
        _need_image(here, "pooling")
        return PoolLayer(input=here.shape, kind=self.kind, places=self._places(here))

    def _places(self, here: Here) -> Pair:
        if self.kernel is None:
            return pair(self.to or 1)
        kernel, padding = pair(self.kernel), pair(self.padding)
        stride = pair(self.kernel if self.stride is None else self.stride)
        rows, columns = (self._along(*side) for side in zip(here.shape[1:], kernel, stride, padding, strict=True))
        if min(rows, columns) < 1:
            message = f"a window of {shape_text(kernel)} does not fit into {shape_text(here.shape[1:])}"
            raise here.refusal(message, "use a smaller kernel, or to: 1", "kernel")
        return rows, columns

    def _along(self, size: int, kernel: int, stride: int, padding: int) -> int:
        whole = reach(size, kernel, stride, padding)
        beyond = self.round_up and (size + 2 * padding - kernel) % stride > 0
        # A window must not begin in the padding behind the image.
        return whole + (1 if beyond and whole * stride < size + padding else 0)


class EmbeddingSpec(Checked):
    """A table that maps tokens to features."""

    rows: Annotated[PositiveInt, Field(le=1_000_000_000)] = Field(description="Tokens of the vocabulary.")
    features: Width
    shared: StrictBool = Field(default=False, description="The table of an earlier embedding, which is not counted again.")

    def build(self, here: Here) -> Layer:
        """Return the lookup."""
        if len(here.shape) != 1:
            hint = "give the number of tokens of a sample, such as input: [128]"
            raise here.refusal(f"an embedding takes tokens, and {shape_text(here.shape)} come in", hint)
        return EmbeddingLayer(input=here.shape, rows=self.rows, features=self.features, shared=self.shared)


class RecurrentSpec(Checked):
    """One layer of recurrent cells over a sequence."""

    features: Width = Field(description="Of one direction.")
    bidirectional: StrictBool = False

    def build(self, here: Here, cell: CellKind) -> Layer:
        """Return the layer of cells."""
        _need_sequence(here, f"'{cell}'")
        return RecurrentLayer(input=here.shape, cell=cell, features=self.features, bidirectional=self.bidirectional)


class DecoderAttentionSpec(Checked):
    """Attention of a decoder over the outputs of an encoder; the result is concatenated with each token's features."""

    over: str = Field(description="The name under which the keys were kept.")
    features: Width = Field(description="Width in which queries and keys are compared.")
    kind: Literal["additive", "dot"] = "additive"
    normalized: StrictBool = Field(default=False, description="Additive: scaled by a parameter, with a bias.")
    keep: str | None = Field(default=None, description="A name for the result, to join it again later.")

    def build(self, here: Here) -> Layer:
        """Return the attention, whose result is stored under its name."""
        _need_sequence(here, "attention")
        memory = kept(here.at("over"), self.over)
        if len(memory) != SEQUENCE_SIDES:
            raise here.refusal(f"'{self.over}' is not a sequence: {shape_text(memory)}", "keep the last layer of the encoder", "over")
        if self.keep is not None:
            here.kept[self.keep] = (here.shape[0], memory[1])
        normalized = self.normalized and self.kind == "additive"
        return AttentionLayer(input=here.shape, memory=memory, kind=self.kind, features=self.features, normalized=normalized)


def kept(here: Here, name: str) -> Shape:
    """Return the shape of a stored tensor by name.

    Raises
    ------
    ScenarioError
        When nothing was.
    """
    if name not in here.kept:
        near = did_you_mean(name, here.kept)
        raise here.refusal(f"nothing was kept as '{name}'", near or f"put '- keep: {name}' behind the layer that gives it")
    return here.kept[name]


def joined(here: Here, name: str) -> Layer:
    """Return the concatenation of a stored tensor with the input."""
    other = kept(here, name)
    if len(other) != len(here.shape) or other[:-1] != here.shape[:-1]:
        message = f"{shape_text(here.shape)} and '{name}' of {shape_text(other)} differ in more than their features"
        raise here.refusal(message, "keep a tensor of as many tokens")
    return Join(input=here.shape, kept=other)


def flattened(here: Here) -> Layer:
    """Return the input as one list of features."""
    return View(output=(prod(here.shape),))


def pair(value: int | Pair) -> Pair:
    """Return rows and columns."""
    return (value, value) if isinstance(value, int) else value


def _followed(layers: Path | list[Layer], *, norm: bool = False, activation: bool = False) -> Layer:
    shape = layers[-1].output
    behind: list[Layer] = [NormLayer(input=shape, kind="batch", activated=activation)] if norm else []
    if activation and not norm:
        behind.append(Activation(input=shape))
    return Chain(layers=(*layers, *behind)) if behind else layers[0]


def _need_image(here: Here, what: str) -> None:
    if len(here.shape) != IMAGE_SIDES:
        hint = "give channels, height and width as input: [3, 224, 224], and flatten only behind the last of them"
        raise here.refusal(f"{what} takes an image, and {shape_text(here.shape)} come in", hint)


def _need_sequence(here: Here, what: str) -> None:
    if len(here.shape) != SEQUENCE_SIDES:
        hint = "give tokens and features as input: [128, 512], or put an embedding before it"
        raise here.refusal(f"{what} takes a sequence, and {shape_text(here.shape)} come in", hint)


def _word(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value == "flatten":
        return {"flatten": True}
    hint = did_you_mean(value, ["flatten"]) or "write a mapping such as 'conv: {channels: 64, kernel: 3}'"
    raise mistake(f"'{value}' is not a layer", hint)


Word: Final = BeforeValidator(_word)
"""A layer that needs no words but its name."""

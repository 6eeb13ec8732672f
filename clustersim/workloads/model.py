"""The interface of models: a front, layers of sublayers, and a back."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from clustersim.documents.spots import Data
from clustersim.workloads.ends import Prediction
from clustersim.workloads.experts import MoeHalf
from clustersim.workloads.operators import Operator
from clustersim.workloads.shapes import HeadWidths, LocalShape, Numerics
from clustersim.workloads.transformer_shape import Experts, LinearAttention, Window

HEAD: Final = "head"
"""Name of the back of a model as a sublayer."""

TOKEN_BYTES: Final = 8.0
"""Bytes of a token as a 64-bit index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sublayer:
    """A part of a layer between two places at which parallelism cuts: attention, an MLP, experts, or the whole layer of a list."""

    name: str
    operators: tuple[Operator, ...]
    experts: MoeHalf | None = None
    """The same operators in the parts between which expert parallelism has its collectives; None without experts."""
    entering_width: int = 0
    """Width of the rows that enter its column-split layers, which sequence parallelism gathers before them."""


class Model(HeadWidths, Protocol):
    """A network: a front, layers, and a back, with the sizes that a layout divides.

    Sizes are 1 where a layer has nothing to divide, and 0 where a model has no such thing.
    """

    @property
    def name(self) -> str:
        """Name of the model."""
        ...

    @property
    def n_layers(self) -> int:
        """Layers without front and back."""
        ...

    @property
    def divisible(self) -> bool:
        """Whether tensor, pipeline, context and expert parallelism apply, and not data parallelism alone."""
        ...

    @property
    def unit(self) -> Literal["sequence", "sample"]:
        """Word for one element of a batch."""
        ...

    @property
    def n_heads(self) -> int:
        """Attention heads of a layer."""
        ...

    @property
    def n_kv_heads(self) -> int:
        """Key and value heads of a layer."""
        ...

    @property
    def hidden_size(self) -> int:
        """Width of the rows between layers."""
        ...

    @property
    def intermediate_size(self) -> int:
        """Width of the MLP of a layer without experts."""
        ...

    @property
    def gated_mlp(self) -> bool:
        """Whether the MLP has a gate beside its first product."""
        ...

    @property
    def vocab_size(self) -> int:
        """Rows of the token table."""
        ...

    @property
    def max_positions(self) -> int:
        """Tokens of the longest sample; 0 where unknown."""
        ...

    @property
    def lm_head(self) -> bool:
        """Whether the back has logits over the vocabulary."""
        ...

    @property
    def causal(self) -> bool:
        """Whether tokens attend to those before them only."""
        ...

    @property
    def window(self) -> Window | None:
        """Window of the layers that have one."""
        ...

    @property
    def linear(self) -> LinearAttention | None:
        """Attention of the layers that have a state in place of it."""
        ...

    @property
    def experts(self) -> Experts | None:
        """Mixture of experts of the layers that have one."""
        ...

    @property
    def n_parameters(self) -> int:
        """All parameters as the model is trained; a shared table counts once."""
        ...

    @property
    def n_active(self) -> int:
        """Parameters that one token passes."""
        ...

    @property
    def n_published(self) -> int:
        """Parameters that its published count counts."""
        ...

    def has_experts(self, layer: int) -> bool:
        """Return whether a layer has experts in place of an MLP."""
        ...

    def likeness(self, layer: int, seq_length: int) -> Hashable:
        """Return a value that is equal for layers that do the same."""
        ...

    def front(self, local: LocalShape, numerics: Numerics) -> tuple[Operator, ...]:
        """Return the operators before the first layer."""
        ...

    def sublayers(self, layer: int, local: LocalShape, numerics: Numerics) -> tuple[Sublayer, ...]:
        """Return one layer in execution order."""
        ...

    def head(self, local: LocalShape, numerics: Numerics) -> tuple[Operator, ...]:
        """Return the operators after the last layer, without multi-token prediction."""
        ...

    def predictions(self, local: LocalShape, numerics: Numerics) -> tuple[Prediction, ...]:
        """Return the modules that each predict one token more."""
        ...

    def layer_input_bytes(self, layer: int, local: LocalShape, numerics: Numerics) -> float:
        """Return the input of one layer on one rank, in bytes."""
        ...

    def tied_parameters(self, local: LocalShape) -> float:
        """Return the parameters of the logits on one rank that are the embedding's own."""
        ...

    def sample_bytes(self, seq_length: int) -> float:
        """Return the input of one element of a batch, as a data loader gives it."""
        ...

    def outline(self) -> Mapping[str, Data]:
        """Return the shape as plain data, for display."""
        ...

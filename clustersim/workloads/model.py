"""Models: a front, layers of sublayers, and a back."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import ClassVar, Final, Literal

from clustersim.documents.text import Data
from clustersim.errors import DomainError
from clustersim.workloads.ends import Prediction
from clustersim.workloads.experts import MoeHalf
from clustersim.workloads.operators import Operator
from clustersim.workloads.shapes import ExpertShare, LocalShape, Numerics
from clustersim.workloads.transformer_shape import Experts, LatentAttention, LayerKind, LinearAttention, Position, Window

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


class Model:
    """A network: a front, layers, and a back, with the sizes that a layout divides.

    Sizes are 1 where a layer has nothing to divide, and 0 where a model has no such thing, as nothing does by default.
    """

    __slots__ = ()

    name: str
    n_layers: int
    """Layers without front and back."""
    divisible: ClassVar[bool] = False
    """Whether tensor, pipeline, context and expert parallelism apply, and not data parallelism alone."""
    unit: ClassVar[Literal["sequence", "sample"]] = "sample"
    """Word for one element of a batch."""
    n_heads: int = 1
    """Attention heads of a layer."""
    n_kv_heads: int = 1
    """Key and value heads of a layer."""
    head_dim: int = 0
    """Width of a head of queries and keys."""
    hidden_size: int = 0
    """Width of the rows between layers."""
    intermediate_size: int = 1
    """Width of the MLP of a layer without experts."""
    gated_mlp: bool = False
    """Whether the MLP has a gate beside its first product."""
    vocab_size: int = 0
    """Rows of the token table."""
    max_positions: int
    """Tokens of the longest sample; 0 where unknown."""
    lm_head: bool = False
    """Whether the back has logits over the vocabulary."""
    causal: bool = False
    """Whether tokens attend to those before them only."""
    position: Position = "none"
    """Kind of position embedding."""
    latent: LatentAttention | None = None
    """Latent attention of the layers; None where keys and values are cached whole."""
    window: Window | None = None
    """Window of the layers that have one."""
    linear: LinearAttention | None = None
    """Attention of the layers that have a state in place of it."""
    experts: Experts | None = None
    """Mixture of experts of the layers that have one."""

    @property
    def value_dim(self) -> int:
        """Width of a head of values."""
        return 0

    @property
    def n_parameters(self) -> int:
        """All parameters as the model is trained; a shared table counts once."""
        raise NotImplementedError

    @property
    def n_active(self) -> int:
        """Parameters that one token passes."""
        return self.n_parameters

    @property
    def n_published(self) -> int:
        """Parameters that its published count counts."""
        return self.n_parameters

    def layer_kind(self, layer: int) -> LayerKind:
        """Return the properties of a layer in which a model's layers differ."""
        return LayerKind(experts=False, windowed=False, linear=False)

    def has_experts(self, layer: int) -> bool:
        """Return whether a layer has experts in place of an MLP."""
        return self.layer_kind(layer).experts

    def decoder(self) -> Model:
        """Return the model as engines serve it.

        Raises
        ------
        DomainError
            It does not generate tokens.
        """
        raise DomainError(f"{self.name} does not generate tokens", path=("model",), hint="serve a decoder such as llama3.1-8b")

    def token_shape(self, tp: int, experts: ExpertShare | None) -> LocalShape:
        """Return the shape of one token on one of ``tp`` ranks, with its share of the experts."""
        return LocalShape(
            batch=1,
            seq_length=1,
            sequence_rows=1,
            n_heads=self.n_heads // tp,
            n_kv_heads=max(1, self.n_kv_heads // tp),
            intermediate_size=ceil(self.intermediate_size / tp),
            vocab_size=ceil(self.vocab_size / tp),
            experts=experts,
            shared_size=ceil(self.experts.shared_size / tp) if self.experts else 0,
        )

    def likeness(self, layer: int, seq_length: int) -> Hashable:
        """Return a value that is equal for layers that do the same."""
        raise NotImplementedError

    def front(self, local: LocalShape, numerics: Numerics) -> tuple[Operator, ...]:
        """Return the operators before the first layer."""
        return ()

    def sublayers(self, layer: int, local: LocalShape, numerics: Numerics) -> tuple[Sublayer, ...]:
        """Return one layer in execution order."""
        raise NotImplementedError

    def head(self, local: LocalShape, numerics: Numerics) -> tuple[Operator, ...]:
        """Return the operators after the last layer, without multi-token prediction."""
        return ()

    def predictions(self, local: LocalShape, numerics: Numerics) -> tuple[Prediction, ...]:
        """Return the modules that each predict one token more."""
        return ()

    def layer_input_bytes(self, layer: int, local: LocalShape, numerics: Numerics) -> float:
        """Return the input of one layer on one rank, in bytes."""
        raise NotImplementedError

    def tied_parameters(self, local: LocalShape) -> float:
        """Return the parameters of the logits on one rank that are the embedding's own."""
        return 0.0

    def sample_bytes(self, seq_length: int) -> float:
        """Return the input of one element of a batch, as a data loader gives it."""
        raise NotImplementedError

    def outline(self) -> Mapping[str, Data]:
        """Return the shape as plain data, for display."""
        raise NotImplementedError

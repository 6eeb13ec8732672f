"""Transformers as models: embedding, layers of two sublayers, output head."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from math import fsum
from typing import ClassVar, Literal

from clustersim.documents.text import Data
from clustersim.workloads.attention import window_of
from clustersim.workloads.ends import Prediction, embedding_operators, head_operators, prediction
from clustersim.workloads.experts import moe_half
from clustersim.workloads.layer import attention_operators, entering_width, layer_operators, mlp_operators
from clustersim.workloads.model import TOKEN_BYTES, Model, Sublayer
from clustersim.workloads.operators import Operator
from clustersim.workloads.shapes import COUNTING, ExpertShare, LocalShape, Numerics, balanced_rows
from clustersim.workloads.transformer_shape import TransformerShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer(TransformerShape, Model):
    """A transformer as a model."""

    divisible: ClassVar[bool] = True
    unit: ClassVar[Literal["sequence", "sample"]] = "sequence"

    @property
    def n_parameters(self) -> int:
        """All parameters as the model is trained; a shared table counts once."""
        modules = self.predictions(self._whole, COUNTING)
        return self._n_main(lm_head=self.lm_head) + sum(_counted(module.operators) for module in modules)

    @property
    def n_active(self) -> int:
        """Parameters that one token meets on its way to the next one: all but those of experts that it is not sent to, and of modules.

        The token table counts in full; some published counts leave it out.
        """
        idle = 0
        if self.experts is not None:
            of_experts = sum(count * _counted(each for each in layer if each.expert) for layer, count in self._layers())
            idle = (self.experts.n_experts - self.experts.top_k) * of_experts // self.experts.n_experts
        return self._n_main(lm_head=self.lm_head) - idle

    @property
    def n_published(self) -> int:
        """Parameters that its published count counts."""
        match self.published_scope:
            case "backbone":
                return self._n_main(lm_head=False)
            case "main":
                return self._n_main(lm_head=self.lm_head)
            case "model":
                return self.n_parameters

    def _n_main(self, *, lm_head: bool) -> int:
        """Return the parameters but for those of modules that predict further tokens; a shared table counts once."""
        shape, whole = self._whole, replace(self, lm_head=lm_head)
        ends = _counted(self.front(shape, COUNTING) + whole.head(shape, COUNTING)) - int(whole.tied_parameters(shape))
        return ends + sum(count * _counted(layer) for layer, count in self._layers())

    def _layers(self) -> list[tuple[tuple[Operator, ...], int]]:
        """Return one layer of each kind, and how many there are."""
        kinds = [self.layer_kind(layer) for layer in range(self.n_layers)]
        return [(layer_operators(self, self._whole, COUNTING, kinds.index(kind)), kinds.count(kind)) for kind in dict.fromkeys(kinds)]

    @property
    def _whole(self) -> LocalShape:
        """Shape of one token on one rank."""
        moe = self.experts
        return self.token_shape(
            1,
            moe
            and ExpertShare(
                rows=balanced_rows(moe.top_k, moe.n_experts), intermediate_size=moe.intermediate_size, dispatched_rows=moe.top_k
            ),
        )

    def likeness(self, layer: int, seq_length: int) -> Hashable:
        """Return the kind of a layer; a window that no sequence exceeds does nothing."""
        kind = self.layer_kind(layer)
        return replace(kind, windowed=window_of(self, seq_length, windowed=kind.windowed) is not None)

    def front(self, local: LocalShape, numerics: Numerics) -> tuple[Operator, ...]:
        """Return the embedding."""
        return embedding_operators(self, local, numerics)

    def sublayers(self, layer: int, local: LocalShape, numerics: Numerics) -> tuple[Sublayer, ...]:
        """Return attention, and the MLP or the experts."""
        operators, width = attention_operators(self, local, numerics, layer), entering_width(self)
        attention = Sublayer(name="attention", operators=operators, entering_width=width)
        if not self.has_experts(layer):
            mlp = mlp_operators(self, local, numerics, layer)
            return attention, Sublayer(name="mlp", operators=mlp, entering_width=self.hidden_size)
        half = moe_half(self, local, numerics)
        return attention, Sublayer(name="experts", operators=half.operators, experts=half, entering_width=self.hidden_size)

    def head(self, local: LocalShape, numerics: Numerics) -> tuple[Operator, ...]:
        """Return final normalisation, logits and loss."""
        return head_operators(self, local, numerics)

    def predictions(self, local: LocalShape, numerics: Numerics) -> tuple[Prediction, ...]:
        """Return the modules of multi-token prediction, which are equal."""
        return (prediction(self, local, numerics),) * self.n_mtp if self.n_mtp else ()

    def layer_input_bytes(self, layer: int, local: LocalShape, numerics: Numerics) -> float:
        """Return the input of a layer on one rank, in bytes; it is the same for all layers."""
        del layer
        return local.sequence_rows * self.hidden_size * numerics.element_bytes

    def tied_parameters(self, local: LocalShape) -> float:
        """Return the parameters of the logits on one rank that are the embedding's own."""
        return float(local.vocab_size * self.hidden_size) if self.tied_embeddings and self.lm_head else 0.0

    def decoder(self) -> Model:
        """Return a decoder as engines serve it, which rotate and scale in one kernel; refuse an encoder."""
        if not self.causal:
            return Model.decoder(self)
        return replace(self, position="rope") if self.position == "yarn" else self

    def sample_bytes(self, seq_length: int) -> float:
        """Return the bytes of the tokens of one sequence."""
        return TOKEN_BYTES * seq_length

    def outline(self) -> Mapping[str, Data]:
        """Return all sizes."""
        return asdict(self)


def _counted(operators: Iterable[Operator]) -> int:
    return int(fsum(each.parameters for each in operators))

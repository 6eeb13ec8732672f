"""Dense transformers by their shape, and how many parameters that makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Normalization = Literal["layernorm", "rmsnorm"]
Position = Literal["learned", "rope", "none"]
PublishedScope = Literal["model", "backbone"]
"""What a published parameter count counts: all of the model, or all but its output head (BERT)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """A dense decoder (GPT, Llama) or encoder (BERT).

    Linear layers: query, key and value projections of widths ``n_heads * head_dim`` and twice
    ``n_kv_heads * head_dim``, the output projection, and two (gated: three) MLP matrices.
    """

    name: str
    n_layers: int
    hidden_size: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_positions: int
    """Positions that the learned table has, or without one the context length; 0 where that is not known."""
    tied_embeddings: bool
    gated_mlp: bool
    normalization: Normalization
    position: Position
    linear_bias: bool
    """Bias on the output projection of attention."""
    qkv_bias: bool
    mlp_bias: bool
    causal: bool
    dropout: bool
    """True where hidden and attention dropout are trained with."""
    n_token_types: int = 0
    """Segment embeddings, as in BERT."""
    embedding_normalization: bool = False
    """Normalisation right after the embedding, as in BERT and BLOOM."""
    final_normalization: bool = True
    pooler: bool = False
    """BERT's dense layer on the first token."""
    lm_head: bool = True
    """Logits over the vocabulary; False for a bare encoder."""
    qk_normalization: bool = False
    """RMS normalisation of every query and key head, as in Qwen3."""
    qk_normalization_shared: bool = True
    """True where all heads share one vector of ``head_dim``; False for one over the whole projection, as in OLMo 2."""
    norms_per_layer: int = 2
    """One where attention and MLP share it (GPT-J), four where their outputs are normalised too (Gemma 2)."""
    normalization_vectors: int | None = None
    """Parameter vectors of one normalisation; by default two for layernorm and one for rmsnorm."""
    unused_positions: int = 0
    """Rows of the learned position table that no position uses: two in OPT and RoBERTa."""
    head_bias: bool = False
    """Bias on the logits, as in GPT-J and BERT."""
    head_transform: bool = False
    """BERT's dense layer and normalisation before the logits."""
    published_parameters: int | None = None
    published_scope: PublishedScope = "model"

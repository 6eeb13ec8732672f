"""Transformers by their shape: what every layer has, and what only some of them have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Normalization = Literal["layernorm", "rmsnorm"]
Position = Literal["learned", "rope", "yarn", "none"]
"""Positions of tokens; YaRN scales the queries and keys that it rotates."""
PublishedScope = Literal["model", "backbone", "main"]
"""Scope of a published parameter count: all of the model, all but its output head (BERT), or all but its further predictions."""

Scores = Literal["softmax", "sigmoid"]
"""Function from the logits of a router to scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention: queries, keys and values are projected down to a latent vector and up again.

    Each head has a part of its own without position, and one rotated part, whose key all heads share.

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1.
    """

    q_lora_rank: int | None
    """Width of the latent queries; None where queries are projected directly, as in DeepSeek-V2-Lite."""
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int

    @property
    def qk_head_dim(self) -> int:
        """Width of a head of queries and keys."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def down_width(self) -> int:
        """Width of the joint projection to the latent keys and values and the rotated key."""
        return self.kv_lora_rank + self.qk_rope_head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Local attention: each token attends to at most a number of tokens, itself included."""

    tokens: int
    chunked: bool = False
    """True where the sequence is divided into chunks without attention between them (Llama 4)."""
    global_layers: tuple[int, ...] = ()
    """Layers that see the whole sequence all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Mixture of experts in place of the MLP: a router sends each token to the best few of many MLPs."""

    n_experts: int
    top_k: int
    """Experts that each token is sent to."""
    intermediate_size: int
    """Width of one expert."""
    shared_size: int = 0
    """Width of all shared experts, which process each token; 0 without."""
    shared_gate: bool = False
    """True where a gate of one logit scales the output of the shared experts (Qwen2-MoE)."""
    dense_layers: tuple[int, ...] = ()
    """Layers that have an MLP all the same."""
    router_bias: bool = False
    bias: bool = False
    """Biases of the experts, as in GPT-OSS."""
    clamped: bool = False
    """True where the input of the activation is clamped, as in GPT-OSS."""
    n_groups: int = 1
    """Groups of experts, of which a token takes ``topk_groups`` (DeepSeek: a group lives on one node)."""
    topk_groups: int = 1
    scores: Scores = "softmax"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttention:
    """Attention through a state, a matrix for each value head, in place of scores of all pairs.

    Mamba-2 in these words: B and C are keys and queries, shared by the heads of a group, and x are values.
    """

    layers: tuple[int, ...]
    """Layers that have it."""
    n_key_heads: int
    key_dim: int
    n_value_heads: int
    value_dim: int
    kernel: int
    """Tokens that the convolution sees."""
    kernel_bias: bool
    delta: bool
    """True where a token first takes away what the state has for its key (gated delta networks); False where it only adds (Mamba-2)."""
    chunk: int
    """Tokens of a piece within which products take the place of the recurrence."""

    @property
    def mixed_width(self) -> int:
        """Width of queries, keys and values, which the convolution mixes along the sequence."""
        return 2 * self.n_key_heads * self.key_dim + self.n_value_heads * self.value_dim

    @property
    def scalars(self) -> int:
        """Numbers that each token gives a head: its step; of the delta rule its decay and its strength."""
        return 2 if self.delta else 1

    @property
    def vectors(self) -> int:
        """Parameters of each head: decay and bias of the step; of Mamba-2 also what of a value passes by."""
        return 2 if self.delta else 3

    @property
    def matrix_elements(self) -> int:
        """Numbers in the matrices of the state of one sequence in one layer."""
        return self.n_value_heads * self.key_dim * self.value_dim

    @property
    def convolution_elements(self) -> int:
        """Numbers that the convolution keeps of the tokens before."""
        return (self.kernel - 1) * self.mixed_width

    @property
    def chunk_flops(self) -> float:
        """Matrix FLOPs of one token by whole chunks, as kernels compute it."""
        within, state, scores = self.chunk * self.value_dim, self.key_dim * self.value_dim, self.chunk * self.key_dim
        if self.delta:
            return 2.0 * self.n_value_heads * (3 * scores + 2 * within + 3 * state)
        return 2.0 * (self.n_key_heads * scores + self.n_value_heads * (within + 2 * state))

    @property
    def recurrent_flops(self) -> float:
        """Matrix FLOPs of one token, by the recurrence: the state takes it in and is read; by the delta rule it is read for its key too."""
        return (6.0 if self.delta else 4.0) * self.matrix_elements


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """Properties in which layers differ; layers of one kind are equal."""

    experts: bool
    windowed: bool
    linear: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerShape:
    """Sizes of a decoder (GPT, Llama, DeepSeek) or encoder (BERT).

    Linear layers: query, key and value projections of widths ``n_heads * head_dim`` and twice
    ``n_kv_heads * head_dim``, the output projection, and two (gated: three) MLP matrices.
    """

    name: str
    n_layers: int
    hidden_size: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    """Width of a head of queries and keys; of values too unless attention is latent."""
    intermediate_size: int
    """Width of the MLP of a layer without experts."""
    vocab_size: int
    max_positions: int
    """Positions of the learned table, or without one the context length; 0 where unknown."""
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
    qk_normalization_learned: bool = True
    """False where it has no scale, as in Llama 4."""
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
    latent: LatentAttention | None = None
    window: Window | None = None
    experts: Experts | None = None
    n_mtp: int = 0
    """Modules that each predict one token more, as in DeepSeek-V3; each has a layer like the last one."""
    attention_sinks: bool = False
    """A learned logit for each head in the softmax, as in GPT-OSS."""
    attention_gate: bool = False
    """A gate beside the queries scales what attention gives, as in Qwen3-Next."""
    linear: LinearAttention | None = None

    @property
    def value_dim(self) -> int:
        """Width of a head of values."""
        return self.head_dim if self.latent is None else self.latent.v_head_dim

    def layer_kind(self, layer: int) -> LayerKind:
        """Return what kind of layer one is, counted from the first; beyond the last it is like the last."""
        index = min(layer, self.n_layers - 1)
        return LayerKind(
            experts=self.experts is not None and index not in self.experts.dense_layers,
            windowed=self.window is not None and index not in self.window.global_layers,
            linear=self.linear is not None and index in self.linear.layers,
        )

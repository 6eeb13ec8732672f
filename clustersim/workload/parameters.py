"""How many parameters a transformer has, exactly: weights, biases, normalisations and tables."""

from __future__ import annotations

from clustersim.workload.transformer import Transformer


def linear_parameters(inputs: int, outputs: int, *, bias: bool) -> int:
    """Return the parameters of a linear layer.

    Examples
    --------
    >>> linear_parameters(768, 3072, bias=True)
    2362368
    """
    return inputs * outputs + (outputs if bias else 0)


def norm_parameters(model: Transformer) -> int:
    """Return the parameters of one normalisation over the hidden size: scale and shift, or the scale alone."""
    vectors = model.normalization_vectors
    if vectors is None:
        vectors = 2 if model.normalization == "layernorm" else 1
    return vectors * model.hidden_size


def qk_norm_parameters(model: Transformer) -> int:
    """Return the parameters that normalise the queries and keys of one layer."""
    if not model.qk_normalization:
        return 0
    heads = 2 if model.qk_normalization_shared else model.n_heads + model.n_kv_heads
    return heads * model.head_dim


def attention_parameters(model: Transformer) -> int:
    """Return the parameters of one layer's attention: query, key, value and output projection, query and key norm."""
    width = model.n_heads * model.head_dim
    joint_width = width + 2 * model.n_kv_heads * model.head_dim
    projections = linear_parameters(model.hidden_size, joint_width, bias=model.qkv_bias)
    projections += linear_parameters(width, model.hidden_size, bias=model.linear_bias)
    return projections + qk_norm_parameters(model)


def mlp_parameters(model: Transformer) -> int:
    """Return the parameters of one layer's MLP: up and down, and the gate where there is one."""
    n_up = 2 if model.gated_mlp else 1
    up = n_up * linear_parameters(model.hidden_size, model.intermediate_size, bias=model.mlp_bias)
    return up + linear_parameters(model.intermediate_size, model.hidden_size, bias=model.mlp_bias)


def layer_parameters(model: Transformer) -> int:
    """Return the parameters of one layer."""
    return attention_parameters(model) + mlp_parameters(model) + model.norms_per_layer * norm_parameters(model)


def embedding_parameters(model: Transformer) -> int:
    """Return the parameters before the first layer: token, position and segment tables and their normalisation."""
    positions = model.max_positions + model.unused_positions if model.position == "learned" else 0
    rows = model.vocab_size + positions + model.n_token_types
    return rows * model.hidden_size + (norm_parameters(model) if model.embedding_normalization else 0)


def final_norm_parameters(model: Transformer) -> int:
    """Return the parameters of the normalisation after the last layer; 0 without one."""
    return norm_parameters(model) if model.final_normalization else 0


def pooler_parameters(model: Transformer) -> int:
    """Return the parameters of the dense layer on the first token; 0 without one."""
    return linear_parameters(model.hidden_size, model.hidden_size, bias=True) if model.pooler else 0


def head_parameters(model: Transformer) -> int:
    """Return the parameters that only the logits need.

    The matrix counts where it is not the embedding table itself; a tied head has at most a bias and a transform.
    """
    if not model.lm_head:
        return 0
    matrix = 0 if model.tied_embeddings else model.hidden_size * model.vocab_size
    bias = model.vocab_size if model.head_bias else 0
    transform = linear_parameters(model.hidden_size, model.hidden_size, bias=True) + norm_parameters(model)
    return matrix + bias + (transform if model.head_transform else 0)


def backbone_parameters(model: Transformer) -> int:
    """Return the parameters of everything but the output head."""
    layers = model.n_layers * layer_parameters(model)
    return embedding_parameters(model) + layers + final_norm_parameters(model) + pooler_parameters(model)


def total_parameters(model: Transformer) -> int:
    """Return all parameters of the model as it is trained; a shared table counts once."""
    return backbone_parameters(model) + head_parameters(model)


def parameters_as_published(model: Transformer) -> int:
    """Return the count that the model's published one is to be compared with."""
    return backbone_parameters(model) if model.published_scope == "backbone" else total_parameters(model)

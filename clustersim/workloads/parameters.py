"""Exact number of parameters of a transformer: weights, biases, normalisations and tables."""

from __future__ import annotations

from clustersim.workloads.transformer_shape import LatentAttention, TransformerShape


def linear_parameters(inputs: int, outputs: int, *, bias: bool) -> int:
    """Return the parameters of a linear layer.

    Examples
    --------
    >>> linear_parameters(768, 3072, bias=True)
    2362368
    """
    return inputs * outputs + (outputs if bias else 0)


def norm_parameters(model: TransformerShape, width: int | None = None) -> int:
    """Return the parameters of one normalisation, over the hidden size or another width: scale and shift, or the scale alone."""
    vectors = model.normalization_vectors
    if vectors is None:
        vectors = 2 if model.normalization == "layernorm" else 1
    return vectors * (model.hidden_size if width is None else width)


def qk_norm_parameters(model: TransformerShape) -> int:
    """Return the parameters that normalise the queries and keys of one layer."""
    if not model.qk_normalization or not model.qk_normalization_learned:
        return 0
    heads = 2 if model.qk_normalization_shared else model.n_heads + model.n_kv_heads
    return heads * model.head_dim


def attention_parameters(model: TransformerShape) -> int:
    """Return the parameters of one layer's attention: its projections, and what normalises or joins queries, keys and scores."""
    sinks = model.n_heads if model.attention_sinks else 0
    output = linear_parameters(model.n_heads * model.value_dim, model.hidden_size, bias=model.linear_bias)
    if model.latent is not None:
        return _latent_parameters(model, model.latent) + output + sinks
    joint_width = (model.n_heads + 2 * model.n_kv_heads) * model.head_dim
    projections = linear_parameters(model.hidden_size, joint_width, bias=model.qkv_bias)
    return projections + output + qk_norm_parameters(model) + sinks


def _latent_parameters(model: TransformerShape, latent: LatentAttention) -> int:
    query_width = model.n_heads * latent.qk_head_dim
    if latent.q_lora_rank is None:
        queries = linear_parameters(model.hidden_size, query_width, bias=False)
    else:
        queries = linear_parameters(model.hidden_size, latent.q_lora_rank, bias=model.qkv_bias)
        queries += norm_parameters(model, latent.q_lora_rank) + linear_parameters(latent.q_lora_rank, query_width, bias=False)
    down = linear_parameters(model.hidden_size, latent.down_width, bias=model.qkv_bias) + norm_parameters(model, latent.kv_lora_rank)
    up_width = model.n_heads * (latent.qk_nope_head_dim + latent.v_head_dim)
    return queries + down + linear_parameters(latent.kv_lora_rank, up_width, bias=False)


def mlp_parameters(model: TransformerShape) -> int:
    """Return the parameters of the MLP of a layer without experts: up and down, and the gate where there is one."""
    return _mlp_parameters(model, model.intermediate_size, bias=model.mlp_bias)


def _mlp_parameters(model: TransformerShape, width: int, *, bias: bool) -> int:
    n_up = 2 if model.gated_mlp else 1
    up = n_up * linear_parameters(model.hidden_size, width, bias=bias)
    return up + linear_parameters(width, model.hidden_size, bias=bias)


def expert_parameters(model: TransformerShape) -> int:
    """Return the parameters of one expert; 0 in a model without."""
    return _mlp_parameters(model, model.experts.intermediate_size, bias=model.experts.bias) if model.experts else 0


def moe_parameters(model: TransformerShape) -> int:
    """Return the parameters of a layer's experts, router and shared experts; 0 in a model without."""
    experts = model.experts
    if experts is None:
        return 0
    router = linear_parameters(model.hidden_size, experts.n_experts, bias=experts.router_bias)
    shared = _mlp_parameters(model, experts.shared_size, bias=model.mlp_bias) if experts.shared_size else 0
    gate = model.hidden_size if experts.shared_gate and experts.shared_size else 0
    return experts.n_experts * expert_parameters(model) + router + shared + gate


def layer_parameters(model: TransformerShape, layer: int = 0) -> int:
    """Return the parameters of one layer."""
    half = moe_parameters(model) if model.layer_kind(layer).experts else mlp_parameters(model)
    return attention_parameters(model) + half + model.norms_per_layer * norm_parameters(model)


def all_layers_parameters(model: TransformerShape) -> int:
    """Return the parameters of all layers together."""
    return sum(layer_parameters(model, layer) for layer in range(model.n_layers))


def further_prediction_parameters(model: TransformerShape) -> int:
    """Return the parameters of all modules that predict one token more: two norms, the product that joins them, a layer, a norm.

    Table and output head are the model's own and count there.
    """
    joining = linear_parameters(2 * model.hidden_size, model.hidden_size, bias=False) + 2 * norm_parameters(model)
    return model.n_mtp * (joining + layer_parameters(model, model.n_layers) + final_norm_parameters(model))


def embedding_parameters(model: TransformerShape) -> int:
    """Return the parameters before the first layer: token, position and segment tables and their normalisation."""
    positions = model.max_positions + model.unused_positions if model.position == "learned" else 0
    rows = model.vocab_size + positions + model.n_token_types
    return rows * model.hidden_size + (norm_parameters(model) if model.embedding_normalization else 0)


def final_norm_parameters(model: TransformerShape) -> int:
    """Return the parameters of the normalisation after the last layer; 0 without one."""
    return norm_parameters(model) if model.final_normalization else 0


def pooler_parameters(model: TransformerShape) -> int:
    """Return the parameters of the dense layer on the first token; 0 without one."""
    return linear_parameters(model.hidden_size, model.hidden_size, bias=True) if model.pooler else 0


def head_parameters(model: TransformerShape) -> int:
    """Return the parameters that only the logits need.

    The matrix counts where it is not the embedding table itself; a tied head has at most a bias and a transform.
    """
    if not model.lm_head:
        return 0
    matrix = 0 if model.tied_embeddings else model.hidden_size * model.vocab_size
    bias = model.vocab_size if model.head_bias else 0
    transform = linear_parameters(model.hidden_size, model.hidden_size, bias=True) + norm_parameters(model)
    return matrix + bias + (transform if model.head_transform else 0)


def backbone_parameters(model: TransformerShape) -> int:
    """Return the parameters of everything but the output head."""
    return embedding_parameters(model) + all_layers_parameters(model) + final_norm_parameters(model) + pooler_parameters(model)


def total_parameters(model: TransformerShape) -> int:
    """Return all parameters of the model as it is trained; a shared table counts once."""
    return backbone_parameters(model) + head_parameters(model) + further_prediction_parameters(model)


def active_parameters(model: TransformerShape) -> int:
    """Return the parameters that one token meets on its way to the next one: all but those of the experts that it is not sent to.

    Modules that predict further tokens do not count. The token table does, in full: some published counts leave it out.
    """
    main = total_parameters(model) - further_prediction_parameters(model)
    if model.experts is None:
        return main
    idle = (model.experts.n_experts - model.experts.top_k) * expert_parameters(model)
    return main - idle * sum(model.layer_kind(layer).experts for layer in range(model.n_layers))


def parameters_as_published(model: TransformerShape) -> int:
    """Return the count that the model's published one is to be compared with."""
    match model.published_scope:
        case "backbone":
            return backbone_parameters(model)
        case "main":
            return total_parameters(model) - further_prediction_parameters(model)
        case "model":
            return total_parameters(model)

"""Work of a layer between its matrix products: normalisation, residual addition, rotation, activation."""

from __future__ import annotations

from clustersim.workloads.attention import MASK_BYTES
from clustersim.workloads.operators import Operator, Stream
from clustersim.workloads.shapes import LocalShape, Numerics
from clustersim.workloads.transformer_shape import TransformerShape

N_NORMS = 2
"""Normalisations of a layer: one before attention, one before the MLP."""


def normalization(model: TransformerShape, local: LocalShape, numerics: Numerics, *, name: str, width: int | None = None) -> Operator:
    """Return a layer or RMS normalisation: one read and one write forward; input, gradient and result backward."""
    columns = model.hidden_size if width is None else width
    elements, parameters = local.sequence_rows * columns, _norm_parameters(model, columns)
    e, eager = numerics.elementwise_bytes, numerics.kernels == "eager" and model.normalization == "rmsnorm"
    # Eager RMS normalisation is cast, square, mean, scale and multiply, each a pass over the rows.
    passes, launches = (8.0, 6) if eager else (2.0, 1)
    return Operator(
        name=name,
        phases={
            "forward": (Stream(elements * passes * e, launches=launches),),
            "input_gradient": (Stream(elements * (passes + 1) * e, launches=launches),),
            # Each vector is accumulated by a kernel of its own.
            "weight_gradient": (Stream(elements * 2 * e, launches=1 + int(parameters // columns)),),
        },
        parameters=parameters,
        saved_bytes=elements * e,
    )


def _norm_parameters(model: TransformerShape, width: int) -> float:
    """Return the parameters of a normalisation: scale and shift, or the scale alone."""
    vectors = model.normalization_vectors
    if vectors is None:
        vectors = 2 if model.normalization == "layernorm" else 1
    return float(vectors * width)


def second_norm(model: TransformerShape, local: LocalShape, numerics: Numerics) -> Operator:
    """Return the normalisation before the MLP; a model with one per layer shares it between attention and MLP."""
    if model.norms_per_layer >= N_NORMS:
        return normalization(model, local, numerics, name="norm_2")
    return Operator(name="norm_2")


def residual(model: TransformerShape, local: LocalShape, numerics: Numerics, *, name: str) -> Operator:
    """Return bias, dropout and residual addition, and backward the joining of the two gradients."""
    elements = local.sequence_rows * model.hidden_size
    e = numerics.elementwise_bytes
    mask = MASK_BYTES if model.dropout else 0.0
    eager_dropout = model.dropout and numerics.kernels == "eager"
    forward = Stream(elements * (3 * e + mask + (2 * e if eager_dropout else 0.0)), launches=2 if eager_dropout else 1)
    backward = Stream(elements * (3 * e + (2 * e + mask if model.dropout else 0.0)), launches=2 if model.dropout else 1)
    # Models with four normalisations a layer also normalise what is added.
    after = normalization(model, local, numerics, name=name) if model.norms_per_layer > N_NORMS else None
    return Operator(
        name=name,
        role="residual",
        phases={
            "forward": (*(after.kernels("forward") if after else ()), forward),
            "input_gradient": (*(after.kernels("input_gradient") if after else ()), backward),
            "weight_gradient": after.kernels("weight_gradient") if after else (),
        },
        parameters=after.parameters if after else 0.0,
        saved_bytes=elements * mask + (after.saved_bytes if after else 0.0),
    )


SCALED_ROTATION = ((12.0, 24), (14.0, 14))
"""Reads and writes of rotation as Megatron-Core has it without a fused kernel, and kernels for queries and keys together. Forward: times
cosines (2), half negated and joined with the other (1 + 2), times sines (2), sum (3), joined with what is not rotated (2); and for each six
kernels for sines and cosines. Backward: two products (4), half negated and joined (1 + 2), sum (3), and adding the zeros of what is not
rotated (1 + 3)."""


def rotary(model: TransformerShape, local: LocalShape, numerics: Numerics) -> Operator:
    """Return the rotation of queries and keys by their positions.

    The fused kernel of Transformer Engine scales nothing, so that Megatron-Core rotates by separate ones under YaRN [1]_.

    References
    ----------
    .. [1] NVIDIA, Megatron-Core, ``models/common/embeddings/rope_utils.py``, ``apply_rotary_pos_emb``.
    """
    elements = local.rows * (local.n_heads + local.n_kv_heads) * model.head_dim
    scaled = model.position == "yarn" and numerics.kernels == "fused"
    costs = SCALED_ROTATION if scaled else ((2.0, 1) if numerics.kernels == "fused" else (8.0, 6),) * 2
    bytes_per_pass = elements * numerics.elementwise_bytes
    forward, backward = (Stream(bytes_per_pass * passes, launches=launches, one_call=scaled) for passes, launches in costs)
    return Operator(name="rotary", phases={"forward": (forward,), "input_gradient": (backward,)})


def qk_normalization(model: TransformerShape, local: LocalShape, numerics: Numerics) -> Operator:
    """Return the RMS normalisation of every query and key head."""
    elements = local.rows * (local.n_heads + local.n_kv_heads) * model.head_dim
    e = numerics.elementwise_bytes
    heads = 2 if model.qk_normalization_shared else model.n_heads + model.n_kv_heads
    return Operator(
        name="qk_norm",
        phases={"forward": (Stream(elements * 2 * e, launches=2),), "input_gradient": (Stream(elements * 3 * e, launches=2),)},
        parameters=float(heads * model.head_dim) if model.qk_normalization_learned else 0.0,
        saved_bytes=elements * e,
    )


def activation(model: TransformerShape, numerics: Numerics, *, rows: int, width: int, name: str = "activation") -> Operator:
    """Return GELU (one input) or SwiGLU (two inputs, one output).

    GELU is one kernel either way. An eager SwiGLU is two, a SiLU and a product of which the first result is written and read, and
    three backward: two products for the gradients of the two factors, and the gradient of the SiLU.
    """
    elements = rows * width
    e = numerics.elementwise_bytes
    inputs = 2.0 if model.gated_mlp else 1.0
    apart = model.gated_mlp and numerics.kernels == "eager"
    return Operator(
        name=name,
        phases={
            "forward": (Stream(elements * (inputs + 1 + (2 if apart else 0)) * e, launches=2 if apart else 1),),
            "input_gradient": (Stream(elements * (2 * inputs + 1 + (4 if apart else 0)) * e, launches=3 if apart else 1),),
        },
        saved_bytes=elements * inputs * e,
    )


def split(local: LocalShape, numerics: Numerics, *, width: int) -> Operator:
    """Return the split of one product into queries, keys and values: free forward, and backward a copy of the three gradients into one."""
    joined = Stream(2.0 * local.rows * width * numerics.element_bytes)
    return Operator(name="split", phases={"input_gradient": (joined,)})

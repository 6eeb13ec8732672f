"""The two ends of a model: embedding on the first stage, logits, loss and predictions of further tokens on the last."""

from __future__ import annotations

from dataclasses import dataclass, replace

from clustersim.workloads.attention import MASK_BYTES
from clustersim.workloads.elementwise import normalization
from clustersim.workloads.layer import layer_operators
from clustersim.workloads.linear import LinearShape, linear
from clustersim.workloads.operators import Operator, Stream
from clustersim.workloads.shapes import FP32_BYTES, LocalShape, Numerics
from clustersim.workloads.transformer_shape import TransformerShape

LOSS_FORWARD_BYTES = 38.0
"""Traffic of the vocabulary-parallel cross entropy for each logit, counted over Megatron-LM's kernels: to fp32 (2 + 4), maximum (4),
subtraction (8), exponential (8), sum (4), division (8)."""

LOSS_BACKWARD_BYTES = 22.0
"""The same backward: clone (8), scaling by the output gradient (8), to 16 bits (4 + 2)."""


FUSED_LOSS_PASSES = 2.0
"""Passes over the logits by a fused cross entropy, each way: forward they are read for the maximum and for the sum of exponentials,
backward they are read and the gradient is written (Apex, ``xentropy_kernel.cu``)."""


METRIC_BYTES = 12.0
"""Traffic of a cross entropy without gradient for each logit, besides reading it as it is: the copy in fp32 is written (4), read (4) and
its logarithmic softmax written (4)."""


def embedding_operators(model: TransformerShape, local: LocalShape, numerics: Numerics) -> tuple[Operator, ...]:
    """Return token and position embedding with dropout; the lookup reads one row of the table for each token."""
    elements, e = local.rows * model.hidden_size, numerics.elementwise_bytes
    mask = MASK_BYTES if model.dropout else 0.0
    positions = model.max_positions + model.unused_positions if model.position == "learned" else 0
    tables = local.vocab_size + positions + model.n_token_types
    lookups = 2.0 + (2.0 if model.position == "learned" else 0.0)
    sequence_elements = local.sequence_rows * model.hidden_size
    operators = [
        Operator(
            name="embedding",
            role="embedding",
            row=True,
            phases={
                "forward": (Stream(elements * lookups * e + sequence_elements * (2 * e + mask if model.dropout else 0.0), launches=3),),
                # Rows of the gradient are sorted and added into the table.
                "weight_gradient": (Stream(elements * 3 * e + sequence_elements * (2 * e + mask if model.dropout else 0.0), launches=3),),
            },
            parameters=float(tables * model.hidden_size),
            saved_bytes=sequence_elements * mask,
        )
    ]
    if model.embedding_normalization:
        operators.append(normalization(model, local, numerics, name="embedding_norm"))
    return tuple(operators)


def head_operators(model: TransformerShape, local: LocalShape, numerics: Numerics) -> tuple[Operator, ...]:
    """Return final normalisation, logits over the local vocabulary, and cross entropy in fp32.

    A tied head owns no parameters of its own on a stage that also holds the embedding; elsewhere it holds a copy. Which of the
    two it is, the strategy decides.
    """
    operators: list[Operator] = []
    local = _scored(local)
    if model.final_normalization:
        operators.append(normalization(model, local, numerics, name="final_norm"))
    if model.pooler:
        operators.append(_square("pooler", model, local.batch, numerics))
    if not model.lm_head:
        return tuple(operators)
    if model.head_transform:
        operators += [_square("head_transform", model, local.rows, numerics), normalization(model, local, numerics, name="head_norm")]
    shape = LinearShape(
        rows=local.rows, inputs=model.hidden_size, outputs=local.vocab_size, bias=model.head_bias, saved_rows=local.sequence_rows
    )
    # Logits stay in 16 bits under fp8 (Transformer Engine's layers leave the output layer out).
    wide = replace(numerics, gemm_element_bytes=numerics.element_bytes)
    logits = replace(linear("logits", shape, wide), role="logits", column=True)
    return (*operators, logits, _loss(float(local.rows) * local.vocab_size, numerics))


def _scored(local: LocalShape) -> LocalShape:
    """Return the input shape of the head: all tokens, or the scored ones."""
    if local.scored_tokens is None:
        return local
    share = local.scored_tokens / local.seq_length
    return replace(local, seq_length=local.scored_tokens, sequence_rows=round(local.sequence_rows * share))


def _loss(logits: float, numerics: Numerics) -> Operator:
    metric = Stream(logits * (METRIC_BYTES + numerics.element_bytes), launches=3)
    metrics = (metric,) * numerics.loss_metrics
    if numerics.fused_loss:
        once, kept = Stream(logits * FUSED_LOSS_PASSES * numerics.element_bytes), logits * numerics.element_bytes
        return Operator(name="loss", role="loss", phases={"forward": (once, *metrics), "input_gradient": (once,)}, saved_bytes=kept)
    return Operator(
        name="loss",
        role="loss",
        phases={
            "forward": (Stream(logits * LOSS_FORWARD_BYTES, launches=7), *metrics),
            "input_gradient": (Stream(logits * LOSS_BACKWARD_BYTES, launches=3),),
        },
        saved_bytes=logits * FP32_BYTES,
    )


def _square(name: str, model: TransformerShape, rows: int, numerics: Numerics) -> Operator:
    """Return a dense layer of the hidden size, which every rank holds in full."""
    shape = LinearShape(rows=rows, inputs=model.hidden_size, outputs=model.hidden_size, bias=True, saved_rows=rows)
    return linear(name, shape, replace(numerics, gemm_element_bytes=numerics.element_bytes))


OWN = "final_norm"
"""The only parameters of a module's head; all others are those of the model's head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One module in execution order."""

    joining: tuple[Operator, ...]
    """Embedding of the next token, normalised, beside the normalised output of the layers before, projected to the hidden size."""
    layer: tuple[Operator, ...]
    """A layer like the model's last one."""
    head: tuple[Operator, ...]
    """Final normalisation of the module, with logits and loss of the model's head."""

    @property
    def operators(self) -> tuple[Operator, ...]:
        """All of the module."""
        return self.joining + self.layer + self.head


def prediction(model: TransformerShape, local: LocalShape, numerics: Numerics) -> Prediction:
    """Return one module of multi-token prediction; all modules of a model are equal.

    Each rank joins the rows that it has, with a projection that is not divided.

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 2.2.
    """
    rows, hidden, e = local.sequence_rows, model.hidden_size, numerics.elementwise_bytes
    joint = LinearShape(rows=rows, inputs=2 * hidden, outputs=hidden, bias=False, saved_rows=rows)
    lookup, gradient = Stream(rows * hidden * 2 * e), Stream(rows * hidden * 3 * e)
    return Prediction(
        joining=(
            Operator(name="mtp_embedding", phases={"forward": (lookup,), "weight_gradient": (gradient,)}),
            normalization(model, local, numerics, name="mtp_norm_1"),
            normalization(model, local, numerics, name="mtp_norm_2"),
            _side_by_side(rows * hidden, e),
            linear("mtp_projection", joint, numerics),
        ),
        layer=layer_operators(model, local, numerics, model.n_layers - 1),
        # Under their own name, and without the parameters of the model's head.
        head=tuple(
            replace(each, name=f"mtp_{each.name}", role="other", parameters=each.parameters if each.name == OWN else 0.0)
            for each in head_operators(model, local, numerics)
        ),
    )


def _side_by_side(elements: int, element_bytes: float) -> Operator:
    copy = Stream(4.0 * elements * element_bytes)
    return Operator(name="mtp_join", phases={"forward": (copy,), "input_gradient": (copy,)})

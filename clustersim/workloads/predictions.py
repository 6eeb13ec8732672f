"""Multi-token prediction: modules behind the last layer that each predict one token more."""

from __future__ import annotations

from dataclasses import dataclass, replace

from clustersim.workloads.elementwise import normalization
from clustersim.workloads.ends import head_operators
from clustersim.workloads.layer import layer_operators
from clustersim.workloads.linear import LinearShape, linear
from clustersim.workloads.operators import Operator, Stream
from clustersim.workloads.shapes import LocalShape, Numerics
from clustersim.workloads.transformer_shape import TransformerShape

OWN = "final_norm"
"""The only part of a module's head that has parameters of its own: everything else uses those of the model's head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One module in execution order."""

    joining: tuple[Operator, ...]
    """Embedding of the next token, normalised, beside the normalised output of the layers before, projected to the hidden size."""
    layer: tuple[Operator, ...]
    """A layer like the model's last one."""
    head: tuple[Operator, ...]
    """Final normalisation of its own, logits and loss with the matrix of the model's head."""

    @property
    def operators(self) -> tuple[Operator, ...]:
        """All of the module."""
        return self.joining + self.layer + self.head


def prediction(model: TransformerShape, local: LocalShape, numerics: Numerics) -> Prediction:
    """Return one module of multi-token prediction; all modules of a model are alike.

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
        head=tuple(_of_the_head(operator) for operator in head_operators(model, local, numerics)),
    )


def _side_by_side(elements: int, element_bytes: float) -> Operator:
    copy = Stream(4.0 * elements * element_bytes)
    return Operator(name="mtp_join", phases={"forward": (copy,), "input_gradient": (copy,)})


def _of_the_head(operator: Operator) -> Operator:
    """Return what a module does as the head does, under a name of its own, without the parameters that are the head's."""
    return replace(operator, name=f"mtp_{operator.name}", role="other", parameters=operator.parameters if operator.name == OWN else 0.0)

"""Tokens to features: a table with a row for each token of the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass

from clustersim.workloads.kinds.call import LayerCall, Shape
from clustersim.workloads.operators import Operator, Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingLayer:
    """A lookup of one row for each token."""

    input: Shape
    rows: int
    features: int
    shared: bool
    """True where it looks into the table of an earlier embedding, and has none of its own."""

    @property
    def output(self) -> Shape:
        """Tokens and features."""
        return (*self.input, self.features)

    def operators(self, call: LayerCall) -> tuple[Operator, ...]:
        """Return the lookup; backward, rows of the gradient are sorted and added into the table."""
        size_bytes = call.stored_bytes(self.output)
        return (
            Operator(
                name="embedding",
                role="embedding",
                phases={"forward": (Stream(2.0 * size_bytes),), "weight_gradient": (Stream(3.0 * size_bytes, launches=3),)},
                parameters=0.0 if self.shared else float(self.rows * self.features),
            ),
        )

"""Attention of a decoder over what an encoder gave, as recurrent translators have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clustersim.workloads.kinds.call import LayerCall, Shape
from clustersim.workloads.linear import LinearShape, linear
from clustersim.workloads.operators import Gemm, Operator, Stream

ENERGY_PASSES = 6.0
"""Eager, over one vector for each query and key: sum written; bias read and written; tanh read and written; product with a vector read."""

ENERGY_PASSES_BACKWARD = 6.0
"""Eager: the outer product with the vector written; its input read for the vector's gradient; tanh reads result and gradient and writes
one; sums over queries and over keys count as one read, the larger of the two being in cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLayer:
    """Additive (Bahdanau) or multiplicative (Luong) attention; its result is put behind each query.

    References
    ----------
    .. [1] D. Bahdanau, K. Cho, Y. Bengio, "Neural Machine Translation by Jointly Learning to Align and Translate", 2014.
    .. [2] M. Luong, H. Pham, C. Manning, "Effective Approaches to Attention-based Neural Machine Translation", 2015.
    """

    input: Shape
    """Queries."""
    memory: Shape
    """Keys, which are the values too."""
    kind: Literal["additive", "dot"]
    features: int
    """Width in which queries and keys are compared."""
    normalized: bool
    """With the vector's norm as a parameter, and a bias before the tanh; additive attention only."""

    @property
    def output(self) -> Shape:
        """Queries with what they found behind each."""
        return self.input[0], self.input[1] + self.memory[1]

    def operators(self, call: LayerCall) -> tuple[Operator, ...]:
        """Return the two projections, the comparison, and the sum of values with its way behind the queries."""
        numbers = call.numerics
        operators = [linear(name, self._projection(call, shape), numbers) for name, shape in (("query", self.input), ("key", self.memory))]
        operators.append(self._additive(call) if self.kind == "additive" else self._dot(call))
        return (*operators, self._context(call))

    def _projection(self, call: LayerCall, shape: Shape) -> LinearShape:
        rows = call.samples * shape[0]
        return LinearShape(rows=rows, inputs=shape[1], outputs=self.features, bias=False, saved_rows=0)

    def _additive(self, call: LayerCall) -> Operator:
        """Return the comparison of every query with every key, each by a vector of ``features``."""
        e = call.numerics.element_bytes
        pairs = float(call.samples) * self.input[0] * self.memory[0]
        eager = call.numerics.kernels == "eager"
        energy_bytes = pairs * self.features * e
        forward, backward = (ENERGY_PASSES, ENERGY_PASSES_BACKWARD) if eager else (0.0, 0.0)
        rows_bytes = call.samples * (self.input[0] + self.memory[0]) * self.features * e
        return Operator(
            name="scores",
            phases={
                "forward": (Stream(forward * energy_bytes + rows_bytes + pairs * e, launches=4 if eager else 1),),
                "input_gradient": (Stream(backward * energy_bytes + 2.0 * rows_bytes + pairs * e, launches=6 if eager else 1),),
            },
            parameters=float(self.features * (2 if self.normalized else 1) + (1 if self.normalized else 0)),
            saved_bytes=rows_bytes + (energy_bytes if eager else 0.0),
            forward_flops=2.0 * pairs * self.features,
        )

    def _dot(self, call: LayerCall) -> Operator:
        e, samples = call.numerics.element_bytes, call.samples
        queries, keys = self.input[0], self.memory[0]
        forward = Gemm(queries, keys, self.features, batch=samples, element_bytes=e, output_bytes=e)
        of_queries = Gemm(queries, self.features, keys, batch=samples, element_bytes=e, output_bytes=e)
        of_keys = Gemm(keys, self.features, queries, batch=samples, element_bytes=e, output_bytes=e)
        return Operator(
            name="scores",
            phases={"forward": (forward,), "input_gradient": (of_queries, of_keys)},
            saved_bytes=samples * (queries + keys) * self.features * e,
            forward_flops=forward.flops,
        )

    def _context(self, call: LayerCall) -> Operator:
        e, samples = call.numerics.element_bytes, call.samples
        queries, (keys, width) = self.input[0], self.memory
        probabilities = float(samples) * queries * keys * e
        summed = Gemm(queries, width, keys, batch=samples, element_bytes=e, output_bytes=e)
        of_probabilities = Gemm(queries, keys, width, batch=samples, element_bytes=e, output_bytes=e)
        of_values = Gemm(keys, width, queries, batch=samples, element_bytes=e, output_bytes=e)
        joined = Stream(2.0 * call.stored_bytes(self.output))
        return Operator(
            name="context",
            phases={
                "forward": (Stream(2.0 * probabilities), summed, joined),
                "input_gradient": (joined, of_probabilities, of_values, Stream(3.0 * probabilities)),
            },
            saved_bytes=probabilities,
            forward_flops=summed.flops,
        )

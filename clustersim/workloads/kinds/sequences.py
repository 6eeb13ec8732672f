"""Layers over sequences: tables of tokens, recurrent layers, and attention of a decoder over what an encoder gave."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from clustersim.workloads.kinds.call import InputLayer, LayerCall, Shape
from clustersim.workloads.linear import LinearShape, linear
from clustersim.workloads.operators import Gemm, Operator, Stream

CellKind = Literal["lstm", "gru"]

GATES: Final = MappingProxyType({"lstm": 4, "gru": 3})
"""Matrices of a cell, for its input and for its state."""

KEPT_STATES: Final = MappingProxyType({"lstm": 1, "gru": 1})
"""States stored per token besides the gates: the state of the LSTM cell, the candidate of the GRU before its reset gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentLayer(InputLayer):
    """A layer of LSTM or GRU cells over a sequence, in one or both directions."""

    cell: CellKind
    features: int
    """Features of one direction."""
    bidirectional: bool

    @property
    def output(self) -> Shape:
        """Tokens, and the features of all directions."""
        return self.input[0], self.features * self._directions

    def operators(self, call: LayerCall) -> tuple[Operator, ...]:
        """Return the layer as cuDNN computes it.

        The input enters by one product for all tokens. The state enters by one product for each token, which waits for that of the
        token before; a fused kernel then updates the cell. Directions run beside each other. Backward it is the same from the
        last token to the first, and the gradients of the weights are products over all tokens. There are two vectors of biases.

        References
        ----------
        .. [1] J. Appleyard, T. Kocisky, P. Blunsom, "Optimizing Performance of Recurrent Neural Networks on GPUs", 2016.
        """
        length, inputs = self.input
        numbers, directions, hidden = call.numerics, self._directions, self.features
        operand, plain = numbers.gemm_element_bytes, numbers.element_bytes
        width = GATES[self.cell] * hidden
        rows = call.samples * length

        entering = Gemm(rows, directions * width, inputs, element_bytes=operand, output_bytes=plain)
        step = Gemm(call.samples, width, hidden, batch=directions, element_bytes=operand, output_bytes=plain)
        step_back = Gemm(call.samples, hidden, width, batch=directions, element_bytes=operand, output_bytes=plain)
        input_gradient = Gemm(rows, inputs, directions * width, element_bytes=operand, output_bytes=plain)
        adds = numbers.fused_gradient_accumulation
        out_bytes = numbers.gradient_bytes if adds else plain
        of_input = Gemm(inputs, directions * width, rows, element_bytes=operand, output_bytes=out_bytes, accumulates=adds)
        of_state = Gemm(hidden, width, rows, batch=directions, element_bytes=operand, output_bytes=out_bytes, accumulates=adds)
        weights = directions * width * (inputs + hidden)
        added = () if adds else (Stream(weights * (plain + (2 + numbers.gradient_passes) * numbers.gradient_bytes)),)
        cell_bytes = rows * directions * (width + KEPT_STATES[self.cell] * hidden) * plain
        # Gates are read twice, from both products; gates and states are written, and read backward with the incoming gradient.
        point_bytes = cell_bytes + rows * directions * (width + hidden) * plain
        gate_bytes = rows * directions * width * plain
        return (
            Operator(
                name=self.cell,
                phases={
                    "forward": (entering, *(step,) * length, Stream(point_bytes, launches=length)),
                    "input_gradient": (
                        *(step_back,) * length,
                        Stream(point_bytes + gate_bytes, launches=length),
                        *((input_gradient,) if call.input_gradient else ()),
                    ),
                    "weight_gradient": (of_input, of_state, *added, Stream(gate_bytes)),
                },
                parameters=float(weights + 2 * directions * width),
                saved_bytes=call.kept_input_bytes(self.input) + cell_bytes,
                forward_flops=entering.flops + length * step.flops,
            ),
        )

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1


ENERGY_PASSES = 6.0
"""Eager, over one vector for each query and key: sum written; bias read and written; tanh read and written; product with a vector read."""

ENERGY_PASSES_BACKWARD = 6.0
"""Eager: the outer product with the vector written; its input read for the vector's gradient; tanh reads result and gradient and writes
one; sums over queries and over keys count as one read, the larger of the two being in cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLayer(InputLayer):
    """Additive (Bahdanau) or multiplicative (Luong) attention; its result is concatenated with each query.

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
        """Queries, concatenated with their contexts."""
        return self.input[0], self.input[1] + self.memory[1]

    def operators(self, call: LayerCall) -> tuple[Operator, ...]:
        """Return the two projections, the comparison, and the weighted sum of values with its concatenation."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingLayer(InputLayer):
    """A lookup of one row for each token."""

    rows: int
    features: int
    shared: bool
    """True where it uses the table of an earlier embedding."""

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

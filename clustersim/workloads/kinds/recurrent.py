"""Recurrent layers: one product for all tokens, then one for each token after the other."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from clustersim.workloads.kinds.call import LayerCall, Shape
from clustersim.workloads.operators import Gemm, Operator, Stream

CellKind = Literal["lstm", "gru"]

GATES: Final = MappingProxyType({"lstm": 4, "gru": 3})
"""Matrices of a cell, for its input and for its state alike."""

KEPT_STATES: Final = MappingProxyType({"lstm": 1, "gru": 1})
"""States kept of each token besides its gates: the state of the LSTM cell, the candidate of the GRU before its reset gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentLayer:
    """A layer of LSTM or GRU cells over a sequence, forwards or in both directions."""

    input: Shape
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
        added = () if adds else (Stream(weights * (plain + 2.0 * numbers.gradient_bytes)),)
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

"""Common parts of DualPipe and DualPipeV: two streams of micro-batches, one going forward beside the other going back."""

from __future__ import annotations

from dataclasses import dataclass, field

from clustersim.parallel.schedules.order import Pass, StageOrder, backward, forward, input_gradient, side_by_side, weight_gradient


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchStream:
    """Micro-batches through one chunk of a stage."""

    chunk: int
    micro_batches: range


def two_streams(depth: int, distance: int, near: MicroBatchStream, far: MicroBatchStream) -> StageOrder:
    """Return the order of one stage.

    Parameters
    ----------
    depth
        Stages that a micro-batch passes before both streams have been everywhere: half of them, or all where they turn round at the last.
    distance
        How far the stage is from that where ``near`` begins.
    near
        Reaches the stage first; goes through as many micro-batches as ``far``.
    far
        Reaches the stage last, and goes back first.

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.2.1 and figure 5; https://github.com/deepseek-ai/DualPipe.
    """
    line, ahead, count = _StreamLine(near, far), depth - distance - 1, len(near.micro_batches)
    for _ in range(2 * ahead):
        line.forward(0)
    for _ in range(distance + 1):
        line.forward(0)
        line.forward(1)
    for _ in range(ahead):
        line.backward(1, defers=True)
        line.weight()
        line.forward(1)
    for turn in range(count - 2 * depth + distance + 1):
        # Where the streams meet, the first two passes cannot run at once: one has to wait for the other.
        line.both(0, 1, apart=turn == 0 and ahead == 0)
        line.both(1, 0)
    for _ in range(ahead):
        line.backward(1)
        line.both(1, 0)
    half = distance + 1
    for turn in range(half):
        line.backward(1, defers=2 * turn >= half)
        line.backward(0, defers=2 * turn + 1 >= half)
    for _ in range(ahead):
        line.weight()
        line.backward(0, defers=True)
    line.all_weights()
    return tuple(line.order)


@dataclass(slots=True)
class _StreamLine:
    """Passes of a stage; each stream takes its micro-batches in order, forward and backward."""

    near: MicroBatchStream
    far: MicroBatchStream
    order: list[Pass] = field(default_factory=list[Pass])
    _forward: list[int] = field(default_factory=lambda: [0, 0])
    _back: list[int] = field(default_factory=lambda: [0, 0])
    _waiting: list[Pass] = field(default_factory=list[Pass])

    def forward(self, which: int) -> None:
        """Append the next forward pass of a stream."""
        self.order.append(self._next_forward(which))

    def backward(self, which: int, *, defers: bool = False) -> None:
        """Append the next backward pass of a stream, or its input gradient alone."""
        step = self._next_backward(which)
        if defers:
            self._waiting.append(weight_gradient(step.micro_batch, step.chunk))
            step = input_gradient(step.micro_batch, step.chunk)
        self.order.append(step)

    def both(self, ahead: int, back: int, *, apart: bool = False) -> None:
        """Append a forward pass of one stream beside a backward pass of the other."""
        pair = self._next_forward(ahead), self._next_backward(back)
        self.order += pair if apart else side_by_side(*pair)

    def weight(self) -> None:
        """Append the weight gradient that has waited longest."""
        self.order.append(self._waiting.pop(0))

    def all_weights(self) -> None:
        """Append all weight gradients that still wait."""
        self.order += self._waiting

    def _next_forward(self, which: int) -> Pass:
        stream = (self.near, self.far)[which]
        self._forward[which] += 1
        return forward(stream.micro_batches[self._forward[which] - 1], stream.chunk)

    def _next_backward(self, which: int) -> Pass:
        stream = (self.near, self.far)[which]
        self._back[which] += 1
        return backward(stream.micro_batches[self._back[which] - 1], stream.chunk)

"""What a pipeline schedule is made of: passes, and for each stage an order of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

PassKind = Literal["F", "B", "I", "W"]
"""Forward; backward in one; the gradient of the input alone, and that of the weights alone."""

DEFERRED: Final[PassKind] = "W"
"""Nobody waits for it: no other stage, and nothing on its own stage but the update."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of one micro-batch through one model chunk of a stage."""

    kind: PassKind
    micro_batch: int
    chunk: int = 0
    beside_next: bool = field(default=False, compare=False)
    """Runs side by side with the pass behind it; the two start together and hand on their results together."""

    @property
    def goes_back(self) -> bool:
        """Whether its result goes to the stage before: a gradient."""
        return self.kind in ("B", "I")

    @property
    def makes_weight_gradients(self) -> bool:
        """Whether the gradients of a micro-batch are complete behind it."""
        return self.kind in ("B", "W")


StageOrder = tuple[Pass, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCosts:
    """What a scheduler knows of passes through one chunk; of times, only their ratios matter."""

    forward_s: float
    input_s: float
    weight_s: float
    send_s: float = 0.0
    """From one stage to the next."""
    weight_fraction: float = 1.0
    """What a micro-batch still keeps between its input and its weight gradient, as a share of what it kept before."""


EQUAL_COSTS: Final = PassCosts(forward_s=1.0, input_s=1.0, weight_s=1.0)
"""What a matrix product takes each way, where nothing else is known."""


def forward(micro_batch: int, chunk: int = 0) -> Pass:
    """Return a forward pass."""
    return Pass("F", micro_batch, chunk)


def backward(micro_batch: int, chunk: int = 0) -> Pass:
    """Return a backward pass in one."""
    return Pass("B", micro_batch, chunk)


def input_gradient(micro_batch: int, chunk: int = 0) -> Pass:
    """Return the part of a backward pass that the stage before waits for."""
    return Pass("I", micro_batch, chunk)


def weight_gradient(micro_batch: int, chunk: int = 0) -> Pass:
    """Return the part of a backward pass that nobody waits for."""
    return Pass(DEFERRED, micro_batch, chunk)


def side_by_side(one: Pass, other: Pass) -> StageOrder:
    """Return two passes that run at once."""
    return replace(one, beside_next=True), other


def peak_in_flight(
    order: StageOrder, chunk_bytes: Sequence[float], weight_bytes: Sequence[float] | None = None, *, working_bytes: float = 0.0
) -> float:
    """Return the most that is held at once.

    Parameters
    ----------
    chunk_bytes
        What a micro-batch keeps of each chunk from its forward pass to its backward pass, or to that of the input gradient.
    weight_bytes
        What of each chunk is kept from there to the pass of the weight gradient; as much when left out.
    working_bytes
        Held besides while a backward pass runs, or that of an input gradient.

    Examples
    --------
    >>> peak_in_flight((forward(0), forward(1), backward(0), backward(1)), [1.0])
    2.0
    >>> peak_in_flight((forward(0), input_gradient(0), forward(1), input_gradient(1), weight_gradient(0), weight_gradient(1)), [1.0], [0.5])
    1.5
    """
    later = chunk_bytes if weight_bytes is None else weight_bytes
    changes = [{"F": whole, "B": -whole, "I": rest - whole, "W": -rest} for whole, rest in zip(chunk_bytes, later, strict=True)]
    kept = peak = 0.0
    for step in order:
        before = kept
        kept += changes[step.chunk][step.kind]
        peak = max(peak, kept, max(before, kept) + working_bytes if step.goes_back else 0.0)
    return peak

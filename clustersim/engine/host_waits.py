"""Results that a host waits for within a pass, such as counts of rows, and the time from one of them to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from clustersim.program.tasks import Block, Work
from clustersim.workloads.operators import Kernel, Stream


class Launched(NamedTuple):
    """Kernels of one kind, or a collective: their time on the host and on the accelerator."""

    issue_s: float
    device_s: float
    n: int = 1
    """Number of kernels, each with its share of both times."""
    awaited: bool = False
    """Whether the host waits for them."""


def awaited(kernel: Kernel) -> bool:
    """Return whether the host waits for the result of a kernel."""
    return isinstance(kernel, Stream) and kernel.awaited


def waits(block: Block) -> bool:
    """Return whether the host waits for a result in a block."""
    return any(awaited(kernel) for item in block.body if isinstance(item, Work) for kernel in item.kernels)


def between_waits_s(launched: Sequence[Launched]) -> float:
    """Return the time from a result that the host waits for to the same one of the next block like this.

    At first the accelerator is idle. The host issues one kernel after the other; each begins when it is issued and the one before has
    ended, which is a flow shop of two machines. docs/theory/kernels.md has the formula.

    Examples
    --------
    Both are busy for 5 s, and none of it overlaps where the host comes first:

    >>> between_waits_s([Launched(4.0, 1.0), Launched(1.0, 4.0, awaited=True)])
    9.0
    >>> between_waits_s([Launched(1.0, 4.0), Launched(4.0, 1.0, awaited=True)])
    6.0
    """
    place = next(place for place, each in enumerate(launched) if each.awaited) + 1
    host_s = device_s = 0.0
    for each in (*launched[place:], *launched[:place]):
        begun_s = max(device_s, host_s + each.issue_s / each.n)
        host_s += each.issue_s
        device_s = max(begun_s + each.device_s, host_s + each.device_s / each.n)
        if each.awaited:
            host_s = device_s
    return device_s

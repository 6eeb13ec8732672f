"""Kernels of a step by class, measured or predicted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

COLLECTIVES: Final[Mapping[str, str]] = {
    "all_reduce": "all-reduce",
    "reduce_scatter": "reduce-scatter",
    "all_gather": "all-gather",
    "all_to_all": "all-to-all",
    "send_recv": "send and receive",
}
"""Class of each operation of a group; others are ``OTHER_COLLECTIVES``."""
SENDS: Final = COLLECTIVES["send_recv"]
OTHER_COLLECTIVES: Final = "other collectives"
COMMUNICATION: Final = (*COLLECTIVES.values(), OTHER_COLLECTIVES)
HOST_COPIES: Final = "host copies"
IDLE: Final = "no kernel runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassTime:
    """Kernels of one class in a step."""

    seconds: float
    """Sum over kernels, in seconds, whatever runs beside them."""
    n_kernels: float | None = None
    """In a step; None where unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKernels:
    """Step of one rank, or the mean of several."""

    step_s: float
    computing_s: float
    """Time in which a kernel computes."""
    exposed_s: float
    """Time in which nothing computes and a kernel communicates, or copies from or to the host."""
    classes: Mapping[str, ClassTime]

    @property
    def idle_s(self) -> float:
        """Time in which no kernel runs; none where the host ran ahead, so that the kernels take longer than the step that it marked."""
        return max(0.0, self.step_s - self.computing_s - self.exposed_s)


def covered_s(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length of what some intervals cover together.

    Examples
    --------
    >>> covered_s([(2.0, 3.0), (0.0, 1.0), (0.5, 1.5)])
    2.5
    """
    total_s, end_s = 0.0, float("-inf")
    for start, end in sorted(intervals):
        if end > end_s:
            total_s += end - max(start, end_s)
            end_s = end
    return total_s


def mean_of(steps: list[StepKernels]) -> StepKernels:
    """Return the mean over ranks."""
    n = len(steps)
    names = dict.fromkeys(name for step in steps for name in step.classes)
    classes: dict[str, ClassTime] = {}
    for name in names:
        times = [step.classes[name] for step in steps if name in step.classes]
        counts = [each.n_kernels for each in times if each.n_kernels is not None]
        classes[name] = ClassTime(
            seconds=sum(each.seconds for each in times) / n, n_kernels=sum(counts) / n if len(counts) == len(times) else None
        )
    return StepKernels(
        step_s=sum(step.step_s for step in steps) / n,
        computing_s=sum(step.computing_s for step in steps) / n,
        exposed_s=sum(step.exposed_s for step in steps) / n,
        classes=classes,
    )

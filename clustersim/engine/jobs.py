"""Several jobs on one fabric: the first is what is asked about, the others repeat their steps for as long as it lasts."""

from __future__ import annotations

from dataclasses import dataclass

from clustersim.engine.pace import Timing
from clustersim.engine.replay import Replay
from clustersim.program.program import Program
from clustersim.trace.timeline import JobProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherJob:
    """A job that shares the links, on ranks of its own."""

    name: str
    program: Program
    """One step, on ranks of the cluster."""
    kernels: Timing


@dataclass(slots=True, kw_only=True)
class Repeated:
    """A replay that starts again as soon as it has ended."""

    name: str
    replay: Replay
    n_steps: int = 0
    started_s: float = 0.0
    """When the present step started, which is when the last one ended."""

    def begin(self) -> None:
        """Start a step, and after it the next."""
        self.started_s = self.replay.clock.now_s
        self.replay.start(self._again)

    def progress(self) -> JobProgress:
        """Return what has been done so far."""
        return JobProgress(name=self.name, steps=self.n_steps, steps_s=self.started_s)

    def _again(self) -> None:
        # A step without duration would be repeated for ever in one instant.
        if self.replay.clock.now_s > self.started_s:
            self.n_steps += 1
            self.begin()

"""Execute orders of passes with given times: when each ends, or which pass waits for one that never comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clustersim.parallel.schedules.order import Pass, PassCosts, StageOrder
from clustersim.parallel.schedules.places import Places, Stop

Done = tuple[int, int, str, int]
"""Stage, chunk, forward or back, micro-batch: a result that another pass waits for."""


@dataclass(slots=True, kw_only=True)
class Executed:
    """Progress of each stage's order, with times."""

    at: list[int]
    """For each stage, how many passes have ended; all of them unless the orders wait for themselves."""
    start_s: list[float]
    """For each stage, when its first pass began."""
    end_s: list[float]
    """For each stage, when its last pass ended."""

    @property
    def longest_s(self) -> float:
        """The longest time of a stage from its first to its last pass: that of a step, where no stage waits for others between steps."""
        return max(end - start for start, end in zip(self.start_s, self.end_s, strict=True))


@dataclass(slots=True)
class _Execution:
    orders: Sequence[StageOrder]
    neighbours: Mapping[Stop, tuple[Stop | None, Stop | None]]
    times: PassCosts
    ended_s: dict[Done, float] = field(default_factory=dict[Done, float])

    def ready_s(self, stage: int, at: int) -> float | None:
        """Return the time at which the inputs of a pass are ready; None where one is not computed yet."""
        ready_s = 0.0
        for done in needs(stage, self.orders[stage][at], self.neighbours):
            if done not in self.ended_s:
                return None
            ready_s = max(ready_s, self.ended_s[done] + (self.times.send_s if done[0] != stage else 0.0))
        return ready_s


def needs(stage: int, step: Pass, neighbours: Mapping[Stop, tuple[Stop | None, Stop | None]]) -> list[Done]:
    """Return the inputs of a pass: results of its own stage first, then received ones."""
    before, behind = neighbours[stage, step.chunk]
    if step.kind == "F":
        return [] if before is None else [(*before, "F", step.micro_batch)]
    if step.kind == "W":
        return [(stage, step.chunk, "back", step.micro_batch)]
    own: Done = (stage, step.chunk, "F", step.micro_batch)
    return [own] if behind is None else [own, (*behind, "back", step.micro_batch)]


def execute(orders: Sequence[StageOrder], places: Places, times: PassCosts) -> Executed:
    """Return when the stages begin and end if each starts its next pass as soon as it can."""
    run, n_stages = _Execution(orders, places.neighbours(), times), len(orders)
    lasts = {"F": times.forward_s, "I": times.input_s, "W": times.weight_s, "B": times.input_s + times.weight_s}
    done = Executed(at=[0] * n_stages, start_s=[0.0] * n_stages, end_s=[0.0] * n_stages)
    waiting = list(range(n_stages))
    while waiting:
        stage = waiting.pop()
        order = orders[stage]
        while done.at[stage] < len(order):
            width = 2 if order[done.at[stage]].beside_next else 1
            together = range(done.at[stage], done.at[stage] + width)
            ready = [run.ready_s(stage, at) for at in together]
            known = [ready_s for ready_s in ready if ready_s is not None]
            if len(known) < len(ready):
                break
            start_s = max(done.end_s[stage], *known) if done.at[stage] else max(known)
            if not done.at[stage]:
                done.start_s[stage] = start_s
            done.end_s[stage] = start_s + sum(lasts[order[at].kind] for at in together)
            for at in together:
                step = order[at]
                if step.kind != "W":
                    run.ended_s[stage, step.chunk, "F" if step.kind == "F" else "back", step.micro_batch] = done.end_s[stage]
                    waiting += [stop[0] for stop in run.neighbours[stage, step.chunk] if stop is not None and stop[0] != stage]
            done.at[stage] += width
    return done

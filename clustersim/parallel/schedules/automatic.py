"""The automatic zero-bubble scheduler: passes placed one at a time, by rules, within a memory limit."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import product
from math import inf
from typing import Final

from clustersim.parallel.schedules.execution import execute
from clustersim.parallel.schedules.order import Pass, PassCosts, StageOrder, forward, input_gradient, weight_gradient
from clustersim.parallel.schedules.places import looped
from clustersim.parallel.schedules.zero_bubble import zb_h1, zb_h2

_ROUNDING: Final = 1e-9
"""Sums of fractions of micro-batches are no more exact than this."""


def zb_2p(n_stages: int, n_micro_batches: int, times: PassCosts) -> tuple[StageOrder, ...]:
    """Return orders with almost no bubble that store at most ``2 p`` micro-batches on a stage.

    Several sets of rules are tried, and ZB-H1 and ZB-H2; the one whose longest stage is shortest is taken, the first of equals. What is
    short here is so for the given times. A micro-batch counts in full from its forward pass to its input gradient, and then as what it
    still keeps.

    References
    ----------
    .. [1] P. Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 3.1.
    """
    candidates = [by_rules(n_stages, n_micro_batches, times, rules) for rules in _sets_of_rules(2 * n_stages)]
    candidates += [make(n_stages, n_micro_batches, 1) for make in (zb_h1, zb_h2)]
    places = looped(n_stages, 1)
    return min(candidates, key=lambda orders: execute(orders, places, times).longest_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRules:
    """Rules by which a stage chooses its next pass."""

    most_kept: int
    """Micro-batches, from the forward pass to the weight gradient."""
    back_first: bool
    """True where a ready input gradient precedes a ready forward pass; otherwise they alternate."""
    late_fraction: float
    """Share of its time by which a weight gradient may delay a pass that becomes ready."""
    spare_first: bool
    """Until its first input gradient a stage goes forward only where that does not hold it up."""


def _sets_of_rules(most_kept: int) -> list[StageRules]:
    choices = product((True, False), (0.0, 0.3, 0.6, 1.0), (True, False))
    return [StageRules(most_kept=most_kept, back_first=back, late_fraction=late, spare_first=spare) for back, late, spare in choices]


@dataclass(slots=True)
class _Stage:
    forward_s: list[float]
    """For each micro-batch, the arrival of its activation; infinite while unknown."""
    back_s: list[float]
    free_s: float = 0.0
    n_forward: int = 0
    n_back: int = 0
    n_weight: int = 0
    order: list[Pass] = field(default_factory=list[Pass])
    turn: int = 0
    """Number of looks at it, so that older looks are passed over."""


def by_rules(n_stages: int, n_micro_batches: int, times: PassCosts, rules: StageRules) -> tuple[StageOrder, ...]:
    """Return orders in which each free stage takes the pass that its rules choose."""
    placing = _Placing(n_stages, n_micro_batches, times, rules)
    return placing.orders()


@dataclass(slots=True)
class _Placing:
    n_stages: int
    n_micro_batches: int
    times: PassCosts
    rules: StageRules
    stages: list[_Stage] = field(init=False)
    looks: list[tuple[float, int, int, str]] = field(default_factory=list[tuple[float, int, int, str]])
    """When which stage would start what."""

    def __post_init__(self) -> None:
        """Nothing is known but the batch."""
        unknown = [inf] * self.n_micro_batches
        self.stages = [_Stage(forward_s=unknown.copy(), back_s=unknown.copy()) for _ in range(self.n_stages)]
        self.stages[0].forward_s = [0.0] * self.n_micro_batches

    def orders(self) -> tuple[StageOrder, ...]:
        """Place all passes, in order of their start, so that the inputs of each are known."""
        for number in range(self.n_stages):
            self.look(number)
        while self.looks:
            start_s, number, turn, kind = heappop(self.looks)
            if turn == self.stages[number].turn:
                self.place(number, kind, start_s)
        return tuple(tuple(stage.order) for stage in self.stages)

    def look(self, number: int) -> None:
        """Determine the next pass of a stage, as far as it is known."""
        stage = self.stages[number]
        stage.turn += 1
        kind, start_s = self.choice(stage)
        if start_s < inf:
            heappush(self.looks, (start_s, number, stage.turn, kind))

    def choice(self, stage: _Stage) -> tuple[str, float]:
        """Return the next pass of a stage, and its start."""
        rules, now_s = self.rules, stage.free_s
        room = stage.n_forward < self.n_micro_batches and self.kept(stage) + 1.0 <= rules.most_kept + _ROUNDING
        forward_s = max(now_s, stage.forward_s[stage.n_forward]) if room else inf
        back_s = max(now_s, stage.back_s[stage.n_back]) if stage.n_back < stage.n_forward else inf
        if stage.n_weight < stage.n_back:
            wait_s = min(forward_s, back_s) - now_s
            full = not room and stage.n_forward < self.n_micro_batches and back_s > now_s
            if full or (wait_s > 0.0 and wait_s >= (1.0 - rules.late_fraction) * self.times.weight_s):
                return "W", now_s
        if rules.spare_first and not stage.n_back and back_s < forward_s + self.times.forward_s:
            return "I", back_s
        if forward_s == back_s:
            ahead = rules.back_first or (stage.order[-1].kind == "F" if stage.order else False)
            return ("I", back_s) if ahead else ("F", forward_s)
        return ("I", back_s) if back_s < forward_s else ("F", forward_s)

    def kept(self, stage: _Stage) -> float:
        """Return the stored micro-batches of a stage, in full micro-batches; none counts less than its later minimum."""
        return stage.n_forward - stage.n_back + min(self.times.weight_fraction, 1.0) * (stage.n_back - stage.n_weight)

    def place(self, number: int, kind: str, start_s: float) -> None:
        """Append a pass to its stage, and tell the stage that waits for it when it will be there."""
        stage, times = self.stages[number], self.times
        if kind == "W":
            stage.order.append(weight_gradient(stage.n_weight))
            stage.n_weight += 1
            stage.free_s = start_s + times.weight_s
        elif kind == "F":
            stage.order.append(forward(stage.n_forward))
            stage.free_s = start_s + times.forward_s
            self.tell(number + 1, stage.n_forward, stage.free_s + times.send_s, forward_pass=True)
            if number == self.n_stages - 1:
                stage.back_s[stage.n_forward] = stage.free_s
            stage.n_forward += 1
        else:
            stage.order.append(input_gradient(stage.n_back))
            stage.free_s = start_s + times.input_s
            self.tell(number - 1, stage.n_back, stage.free_s + times.send_s, forward_pass=False)
            stage.n_back += 1
        self.look(number)

    def tell(self, number: int, micro_batch: int, at_s: float, *, forward_pass: bool) -> None:
        """Let a neighbour know when something will be there."""
        if not 0 <= number < self.n_stages:
            return
        stage = self.stages[number]
        (stage.forward_s if forward_pass else stage.back_s)[micro_batch] = at_s
        self.look(number)

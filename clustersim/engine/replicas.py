"""Serving in simulated time: one SimPy process for each replica, one for the clients, one clock."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import simpy
from simpy.events import EventPriority

from clustersim.engine.pace import StepVariation
from clustersim.engine.world import SETTLED, Process, World
from clustersim.network.in_flight import TICK_S
from clustersim.serving.batch import FloatArray, StepBatch, StepModel
from clustersim.serving.records import EngineStepLog, StepRecord, ticks
from clustersim.serving.scheduler import EngineStep, Scheduler
from clustersim.serving.sequence import Sequence

ARRIVAL: Final = EventPriority(0)
_STEP_END: Final = EventPriority(2)
"""Priority of step ends: arrivals at the same tick go first, so that a stretch of steps sees them as single steps do."""
_LONGEST_STRETCH: Final = 4096
_SPARE_STEPS: Final = 4
"""Steps that a stretch may have beyond those that the next arrival seems to leave time for."""
_NO_ENDS: Final[list[float]] = []


@dataclass(slots=True)
class Replica:
    """One replica of the model, which computes step after step."""

    world: World
    scheduler: Scheduler
    model: StepModel
    log: EngineStepLog
    on_first_token: Callable[[Sequence], None]
    on_done: Callable[[Replica, Sequence], None]
    on_chunks: Callable[[Replica, EngineStep, int], None] | None = None
    """Called as a step with chunks of prompts begins, with its ticks."""
    number: int = 0
    slowdown: float = 1.0
    """Factor on the duration of its steps: that of its slowest accelerator."""
    jitter: StepVariation | None = None
    """Further factor of each step, by replica and number of the step."""
    every_step: bool = False
    """Whether each step of a decode-only stretch is a separate event."""
    settles: bool = False
    """Whether all steps that end at a tick are accounted for before the next is scheduled: where replicas feed each other."""
    arrivals: Callable[[int], int] | None = None
    """Called with a tick, it hands over the requests up to it and returns the tick of the next; None where requests come by themselves,
    and interrupt a stretch of steps."""
    n_events: int = 0
    n_coming: int = 0
    """Requests whose KV cache is on its way."""
    process: simpy.Process = field(init=False)
    _idle: simpy.Event | None = None
    _begun: int = 0
    _ends: list[float] = field(default_factory=list[float])
    """Ticks after the beginning at which the steps of a stretch end; empty for a single step."""
    _open: bool = False
    """Whether the stretch may still be cut short."""
    _running: int = 0
    """Number of the step in its stretch in which a request came."""
    _busy: bool = False
    _next_arrival: int = 0
    """Tick of the next request, where it is known."""
    _last_decode: int = -1
    _pace: int = 0
    """Ticks of the first step of the last stretch; zero before one."""

    @property
    def now(self) -> int:
        """Simulated time, in ticks."""
        return int(self.world.now)

    def start(self) -> None:
        """Start waiting for requests."""
        self.process = self.world.process(self._run())

    @property
    def n_requests(self) -> int:
        """Requests in the queue, in the batch, or on their way from another pool."""
        return len(self.scheduler.waiting) + len(self.scheduler.running) + self.n_coming

    def n_prefix_entries(self, sequence: Sequence) -> int:
        """Return how many entries of the prefix of a request the cache has."""
        return self.scheduler.pool.lookup(sequence)

    def accept(self, sequence: Sequence, moment: int) -> None:
        """Take a request that comes at a tick into the queue."""
        if not self._busy:
            self.scheduler.enqueue(sequence)
            self.wake()
            return
        running = bisect_left(self._ends, moment - self._begun)
        self.scheduler.enqueue(sequence, running)
        if self._open:
            self._open, self._running = False, running
            self.process.interrupt()

    def wake(self) -> None:
        """Look at the queue again: blocks have become free."""
        if self._idle is not None:
            self._idle.succeed()
            self._idle = None

    def _run(self) -> Process:
        world, scheduler, arrivals, now = self.world, self.scheduler, self.arrivals, self.now
        while True:
            self._begun = now
            step = scheduler.schedule()
            for sequence in scheduler.preempted:
                if sequence.last_tick >= 0 and sequence not in scheduler.joined:
                    sequence.last_tick = self._last_decode
            if step is None:
                yield self._request()
                now = self.now
                if arrivals is not None:
                    self._next_arrival = arrivals(now)
                continue
            batch = scheduler.batch(step)
            n_most = 1 if step.chunks or self.every_step else self._n_most()
            self._busy = True
            if n_most == 1:
                n_steps, first = 1, self._single(step, batch)
                last = first
                if self.on_chunks is not None and step.chunks:
                    self.on_chunks(self, step, last)
                if not world.passes(last):
                    yield world.after(last, _STEP_END)
            else:
                n_steps, first, last = yield from self._stretch(batch, n_most)
            now += last
            if arrivals is not None and self._next_arrival <= now:
                self._next_arrival = arrivals(now)
            self._busy, self._ends = False, _NO_ENDS
            self._account(step, batch, n_steps, first, last)
            if self.settles:
                yield world.after(0, SETTLED)

    def _request(self) -> simpy.Event:
        """Return the event that a request comes."""
        if self.arrivals is not None and self._next_arrival < sys.maxsize:
            return self.world.after(max(self._next_arrival - self._begun, 0), ARRIVAL)
        self._idle = self.world.event()
        return self._idle

    def _n_most(self) -> int:
        """Return the most steps of the next stretch; those beyond the next arrival, at the pace of the last stretch, are left out."""
        most = min(self.scheduler.stretch(), _LONGEST_STRETCH)
        if self._pace and self.arrivals is not None:
            return min(most, (self._next_arrival - self._begun) // self._pace + _SPARE_STEPS)
        return most

    def _single(self, step: EngineStep, batch: StepBatch) -> int:
        """Return the duration of one step."""
        terms = self.log.mixed if step.chunks else self.log.decode
        for _, weight in terms.wanted(1):
            terms.add(self.model.step(batch).terms, weight)
        factor = self.slowdown if self.jitter is None else self.slowdown * self.jitter.factor(self.number, self.scheduler.n_steps)
        return ticks(self.model.step_s(batch) * factor)

    def _stretch(self, batch: StepBatch, n_most: int) -> Generator[simpy.Event, object, tuple[int, int, int]]:
        """Wait for decode-only steps, until they are done or a request arrives.

        Return their number, and the ticks after which the first and the last end.
        """
        factor: float | FloatArray = self.slowdown
        if self.jitter is not None:
            begun = self.scheduler.n_steps
            factor = self.slowdown * np.array([self.jitter.factor(self.number, begun + step) for step in range(n_most)])
        # Whole ticks, whose sums are exact in floating point.
        durations = np.rint(self.model.decode_stretch_s(batch, n_most) * (factor / TICK_S))
        ends: list[float] = np.add.accumulate(durations).tolist()  # half the time of cumsum()
        self._pace, self._ends = int(ends[0]), ends
        # What is scheduled ahead runs too before a request that has come is looked at.
        further = 2 if self.scheduler.rules.asynchronous else 1
        n_steps = n_most
        if self.arrivals is not None:
            n_steps = min(bisect_left(ends, self._next_arrival - self._begun) + further, n_most)
            if not self.world.passes(int(ends[n_steps - 1])):
                yield self.world.after(int(ends[n_steps - 1]), _STEP_END)
        else:
            self._open = True
            try:
                yield self.world.after(int(ends[-1]), _STEP_END)
                self._open = False
            except simpy.Interrupt:
                n_steps = min(self._running + further, n_most)
                yield self.world.after(self._begun + int(ends[n_steps - 1]) - self.now, _STEP_END)
        for later, weight in self.log.decode.wanted(n_steps):
            grown = StepBatch(
                (), batch.n_decode, batch.context_tokens + later * batch.n_decode, batch.longest_context + later, batch.tokens_per_decode
            )
            self.log.decode.add(self.model.step(grown).terms, weight)
        first, last = self._pace, int(ends[n_steps - 1])
        if n_steps > 1:
            self.log.gaps.extend(durations[1:n_steps], batch.n_decode, last - first)
        return n_steps, first, last

    def _account(self, step: EngineStep, batch: StepBatch, n_steps: int, first: int, last: int) -> None:
        """Account for steps that have ended, the first and the last a number of ticks after they began."""
        scheduler, log = self.scheduler, self.log
        now = self._begun + last
        self.n_events += 1
        if step.decodes:
            self._count_gaps(batch, self._begun + first)
            self._last_decode = now
        scheduler.complete(step, n_steps)
        n_prefill = batch.n_prefill_tokens if step.chunks else 0
        log.count(batch, n_prefill, n_steps, last)
        if log.wants(now):
            log.keep(
                StepRecord(self.number, self._begun, now, n_steps, n_prefill, batch.n_decode, len(scheduler.waiting), scheduler.pool.n_used)
            )
        for sequence in scheduler.produced:
            if sequence.last_tick < 0:
                self.on_first_token(sequence)
            else:
                log.gaps.add(now - sequence.last_tick, 1)
            sequence.last_tick = now
        for sequence in scheduler.done:
            self.on_done(self, sequence)

    def _count_gaps(self, batch: StepBatch, first: int) -> None:
        """Count the time between the last token of each decoding sequence and that of a step that ended first."""
        gaps = self.log.gaps
        n_before = batch.n_decode
        for sequence in self.scheduler.joined:
            if sequence.last_tick != self._last_decode and sequence in self.scheduler.decoding.members:
                gaps.add(first - sequence.last_tick, 1)
                n_before -= 1
        if n_before:
            gaps.add(first - self._last_decode, n_before)

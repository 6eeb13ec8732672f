"""A world: the simulated time that all jobs share. Each job is a SimPy process, and waits for events of its world."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

import simpy
from simpy.core import SimTime
from simpy.events import NORMAL, URGENT, EventPriority

from clustersim.errors import ClustersimError, DeadlockError

Process = Generator[simpy.Event, object, None]
"""A job, or a part of one: a generator of the events that it waits for."""

SETTLED: Final = EventPriority(4)
"""Priority behind all else that happens at the same time."""


MOST_AT_ONCE: Final = 5_000_000
"""Events that may happen at one time."""


class World(simpy.Environment):
    """SimPy's environment with an end: time stops when a job has ended, or when the world is halted.

    Parameters
    ----------
    start
        Time at which the world begins. Seconds where Programs are replayed, a whole number of ticks where serving engines run.
    """

    def __init__(self, start: SimTime = 0.0) -> None:
        super().__init__(start)
        self._is_halted = False

    @property
    def is_instant_over(self) -> bool:
        """Whether nothing is left to happen at this time."""
        return not self._queue or self._queue[0][0] > self._now

    def halt(self) -> None:
        """Let nothing more happen."""
        self._is_halted = True

    def clear(self) -> None:
        """Drop what has not happened."""
        self._queue.clear()

    def after(self, delay: SimTime, priority: EventPriority = NORMAL) -> simpy.Event:
        """Return an event after a delay, with a priority among those of the same time."""
        return _Passed(self, delay, priority)

    def passes(self, delay: SimTime) -> bool:
        """Let time pass at once where nothing else is left to happen; return whether it has."""
        if self._queue:
            return False
        self._now: SimTime = self.now + delay
        return True

    def signal(self) -> Signal:
        """Return an event to be fired later."""
        return Signal(self)

    def when(self, event: simpy.Event, action: Callable[[], None]) -> None:
        """Call ``action`` when an event happens."""

        def call(_: simpy.Event) -> None:
            action()

        event.callbacks.append(call)  # pyright: ignore[reportUnknownMemberType] - SimPy leaves the type of callbacks open

    def run(self, until: simpy.Event | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - no moment, only jobs
        """Let time pass until a job has ended, the world is halted, or nothing is left to happen.

        Raises
        ------
        DeadlockError
            When nothing is left to happen and the job has not ended.
        ClustersimError
            When a job raises it.
        """
        if until is not None:
            self.when(until, self.halt)
        queue, step = self._queue, self.step
        try:
            while queue and not self._is_halted:
                before = self.now
                for _ in range(MOST_AT_ONCE):
                    step()
                    if self._is_halted or not queue:
                        break
                else:
                    if self.now == before:
                        raise DeadlockError(f"a job never ends: {MOST_AT_ONCE:,} events at one time, {before:g}")
        except ClustersimError as error:
            # SimPy raises a copy of what a process raised, without what it carries.
            raise (error.__cause__ if isinstance(error.__cause__, ClustersimError) else error) from None
        if until is not None and not (until.processed or self._is_halted):
            raise DeadlockError("nothing is left to happen, and a job still waits")


class Signal(simpy.Event):
    """An event that comes before all others of its time, so that who waited for it goes on at once."""

    def fire(self) -> None:
        """Let all that wait for the event go on."""
        self._ok, self._value = True, None
        self.env.schedule(self, URGENT)


class _Passed(simpy.Event):
    _ok = True
    _value = None

    def __init__(self, world: World, delay: SimTime, priority: EventPriority) -> None:
        self.env, self.callbacks = world, []
        world.schedule(self, priority, delay)

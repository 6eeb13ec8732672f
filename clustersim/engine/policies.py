"""When a rank class may begin its next step, and what becomes of the gradient of the one that it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from clustersim.engine.world import Process, Signal
from clustersim.program.tasks import Collective


class PolicyRun(Protocol):
    """Interface of a run to a policy: its state and its actions."""

    @property
    def classes(self) -> Sequence[int]:
        """Rank classes that have tasks, ascending."""
        ...

    @property
    def n_ranks(self) -> Sequence[int]:
        """Ranks of each rank class, by its index."""
        ...

    @property
    def n_steps(self) -> int:
        """Number of requested steps."""
        ...

    @property
    def completed(self) -> Sequence[int]:
        """Steps that each rank class has ended, by its index."""
        ...

    @property
    def fewest(self) -> int:
        """Steps that the slowest class has ended."""
        ...

    @property
    def now_s(self) -> float:
        """Simulated time."""
        ...

    def signal(self) -> Signal:
        """Return an event to be fired later."""
        ...

    def step(self, rank_class: int) -> Process:
        """Begin the next step of a class, which reads the parameters now, and wait for its end."""
        ...

    def apply(self, rank_class: int, worker: int = 0) -> None:
        """Count the gradient of the step that a class, or one of its workers, has ended as one that goes into the model."""
        ...

    def read(self, rank_class: int, worker: int, lead: int) -> None:
        """Let one of the workers of a class read the parameters now for the next step, which the class begins at this time."""
        ...

    def drop(self, rank_class: int) -> None:
        """Count the gradient of the step that a class has ended as one that came too late."""
        ...

    def update(self) -> None:
        """Count an update of the parameters: who reads from now on reads a newer version."""
        ...

    def close_step(self) -> None:
        """Count a step of all as ended now."""
        ...

    def waited(self, rank_class: int, step: int, seconds: float) -> None:
        """Charge a class with time that all waited for it on average."""
        ...

    def perform(self, operations: Sequence[Collective]) -> Signal:
        """Start operations concurrently, and return an event that fires at the end of the last; there must be one."""
        ...

    def end(self) -> None:
        """End the run; operations in progress stop."""
        ...


class Governor(Protocol):
    """A policy at work in one run."""

    def worker(self, rank_class: int) -> Process:
        """Make the steps of a rank class, for as long as the policy lets it."""
        ...


class PacePolicy(Protocol):
    """Synchronisation of rank classes beyond that by the tasks of the program."""

    @property
    def operations(self) -> Sequence[Collective]:
        """Collectives that the policy itself puts on the network."""
        ...

    def governor(self, run: PolicyRun) -> Governor:
        """Return the policy at work in a run."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Synchronous:
    """Each class begins a step after its previous one; only tasks on lanes of several classes synchronise them.

    Ends when every class has made all steps. One step of all classes is one update, with the gradients of all, and none of them is old.
    """

    @property
    def operations(self) -> Sequence[Collective]:
        """Nothing."""
        return ()

    def governor(self, run: PolicyRun) -> Governor:
        """Return the policy at work in a run."""
        return _Together(run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asynchronous:
    """Each class makes steps at its own pace, and each gradient is applied alone at the end of its step.

    Ends when as many steps have been made as were asked for of every worker on average, or a few more that end at the same time.
    """

    ranks_per_worker: int | None = None
    """Ranks of a worker, where a class may stand for several that behave alike; None where each class is one."""

    @property
    def operations(self) -> Sequence[Collective]:
        """Nothing."""
        return ()

    def governor(self, run: PolicyRun) -> Governor:
        """Return the policy at work in a run."""
        return _Bounded(run, staleness=None, ranks_per_worker=self.ranks_per_worker)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleSynchronous:
    """Like ``Asynchronous``, but no class begins a step more than ``staleness`` steps ahead of the slowest.

    With 0 all wait for all at the end of every step (bulk-synchronous).

    References
    ----------
    .. [1] Q. Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS 2013.
    """

    staleness: int
    ranks_per_worker: int | None = None
    """As of ``Asynchronous``."""

    @property
    def operations(self) -> Sequence[Collective]:
        """Nothing."""
        return ()

    def governor(self, run: PolicyRun) -> Governor:
        """Return the policy at work in a run."""
        assert self.staleness >= 0
        return _Bounded(run, staleness=self.staleness, ranks_per_worker=self.ranks_per_worker)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupWorkers:
    """Rounds: an update takes the first ``n_needed`` gradients of its round and drops those that come later.

    A class whose gradient was taken waits for the update and begins in the next round. One that comes too late ends its step all the
    same, and begins again in the round that is open then. Ends after as many updates as steps were asked for.

    References
    ----------
    .. [1] J. Chen et al., "Revisiting Distributed Synchronous SGD", 2016, section 3.1.
    """

    n_needed: int
    update: Sequence[Collective] = ()
    """Concurrent server operations between a complete round and the next: each of other servers."""

    @property
    def operations(self) -> Sequence[Collective]:
        """The update."""
        return self.update

    def governor(self, run: PolicyRun) -> Governor:
        """Return the policy at work in a run."""
        assert 1 <= self.n_needed <= len(run.classes)
        return _BackupRounds(run, n_needed=self.n_needed, operations=self.update)


@dataclass(slots=True)
class _Together:
    run: PolicyRun

    def worker(self, rank_class: int) -> Process:
        run = self.run
        for _ in range(run.n_steps):
            yield from run.step(rank_class)
            run.apply(rank_class)
            if run.completed[rank_class] == run.fewest:
                run.close_step()


@dataclass(slots=True)
class _Bounded:
    run: PolicyRun
    staleness: int | None = field(kw_only=True)
    ranks_per_worker: int | None = field(kw_only=True)
    _n_applied: int = 0
    _gated: dict[int, tuple[float, Signal]] = field(default_factory=dict[int, tuple[float, Signal]])
    """Classes that have ended a step, since when, and what lets them go on."""
    _workers: dict[int, int] = field(init=False)
    """Workers of each class: their gradients arrive at the same time, and are applied one after the other."""
    _n_workers: int = field(init=False)

    def __post_init__(self) -> None:
        each = self.ranks_per_worker
        self._workers = {rank_class: self.run.n_ranks[rank_class] // each if each else 1 for rank_class in self.run.classes}
        self._n_workers = sum(self._workers.values())

    def worker(self, rank_class: int) -> Process:
        run, n_workers = self.run, self._n_workers
        while True:
            yield from run.step(rank_class)
            # Before the last of them has ended, the others are as far ahead of it as they would be of any that is behind.
            lead = run.completed[rank_class] - min(run.fewest, run.completed[rank_class] - 1)
            for worker in range(self._workers[rank_class]):
                run.apply(rank_class, worker)
                run.update()
                self._n_applied += 1
                if self._n_applied % n_workers == 0 and self._n_applied <= run.n_steps * n_workers:
                    run.close_step()
                if self._n_applied == run.n_steps * n_workers:
                    run.end()
                if worker + 1 < self._workers[rank_class] and (self.staleness is None or lead <= self.staleness):
                    run.read(rank_class, worker, lead)
            gate = run.signal()
            self._gated[rank_class] = run.now_s, gate
            self._let_on(rank_class)
            yield gate

    def _let_on(self, opener: int) -> None:
        """Let all go on that are not too far ahead, after a class has ended a step."""
        run, n_workers = self.run, self._n_workers
        step = (self._n_applied - 1) // n_workers
        free = [each for each in self._gated if self.staleness is None or run.completed[each] - run.fewest <= self.staleness]
        for each in sorted(free):
            since_s, gate = self._gated.pop(each)
            run.waited(opener, step, self._workers[each] * (run.now_s - since_s) / n_workers)
            gate.fire()


@dataclass(slots=True)
class _BackupRounds:
    run: PolicyRun
    n_needed: int = field(kw_only=True)
    operations: Sequence[Collective] = field(kw_only=True)
    _round: int = 0
    _is_open: bool = True
    _arrived_s: dict[int, float] = field(default_factory=dict[int, float])
    """Classes whose gradient the present round has, and since when."""
    _next: Signal = field(init=False)
    """Beginning of the next round."""

    def __post_init__(self) -> None:
        self._next = self.run.signal()

    def worker(self, rank_class: int) -> Process:
        run = self.run
        while True:
            begun_in = self._round
            yield from run.step(rank_class)
            # The parameters are being written while no round is open: who reads them then has those of a round that is over.
            waits = not self._is_open
            if self._is_open and begun_in == self._round:
                run.apply(rank_class)
                self._arrived_s[rank_class] = run.now_s
                waits = len(self._arrived_s) < self.n_needed
                if not waits:
                    yield from self._complete(rank_class)
            else:
                run.drop(rank_class)
            if waits:
                yield self._next

    def _complete(self, last: int) -> Process:
        """Update the parameters, and begin the next round."""
        run = self.run
        self._is_open = False
        for since_s in self._arrived_s.values():
            run.waited(last, self._round, (run.now_s - since_s) / len(run.classes))
        self._arrived_s.clear()
        if self.operations:
            yield run.perform(self.operations)
        run.update()
        run.close_step()
        self._round += 1
        if self._round == run.n_steps:
            run.end()
        self._is_open = True
        self._next.fire()
        self._next = run.signal()

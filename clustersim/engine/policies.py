"""When a rank class may begin its next step, and what becomes of the gradient of the one that it ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from clustersim.program.tasks import Collective


class Run(Protocol):
    """What a policy sees of a run, and what it can do."""

    @property
    def classes(self) -> Sequence[int]:
        """Rank classes that have tasks, ascending."""
        ...

    @property
    def n_steps(self) -> int:
        """Steps that were asked for."""
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

    def begin(self, classes: Sequence[int]) -> None:
        """Let classes begin their next step: they read the parameters now."""
        ...

    def apply(self, rank_class: int) -> None:
        """Count the gradient of the step that a class has ended as one that goes into the model."""
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

    def perform(self, operations: Sequence[Collective], then: Callable[[], None]) -> None:
        """Put operations on the network, all at once, and call ``then`` when the last is through; there must be one."""
        ...

    def end(self) -> None:
        """End the run: what is still in progress is left as it is."""
        ...


class Governor(Protocol):
    """A policy at work in one run."""

    def begin(self) -> None:
        """Let the first classes begin."""
        ...

    def ended(self, rank_class: int) -> None:
        """Take notice that a class has ended a step."""
        ...


class Policy(Protocol):
    """How rank classes keep together beyond what the tasks of the program make them."""

    @property
    def operations(self) -> Sequence[Collective]:
        """What the policy itself puts on the network."""
        ...

    def governor(self, run: Run) -> Governor:
        """Return the policy at work in a run."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Synchronous:
    """Each class begins a step when it has ended the one before; nothing but tasks on lanes of several classes keeps them together.

    Ends when every class has made all steps. One step of all classes is one update, with the gradients of all, and none of them is old.
    """

    @property
    def operations(self) -> Sequence[Collective]:
        """Nothing."""
        return ()

    def governor(self, run: Run) -> Governor:
        """Return the policy at work in a run."""
        return _Together(run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asynchronous:
    """Each class makes steps at its own pace, and every gradient is applied by itself as soon as its step has ended.

    Ends when as many steps have been made as were asked for of every class on average.
    """

    @property
    def operations(self) -> Sequence[Collective]:
        """Nothing."""
        return ()

    def governor(self, run: Run) -> Governor:
        """Return the policy at work in a run."""
        return _Bounded(run, staleness=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleSynchronous:
    """Like ``Asynchronous``, but nobody begins a step who is more than ``staleness`` steps ahead of the slowest.

    With 0 all wait for all at the end of every step (bulk-synchronous).

    References
    ----------
    .. [1] Q. Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS 2013.
    """

    staleness: int

    @property
    def operations(self) -> Sequence[Collective]:
        """Nothing."""
        return ()

    def governor(self, run: Run) -> Governor:
        """Return the policy at work in a run."""
        assert self.staleness >= 0
        return _Bounded(run, staleness=self.staleness)


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
    """What servers do when a round is complete and before the next begins, all at once: each is that of other servers."""

    @property
    def operations(self) -> Sequence[Collective]:
        """The update."""
        return self.update

    def governor(self, run: Run) -> Governor:
        """Return the policy at work in a run."""
        assert 1 <= self.n_needed <= len(run.classes)
        return _Rounds(run, n_needed=self.n_needed, operations=self.update)


@dataclass(slots=True)
class _Together:
    run: Run
    _missing: dict[int, int] = field(default_factory=dict[int, int])
    """For each step that somebody has ended, how many have not."""

    def begin(self) -> None:
        self.run.begin(self.run.classes)

    def ended(self, rank_class: int) -> None:
        run = self.run
        run.apply(rank_class)
        step = run.completed[rank_class] - 1
        missing = self._missing.pop(step, len(run.classes)) - 1
        if missing:
            self._missing[step] = missing
        else:
            run.close_step()
        if step + 1 < run.n_steps:
            run.begin((rank_class,))


@dataclass(slots=True)
class _Bounded:
    run: Run
    staleness: int | None = field(kw_only=True)
    _n_applied: int = 0
    _fewest: int = 0
    _gated_s: dict[int, float] = field(default_factory=dict[int, float])
    """Classes that may not go on, and since when."""

    def begin(self) -> None:
        self.run.begin(self.run.classes)

    def ended(self, rank_class: int) -> None:
        run = self.run
        run.apply(rank_class)
        run.update()
        self._n_applied += 1
        if self._n_applied % len(run.classes) == 0:
            run.close_step()
        self._gated_s[rank_class] = run.now_s
        # Those who were held back before can only go on if the slowest has, which then is the class that has just ended a step.
        self._let_on(sorted(self._gated_s) if run.fewest > self._fewest else [rank_class], rank_class)
        self._fewest = run.fewest
        if self._n_applied == run.n_steps * len(run.classes):
            run.end()

    def _let_on(self, candidates: Sequence[int], opener: int) -> None:
        run = self.run
        free = [each for each in candidates if self.staleness is None or run.completed[each] - run.fewest <= self.staleness]
        step = (self._n_applied - 1) // len(run.classes)
        for each in free:
            run.waited(opener, step, (run.now_s - self._gated_s.pop(each)) / len(run.classes))
        run.begin(free)


@dataclass(slots=True)
class _Rounds:
    run: Run
    n_needed: int = field(kw_only=True)
    operations: Sequence[Collective] = field(kw_only=True)
    _round: int = 0
    _open: bool = True
    _arrived_s: dict[int, float] = field(default_factory=dict[int, float])
    """Classes whose gradient the present round has, and since when."""
    _waiting: list[int] = field(default_factory=list[int])
    """Classes that begin with the next round."""
    _began: dict[int, int] = field(default_factory=dict[int, int])
    """In which round each class began its present step."""

    def begin(self) -> None:
        self._enter(self.run.classes)

    def ended(self, rank_class: int) -> None:
        run = self.run
        if self._open and self._began[rank_class] == self._round:
            run.apply(rank_class)
            self._waiting.append(rank_class)
            self._arrived_s[rank_class] = run.now_s
            if len(self._arrived_s) == self.n_needed:
                self._complete(rank_class)
            return
        run.drop(rank_class)
        if self._open:
            self._enter((rank_class,))
        else:
            # The parameters are being written: who reads them now has those of a round that is over.
            self._waiting.append(rank_class)

    def _enter(self, classes: Sequence[int]) -> None:
        self._began.update(dict.fromkeys(classes, self._round))
        self.run.begin(classes)

    def _complete(self, last: int) -> None:
        run = self.run
        self._open = False
        for since_s in self._arrived_s.values():
            run.waited(last, self._round, (run.now_s - since_s) / len(run.classes))
        self._arrived_s.clear()
        if self.operations:
            run.perform(self.operations, self._next)
        else:
            self._next()

    def _next(self) -> None:
        run = self.run
        run.update()
        run.close_step()
        self._round += 1
        if self._round == run.n_steps:
            run.end()
            return
        self._open = True
        waiting, self._waiting = sorted(self._waiting), []
        self._enter(waiting)

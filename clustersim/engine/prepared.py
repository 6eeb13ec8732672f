"""A Program prepared for replay, with the duration of every task without contention, and the state of one step of it."""

from __future__ import annotations

from array import array
from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass, field

from clustersim.engine.alone import Alone, Carried, alone
from clustersim.engine.pricing import Price, Pricing, price_of
from clustersim.engine.program_graph import Graph, TaskTemplates
from clustersim.engine.traffic import Traffic, moved_by
from clustersim.program.program import Program
from clustersim.program.tasks import Action, Compute

UNKNOWN_S = -1.0
"""Duration of a task that shares links with others, and end of a task that has not ended."""


@dataclass(slots=True, kw_only=True)
class Prepared:
    """The graph of a program, and what each of its tasks takes on links that nothing else uses."""

    traffic: Traffic
    prices: Sequence[Pricing]
    """Costs of passes, by rank class."""
    graph: Graph
    n_after: Sequence[int] = field(init=False)
    """Number of tasks that each task waits for."""
    sources: list[int] = field(init=False)
    """Tasks that wait for no other."""
    price: list[Price | None] = field(init=False)
    """Cost of each task template that is a pass."""
    carried: list[Carried] = field(init=False)
    """Traffic of each task template."""
    alone_s: list[float] = field(init=False)
    """Duration of each task template without contention, in seconds."""

    @property
    def program(self) -> Program:
        """The program that is replayed."""
        return self.graph.program

    @property
    def templates(self) -> TaskTemplates:
        """Templates of its tasks."""
        return self.graph.templates

    def __post_init__(self) -> None:
        """Price each task template once."""
        self.n_after = [len(task.after) for task in self.program.tasks]
        self.sources = [index for index, count in enumerate(self.n_after) if count == 0]
        self.price, self.carried, self.alone_s = [], [], []
        known: dict[Action, Alone] = {}
        for task in self.templates.tasks:
            price = None
            if isinstance(task.action, Compute):
                price = price_of(self.prices, task)
                seconds, carried = price.duration_s, price.carried
            else:
                if task.action not in known:
                    (moved,) = moved_by(task.action)
                    known[task.action] = alone(self.traffic.phases(moved), self.traffic.network)
                seconds, carried = known[task.action].duration_s, known[task.action].carried
            self.price.append(price)
            self.carried.append(carried)
            self.alone_s.append(seconds)

    def at(self, factors: Sequence[float]) -> tuple[list[Price | None], list[float]]:
        """Return cost and duration of each task template where the computation of each rank class takes a factor of its usual time."""
        prices = [
            None if price is None else price.at(pace_of(task.action, factors[task.lanes[0].rank_class]))
            for task, price in zip(self.templates.tasks, self.price, strict=True)
        ]
        return prices, [alone_s if price is None else price.duration_s for alone_s, price in zip(self.alone_s, prices, strict=True)]

    def durations_s(self, alone_s: Sequence[float], contended: frozenset[int]) -> list[float]:
        """Return the duration of every task from that of its template; ``UNKNOWN_S`` for contended tasks."""
        durations_s = list(map(alone_s.__getitem__, self.templates.of_task))
        for index in contended:
            durations_s[index] = UNKNOWN_S
        return durations_s


@dataclass(slots=True, kw_only=True, eq=False)
class ReplayStep:
    """One step of a program, in progress or ended."""

    number: int
    waiting: list[int]
    """Number of tasks and rank classes that each task still waits for."""
    start_s: MutableSequence[float]
    """Start of each task, in seconds; a lower bound while the task waits for others."""
    ended_s: MutableSequence[float]
    """End of each task, in seconds; ``UNKNOWN_S`` while unknown."""
    takes_s: Sequence[float]
    """Duration of each task, in seconds; ``UNKNOWN_S`` of contended tasks."""
    price: Sequence[Price | None]
    """Cost of each task template that is a pass."""
    factors: Sequence[float] | None
    """Factor on the computation of each rank class; None where all have their usual pace."""
    n_left: int
    """Number of tasks with unknown end."""
    left: list[int]
    """The same by rank class, where classes begin the step one by one; otherwise empty."""
    last: list[int]
    """Task of each rank class that ends last so far."""
    n_in_step: int
    """Rank classes that have not ended the step."""
    running: set[int] = field(default_factory=set[int])
    """Contended tasks in progress."""
    met: dict[int, Price] = field(default_factory=dict[int, Price])
    """Cost of the passes that were replayed item by item."""

    def pack(self) -> None:
        """Keep the times of a step that has ended in less memory."""
        self.start_s, self.ended_s = array("d", self.start_s), array("d", self.ended_s)
        self.waiting, self.takes_s = [], ()


def pace_of(action: object, factor: float) -> float:
    """Return the factor on the duration of an action; the data loader runs on the host and keeps its pace."""
    return 1.0 if isinstance(action, Compute) and action.phase == "load" else factor

"""The Program: tasks and holds without durations, the waist of the architecture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from clustersim.program.tasks import Action, Lane, Task
from clustersim.trace.timeline import RankClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Tasks of all rank classes, in an order in which they could have been written down."""

    rank_classes: tuple[RankClass, ...]
    tasks: tuple[Task, ...]
    actions: tuple[Action, ...] = field(init=False, repr=False, compare=False)
    """Actions of all tasks, each once, in the order of the tasks."""

    def __post_init__(self) -> None:
        """Find the actions once."""
        object.__setattr__(self, "actions", tuple(dict.fromkeys(task.action for task in self.tasks)))


Key = tuple[str | int, ...]
"""Name by which tasks refer to each other before they have an index, such as ``("F", stage, micro_batch, chunk)``."""


class _Draft(NamedTuple):
    action: Action
    lanes: tuple[Lane, ...]
    after: tuple[Key, ...]
    micro_batch: int
    chunk: int


@dataclass(slots=True)
class ProgramBuilder:
    """Collects tasks; keeps each lane in order. A task may wait for a task added later.

    Examples
    --------
    >>> from clustersim.program.tasks import Compute
    >>> builder, lane = ProgramBuilder(), Lane(rank_class=0, stream="compute")
    >>> builder.add(("F",), Compute(name="F", phase="forward", blocks=()), [lane])
    >>> builder.add(("B",), Compute(name="B", phase="backward", blocks=()), [lane])
    >>> builder.build(()).tasks[1].after
    (0,)
    """

    _drafts: dict[Key, _Draft] = field(default_factory=dict[Key, _Draft])
    _last: dict[Lane, Key] = field(default_factory=dict[Lane, Key])

    def add(self, key: Key, action: Action, lanes: Iterable[Lane], *, after: Iterable[Key] = (), label: tuple[int, int] = (-1, -1)) -> None:
        """Append a task to the end of its lanes.

        Parameters
        ----------
        key
            Its name, unique in the program.
        action
            What is done.
        lanes
            Every lane that it occupies from start to end.
        after
            Names of further tasks that must have ended before it starts.
        label
            Micro-batch and chunk for the timeline; -1 where they mean nothing.
        """
        if key in self._drafts:
            raise ValueError(f"two tasks are named {key}")
        lanes, last = tuple(lanes), self._last
        before = dict.fromkeys([*after, *[last[lane] for lane in lanes if lane in last]])
        self._drafts[key] = _Draft(action, lanes, tuple(before), *label)
        for lane in lanes:
            last[lane] = key

    def last(self, lane: Lane) -> tuple[Key, ...]:
        """Return the name of the last task on a lane, as a tuple that is empty while the lane is."""
        return (self._last[lane],) if lane in self._last else ()

    def build(self, rank_classes: Iterable[RankClass]) -> Program:
        """Return the finished program.

        Raises
        ------
        ValueError
            When a task waits for one that was never added.
        """
        index = {key: position for position, key in enumerate(self._drafts)}
        missing = [(key, name) for key, draft in self._drafts.items() for name in draft.after if name not in index]
        if missing:
            raise ValueError(f"{missing[0][0]} waits for {missing[0][1]}, which is not in the program")
        tasks = [
            Task(action, lanes, tuple([index[name] for name in after]), micro_batch, chunk)
            for action, lanes, after, micro_batch, chunk in self._drafts.values()
        ]
        return Program(rank_classes=tuple(rank_classes), tasks=tuple(tasks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """A load on some links, on each of them separately, constant or in bursts.

    It shares the links like any other traffic: it never takes more than its rate, and less where a link is full.
    """

    name: str
    link_ids: tuple[int, ...]
    """Links of the cluster, each of which carries the rate; one that stands here twice carries it twice."""
    rate_bytes_per_s: float
    n_flows: int = 1
    """Number of flows of the load: on a full link it gets the share of this number of flows."""
    start_s: float = 0.0
    """Start of the load or its first burst, in seconds."""
    period_s: float = 0.0
    """From the start of one burst to the next; 0 for a load that never stops."""
    burst_s: float = 0.0
    """Duration of a burst, in seconds; less than the period."""

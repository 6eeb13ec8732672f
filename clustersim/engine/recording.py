"""Write down what tasks did, on every lane that they occupied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from clustersim.engine.pricing import Price, exposed_pairs
from clustersim.program.tasks import Collective, Communicate, Compute, Task
from clustersim.trace.columns import SpanColumns, Spans
from clustersim.trace.timeline import Span


@dataclass(slots=True, kw_only=True)
class Record:
    """Rows of replayed tasks; common parts of several rows are computed once."""

    tasks: Sequence[Task]
    task: list[int] = field(default_factory=list[int])
    start_s: list[float] = field(default_factory=list[float])
    end_s: list[float] = field(default_factory=list[float])
    step: list[int] = field(default_factory=list[int])
    shown: list[int] = field(default_factory=list[int])
    """Pattern of each row, as an index into ``_patterns``."""
    _patterns: list[tuple[Span, ...]] = field(default_factory=list[tuple[Span, ...]])
    _known: dict[tuple[int, int, bool], int] = field(default_factory=dict[tuple[int, int, bool], int])
    """By identity of the price, template of the task, and whether it is whole."""
    _kept: list[Price] = field(default_factory=list[Price])

    def note(  # noqa: PLR0913 - a row
        self, index: int, template: int, price: Price | None, *, start_s: float, end_s: float, step: int = 0, is_whole: bool = True
    ) -> None:
        """Write down a task.

        Parameters
        ----------
        template
            Equal for tasks that do the same on the same lanes.
        price
            What was done in that time, of a pass; None for communication.
        is_whole
            False where the task had not ended when the replay stopped; bytes of communication do not count then.
        """
        self.task.append(index)
        self.start_s.append(start_s)
        self.end_s.append(end_s)
        self.step.append(step)
        self.shown.append(self._shown(index, template, price, is_whole=is_whole))

    def note_all(
        self, templates: Sequence[int], prices: Sequence[Price | None], start_s: Sequence[float], end_s: Sequence[float], step: int = 0
    ) -> None:
        """Write down all tasks of a step, in their order."""
        self.task.extend(range(len(templates)))
        self.start_s.extend(start_s)
        self.end_s.extend(end_s)
        self.step.extend([step] * len(templates))
        self.shown.extend(
            self._shown(index, template, price) for index, (template, price) in enumerate(zip(templates, prices, strict=True))
        )

    def _shown(self, index: int, template: int, price: Price | None, *, is_whole: bool = True) -> int:
        key = id(price), template, is_whole
        shown = self._known.get(key)
        if shown is None:
            shown = self._known[key] = len(self._patterns)
            self._patterns.append(patterns_of(self.tasks[index], price, is_whole=is_whole))
            if price is not None:
                self._kept.append(price)
        return shown

    def spans(self) -> Spans:
        """Return the rows, one for each lane of a task, in the order of the tasks."""
        tasks, shown = np.array(self.task, dtype=np.int64), np.array(self.shown, dtype=np.int64)
        order = np.lexsort((tasks, np.array(self.step, dtype=np.int64)))
        n_lanes = np.array([len(each) for each in self._patterns], dtype=np.int64)
        first = np.concatenate(([0], np.cumsum(n_lanes)))
        rows = np.repeat(order, n_lanes[shown[order]])
        counts = n_lanes[shown[order]]
        lane = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        labels = np.array([task.micro_batch for task in self.tasks], dtype=np.int64)
        return Spans(
            SpanColumns(
                patterns=[span for each in self._patterns for span in each],
                pattern=first[shown[rows]] + lane,
                start_s=np.array(self.start_s, dtype=np.float64)[rows],
                end_s=np.array(self.end_s, dtype=np.float64)[rows],
                micro_batch=labels[tasks[rows]],
                step=np.array(self.step, dtype=np.int64)[rows],
            )
        )


def patterns_of(task: Task, price: Price | None, *, is_whole: bool = True) -> tuple[Span, ...]:
    """Return one span for each lane of a task, without its times."""
    action = task.action
    if isinstance(action, Compute):
        assert price is not None
        exposed_s, hidden_s = exposed_pairs(price.exposed_s), exposed_pairs(price.hidden_s)
        return tuple(
            Span(
                rank_class=lane.rank_class,
                stream=lane.stream,
                kind=action.phase,
                name=action.name,
                start_s=0.0,
                end_s=0.0,
                chunk=task.chunk,
                bytes=price.bytes,
                flops=price.flops,
                compute_s=price.compute_s,
                recompute_s=price.recompute_s,
                host_s=price.host_s if action.phase != "host" else 0.0,
                waiting_s=sum(price.waiting_s.values()),
                exposed_s=exposed_s,
                hidden_s=hidden_s,
                detail=price.detail,
            )
            for lane in task.lanes
        )
    moved = action.collective if isinstance(action, Communicate) else action
    return tuple(
        Span(
            rank_class=lane.rank_class,
            stream=lane.stream,
            kind="communication",
            name=action.name,
            start_s=0.0,
            end_s=0.0,
            dimension=moved.group.dimension if isinstance(moved, Collective) else moved.dimension,
            chunk=task.chunk,
            bytes=moved.bytes if is_whole else 0.0,
        )
        for lane in task.lanes
    )

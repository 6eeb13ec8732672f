"""Write down what a task did, on every lane that it occupied."""

from __future__ import annotations

from clustersim.engine.pricing import Price, exposed_pairs
from clustersim.program.tasks import Collective, Communicate, Compute, Task
from clustersim.trace.timeline import Span


def spans_of(task: Task, price: Price | None, *, step: int, start_s: float, end_s: float, is_whole: bool = True) -> list[Span]:
    """Return one span for each lane of a task.

    Parameters
    ----------
    price
        What was done in that time, of a pass; None for communication.
    is_whole
        False where the task had not ended when the replay stopped; bytes of communication do not count then.
    """
    action = task.action
    if isinstance(action, Compute):
        assert price is not None
        exposed_s, hidden_s = exposed_pairs(price.exposed_s), exposed_pairs(price.hidden_s)
        return [
            Span(
                rank_class=lane.rank_class,
                stream=lane.stream,
                kind=action.phase,
                name=action.name,
                start_s=start_s,
                end_s=end_s,
                micro_batch=task.micro_batch,
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
                step=step,
            )
            for lane in task.lanes
        ]
    moved = action.collective if isinstance(action, Communicate) else action
    return [
        Span(
            rank_class=lane.rank_class,
            stream=lane.stream,
            kind="communication",
            name=action.name,
            start_s=start_s,
            end_s=end_s,
            dimension=moved.group.dimension if isinstance(moved, Collective) else moved.dimension,
            micro_batch=task.micro_batch,
            chunk=task.chunk,
            bytes=moved.bytes if is_whole else 0.0,
            step=step,
        )
        for lane in task.lanes
    ]

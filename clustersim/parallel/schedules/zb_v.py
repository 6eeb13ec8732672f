"""ZB-V: two chunks on each stage, down and up again, with no bubble and the memory of 1F1B."""

from __future__ import annotations

from clustersim.parallel.schedules.order import Pass, StageOrder, forward, input_gradient, weight_gradient


def zb_v(n_stages: int, n_micro_batches: int, n_chunks: int) -> tuple[StageOrder, ...]:
    """Return the order of each stage; no bubble where the three passes take equal time, with at most ``2 p`` half stages stored.

    The first stage also has the last chunk, so that the first input gradient is there as soon as a micro-batch has gone down and up;
    until then a stage goes forward through its first chunk as often as it can. Weight gradients follow their input gradients at once,
    but at the end, where they fill the waits. With fewer than ``2 p - 1`` micro-batches those that are missing leave their places empty.

    References
    ----------
    .. [1] P. Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS 2024, section 4.2 (V-ZB).
    """
    del n_chunks
    return tuple(_stage(stage, n_stages, n_micro_batches) for stage in range(n_stages))


def _stage(stage: int, n_stages: int, n_micro_batches: int) -> StageOrder:
    line, below = _ChunkLine(max(n_micro_batches, 2 * n_stages - 1)), n_stages - stage
    line.add("F0", 2 * below - 1)
    line.add("F1 F0", stage)
    line.add("F1 I1 W1", below)
    while line.done("F0") < line.n_micro_batches or line.done("F1") < line.done("F0"):
        line.add("F0 I0 W0 F1 I1 W1")
    line.add("I0 I1", stage)
    line.add("I0 W0", below)
    line.add("W1 W0", line.n_micro_batches)
    return tuple(step for step in line.order if step.micro_batch < n_micro_batches)


class _ChunkLine:
    """Passes of a stage, each kind of each chunk through the micro-batches in order."""

    def __init__(self, n_micro_batches: int) -> None:
        self.n_micro_batches = n_micro_batches
        self.order: list[Pass] = []
        self._done: dict[str, int] = {}

    def done(self, name: str) -> int:
        """Return the number of micro-batches that a kind of pass has processed."""
        return self._done.get(name, 0)

    def add(self, names: str, times: int = 1) -> None:
        """Append some passes, each for its next micro-batch, a number of times."""
        make = {"F": forward, "I": input_gradient, "W": weight_gradient}
        for name in names.split() * times:
            if self.done(name) < self.n_micro_batches:
                self.order.append(make[name[0]](self.done(name), int(name[1])))
                self._done[name] = self.done(name) + 1

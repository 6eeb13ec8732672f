"""Context parallelism: what ranks exchange around and beside attention when each has a part of every sequence."""

from __future__ import annotations

from dataclasses import dataclass

from clustersim.hardware.communication import CollectiveOp
from clustersim.program.tasks import Collective, Group, Item, Overlapped, Phase, Work
from clustersim.strategy.layers import ForwardPhase
from clustersim.strategy.plan import Plan
from clustersim.strategy.shard import local_shape, numerics
from clustersim.workload.context import exchanged_bytes, kept_keys_bytes
from clustersim.workload.operators import Kernel, Operator
from clustersim.workload.shapes import ContextShare


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextParallel:
    """Attention of ranks that each have a part of every sequence.

    In ring attention keys and values go around while the attention on those that are here is computed: ``cp - 1`` hops forward; backward
    as many again, and gradients of keys and values ``cp`` hops, the last of which brings them home and is waited for. All-gather puts
    keys and values together before attention, forward and again backward, where the gradients are reduced and scattered after it. Ulysses
    exchanges parts of sequences for heads before attention and back behind it, in both directions.
    """

    plan: Plan
    group: Group
    share: ContextShare

    def forward(self, core: Operator, phase: ForwardPhase = "forward") -> tuple[Item, ...]:
        """Return attention forward with its communication."""
        match self.share.kind:
            case "ring":
                return self._ring(core.kernels(phase), [1] * (self.share.degree - 1), phase)
            case "all_gather":
                return (self._move("all_gather", self._gathered_bytes()), _work(core.kernels(phase), phase))
            case "ulysses":
                before, behind = self._exchanged_bytes()
                return (self._move("all_to_all", before), _work(core.kernels(phase), phase), self._move("all_to_all", behind))

    def backward(self, core: Operator, phase: Phase = "backward") -> tuple[Item, ...]:
        """Return attention backward with its communication."""
        match self.share.kind:
            case "ring":
                degree = self.share.degree
                hops = [1, *[2] * (degree - 2), 1]
                return (*self._ring(core.kernels("input_gradient"), hops, phase), self._move("send_recv", self._keys_bytes()))
            case "all_gather":
                return (
                    self._move("all_gather", self._gathered_bytes()),
                    _work(core.kernels("input_gradient"), phase),
                    self._move("reduce_scatter", self._gathered_bytes()),
                )
            case "ulysses":
                before, behind = self._exchanged_bytes()
                return (self._move("all_to_all", behind), _work(core.kernels("input_gradient"), phase), self._move("all_to_all", before))

    def _ring(self, kernels: tuple[Kernel, ...], hops: list[int], phase: Phase) -> tuple[Item, ...]:
        """Return the steps of a ring, the first ones with so many times the keys and values on their way beside them."""
        steps, merge = kernels[: self.share.degree], kernels[self.share.degree :]
        moves = {times: self._move("send_recv", times * self._keys_bytes()) for times in set(hops)}
        beside = [Overlapped(collective=moves[times], work=_work((step,), phase)) for step, times in zip(steps, hops, strict=False)]
        return (*beside, _work((*steps[len(hops) :], *merge), phase))

    def _move(self, op: CollectiveOp, size_bytes: float) -> Collective:
        return Collective(op=op, group=self.group, bytes=size_bytes)

    def _keys_bytes(self) -> float:
        return kept_keys_bytes(self.plan.model, local_shape(self.plan), numerics(self.plan))

    def _gathered_bytes(self) -> float:
        return self.share.degree * self._keys_bytes()

    def _exchanged_bytes(self) -> tuple[float, float]:
        return exchanged_bytes(self.plan.model, local_shape(self.plan), numerics(self.plan), self.share)


def _work(kernels: tuple[Kernel, ...], phase: Phase) -> Work:
    return Work(name="attention", phase=phase, kernels=kernels)

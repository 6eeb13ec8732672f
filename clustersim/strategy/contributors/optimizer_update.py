"""The update of parameters at the end of a step, on accelerators or on the processors of their hosts."""

from __future__ import annotations

from clustersim.program.program import Key
from clustersim.program.tasks import Compute
from clustersim.strategy.contributors.contributor import Contributor
from clustersim.strategy.gradients import COPY_STREAM, GRADIENT_STREAM
from clustersim.strategy.memory import stage_weights
from clustersim.strategy.offload import offloads
from clustersim.strategy.optimizer import offloaded_update, optimizer_update
from clustersim.strategy.plan import Plan


class OptimizerUpdate(Contributor):
    """Clipping and update of the shard of each rank, which wait for all gradients."""

    @classmethod
    def applies(cls, plan: Plan) -> bool:
        """Return whether every rank updates its own parameters."""
        gradients = plan.strategy.data_parallel
        return gradients.service is None and not gradients.single_process and not offloads(plan)

    def finish(self) -> None:
        """Add the update of all stages."""
        for stage in self.step.division.stages:
            self._update(stage, optimizer_update(self.step.plan, stage_weights(self.step.plan, stage)))

    def _update(self, stage: int, action: Compute) -> tuple[Key, ...]:
        """Add what accelerators do of an update; return the reductions that they wait for."""
        division, builder, reduced = self.step.division, self.step.builder, dict[Key, None]()
        for part, lane in enumerate(division.lanes(stage)):
            own = [key for stream in (GRADIENT_STREAM, COPY_STREAM) for key in builder.last(division.lane(stage, part, stream))]
            builder.add(("optimizer", lane.rank_class), action, [lane], after=own)
            reduced |= dict.fromkeys(own)
        self.step.updated[stage] = tuple((("optimizer", lane.rank_class),) for lane in division.lanes(stage))
        return tuple(reduced)


class OffloadedUpdate(OptimizerUpdate):
    """Update by the processors of the hosts (ZeRO-Offload, ZeRO-Infinity)."""

    @classmethod
    def applies(cls, plan: Plan) -> bool:
        """Return whether optimizer states are offloaded."""
        return offloads(plan)

    def finish(self) -> None:
        """Add the update of all stages."""
        plan, division = self.step.plan, self.step.division
        for stage in division.stages:
            weights = stage_weights(plan, stage)
            reduced = self._update(stage, offloaded_update(plan, weights))
            own = [key for keys in self.step.updated[stage] for key in keys]
            done = self.step.host(stage).add_update(weights, after=[*reduced, *own])
            self.step.updated[stage] = (done,) * division.n_parts

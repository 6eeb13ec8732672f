"""Data loading: the host reads the batch of the next step, which waits for it."""

from __future__ import annotations

from typing import Final

from clustersim.parallel.contributors.contributor import Contributor
from clustersim.program.tasks import Block, Compute, Work
from clustersim.workloads.operators import Recorded

LOADER_STREAM: Final = "loader"


class DataLoading(Contributor):
    """A data loader on the hosts of the ranks that embed the batch."""

    def begin(self) -> None:
        """Add the reading of the next batch, where the data loader can hold a step up."""
        training, strategy, division = self.step.stages[0].training, self.step.strategy, self.step.division
        loader = training.data_loader
        if loader is None:
            return
        duration_s = training.global_batch_size / (loader.samples_per_s / strategy.node_size * strategy.n_ranks)
        work = Work(name="load", phase="load", kernels=(Recorded(duration_s),))
        action = Compute(name="load", phase="load", blocks=(Block(name="load", body=(work,)),))
        for lane in division.lanes(0, LOADER_STREAM):
            self.step.builder.add(("load", lane.rank_class), action, [lane])

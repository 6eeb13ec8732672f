"""Largest absolute values of operands in fp8 (amax), on which ranks agree behind every pass, since scales follow from them.

References
----------
.. [1] NVIDIA, *Transformer Engine*, ``transformer_engine/pytorch/fp8.py``: ``fp8_autocast_exit`` and ``reduce_and_update_fp8_tensors``.
.. [2] NVIDIA, *Megatron-LM*, ``megatron/core/parallel_state.py``: ``get_amax_reduction_group``.
"""

from __future__ import annotations

from dataclasses import dataclass

from clustersim.parallel.contributors.contributor import Contributor
from clustersim.parallel.groups import ParallelGroups
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.sublayers import LayerTechnique
from clustersim.parallel.training_plan import Strategy
from clustersim.program.tasks import Block, Collective, RankGroups


class AmaxReduction(Contributor):
    """Reduction of maxima behind every pass, with delayed scaling."""

    @classmethod
    def inside(cls, local: LocalModel, strategy: Strategy, groups: ParallelGroups) -> LayerTechnique:
        """Return the reduction among the ranks that agree; nothing where each goes by its own maxima."""
        joined = {"stage": groups.stage, "tensor": groups.replica, "none": None}[local.numerics.amax_group]
        if joined is None or joined.size == 1 or strategy.data_parallel.single_process:
            return LayerTechnique()
        return JoinedMaxima(group=joined)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMaxima(LayerTechnique):
    """One all-reduce for the maxima of all layers of a chunk: a few kilobytes, which take their latency and load no link."""

    group: RankGroups

    def closing(self) -> tuple[Block, ...]:
        """Return the all-reduce, for which the next pass waits."""
        return (Block(name="amax", body=(Collective(op="all_reduce", group=self.group, bytes=0.0),)),)

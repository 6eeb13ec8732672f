"""Recomputation of activations before the backward passes that need them."""

from __future__ import annotations

from dataclasses import dataclass

from clustersim.strategy.contributors.contributor import Contributor
from clustersim.strategy.groups import ParallelGroups
from clustersim.strategy.local_model import LocalModel
from clustersim.strategy.plan import Plan
from clustersim.strategy.recomputation import Recomputation, recomputation_of
from clustersim.strategy.sequence import LayerTechnique
from clustersim.strategy.shard import local_model
from clustersim.workload.model import Sublayer
from clustersim.workload.operators import Operator


class ActivationRecomputation(Contributor):
    """Recomputation of some or all operators of a layer."""

    @classmethod
    def applies(cls, plan: Plan) -> bool:
        """Return whether anything is repeated."""
        return plan.strategy.recompute != "none"

    @classmethod
    def inside(cls, plan: Plan, groups: ParallelGroups) -> LayerTechnique:
        """Return the operators that are repeated."""
        return RepeatedOperators(local=local_model(plan), kind=recomputation_of(plan.strategy))


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedOperators(LayerTechnique):
    """Operators that are repeated before the backward pass of their layer, or of their sublayer."""

    local: LocalModel
    kind: Recomputation

    def repeated_before_layer(self, part: Sublayer) -> tuple[Operator, ...]:
        """Return what is repeated of a sublayer with its whole layer."""
        return self.kind.repeated(self.local, part.operators) if self.kind.by_layer else ()

    def repeated_before_sublayer(self, part: Sublayer) -> tuple[Operator, ...]:
        """Return what is repeated of a sublayer by itself."""
        return () if self.kind.by_layer else self.kind.repeated(self.local, part.operators)

"""Recomputation of activations before the backward passes that need them."""

from __future__ import annotations

from dataclasses import dataclass

from clustersim.strategy.contributors.contributor import Contributor
from clustersim.strategy.groups import ParallelGroups
from clustersim.strategy.plan import Plan
from clustersim.strategy.recomputation import recomputation_of
from clustersim.strategy.sequence import LayerTechnique
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
        return RepeatedOperators(plan=plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedOperators(LayerTechnique):
    """Operators that are repeated before the backward pass of their layer, or of their sublayer."""

    plan: Plan

    def repeated_before_layer(self, part: Sublayer) -> tuple[Operator, ...]:
        """Return what is repeated of a sublayer with its whole layer."""
        kind = recomputation_of(self.plan)
        return kind.repeated(self.plan, part.operators) if kind.by_layer else ()

    def repeated_before_sublayer(self, part: Sublayer) -> tuple[Operator, ...]:
        """Return what is repeated of a sublayer by itself."""
        kind = recomputation_of(self.plan)
        return () if kind.by_layer else kind.repeated(self.plan, part.operators)

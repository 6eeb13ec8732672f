"""Recomputation of activations before the backward passes that need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clustersim.errors import DomainError
from clustersim.parallel.contributors.contributor import Contributor
from clustersim.parallel.groups import ParallelGroups
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.recomputation import Recomputation, recomputation_of
from clustersim.parallel.stages import model_chunks
from clustersim.parallel.step_settings import Training
from clustersim.parallel.sublayers import LayerTechnique
from clustersim.parallel.training_plan import Strategy, StrategySettings
from clustersim.topology.wired import Cluster
from clustersim.workloads.model import Model, Sublayer
from clustersim.workloads.operators import Operator


class ActivationRecomputation(Contributor):
    """Recomputation of some or all operators of a layer."""

    @classmethod
    def applies(cls, strategy: Strategy) -> bool:
        """Return whether anything is repeated."""
        return strategy.recompute != "none"

    @classmethod
    def refuse_model(cls, model: Model, asked: StrategySettings) -> None:
        """Refuse kinds that repeat parts that the layers of the model do not have."""
        if not model.divisible and asked.recompute in ("selective", "alternate"):
            message = f"{asked.recompute} recomputation is that of a layer of a transformer, and {model.name} is not one"
            raise DomainError(message, path=("strategy", "recompute"), hint="use none or full")
        if model.experts is not None and asked.recompute == "alternate":
            message = "every second product is recomputed of dense layers only"
            raise DomainError(message, path=("strategy", "recompute"), hint="use none, selective (with recompute_modules) or full")

    @classmethod
    def refuse(cls, strategy: Strategy, asked: StrategySettings, *, model: Model, training: Training) -> None:
        """Refuse details of one kind of recomputation beside another."""
        if asked.gives("recompute_modules") and asked.recompute != "selective":
            message = f"parts of layers that selective recomputation repeats, and recompute is {asked.recompute}"
            raise DomainError(
                message,
                path=("strategy", "recompute_modules"),
                hint="leave it out (strategy.recompute_modules=null), or write recompute: selective",
            )
        details = {"recompute_layers": asked.recompute_layers is not None, "recompute_stops_early": asked.recompute_stops_early}
        for name, given in details.items():
            if given and asked.recompute != "full":
                message = f"a detail of full recomputation, and recompute is {asked.recompute}"
                raise DomainError(message, path=("strategy", name), hint="leave it out, or write recompute: full")

    @classmethod
    def refuse_placed(cls, strategy: Strategy, *, model: Model, cluster: Cluster, nodes: Sequence[int]) -> None:
        """Refuse to repeat more layers of each model chunk than the largest one has."""
        most = max(chunk.n_layers for stage in model_chunks(strategy, model.n_layers) for chunk in stage)
        if strategy.recompute_layers is not None and strategy.recompute_layers > most:
            message = f"{strategy.recompute_layers} layers of a model chunk that has {most}"
            raise DomainError(message, path=("strategy", "recompute_layers"), hint=f"use {most} or fewer")

    @classmethod
    def inside(cls, local: LocalModel, strategy: Strategy, groups: ParallelGroups) -> LayerTechnique:
        """Return the operators that are repeated."""
        return RepeatedOperators(local=local, kind=recomputation_of(strategy))


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedOperators(LayerTechnique):
    """Operators that are repeated before the backward pass of their layer, or of their sublayer."""

    local: LocalModel
    kind: Recomputation

    def repeated_before_layer(self, part: Sublayer) -> tuple[Operator, ...]:
        """Return the recomputed operators of a sublayer in a whole layer."""
        return self.kind.repeated(self.local, part.operators) if self.kind.by_layer else ()

    def repeated_before_sublayer(self, part: Sublayer) -> tuple[Operator, ...]:
        """Return the recomputed operators of a sublayer alone."""
        return () if self.kind.by_layer else self.kind.repeated(self.local, part.operators)

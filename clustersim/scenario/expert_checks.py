"""What expert parallelism asks of the model and of the other dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustersim.errors import ScenarioError
from clustersim.units.divisors import divisors, listed

if TYPE_CHECKING:
    from clustersim.strategy.plan import Strategy, StrategySettings
    from clustersim.workload.model import Model
    from clustersim.workload.transformer_shape import Experts


def check_experts(model: Model, asked: StrategySettings, strategy: Strategy) -> None:
    """Refuse degrees that the experts or the ranks of a stage do not divide by.

    Raises
    ------
    ScenarioError
        At the degree to change, with those that would do.
    """
    if model.experts is None:
        _refuse_without_experts(model, asked)
        return
    _check_degrees(model.experts, strategy)
    if asked.recompute == "alternate":
        message = "every second product is recomputed of dense layers only"
        raise ScenarioError(message, field="strategy.recompute", hint="use none, selective (with recompute_modules) or full")
    if strategy.tp > 1 and not strategy.sequence_parallel:
        message = "experts take tokens that tensor-parallel ranks have divided among them"
        raise ScenarioError(message, field="strategy.sequence_parallel", hint="use true, or tp: 1")
    if strategy.data_parallel.service is not None and strategy.ep * strategy.expert_tp > strategy.tp:
        message = "parameter servers keep whole models, and experts are spread over the workers"
        raise ScenarioError(message, field="strategy.ep", hint="use 1, or another algorithm of data_parallel")


def _refuse_without_experts(model: Model, asked: StrategySettings) -> None:
    for key, given in (("ep", asked.ep > 1), ("etp", asked.etp is not None), ("expert_load", asked.expert_load.kind != "balanced")):
        if given:
            raise ScenarioError(f"{model.name} has no experts", field=f"strategy.{key}", hint="leave it out, or take a model with experts")


def _check_degrees(experts: Experts, strategy: Strategy) -> None:
    ep, etp, stage = strategy.ep, strategy.expert_tp, strategy.dp * strategy.cp * strategy.tp
    if experts.n_experts % ep:
        good = [degree for degree in divisors(experts.n_experts) if stage % (degree * etp) == 0]
        raise ScenarioError(f"{ep} does not divide {experts.n_experts} experts", field="strategy.ep", hint=f"use {listed(good or [1])}")
    if experts.intermediate_size % etp:
        good = [each for each in divisors(experts.intermediate_size) if stage % (ep * each) == 0]
        message = f"{etp} does not divide the width {experts.intermediate_size} of an expert"
        hint = f"use {listed(good)}" if good else f"use 1, and an ep that divides {stage}"
        raise ScenarioError(message, field="strategy.etp", hint=hint)
    if stage % (ep * etp):
        good = [degree for degree in divisors(experts.n_experts) if stage % (degree * etp) == 0]
        raise ScenarioError(
            f"ep * etp = {ep} * {etp} does not divide the dp * cp * tp = {stage} ranks of a stage",
            field="strategy.ep",
            hint=f"use {listed(good)}" if good else f"use an etp that divides {stage}",
        )
    degree, replicas = strategy.sharding.degree, strategy.replicas
    if degree > 1 and degree * strategy.expert_replicas % replicas:
        least = ep * etp // strategy.tp
        message = f"{degree} ranks that hold one copy together do not hold all experts, which are on {least}"
        raise ScenarioError(message, field="strategy.shard_degree", hint=f"use auto or a multiple of {least}")

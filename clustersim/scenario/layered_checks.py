"""What a model that is a list of layers can be trained with: data parallelism of every kind, and nothing that divides a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustersim.errors import ScenarioError

if TYPE_CHECKING:
    from clustersim.scenario.schema import ScenarioSpec
    from clustersim.strategy.plan import StrategySettings
    from clustersim.strategy.step_settings import Training
    from clustersim.workload.model import Model

_REPLICAS_ONLY = "a list of layers is trained by replicas alone: dp, with any zero_stage, or parameter servers"


def check_layered(spec: ScenarioSpec, model: Model) -> None:
    """Refuse what only a transformer has.

    Raises
    ------
    ScenarioError
        At the first such value.
    """
    _check_strategy(spec.strategy, model)
    # A preset says of the vocabulary what its framework does with any model.
    _check_training(spec.training, model, has_preset=spec.strategy.preset is not None)


def _check_strategy(strategy: StrategySettings, model: Model) -> None:
    for name, degree in (("tp", strategy.tp), ("pp", strategy.pp), ("cp", strategy.cp), ("ep", strategy.ep)):
        if degree > 1:
            raise ScenarioError(
                f"{degree} parts of {model.name}, which is not a transformer", field=f"strategy.{name}", hint=_REPLICAS_ONLY
            )
    for name, asked in (("etp", strategy.etp is not None), ("expert_load", strategy.expert_load.kind != "balanced")):
        if asked:
            raise ScenarioError(f"{model.name} has no experts", field=f"strategy.{name}", hint="leave it out")
    if strategy.sequence_parallel:
        raise ScenarioError(f"{model.name} is not a transformer", field="strategy.sequence_parallel", hint="leave it out, or false")
    if strategy.recompute in ("selective", "alternate"):
        message = f"{strategy.recompute} recomputation is that of a layer of a transformer, and {model.name} is not one"
        raise ScenarioError(message, field="strategy.recompute", hint="use none or full")


def _check_training(training: Training, model: Model, *, has_preset: bool) -> None:
    if training.gives("seq_length"):
        message = f"the layers of {model.name} say how large a sample is"
        hint = f"leave it out: a sample counts as tokens_per_sample = {model.max_positions} of the model"
        raise ScenarioError(message, field="training.seq_length", hint=hint)
    if training.gives("attention"):
        message = f"the layers of {model.name} say what attention there is"
        raise ScenarioError(message, field="training.attention", hint="leave it out")
    for name, asked in (
        ("elementwise_precision", training.elementwise_precision != "same"),
        ("clip_micro_batches", training.clip_micro_batches),
        ("vocabulary_multiple", training.vocabulary_multiple is not None and not has_preset),
        ("loss_metrics", training.loss_metrics > 0),
    ):
        if asked:
            message = f"known for transformers only, and {model.name} is a list of layers"
            raise ScenarioError(message, field=f"training.{name}", hint="leave it out")

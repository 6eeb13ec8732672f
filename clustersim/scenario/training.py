"""What the training section of a scenario means on some nodes, with every default filled in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from clustersim.errors import ScenarioError
from clustersim.hardware.models import Accelerator, Node
from clustersim.report.metrics import Flag
from clustersim.scenario.constraints import (
    check_attention,
    check_clipping,
    check_fp8_parameters,
    check_scored_tokens,
    check_tokens,
)
from clustersim.scenario.model_spec import LoadedModel
from clustersim.scenario.schema import ScenarioSpec
from clustersim.strategy.step_settings import Precision, Training
from clustersim.workload.model import Model

PRECISION_ORDER: Final[tuple[Precision, ...]] = ("bf16", "fp16", "fp32")
"""Which precision is assumed: the first that the accelerator has."""

_SHORT: Final = ("fp16", "bf16", "fp8")


def training_of(spec: ScenarioSpec, loaded: LoadedModel, nodes: Sequence[Node]) -> tuple[Training, tuple[Flag, ...]]:
    """Return one optimizer step, and what was assumed of it."""
    asked = spec.training
    if not loaded.model.divisible:
        # A preset says of the vocabulary what its framework does with any model.
        _check_layered(asked, loaded.model, has_preset=spec.strategy.preset is not None)
    accelerators = list({node.accelerator.name: node.accelerator for node in nodes}.values())
    precision, flags = _precision(asked, accelerators)
    check_attention(asked.attention, accelerators)
    seq_length, length_flags = _seq_length(asked, loaded.model)
    check_scored_tokens(asked.scored_tokens, seq_length)
    check_tokens(asked.tokens, asked.global_batch_size, seq_length)
    if asked.cuda_graphs and asked.blocking_launches:
        message = "kernels of a graph are issued together, and the host cannot wait for each"
        raise ScenarioError(message, field="training.cuda_graphs", hint="leave out cuda_graphs or blocking_launches")
    check_clipping(clip_micro_batches=asked.clip_micro_batches, fused_accumulation=asked.fused_gradient_accumulation)
    check_fp8_parameters(fp8_parameters=asked.fp8_parameters, precision=precision, zero_stage=spec.strategy.zero_stage)
    training = asked.completed(
        precision=precision,
        optimizer_kernels="foreach" if asked.kernels == "eager" else "fused",
        gradient_precision="fp32" if precision in _SHORT else "same",
        grouped_experts=asked.kernels == "fused",
        channels_last=precision in _SHORT,
    ).changed(seq_length=seq_length)
    return training, (*flags, *length_flags)


def _check_layered(training: Training, model: Model, *, has_preset: bool) -> None:
    """Refuse what a list of layers says itself, and what is known for transformers only."""
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


def _seq_length(asked: Training, model: Model) -> tuple[int, tuple[Flag, ...]]:
    positions = model.max_positions
    if not asked.gives("seq_length") and positions < 1:
        hint = "the model does not say how long its sequences are; write one, such as 4096"
        raise ScenarioError("'seq_length' is missing", field="training.seq_length", hint=hint)
    seq_length = asked.seq_length or positions
    if not 0 < positions < seq_length:
        return seq_length, ()
    message = f"sequences of {seq_length} tokens, though the model has {positions} positions"
    return seq_length, (Flag(code="long_sequence", message=message),)


def _precision(asked: Training, accelerators: Sequence[Accelerator]) -> tuple[Precision, tuple[Flag, ...]]:
    """Return the precision that was asked for, or the first that all accelerators have."""
    has = [name for name in accelerators[0].peak_flops_per_s if all(name in each.peak_flops_per_s for each in accelerators)]
    if not asked.gives("precision"):
        known: list[Precision] = [precision for precision in PRECISION_ORDER if precision in has]
        if not known:
            raise ScenarioError("'precision' is missing", field="training.precision", hint=f"use one of {', '.join(has)}")
        assumed: Precision = known[0]
        owners = " and ".join(accelerator.name for accelerator in accelerators)
        message = f"no precision is given: {assumed}, which {owners} {'has' if len(accelerators) == 1 else 'have'}, is assumed"
        return assumed, (Flag(code="assumed_precision", message=message),)
    lacking = next((accelerator.name for accelerator in accelerators if asked.precision not in accelerator.peak_flops_per_s), None)
    if lacking is not None:
        raise ScenarioError(f"{lacking} does not have {asked.precision}", field="training.precision", hint=f"use {' or '.join(has)}")
    return asked.precision, ()

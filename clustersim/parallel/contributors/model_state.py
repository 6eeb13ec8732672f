"""The model on every rank, whatever trains it: its parameters, gradients and activations, and the framework's own memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import fsum
from typing import Final

from clustersim.errors import DomainError
from clustersim.parallel.contributors.contributor import Contributor
from clustersim.parallel.optimizer import FP8_COPY_BYTES
from clustersim.parallel.stage import Stage
from clustersim.parallel.step_settings import Training
from clustersim.parallel.training_plan import Strategy, StrategySettings
from clustersim.program.holds import BACKWARD_PASS, FORWARD_TO_BACKWARD, INPUT_TO_WEIGHT, Hold
from clustersim.program.tasks import Compute
from clustersim.workloads.model import Model
from clustersim.workloads.operators import Gemm, GroupedGemm
from clustersim.workloads.shapes import FP32_BYTES

FRAMEWORK_BYTES: Final = 1.5e9
"""CUDA context, libraries, and communication buffers of NCCL: an assumption, between the 1 and 2 GB that users of PyTorch see
on an idle process with a few communicators."""

FP8_SCALING_BYTES: Final = 5 * (1024 + 2) * FP32_BYTES
"""For each product, of its three operands forward and its two gradients: 1024 past maxima, scale and its inverse
(Transformer Engine, ``DelayedScaling.amax_history_len``)."""


class ModelState(Contributor):
    """Parameters, gradients and activations of the passes of each rank."""

    @classmethod
    def refuse(cls, strategy: Strategy, asked: StrategySettings, *, model: Model, training: Training) -> None:
        """Refuse low-rank adapters where all parameters are updated, or none has an adapter, and weights in 4 bits under fp8."""
        if training.lora_rank is None or model.unit != "sequence":
            return
        if strategy.data_parallel.central or training.optimizer == "muon":
            is_muon = training.optimizer == "muon"
            who = "Muon updates" if is_muon else "parameter servers and a single process keep and update"
            hint = f"leave lora_rank out, or {'use another optimizer, such as adam' if is_muon else 'reduce gradients by a ring'}"
            raise DomainError(f"{who} all parameters of a model", path=("training", "lora_rank"), hint=hint)
        if not model.gated_mlp and set(training.lora_layers) == {"gate"}:
            message = f"no layer of {model.name} has an adapter: its MLP has no gate"
            raise DomainError(message, path=("training", "lora_layers"), hint="name such as up and down")
        if training.frozen_precision == "nf4" and training.precision == "fp8":
            message = "products in fp8 keep their weights in fp8, and not in 4 bits"
            raise DomainError(message, path=("training", "frozen_precision"), hint="use precision: bf16, or leave it out")

    @classmethod
    def holds(cls, stage: Stage) -> tuple[Hold, ...]:
        """Return parameters and gradients that stay on a rank, its activations, and the reserve of framework and NCCL."""
        stays = stage.strategy.offload.parameters == "accelerator"
        parameters = stage.held_parameters if stays else 0.0
        return (
            Hold(category="parameters", owner="weights", bytes=parameters * stage.local.numerics.element_bytes),
            Hold(category="parameters", owner="fp8", bytes=_fp8_bytes(stage)),
            Hold(category="gradients", owner="gradients", bytes=stage.kept_gradients_bytes),
            Hold(category="buffers", owner="framework", bytes=FRAMEWORK_BYTES),
            *_activations(stage),
            *(
                Hold(category="activations", owner=owner, bytes=size_bytes, interval=BACKWARD_PASS)
                for owner, size_bytes in _fullest_backward(stage).items()
            ),
        )

    def begin(self) -> None:
        """Add the work of the host before the first kernel of a step."""
        for stage in self.step.division.stages:
            for lane in self.step.division.lanes(stage):
                self.step.builder.add(("host", lane.rank_class), Compute(name="host", phase="host", blocks=()), [lane])


def _fp8_bytes(stage: Stage) -> float:
    """Return the fp8 copies of the weights of all layers, and their scaling state; embedding and head stay in 16 bits.

    Sharded weights are cast as they are gathered, and the copies go with them.
    """
    if stage.training.precision != "fp8":
        return 0.0
    runs = [run for chunk in stage.chunks for run in stage.local.runs(chunk.layers)]
    products = [
        (operator, count)
        for operators, count in runs
        for operator in operators
        if operator.frozen_flops or isinstance(operator.weight_product, Gemm | GroupedGemm)
    ]
    # Kept in fp8 alone, a weight and its transpose take what the one in 16 bits would have.
    kept_once = stage.strategy.gathers_weights or stage.training.fp8_parameters
    copy_bytes = 0.0 if kept_once else FP8_COPY_BYTES * stage.local.numerics.gemm_element_bytes
    return fsum(count * ((operator.frozen or operator.parameters) * copy_bytes + FP8_SCALING_BYTES) for operator, count in products)


def _activations(stage: Stage) -> Iterator[Hold]:
    """Give the activations of a micro-batch between its passes, for each chunk: of layers, which may live on the host, and of the ends.

    Where weight gradients wait, part of them is kept on.
    """
    activations, away = stage.activations, stage.strategy.offload.activations != "accelerator"
    fullest = activations.fullest_place(stage.chunks)
    for number, chunk in enumerate(stage.chunks):

        def kept(size_bytes: float, *, owner: str = "activations", away: bool = False, number: int = number) -> Hold:
            place = "host" if away else "accelerator"
            return Hold(category="activations", owner=owner, bytes=size_bytes, interval=FORWARD_TO_BACKWARD, chunk=number, place=place)

        yield kept(fsum(activations.kept_by_layer(chunk, None if away else fullest)), away=away)
        yield kept(activations.end_activation_bytes(chunk))
        weight_bytes = activations.chunk_weight_bytes(chunk, fullest)
        yield Hold(category="activations", owner="weight_gradients", bytes=weight_bytes, interval=INPUT_TO_WEIGHT, chunk=number)


def _fullest_backward(stage: Stage) -> Mapping[str, float]:
    """Return the working memory of a backward pass, of the chunk with the largest."""
    fullest = stage.activations.fullest_place(stage.chunks)
    found = [stage.activations.backward_bytes(chunk, fullest) for chunk in stage.chunks]
    return max(found, key=lambda sizes: fsum(sizes.values()))

"""PyTorch's DataParallel: one process drives all accelerators of a node, and the first of them holds the parameters.

References
----------
.. [1] PyTorch, torch/nn/parallel: data_parallel.py, replicate.py, scatter_gather.py, comm.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import Final

import numpy as np

from clustersim.errors import DomainError
from clustersim.hardware.library_costs import CollectiveOp
from clustersim.parallel.contributors.contributor import Contributor, StageContributor, Step
from clustersim.parallel.contributors.optimizer_update import OptimizerUpdate
from clustersim.parallel.gradients import GRADIENT_STREAM, gathered_bytes, n_buckets, reduced_bytes
from clustersim.parallel.groups import ParallelGroups
from clustersim.parallel.layers import ForwardPhase, Gradients, Operators, backward_work, forward_work
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.optimizer import optimizer_update
from clustersim.parallel.pipeline import Piece, StagePieces
from clustersim.parallel.schedules.order import StageOrder
from clustersim.parallel.stage import Stage
from clustersim.parallel.step_settings import Training
from clustersim.parallel.sublayers import Entries, LayerTechnique, OperatorRun
from clustersim.parallel.training_plan import Strategy, StrategySettings
from clustersim.program.holds import FORWARD_TO_BACKWARD, Hold
from clustersim.program.program import Key
from clustersim.program.tasks import Block, Collective, Communicate, Compute, RankGroups
from clustersim.workloads.model import Model, Sublayer
from clustersim.workloads.shapes import FP32_BYTES

ROOT: Final = 0


def root_and_others(n_replicas: int) -> tuple[tuple[int, ...], ...]:
    """Return the two parts of the replicas: the first accelerator, and the rest."""
    return ((ROOT,), tuple(range(1, n_replicas))) if n_replicas > 1 else ((ROOT,),)


class SingleProcess(Contributor):
    """A single process with as many threads as accelerators.

    For every micro-batch the inputs are scattered from the first accelerator, the parameters broadcast, the outputs gathered; there
    the loss is computed, for all; its gradient is scattered, and after the whole backward pass the gradients of the parameters are
    reduced to the first accelerator, which alone updates them. Nothing overlaps. For Psi bytes of parameters and as many of gradients
    a link out of the first accelerator carries Psi, and one into it Psi: as much as a ring [1]_.
    """

    @classmethod
    def applies(cls, strategy: Strategy) -> bool:
        """Return whether one process drives all accelerators."""
        return strategy.data_parallel.single_process

    @classmethod
    def refuse(cls, strategy: Strategy, asked: StrategySettings, *, model: Model, training: Training) -> None:
        """Refuse several nodes, and settings that need several processes."""
        gradients = asked.data_parallel
        if not gradients.single_process:
            return
        n_nodes = strategy.n_ranks // strategy.node_size
        if n_nodes > 1:
            what = f"one process drives the accelerators of one node, and there are {n_nodes}"
            raise DomainError(what, path=("strategy", "data_parallel", "single_process"), hint="use nodes: 1, or single_process: false")
        if gradients.no_sync:
            what = "one process adds up gradients after each micro-batch, because it replicates the model for each"
            raise DomainError(what, path=("strategy", "data_parallel", "no_sync"), hint="use no_sync: false, or single_process: false")
        if gradients.algorithm != "auto":
            what = f"one process sends through its first accelerator, and the algorithm is {gradients.algorithm}"
            raise DomainError(what, path=("strategy", "data_parallel", "algorithm"), hint="use auto, or single_process: false")
        for key, whole in (("tp", 1), ("pp", 1), ("cp", 1), ("ep", 1), ("zero_stage", 0)):
            value = getattr(strategy, key)
            if value != whole:
                what = f"single_process keeps the whole model on every accelerator, and {key} is {value}"
                raise DomainError(what, path=("strategy", key), hint=f"use {key}: {whole}, or single_process: false")
        if asked.offload.parts:
            message = "nothing is left to offload: one process keeps all of it on its first accelerator"
            raise DomainError(message, path=("strategy", "offload"), hint="leave the key out")

    @classmethod
    def holds(cls, stage: Stage) -> tuple[Hold, ...]:
        """Return the optimizer state, and the memory of the first accelerator for the others: all outputs and their losses."""
        (chunk,), n_replicas = stage.chunks, stage.strategy.dp
        loss_bytes = stage.activations.head_loss_bytes(chunk)
        outputs_bytes = n_replicas * loss_bytes * stage.local.numerics.element_bytes / FP32_BYTES
        size_bytes = (n_replicas - 1) * loss_bytes + outputs_bytes if n_replicas > 1 else 0.0
        others = Hold(category="activations", owner="single_process", bytes=size_bytes, interval=FORWARD_TO_BACKWARD)
        return (*OptimizerUpdate.holds(stage), others)

    @classmethod
    def inside(cls, local: LocalModel, strategy: Strategy, groups: ParallelGroups) -> LayerTechnique:
        """Return the passes without the loss, which the first accelerator computes for all."""
        return _WithoutLoss()

    def stage(self, stage: int, order: StageOrder) -> StageContributor:
        """Return the moves around the passes of the only stage."""
        return _Moves(self.step, order)

    def finish(self) -> None:
        """Add the update on the first accelerator."""
        step, division = self.step, self.step.division
        update = optimizer_update(step.stages[0])
        after = step.builder.last(division.lane(0, ROOT, GRADIENT_STREAM))
        step.builder.add(("optimizer", 0), update, [division.lane(0, ROOT)], after=after)


class _WithoutLoss(LayerTechnique):
    """Layers and ends without their loss."""

    def forward(self, part: Sublayer, entries: Entries, *, phase: ForwardPhase, layer: int) -> Entries:
        """Return all else forward."""
        return _without_loss(entries)

    def backward(self, part: Sublayer, entries: Entries, *, gradients: Gradients, layer: int) -> Entries:
        """Return all else backward."""
        return _without_loss(entries)


def _without_loss(entries: Entries) -> Entries:
    return tuple(entry for entry in entries if not (isinstance(entry, OperatorRun) and entry.operator.role == "loss"))


class _Moves(StageContributor):
    """Collectives around each pass, and the loss of all replicas on the first accelerator."""

    def __init__(self, step: Step, order: StageOrder) -> None:
        (self.stage,), self.division, self.builder, self.order = step.stages, step.division, step.builder, order
        local, training, n_replicas = self.stage.local, self.stage.training, self.stage.strategy.dp
        loss = tuple(operator for operator in _operators(local) if operator.role == "loss")
        losses = (forward_work("loss", loss), backward_work("loss gradient", loss))
        self._losses = tuple(
            Compute(name=work.name, phase=work.phase, blocks=(Block(name=work.name, body=(work,), repeat=n_replicas),)) for work in losses
        )
        self._outputs_bytes = n_replicas * fsum(operator.saved_bytes for operator in loss) * local.numerics.element_bytes / FP32_BYTES
        self._inputs_bytes = n_replicas * training.micro_batch_size * local.model.sample_bytes(training.seq_length)
        members = np.concatenate([step.division.ranks(0, part) for part in range(step.division.n_parts)])
        self._group = RankGroups(name="accelerators of the process", dimension="dp", members=members[None])

    def pieces(self, position: int, pieces: tuple[Piece, ...], added: StagePieces) -> tuple[Piece, ...]:
        """Return the pieces of a pass, which wait for the transfer before it; after a forward pass the root computes the loss."""
        step = self.order[position]
        waited = "scatter gradients" if step.goes_back else "parameters"
        first, *others = pieces
        own = [Piece(action=first.action, after=self._named(waited, step.micro_batch), layers=first.layers), *others]
        if added.part == ROOT and not step.goes_back:
            loss, gradient = self._losses
            own += [Piece(action=loss, after=self._named("gather outputs", step.micro_batch)), Piece(action=gradient)]
        return tuple(own)

    def beside(self, position: int, parts: Sequence[StagePieces]) -> None:
        """Add the transfers before and after a pass."""
        step, stage = self.order[position], self.stage
        before = [key for part in parts for key in part.before(position)]
        before = before or [("host", lane.rank_class) for lane in self.division.lanes(0)]
        n_losses = 0 if step.goes_back else len(self._losses)
        passes = [part.own(position)[-1 - (n_losses if part.part == ROOT else 0)] for part in parts]
        parameters, wires = stage.weights.total, (stage.strategy.data_parallel, stage.local.numerics)
        if step.goes_back:
            self._move("scatter", "scatter gradients", step.micro_batch, self._outputs_bytes, after=before)
            self._move("reduce", "gradients", step.micro_batch, parameters * reduced_bytes(*wires), after=passes)
            return
        self._move("scatter", "scatter inputs", step.micro_batch, self._inputs_bytes, after=before)
        self._move("broadcast", "parameters", step.micro_batch, parameters * gathered_bytes(*wires), after=before)
        self._move("gather", "gather outputs", step.micro_batch, self._outputs_bytes, after=passes)

    def _named(self, name: str, micro_batch: int) -> tuple[Key, ...]:
        """Return the name of a move; nothing for a lone accelerator."""
        return ((name, micro_batch),) if self._group.size > 1 else ()

    def _move(self, op: CollectiveOp, name: str, micro_batch: int, size_bytes: float, *, after: Sequence[Key]) -> None:
        pieces = n_buckets(self.stage.strategy, size_bytes) if op in ("broadcast", "reduce") else 1
        action = Communicate(name=name, collective=Collective(op=op, group=self._group, bytes=size_bytes, pieces=pieces))
        for key in self._named(name, micro_batch):
            self.builder.add(key, action, self.division.lanes(0, GRADIENT_STREAM), after=after, label=(micro_batch, 0))


def _operators(local: LocalModel) -> Operators:
    """Return all operators of the model on one rank."""
    layers = (each for run, count in local.runs(range(local.model.n_layers)) for _ in range(count) for each in run)
    return (*local.front, *layers, *local.back)

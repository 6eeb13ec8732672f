"""PyTorch's DataParallel: one process drives all accelerators of a node, and the first of them keeps the parameters."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum, prod
from typing import Final

import numpy as np

from clustersim.hardware.communication import CollectiveOp
from clustersim.program.program import Key, ProgramBuilder
from clustersim.program.tasks import Block, Collective, Communicate, Compute, Group, Work
from clustersim.strategy.alternate import repeated_operators
from clustersim.strategy.division import Division
from clustersim.strategy.gradients import GRADIENT_STREAM, gathered_bytes, n_buckets, reduced_bytes
from clustersim.strategy.layers import Operators, back, front, layer_at, layer_runs, n_layers, recomputed_layers
from clustersim.strategy.memory import stage_parameters, stage_weights
from clustersim.strategy.optimizer import optimizer_update
from clustersim.strategy.plan import Plan
from clustersim.strategy.recompute import repeated
from clustersim.strategy.shard import model_chunks, numerics
from clustersim.strategy.works import backward_work, forward_work
from clustersim.workload.layered import Layered
from clustersim.workload.shapes import FP32_BYTES

INDEX_BYTES: Final = 8.0
"""A token as a 64-bit index."""

LOSS: Final = "loss"
ROOT: Final = 0


def root_and_others(n_replicas: int) -> tuple[tuple[int, ...], ...]:
    """Return the two parts of the replicas: the first accelerator, and the rest."""
    return ((ROOT,), tuple(range(1, n_replicas))) if n_replicas > 1 else ((ROOT,),)


def lower_single_process_step(builder: ProgramBuilder, plan: Plan, division: Division) -> None:
    """Add one step of a single process with as many threads as accelerators.

    For every micro-batch the inputs are scattered from the first accelerator, the parameters broadcast, the outputs gathered; there
    the loss is computed, for all; its gradient is scattered, and after the whole backward pass the gradients of the parameters are
    reduced to the first accelerator, which alone updates them. Nothing overlaps. For Psi bytes of parameters and as many of gradients
    a link out of the first accelerator carries Psi, and one into it Psi: as much as a ring.

    References
    ----------
    .. [1] PyTorch, torch/nn/parallel: data_parallel.py, replicate.py, scatter_gather.py, comm.py.
    """
    step = _SingleProcess(builder=builder, plan=plan, division=division)
    for micro_batch in range(plan.n_micro_batches):
        step.add_micro_batch(micro_batch)
    after = builder.last(division.lane(0, ROOT, GRADIENT_STREAM))
    builder.add(("optimizer", 0), optimizer_update(plan, stage_weights(plan, 0)), [division.lane(0, ROOT)], after=after)


@dataclass(slots=True, kw_only=True)
class _SingleProcess:
    builder: ProgramBuilder
    plan: Plan
    division: Division

    def add_micro_batch(self, micro_batch: int) -> None:
        plan = self.plan
        number, n_replicas = numerics(plan), plan.strategy.dp
        layers = (each for run, count in layer_runs(plan, 0, n_layers(plan)) for _ in range(count) for each in run)
        every = (*front(plan), *layers, *back(plan))
        loss = tuple(operator for operator in every if operator.name == LOSS)
        model = tuple(operator for operator in every if operator.name != LOSS)
        repeated = _repeated(plan)
        again = (forward_work("B again", repeated, "recompute"),) if repeated else ()
        parameters = stage_parameters(plan, 0)
        outputs_bytes = n_replicas * fsum(operator.saved_bytes for operator in loss) * number.element_bytes / FP32_BYTES
        inputs_bytes = n_replicas * plan.training.micro_batch_size * _sample_bytes(plan)
        self._move("scatter", "scatter inputs", micro_batch, inputs_bytes)
        self._move("broadcast", "parameters", micro_batch, parameters * gathered_bytes(plan))
        for part in range(self.division.n_parts):
            self._compute(part, micro_batch, forward_work("F", model))
        self._move("gather", "gather outputs", micro_batch, outputs_bytes)
        self._compute(ROOT, micro_batch, forward_work("loss", loss), repeat=n_replicas)
        self._compute(ROOT, micro_batch, backward_work("loss gradient", loss), repeat=n_replicas)
        self._move("scatter", "scatter gradients", micro_batch, outputs_bytes)
        for part in range(self.division.n_parts):
            self._compute(part, micro_batch, *again, backward_work("B", model))
        self._move("reduce", "gradients", micro_batch, parameters * reduced_bytes(plan))

    def _compute(self, part: int, micro_batch: int, *body: Work, repeat: int = 1) -> None:
        name, phase = body[-1].name, body[-1].phase
        action = Compute(name=name, phase=phase, blocks=(Block(name=name, body=body, repeat=repeat),))
        lane = self.division.lane(0, part)
        after = self.builder.last(self.division.lane(0, part, GRADIENT_STREAM))
        self.builder.add((name, part, micro_batch), action, [lane], after=after, label=(micro_batch, 0))

    def _move(self, op: CollectiveOp, name: str, micro_batch: int, size_bytes: float) -> None:
        members = np.concatenate([self.division.ranks(0, part) for part in range(self.division.n_parts)])
        if len(members) == 1:
            return
        group = Group(name="accelerators of the process", dimension="dp", members=members[None])
        pieces = n_buckets(self.plan, size_bytes) if op in ("broadcast", "reduce") else 1
        collective = Collective(op=op, group=group, bytes=size_bytes, pieces=pieces)
        key: Key = (name, micro_batch)
        lanes = self.division.lanes(0, GRADIENT_STREAM)
        after = [done for lane in self.division.lanes(0) for done in self.builder.last(lane)]
        self.builder.add(key, Communicate(name=name, collective=collective), lanes, after=after, label=(micro_batch, 0))


def _repeated(plan: Plan) -> Operators:
    """Return what recomputation repeats of a micro-batch: layers from the first, or the operators whose results are dropped."""
    ((chunk,),) = model_chunks(plan)
    if plan.strategy.recompute == "alternate":
        each = (operator for layer in range(n_layers(plan)) for operator in repeated_operators(plan, layer_at(plan, layer)))
        return tuple(operator for operator in each if not operator.needless)
    border, early = recomputed_layers(plan, chunk), plan.strategy.recompute_stops_early
    layers = [layer_at(plan, layer) for layer in range(n_layers(plan))]
    if plan.strategy.recompute == "selective":
        return tuple(operator for operators in layers for operator in repeated(plan, operators))
    return tuple(operator for operators in layers[:border] for operator in operators if not (operator.needless and early))


def _sample_bytes(plan: Plan) -> float:
    """Return the bytes of the input of one sample: indices of tokens, or the numbers of an image in fp32, as loaders give them."""
    if isinstance(plan.model, Layered) and len(plan.model.input) > 1:
        return FP32_BYTES * prod(plan.model.input)
    return INDEX_BYTES * plan.training.seq_length

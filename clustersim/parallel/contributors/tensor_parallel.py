"""Tensor parallelism: column-split layers followed by row-split ones, and collectives around each pair.

References
----------
.. [1] M. Shoeybi et al., "Megatron-LM", 2019, section 3.
.. [2] V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", MLSys 2023, section 4.2.
.. [3] S. Wang et al., "Overlap Communication with Dependent Computation via Decomposition in Large Deep Learning Models", ASPLOS 2023.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from clustersim.errors import DomainError
from clustersim.hardware.library_costs import CollectiveOp
from clustersim.parallel.contributors.contributor import Contributor, check_division
from clustersim.parallel.groups import ParallelGroups
from clustersim.parallel.layers import PHASES, ForwardPhase, Gradients
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.step_settings import Training
from clustersim.parallel.sublayers import Beside, Entries, Entry, LayerTechnique, OperatorRun
from clustersim.parallel.training_plan import Strategy, StrategySettings, TensorOverlap
from clustersim.program.tasks import Block, Collective, Item, Overlapped, Phase, RankGroups, Work
from clustersim.units.divisors import divisors, listed
from clustersim.workloads.layer import divides_heads, heads_text
from clustersim.workloads.model import HEAD, Model, Sublayer
from clustersim.workloads.operators import Gemm, Kernel, Operator, Stream
from clustersim.workloads.shapes import FP32_BYTES, SCALINGS, Scales

LOSS_REDUCTIONS: Final = 3
"""All-reduces of one fp32 number a token in the vocabulary-parallel loss: maximum, predicted logit, sum of exponentials."""


class TensorParallelism(Contributor):
    """Layers divided among the ranks of a group."""

    @classmethod
    def applies(cls, strategy: Strategy) -> bool:
        """Return whether layers are divided."""
        return strategy.tp > 1

    @classmethod
    def refuse_model(cls, model: Model, asked: StrategySettings) -> None:
        """Refuse a degree that would cut a head, or leave some ranks more key and value heads than others."""
        check_division(model, "tp", asked.tp)
        if asked.sequence_parallel and not model.divisible:
            message = f"{model.name} is not a transformer"
            raise DomainError(message, path=("strategy", "sequence_parallel"), hint="leave it out, or false")
        tp, inner_size = asked.tp, model.intermediate_size
        if _divides_heads(model, tp) and inner_size % tp == 0:
            return
        good = [degree for degree in divisors(model.n_heads) if _divides_heads(model, degree) and inner_size % degree == 0]
        if model.n_heads % tp:
            message = f"{tp} does not divide {model.n_heads} attention heads"
        elif inner_size % tp:
            message = f"{tp} does not divide the intermediate size {inner_size}"
        elif model.linear is not None and not divides_heads(model.linear, tp):
            message = heads_text(model.linear, tp)
        else:
            message = f"{model.n_kv_heads} key and value heads can neither be divided nor be repeated evenly among {tp} ranks"
        raise DomainError(message, path=("strategy", "tp"), hint=f"use {listed(good)}")

    @classmethod
    def refuse(cls, strategy: Strategy, asked: StrategySettings, *, model: Model, training: Training) -> None:
        """Refuse chunks of products without slices of the sequence, and sequences that do not divide among the ranks."""
        tp, seq_length = strategy.tp, training.seq_length
        if strategy.overlap_tp in ("gemm_chunks", "async_tp") and tp > 1 and not strategy.sequence_parallel:
            raise DomainError(
                f"{strategy.overlap_tp} needs sequence parallelism: a chunk of a product is the slice of the sequence of one rank",
                path=("strategy", "overlap_tp"),
                hint="use sequence_parallel: true, or overlap_tp: weight_gradient",
            )
        if strategy.sequence_parallel and seq_length % tp:
            nearest = max(1, round(seq_length / tp)) * tp
            why = "" if asked.gives("sequence_parallel") else ", which is on with tp > 1 unless switched off"
            raise DomainError(
                f"{seq_length} tokens do not divide among tp = {tp} ranks for sequence parallelism{why}",
                path=("training", "seq_length"),
                hint=f"use a multiple of {tp} such as {nearest}, or sequence_parallel: false",
            )

    @classmethod
    def inside(cls, local: LocalModel, strategy: Strategy, groups: ParallelGroups) -> LayerTechnique:
        """Return the collectives around divided layers."""
        rows = local.whole.rows
        return SplitLayers(
            group=groups.tp,
            sequence_parallel=strategy.sequence_parallel,
            overlap=strategy.overlap_tp,
            keeps_sums=strategy.recompute == "alternate",
            rows=rows,
            element_bytes=local.numerics.element_bytes,
            scales=SCALINGS[local.numerics.scaling],
            hidden_size=local.model.hidden_size,
            loss_bytes=LOSS_REDUCTIONS * rows * FP32_BYTES,
            received_bytes=local.boundary_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitLayers(LayerTechnique):
    """Collectives of column-split and row-split layers.

    Without sequence parallelism the output of the row-split layer is all-reduced forward, and the gradient of the column-split layer's
    input backward. With it, activations are gathered before and scattered after the pair, and the other way round backward. The backward
    collective of the column-split layer runs beside its weight gradient where the two overlap, and the others beside chunks of the
    products next to them where these are cut.
    """

    group: RankGroups
    sequence_parallel: bool
    overlap: TensorOverlap
    keeps_sums: bool
    """Whether recomputation keeps the results of collectives, and the gathered input of column-split layers."""
    rows: int
    """Rows of activations of all ranks."""
    element_bytes: float
    """One activation."""
    scales: Scales
    """Scales of operands that are cast before they are gathered."""
    hidden_size: int
    loss_bytes: float
    received_bytes: float

    def forward(self, part: Sublayer, entries: Entries, *, phase: ForwardPhase, layer: int) -> Entries:
        """Return a sublayer with the collective before its first column-split layer and the one after its row-split layer."""
        columns = [entry.operator for entry in entries if isinstance(entry, OperatorRun) and entry.operator.column]
        gather = self._gathering(part.entering_width, [run for run in _runs(entries) if run.operator.column])
        close = self._closing(self.hidden_size)
        if self.keeps_sums and phase == "recompute":
            close = ()
        out: list[Entry] = []
        for entry in entries:
            match entry:
                case OperatorRun(operator=operator) if operator.column and not self._chunks(part):
                    out += [*(gather if operator is columns[0] else ()), entry]
                case OperatorRun(operator=operator) if operator.column:
                    # Products that need the same input are cut together.
                    kernels = tuple(kernel for each in columns for kernel in each.kernels(phase))
                    out += beside_chunks(_names(columns), phase, kernels, gather) if operator is columns[0] else ()
                case OperatorRun(operator=operator) if operator.row:
                    chunks = self._chunks(part) and operator.weight_product is not None
                    out += beside_chunks(operator.name, phase, entry.kernels, close) if chunks else (entry, *close)
                case Beside(runs=runs):
                    split, summed = (any(getattr(run.operator, which) for run in runs) for which in ("column", "row"))
                    out += [*(gather if split else ()), entry, *(close if summed else ())]
                case _:
                    out.append(entry)
        loss = self._collective("all_reduce", self.loss_bytes, LOSS_REDUCTIONS)
        return (*out, *((loss,) if part.name == HEAD and columns else ()))

    def backward(self, part: Sublayer, entries: Entries, *, gradients: Gradients, layer: int) -> Entries:
        """Return a sublayer backward, its column-split layers together after the operators that follow them."""
        columns = [entry.operator for entry in entries if isinstance(entry, OperatorRun) and entry.operator.column]
        summed_runs = [run for run in _runs(entries) if run.operator.row]
        # One product takes the gradient as it is, and one its transpose.
        ways = 1 if self.scales.transposable else 2
        gather = self._gathering(self.hidden_size, summed_runs, ways) if gradients != "weight" else ()
        out: list[Entry] = []
        for entry in entries:
            match entry:
                case OperatorRun(operator=operator) if operator.column:
                    out += self._columns_backward(part, columns, gradients) if operator is columns[-1] else ()
                case OperatorRun(operator=operator) if operator.row:
                    out += self._row_backward(part, entry, gradients, gather)
                case Beside(runs=runs):
                    split, summed = (any(getattr(run.operator, which) for run in runs) for which in ("column", "row"))
                    out += [*(gather if split or summed else ()), entry]
                    out += self._closing(self.hidden_size) if split else ()
                case _:
                    out.append(entry)
        return tuple(out)

    def received(self) -> tuple[Block, ...]:
        """Return the gathering of received activations, of which without sequence parallelism each rank is sent 1/tp.

        Megatron-LM calls it the scatter-gather optimisation.
        """
        if self.sequence_parallel or not self.received_bytes:
            return ()
        return (Block(name="receive", body=(self._collective("all_gather", self.received_bytes),)),)

    def _row_backward(self, part: Sublayer, entry: OperatorRun, gradients: Gradients, gather: tuple[Collective, ...]) -> Entries:
        row = entry.operator
        if not self._chunks(part) or gradients == "weight" or row.weight_product is None:
            return (*gather, entry)
        beside = beside_chunks(f"{row.name} input gradient", PHASES[gradients], row.kernels("input_gradient"), gather)
        return (*beside, *((OperatorRun(row, row.kernels("weight_gradient")),) if gradients == "all" else ()))

    def _columns_backward(self, part: Sublayer, columns: Sequence[Operator], gradients: Gradients) -> tuple[Item, ...]:
        """Return column-split layers backward, the last one first, with the collective of their input gradients."""
        name, phase = _names(columns[::-1]), PHASES[gradients]
        inputs = tuple(kernel for operator in columns for kernel in operator.kernels("input_gradient"))
        weights = tuple(kernel for operator in columns for kernel in operator.kernels("weight_gradient"))
        input_gradient = Work(name=f"{name} input gradient", phase=phase, kernels=inputs)
        weight_gradient = Work(name=f"{name} weight gradient", phase=phase, kernels=weights)
        # Under sequence parallelism the saved input is a slice, gathered again while the input gradient is computed.
        kept = not weights or (self.keeps_sums and part.name != HEAD)
        regather = () if kept else self._gathering(part.entering_width, [OperatorRun(columns[0], weights)])
        close = self._closing(part.entering_width)
        if gradients == "input":
            return (input_gradient, *close)
        if gradients == "weight":
            return (*regather, weight_gradient)
        if self.overlap in ("none", "async_tp") or not weights:
            return (*regather, input_gradient, *close, *((weight_gradient,) if weights else ()))
        first: tuple[Item, ...] = tuple(Overlapped(collectives=(each,), works=(input_gradient,)) for each in regather) or (input_gradient,)
        return (*first, *(Overlapped(collectives=(each,), works=(weight_gradient,)) for each in close))

    def _chunks(self, part: Sublayer) -> bool:
        """Return whether the products of a sublayer are cut; those of the head are not."""
        return self.overlap in ("gemm_chunks", "async_tp") and part.name != HEAD

    def _gathering(self, width: int, takers: Sequence[OperatorRun], ways: int = 1) -> tuple[Collective, ...]:
        """Return the gathering of slices of the sequence: in 8 bits where the products that take them are, and slices are cast before.

        Parameters
        ----------
        ways
            Casts of an operand that are gathered: 2 of one that is taken both ways and cannot be transposed.
        """
        if not self.sequence_parallel:
            return ()
        plain = self.element_bytes
        operand = min((kernel.element_bytes for run in takers for kernel in run.kernels if isinstance(kernel, Gemm)), default=plain)
        number_bytes = ways * self.scales.stored_bytes(operand) if operand < plain and self.scales.gathered else plain
        return (self._collective("all_gather", width * self.rows * number_bytes),)

    def _closing(self, width: int) -> tuple[Collective, ...]:
        return (self._collective("reduce_scatter" if self.sequence_parallel else "all_reduce", width * self.rows * self.element_bytes),)

    def _collective(self, op: CollectiveOp, size_bytes: float, pieces: int = 1) -> Collective:
        return Collective(op=op, group=self.group, bytes=size_bytes, pieces=pieces)


def beside_chunks(name: str, phase: Phase, kernels: Sequence[Kernel], collectives: Sequence[Collective]) -> tuple[Item, ...]:
    """Return kernels whose products are computed slice by slice of their rows, and a collective beside all slices but one.

    Each rank has a slice of the input of a product to begin with, or has to end with a slice of its result. Slices go round a ring: while
    one is computed, the next one comes in, or the one before goes out and is added to. The collective runs beside all products but the
    first; what is no product is done with that. Without a collective nothing is cut.

    Chunks are issued on several streams in turn, so that the tiles of one fill up the last wave of the one before: they are priced as a
    batch. What others have computed of the rank's own slice is added up in a pass of its own [3]_.
    """
    if not collectives:
        return (Work(name=name, phase=phase, kernels=tuple(kernels)),)
    (collective,) = collectives
    n_chunks = collective.group.size
    chunks = tuple(replace(kernel, m=-(-kernel.m // n_chunks)) for kernel in kernels if isinstance(kernel, Gemm))
    others = tuple(kernel for kernel in kernels if not isinstance(kernel, Gemm))
    together = tuple(replace(chunk, batch=(n_chunks - 1) * chunk.batch) for chunk in chunks)
    rest = Work(name=f"{name} chunks", phase=phase, kernels=together)
    first = Work(name=name, phase=phase, kernels=(*others, *chunks, *_sum(collective)))
    return (first, Overlapped(collectives=(collective,), works=(rest,)))


def _sum(collective: Collective) -> tuple[Kernel, ...]:
    """Return the adding up of as many partial results as there are ranks, each of one slice, where the collective ends with a sum."""
    if collective.op != "reduce_scatter":
        return ()
    n_partial = collective.group.size
    return (Stream(collective.bytes * (n_partial + 1) / n_partial),)


def _runs(entries: Entries) -> Iterator[OperatorRun]:
    for entry in entries:
        match entry:
            case OperatorRun():
                yield entry
            case Beside(runs=runs):
                yield from runs
            case _:
                pass


def _names(operators: Sequence[Operator]) -> str:
    return " and ".join(operator.name for operator in operators)


def _divides_heads(model: Model, tp: int) -> bool:
    heads = model.n_kv_heads
    # More ranks than key and value heads: each head is kept by several ranks.
    whole = model.n_heads % tp == 0 and (heads % tp == 0 or tp % heads == 0)
    return whole and (model.linear is None or divides_heads(model.linear, tp))

"""Operators of a sublayer in execution order, and the collectives that parallel techniques put between and beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from clustersim.parallel.layers import ForwardPhase, Gradients, backward_kernels
from clustersim.program.tasks import Block, Collective, Item, Overlapped, Phase, Work
from clustersim.workloads.model import Sublayer
from clustersim.workloads.operators import Kernel, Operator


@dataclass(frozen=True, slots=True)
class OperatorRun:
    """An operator with the kernels that it runs in a pass."""

    operator: Operator
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, slots=True)
class Beside:
    """Operators that run beside a collective."""

    collective: Collective
    runs: tuple[OperatorRun, ...]


Entry = OperatorRun | Beside | Item
Entries = tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTechnique:
    """A parallel technique inside layers; by default one that changes nothing."""

    def forward(self, part: Sublayer, entries: Entries, *, phase: ForwardPhase, layer: int) -> Entries:
        """Return the forward pass of a sublayer, or the part of it that is recomputed, with what this technique adds."""
        return entries

    def backward(self, part: Sublayer, entries: Entries, *, gradients: Gradients, layer: int) -> Entries:
        """Return the backward pass of a sublayer with what this technique adds."""
        return entries

    def repeated_before_layer(self, part: Sublayer) -> tuple[Operator, ...]:
        """Return the operators of a sublayer that are recomputed before the backward pass of the layer."""
        return ()

    def repeated_before_sublayer(self, part: Sublayer) -> tuple[Operator, ...]:
        """Return the operators of a sublayer that are recomputed before its own backward pass."""
        return ()

    def received(self) -> tuple[Block, ...]:
        """Return the work and collectives that complete the activations received from another stage."""
        return ()

    def closing(self) -> tuple[Block, ...]:
        """Return the work and collectives at the end of a pass of a chunk."""
        return ()


def forward_runs(operators: Iterable[Operator], phase: ForwardPhase) -> Entries:
    """Return operators forward."""
    return tuple(OperatorRun(operator, operator.kernels(phase)) for operator in operators)


def backward_runs(operators: Sequence[Operator], gradients: Gradients) -> Entries:
    """Return operators backward, the last one first."""
    return tuple(OperatorRun(operator, backward_kernels(operator, gradients)) for operator in reversed(operators))


def joined(part: Sublayer, entries: Iterable[Entry], phase: Phase) -> tuple[Item, ...]:
    """Return entries as items of a block: neighbouring operators become one piece of work, and those without kernels nothing."""
    items: list[Item] = []
    for are_runs, some in groupby(entries, key=lambda entry: isinstance(entry, OperatorRun)):
        if are_runs:
            runs = [entry for entry in some if isinstance(entry, OperatorRun)]
            items += [joined_work(part, runs, phase)] if any(run.kernels for run in runs) else []
            continue
        for entry in some:
            match entry:
                case OperatorRun():
                    pass
                case Beside(collective=collective, runs=runs):
                    items.append(Overlapped(collectives=(collective,), works=(joined_work(part, runs, phase),)))
                case _:
                    items.append(entry)
    return tuple(items)


def joined_work(part: Sublayer, runs: Sequence[OperatorRun], phase: Phase) -> Work:
    """Return operators of a sublayer as one piece of work, under the name of the sublayer or of the first and the last operator."""
    ends = [runs[0].operator.name, runs[-1].operator.name]
    whole = {part.operators[0].name, part.operators[-1].name} == set(ends)
    name = part.name if whole else " to ".join(dict.fromkeys(ends))
    return Work(name=name, phase=phase, kernels=tuple(kernel for run in runs for kernel in run.kernels))

"""Context parallelism: exchanges around and beside attention, when each rank has a part of every sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from clustersim.errors import DomainError
from clustersim.hardware.library_costs import CollectiveOp
from clustersim.parallel.contributors.contributor import Contributor, check_division
from clustersim.parallel.groups import ParallelGroups
from clustersim.parallel.layers import PHASES, ForwardPhase, Gradients
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.step_settings import Training
from clustersim.parallel.sublayers import Entries, LayerTechnique, OperatorRun
from clustersim.parallel.training_plan import Strategy, StrategySettings
from clustersim.program.tasks import Collective, Item, Overlapped, Phase, RankGroups, Work
from clustersim.units.divisors import divisors, listed
from clustersim.workloads.attention import exchanged_bytes, kept_keys_bytes
from clustersim.workloads.model import Model, Sublayer
from clustersim.workloads.operators import Kernel, Operator
from clustersim.workloads.shapes import ContextShare


class ContextParallelism(Contributor):
    """Sequences divided among the ranks of a group."""

    @classmethod
    def applies(cls, strategy: Strategy) -> bool:
        """Return whether sequences are divided."""
        return strategy.cp > 1

    @classmethod
    def refuse_model(cls, model: Model, asked: StrategySettings) -> None:
        """Refuse models that are lists of layers, and those of which a layer passes a state along the sequence."""
        check_division(model, "cp", asked.cp)
        if asked.cp > 1 and model.linear is not None:
            message = f"layers of {model.name} have a state, whose way from rank to rank is not simulated"
            raise DomainError(message, path=("strategy", "cp"), hint="use cp: 1")

    @classmethod
    def refuse(cls, strategy: Strategy, asked: StrategySettings, *, model: Model, training: Training) -> None:
        """Refuse sequences, heads and kernels that do not divide among the ranks."""
        cp, tp, kind = strategy.cp, strategy.tp, strategy.context_parallel
        if cp == 1:
            return
        if training.attention == "unfused":
            message = f"cp = {cp} divides fused attention only, which keeps no scores"
            raise DomainError(message, path=("training", "attention"), hint="use flash, or cp: 1")
        if kind == "ring" and model.window is not None and model.window.tokens < training.seq_length:
            message = f"a ring passes all keys on, but {model.name} has layers that see a window only"
            raise DomainError(message, path=("strategy", "context_parallel"), hint="use all_gather or ulysses")
        if kind == "ulysses":
            _check_heads(model, cp, tp)
        # Under a causal mask a rank has a piece of the front and one of the back.
        balanced = model.causal and kind != "ulysses"
        pieces = cp * tp * (2 if balanced else 1)
        if training.seq_length % pieces:
            why = "two pieces for each" if balanced else "one piece for each"
            nearest = max(1, round(training.seq_length / pieces)) * pieces
            raise DomainError(
                f"{training.seq_length} tokens do not divide among cp * tp = {cp} * {tp} ranks, {why}",
                path=("training", "seq_length"),
                hint=f"use a multiple of {pieces} such as {nearest}",
            )
        if training.scored_tokens is not None and training.scored_tokens % cp:
            message = f"{training.scored_tokens} scored tokens do not divide among cp = {cp} ranks"
            raise DomainError(message, path=("training", "scored_tokens"), hint=f"use a multiple of {cp}")

    @classmethod
    def inside(cls, local: LocalModel, strategy: Strategy, groups: ParallelGroups) -> LayerTechnique:
        """Return the exchanges of attention."""
        model, shape, number = local.model, local.shape(), local.numerics
        assert shape.context is not None
        return SharedAttention(
            group=groups.cp,
            share=shape.context,
            keys_bytes=kept_keys_bytes(model, shape, number),
            exchanged_bytes=exchanged_bytes(model, shape, number, shape.context) if shape.context.kind == "ulysses" else (0.0, 0.0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedAttention(LayerTechnique):
    """Attention of ranks that each have a part of every sequence.

    In ring attention keys and values go around while the attention on those that are here is computed: ``cp - 1`` hops forward; backward
    as many again, and gradients of keys and values ``cp`` hops, the last of which brings them home and is waited for. All-gather puts
    keys and values together before attention, forward and again backward, where the gradients are reduced and scattered after it. Ulysses
    exchanges parts of sequences for heads before attention and back behind it, in both directions.
    """

    group: RankGroups
    share: ContextShare
    keys_bytes: float
    """Keys and values of one rank, in bytes."""
    exchanged_bytes: tuple[float, float]
    """Size of the all-to-alls of Ulysses before and after attention, in bytes."""

    def forward(self, part: Sublayer, entries: Entries, *, phase: ForwardPhase, layer: int) -> Entries:
        """Return a sublayer with the exchanges of its attention."""
        return _with_attention(entries, lambda core: self.attention_forward(core, phase))

    def backward(self, part: Sublayer, entries: Entries, *, gradients: Gradients, layer: int) -> Entries:
        """Return a sublayer backward with those of its attention; no weight gradient needs any."""
        return entries if gradients == "weight" else _with_attention(entries, lambda core: self.attention_backward(core, PHASES[gradients]))

    def attention_forward(self, core: Operator, phase: ForwardPhase = "forward") -> tuple[Item, ...]:
        """Return attention forward with its communication."""
        kernels = core.kernels(phase)
        match self.share.kind:
            case "ring":
                return self._ring(kernels, [1] * (self.share.degree - 1), phase)
            case "all_gather":
                return (self._move("all_gather", self._gathered_bytes), _work(kernels, phase))
            case "ulysses":
                before, behind = self.exchanged_bytes
                return (self._move("all_to_all", before), _work(kernels, phase), self._move("all_to_all", behind))

    def attention_backward(self, core: Operator, phase: Phase = "backward") -> tuple[Item, ...]:
        """Return attention backward with its communication."""
        kernels = core.kernels("input_gradient")
        match self.share.kind:
            case "ring":
                hops = [1, *[2] * (self.share.degree - 2), 1]
                return (*self._ring(kernels, hops, phase), self._move("send_recv", self.keys_bytes))
            case "all_gather":
                gathered_bytes = self._gathered_bytes
                return (self._move("all_gather", gathered_bytes), _work(kernels, phase), self._move("reduce_scatter", gathered_bytes))
            case "ulysses":
                before, behind = self.exchanged_bytes
                return (self._move("all_to_all", behind), _work(kernels, phase), self._move("all_to_all", before))

    def _ring(self, kernels: tuple[Kernel, ...], hops: list[int], phase: Phase) -> tuple[Item, ...]:
        """Return the steps of a ring, the first ones overlapped with transfers of a multiple of the keys and values."""
        steps, merge = kernels[: self.share.degree], kernels[self.share.degree :]
        moves = {times: self._move("send_recv", times * self.keys_bytes) for times in set(hops)}
        beside = [Overlapped(collectives=(moves[times],), works=(_work((step,), phase),)) for step, times in zip(steps, hops, strict=False)]
        return (*beside, _work((*steps[len(hops) :], *merge), phase))

    def _move(self, op: CollectiveOp, size_bytes: float) -> Collective:
        return Collective(op=op, group=self.group, bytes=size_bytes)

    @property
    def _gathered_bytes(self) -> float:
        return self.share.degree * self.keys_bytes


def _with_attention(entries: Entries, attention: Callable[[Operator], tuple[Item, ...]]) -> Entries:
    """Return entries of which the core of attention is replaced."""
    return tuple(
        each
        for entry in entries
        for each in (attention(entry.operator) if isinstance(entry, OperatorRun) and entry.operator.role == "core_attention" else (entry,))
    )


def _work(kernels: tuple[Kernel, ...], phase: Phase) -> Work:
    return Work(name="attention", phase=phase, kernels=kernels)


def _check_heads(model: Model, cp: int, tp: int) -> None:
    heads, kv_heads = model.n_heads // tp, max(1, model.n_kv_heads // tp)
    good = [degree for degree in divisors(heads) if kv_heads % degree == 0 or degree % kv_heads == 0]
    if cp in good:
        return
    among = f" that tp = {tp} leaves" if tp > 1 else ""
    message = f"ulysses deals out heads, and cp = {cp} does not divide the {heads} heads and {kv_heads} key and value heads{among}"
    raise DomainError(message, path=("strategy", "cp"), hint=f"use {listed(good)}, or context_parallel: ring")

"""The two halves of a transformer layer, forward and backward: where tensor, context and expert parallelism cut in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from clustersim.hardware.communication import CollectiveOp
from clustersim.program.tasks import Collective, Group, Item, Overlapped, Work
from clustersim.strategy.alternate import repeated_operators
from clustersim.strategy.chunking import beside_chunks
from clustersim.strategy.context import ContextParallel
from clustersim.strategy.division import Division
from clustersim.strategy.experts import Exchange, ExpertGroups, expert_groups
from clustersim.strategy.layers import PHASES, ForwardPhase, Gradients, backward_work, forward_work, sublayers
from clustersim.strategy.plan import Plan
from clustersim.strategy.recompute import keeps_nothing, repeated
from clustersim.strategy.routing import dispatch
from clustersim.strategy.shard import local_shape, numerics
from clustersim.workload.experts import MoeHalf
from clustersim.workload.model import Sublayer
from clustersim.workload.operators import Operator, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelGroups:
    """Who works together on the layers of one stage."""

    tp: Group
    cp: Group
    experts: ExpertGroups | None = None
    """None for a model without experts."""


def parallel_groups(plan: Plan, division: Division, stage: int, part: int) -> ParallelGroups:
    """Return who works together on the layers of a stage, among the ranks of a class."""
    return ParallelGroups(
        tp=division.group("tp", stage, part),
        cp=division.group("cp", stage, part),
        experts=expert_groups(plan.strategy, division, stage, part) if plan.model.experts else None,
    )


def own_operators(operators: Sequence[Operator], left_out: frozenset[Role]) -> tuple[Operator, ...]:
    """Return the operators of a pass, without those that a contributor computes itself."""
    return tuple(operator for operator in operators if operator.role not in left_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Halves:
    """Attention and MLP of a layer, each from its normalisation to its residual addition.

    As in Megatron-LM, attention and MLP are each column-split layers followed by a row-split one. Without sequence parallelism the
    row-split layer's output is all-reduced forward, and the gradient of the column-split layer's input backward. With it, activations
    are gathered before and scattered after the pair, and the other way round backward. The backward collective of the column-split layer
    runs beside its weight gradient where the plan overlaps them, and the others beside chunks of the products next to them where it cuts
    these. Experts take the rows that a rank has under sequence parallelism as they are, and send them to each other.
    """

    plan: Plan
    groups: ParallelGroups
    gradients: Gradients = "all"
    """What backward passes compute. Recomputation and the collectives of input gradients belong to the input; to the weight, the gathering
    of an input that was kept as a slice."""
    left_out: frozenset[Role] = frozenset()
    """Roles of operators that a contributor computes itself."""

    def forward(self, layer: int, phase: ForwardPhase = "forward") -> tuple[Item, ...]:
        """Return one layer forward."""
        parts = self._sublayers(layer)
        return tuple(
            item
            for part in parts
            for item in (self._experts_forward(layer, phase) if part.experts else self._pair_forward(part.name, part.operators, phase))
        )

    def again(self, layer: int) -> tuple[Item, ...]:
        """Return the forward pass of a layer as full recomputation repeats it: to its end, or without what nothing needs."""
        parts = self._sublayers(layer)
        return tuple(
            item for part in parts for item in (self._moe_again(layer) if part.experts else self._pair_again(part.name, part.operators))
        )

    def backward(self, layer: int, *, repeats: bool = True) -> tuple[Item, ...]:
        """Return one layer backward, with what selective recomputation repeats of it where it ``repeats`` anything."""
        parts = self._sublayers(layer)
        alternate = repeats and self.plan.strategy.recompute == "alternate" and self.gradients != "weight"
        first = (item for part in parts for item in self._alternate(part.name, part.operators)) if alternate else ()
        own = (
            self._experts_backward(layer, repeats=repeats) if part.experts else self._pair_backward(part, repeats=repeats)
            for part in reversed(parts)
        )
        return (*first, *(item for items in own for item in items))

    def _sublayers(self, layer: int) -> tuple[Sublayer, ...]:
        parts = sublayers(self.plan, layer)
        return tuple(replace(part, operators=own_operators(part.operators, self.left_out)) for part in parts) if self.left_out else parts

    def collective(self, op: CollectiveOp, width: int | None = None) -> tuple[Collective, ...]:
        """Return a tensor-parallel collective of rows of the hidden size, or of another width."""
        if self.plan.strategy.tp == 1:
            return ()
        size_bytes = self._rows * (self.plan.model.hidden_size if width is None else width) * numerics(self.plan).element_bytes
        return (Collective(op=op, group=self.groups.tp, bytes=size_bytes),)

    def backward_works(self, name: str, operators: Sequence[Operator]) -> tuple[Work, ...]:
        """Return some operators backward; nothing where their gradients were not put off."""
        work = backward_work(name, operators, self.gradients)
        return (work,) if work.kernels or self.gradients == "all" else ()

    def column_backward(self, operators: Sequence[Operator], width: int, *, gathered: bool = False) -> tuple[Item, ...]:
        """Return the backward pass of column-split layers and of what follows them, and the collective of their input gradients.

        Parameters
        ----------
        gathered
            Recomputation has put their input together already.
        """
        columns = [operator for operator in operators if operator.column]
        name, phase = " and ".join(operator.name for operator in columns), PHASES[self.gradients]
        before = self._backwards(name, [operator for operator in operators if not operator.column])
        inputs = tuple(kernel for operator in reversed(columns) for kernel in operator.kernels("input_gradient"))
        weights = tuple(kernel for operator in reversed(columns) for kernel in operator.kernels("weight_gradient"))
        input_gradient = Work(name=f"{name} input gradient", phase=phase, kernels=inputs)
        weight_gradient = Work(name=f"{name} weight gradient", phase=phase, kernels=weights)
        # Under sequence parallelism the saved input is a slice, gathered again while the input gradient is computed.
        regather = self.collective("all_gather", width) if self._sequence_parallel and not gathered else ()
        close = self.collective(self._closing, width)
        if self.gradients == "input":
            return (*before, input_gradient, *close)
        if self.gradients == "weight":
            return (*before, *regather, weight_gradient)
        if self.plan.strategy.overlap_tp in ("none", "async_tp"):
            return (*before, *regather, input_gradient, *close, weight_gradient)
        first: tuple[Item, ...] = tuple(Overlapped(collective=each, work=input_gradient) for each in regather) or (input_gradient,)
        return (*before, *first, *(Overlapped(collective=each, work=weight_gradient) for each in close))

    @property
    def _rows(self) -> int:
        return local_shape(self.plan).rows

    @property
    def _sequence_parallel(self) -> bool:
        return self.plan.strategy.sequence_parallel

    @property
    def _chunked(self) -> bool:
        return self.plan.strategy.overlap_tp in ("gemm_chunks", "async_tp")

    @property
    def _closing(self) -> CollectiveOp:
        return "reduce_scatter" if self._sequence_parallel else "all_reduce"

    @property
    def _context(self) -> ContextParallel | None:
        share = local_shape(self.plan).context
        return None if share is None else ContextParallel(plan=self.plan, group=self.groups.cp, share=share)

    def _entering(self, half: str) -> int:
        """Return the width of the rows that enter the column-split layers of half a layer."""
        return self.plan.model.entering_width if half == "attention" else self.plan.model.hidden_size

    def _forwards(self, name: str, operators: Sequence[Operator], phase: ForwardPhase) -> tuple[Item, ...]:
        """Return operators forward, attention among them with what context parallelism exchanges."""
        context, place = self._context, _core(operators)
        if context is None or place is None:
            return (forward_work(name, operators, phase),)
        around = (operators[:place], operators[place + 1 :])
        before, behind = (tuple(forward_work(name, each, phase) for each in (some,) if some) for some in around)
        return (*before, *context.forward(operators[place], phase), *behind)

    def _backwards(self, name: str, operators: Sequence[Operator]) -> tuple[Item, ...]:
        """Return the same backward."""
        context, place = self._context, _core(operators)
        if context is None or place is None or self.gradients == "weight":
            return self.backward_works(name, operators)
        behind, before = (self.backward_works(name, each) if each else () for each in (operators[place + 1 :], operators[:place]))
        return (*behind, *context.backward(operators[place], PHASES[self.gradients]), *before)

    def _pair_forward(self, name: str, operators: Sequence[Operator], phase: ForwardPhase) -> tuple[Item, ...]:
        if self.plan.strategy.tp == 1:
            return self._forwards(name, operators, phase)
        before, inner, last = _cut(operators)
        return (
            forward_work(f"{name} norm", before, phase),
            *self._split_pair(name, inner, phase, self.collective(self._closing)),
            forward_work(f"{name} residual", [last], phase),
        )

    def _pair_again(self, name: str, operators: Sequence[Operator]) -> tuple[Item, ...]:
        kept = [operator for operator in operators if not (operator.needless and self.plan.strategy.recompute_stops_early)]
        if len(kept) == len(operators):
            return self._pair_forward(name, operators, "recompute")
        if self.plan.strategy.tp == 1:
            return self._forwards(name, kept, "recompute")
        before, _, _ = _cut(operators)
        return (forward_work(f"{name} norm", before, "recompute"), *self._split_pair(name, kept[len(before) :], "recompute", ()))

    def _alternate(self, name: str, operators: Sequence[Operator]) -> tuple[Item, ...]:
        """Return what is repeated of half a layer whose every second product is kept, and what its row-split layer scatters or reduces."""
        kept = [
            operator for operator in repeated_operators(self.plan, operators) if not operator.needless and operator.kernels("recompute")
        ]
        if self.plan.strategy.tp == 1:
            return (forward_work(name, kept, "recompute"),)
        n_before = len(_cut(operators)[0])
        before = forward_work(f"{name} norm", kept[:n_before], "recompute")
        return (before, *self._split_pair(name, kept[n_before:], "recompute", ()))

    def _split_pair(self, name: str, inner: Sequence[Operator], phase: ForwardPhase, close: tuple[Collective, ...]) -> tuple[Item, ...]:
        """Return column-split layers, what follows them and, unless nothing closes it, the row-split layer, with their collectives."""
        gather = self.collective("all_gather", self._entering(name)) if self._sequence_parallel else ()
        if not self._chunked:
            return (*gather, *self._forwards(name, inner, phase), *close)
        columns = [operator for operator in inner if operator.column]
        between = [operator for operator in inner if not operator.column]
        row = (between.pop(),) if close else ()
        kernels = tuple(kernel for operator in columns for kernel in operator.kernels(phase))
        return (
            *beside_chunks(" and ".join(operator.name for operator in columns), phase, kernels, gather),
            *self._forwards(name, between, phase),
            *(item for each in row for item in beside_chunks(each.name, phase, each.kernels(phase), close)),
        )

    def _repeats(self, name: str, operators: Sequence[Operator], *, repeats: bool) -> tuple[Item, ...]:
        """Return what selective recomputation repeats of half a layer before its backward pass."""
        if not repeats or self.gradients == "weight":
            return ()
        again = repeated(self.plan, operators)
        # Products of columns need their input whole, which is kept as a slice.
        sliced = self._sequence_parallel and any(operator.column for operator in again)
        gather = self.collective("all_gather", self._entering(name)) if sliced else ()
        return (*gather, *self._forwards(f"{name} again", again, "recompute")) if again else ()

    def _pair_backward(self, part: Sublayer, *, repeats: bool) -> tuple[Item, ...]:
        name, operators = part.name, part.operators
        again = self._repeats(name, operators, repeats=repeats)
        if self.plan.strategy.tp == 1:
            return (*again, *self._backwards(name, operators))
        before, inner, last = _cut(operators)
        inner = list(inner)
        gather = self.collective("all_gather") if self._sequence_parallel and self.gradients != "weight" else ()
        opened: tuple[Item, ...] = (*gather, *again)
        if self._chunked and self.gradients != "weight":
            row = inner.pop()
            weights = Work(name=f"{row.name} weight gradient", phase=PHASES[self.gradients], kernels=row.kernels("weight_gradient"))
            put_off = self.gradients == "input"
            beside = beside_chunks(f"{row.name} input gradient", PHASES[self.gradients], row.kernels("input_gradient"), gather)
            opened = (*beside, *(() if put_off else (weights,)), *again)
        return (
            *self.backward_works(f"{name} residual", [last]),
            *opened,
            *self.column_backward(inner, self._entering(name), gathered=self.plan.strategy.recompute == "alternate"),
            *self.backward_works(f"{name} norm", before),
        )

    def _moe(self, layer: int, place: int | None = None) -> MoeHalf:
        (half,) = (part.experts for part in sublayers(self.plan, layer, place) if part.experts)
        return half

    def _longest(self, layer: int) -> MoeHalf:
        """Return the half with what the rank computes that has most rows."""
        return self._moe(layer, dispatch(self.plan, layer).hottest)

    def _exchange(self, layer: int) -> Exchange:
        assert self.groups.experts is not None, self.plan.model.name
        return Exchange(plan=self.plan, groups=self.groups.experts, layer=layer)

    def _experts_forward(self, layer: int, phase: ForwardPhase) -> tuple[Item, ...]:
        half, away = self._moe(layer), self._exchange(layer)
        there, back = away.to_experts(), away.from_experts()
        if not there and (self.plan.strategy.tp == 1 or not half.shared):
            return (forward_work("experts", half.operators, phase),)
        beside = bool(half.shared and there) and self.plan.strategy.overlap_ep
        up, down, rest = _shared_parts(half.shared)
        name = "shared experts"
        return (
            forward_work("router", (*half.norm, *half.router, *half.permute), phase),
            *((*self._gathered_shared(), *_beside(there, forward_work(name, up, phase), last=False)) if beside else there),
            away.awaited(*(forward_work("experts", _computed(each), phase) for each in (half, self._longest(layer)))),
            *((*_beside(back, forward_work(name, down, phase), last=True), *self.collective(self._closing)) if beside else back),
            forward_work("unpermute", half.unpermute, phase),
            *((forward_work(name, rest, phase),) if beside else self._shared_forward(half.shared, phase)),
            forward_work("experts residual", half.residual, phase),
        )

    def _moe_again(self, layer: int) -> tuple[Item, ...]:
        """Return the experts' half as full recomputation repeats it: to its end, or without what nothing needs."""
        half, away = self._moe(layer), self._exchange(layer)
        back_is_needed = not all(operator.needless for operator in (*half.unsort, *half.unpermute))
        if back_is_needed or not self.plan.strategy.recompute_stops_early:
            return self._experts_forward(layer, "recompute")
        there = away.to_experts()
        needed, longest = ([each for each in (*moe.sort, *moe.experts) if not each.needless] for moe in (half, self._longest(layer)))
        shared = [operator for operator in half.shared if not operator.needless]
        return (
            forward_work("router", (*half.norm, *half.router, *half.permute), "recompute"),
            *there,
            away.awaited(forward_work("experts", needed, "recompute"), forward_work("experts", longest, "recompute")),
            *((*self._gathered_shared(), forward_work("shared experts", shared, "recompute")) if shared else ()),
        )

    def _experts_backward(self, layer: int, *, repeats: bool) -> tuple[Item, ...]:
        half, away = self._moe(layer), self._exchange(layer)
        there, back = away.to_experts(backward=True), away.from_experts(backward=True)
        repeats = repeats and self.gradients != "weight"
        whole = self._experts_forward(layer, "recompute") if repeats and keeps_nothing(self.plan, "moe") else ()
        again = () if whole else self._repeats("experts", half.operators, repeats=repeats)
        if not there and (self.plan.strategy.tp == 1 or not half.shared):
            return (*whole, *again, *self.backward_works("experts", half.operators))
        parts = tuple(backward_work("experts", _computed(each), self.gradients) for each in (half, self._longest(layer)))
        beside = bool(half.shared and there) and self.plan.strategy.overlap_ep and self.gradients != "weight"
        if self.gradients == "weight":
            there = back = ()
        up, down, rest = (backward_work("shared experts", part, self.gradients) for part in _shared_parts(half.shared))
        gather, close = self._gathered_shared(), self.collective(self._closing)
        return (
            *whole,
            *again,
            *self.backward_works("experts residual", half.residual),
            *((rest, *gather) if beside else self._shared_backward(half.shared)),
            *self.backward_works("unpermute", half.unpermute),
            *(_beside(there, down, last=False) if beside else there),
            away.awaited(*parts),
            # The input of the first product is kept as a slice, and its gradient ends as one.
            *((*gather, *_beside(back, up, last=True), *close) if beside else back),
            *self.backward_works("router", (*half.norm, *half.router, *half.permute)),
        )

    def _gathered_shared(self) -> tuple[Collective, ...]:
        return self.collective("all_gather") if self._sequence_parallel else ()

    def _shared_forward(self, shared: Sequence[Operator], phase: ForwardPhase) -> tuple[Item, ...]:
        if not shared:
            return ()
        if self.plan.strategy.tp == 1:
            return (forward_work("shared experts", shared, phase),)
        split, whole = _split(shared)
        add = forward_work("shared experts", whole, phase)
        return (*self._gathered_shared(), forward_work("shared experts", split, phase), *self.collective(self._closing), add)

    def _shared_backward(self, shared: Sequence[Operator]) -> tuple[Item, ...]:
        if not shared:
            return ()
        if self.plan.strategy.tp == 1:
            return self.backward_works("shared experts", shared)
        split, whole = _split(shared)
        gather = self._gathered_shared() if self.gradients != "weight" else ()
        width = self.plan.model.hidden_size
        return (*self.backward_works("shared experts", whole), *gather, *self.column_backward(split, width))


def of_gradients(halves: Halves, gradients: Gradients) -> Halves:
    """Return the same layers, whose backward passes compute these gradients."""
    return replace(halves, gradients=gradients)


def _core(operators: Sequence[Operator]) -> int | None:
    return next((place for place, operator in enumerate(operators) if operator.role == "core_attention"), None)


def _cut(operators: Sequence[Operator]) -> tuple[Sequence[Operator], Sequence[Operator], Operator]:
    """Return what stands before the first column-split layer of half a layer, what follows up to the row-split one, and the residual."""
    first = next(number for number, operator in enumerate(operators) if operator.column)
    return operators[:first], operators[first:-1], operators[-1]


def _shared_parts(shared: Sequence[Operator]) -> tuple[Sequence[Operator], Sequence[Operator], Sequence[Operator]]:
    """Return shared experts up to their activation, their second product, and what adds its result."""
    return shared[:2], shared[2:3], shared[3:]


def _beside(ways: tuple[Collective, ...], work: Work, *, last: bool) -> tuple[Item, ...]:
    """Return collectives, the first or the last of which runs beside work."""
    place = len(ways) - 1 if last else 0
    return (*ways[:place], Overlapped(collective=ways[place], work=work), *ways[place + 1 :])


def _split(shared: Sequence[Operator]) -> tuple[Sequence[Operator], Sequence[Operator]]:
    """Return what tensor parallelism divides of shared experts, and what every rank does with its rows of the result."""
    return shared[:3], shared[3:]


def _computed(half: MoeHalf) -> tuple[Operator, ...]:
    """Return what experts do between the two exchanges."""
    return (*half.sort, *half.experts, *half.unsort)

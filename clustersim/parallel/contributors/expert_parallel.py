"""Expert parallelism: tokens travel to the ranks that hold their experts, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from clustersim.errors import DomainError
from clustersim.hardware.library_costs import CollectiveOp
from clustersim.parallel.contributors.contributor import Contributor, check_division
from clustersim.parallel.expert_shares import Dispatch, expected_nodes
from clustersim.parallel.gradients import WIRE_BYTES
from clustersim.parallel.groups import ExpertGroups, ParallelGroups
from clustersim.parallel.layers import PHASES, ForwardPhase, Gradients
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.step_settings import Training, WirePrecision
from clustersim.parallel.sublayers import Beside, Entries, LayerTechnique, OperatorRun, backward_runs, forward_runs, joined_work
from clustersim.parallel.training_plan import Strategy, StrategySettings
from clustersim.program.tasks import Collective, Phase
from clustersim.units.divisors import divisors, listed
from clustersim.workloads.experts import MoeHalf
from clustersim.workloads.model import Model, Sublayer
from clustersim.workloads.operators import Operator
from clustersim.workloads.shapes import FP32_BYTES
from clustersim.workloads.transformer_shape import Experts

COMPUTED = ("sort", "experts", "unsort")
"""Parts of a sublayer with experts between its two exchanges."""


class ExpertParallelism(Contributor):
    """Experts divided among the ranks of a group."""

    @classmethod
    def applies(cls, strategy: Strategy) -> bool:
        """Return whether experts, or each of them, are divided where there are any."""
        return strategy.ep * strategy.expert_tp > 1

    @classmethod
    def refuse_model(cls, model: Model, asked: StrategySettings) -> None:
        """Refuse settings of experts for a model without them."""
        check_division(model, "ep", asked.ep)
        given = {"ep": asked.ep > 1, "etp": asked.etp is not None, "expert_load": asked.expert_load.kind != "balanced"}
        vain = next((name for name, is_given in given.items() if is_given), None)
        if model.experts is None and vain is not None:
            hint = f"leave it out{', or take a model with experts' if model.divisible else ''}"
            raise DomainError(f"{model.name} has no experts", path=("strategy", vain), hint=hint)

    @classmethod
    def refuse(cls, strategy: Strategy, asked: StrategySettings, *, model: Model, training: Training) -> None:
        """Refuse degrees that the experts or the ranks of a stage do not divide by."""
        _check_skew(asked)
        if model.experts is None:
            return
        _check_degrees(model.experts, strategy)
        if strategy.overlap_ep == "micro_batches" and strategy.schedule != "interleaved_1f1b" and strategy.pp > 1:
            message = f"{strategy.schedule} has no forward pass of another micro-batch beside each backward pass"
            raise DomainError(message, path=("strategy", "overlap_ep"), hint="use schedule: interleaved_1f1b, or false")
        if strategy.tp > 1 and not strategy.sequence_parallel:
            message = "experts take tokens that tensor-parallel ranks have divided among them"
            raise DomainError(message, path=("strategy", "sequence_parallel"), hint="use true, or tp: 1")
        if strategy.data_parallel.service is not None and strategy.ep * strategy.expert_tp > strategy.tp:
            message = "parameter servers keep whole models, and experts are spread over the workers"
            raise DomainError(message, path=("strategy", "ep"), hint="use 1, or another algorithm of data_parallel")

    @classmethod
    def inside(cls, local: LocalModel, strategy: Strategy, groups: ParallelGroups) -> LayerTechnique:
        """Return the exchanges around experts."""
        return SpreadExperts(local=local, strategy=strategy, groups=groups.experts) if groups.experts else LayerTechnique()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadExperts(LayerTechnique):
    """Exchanges of tokens, and the waiting for the rank with most rows.

    A rank sends each of its tokens to ``top_k`` experts in one all-to-all; ranks that divide experts then gather what each of them
    received, and reduce and scatter what experts give before the all-to-all back. All ranks that hold the experts together wait for
    the one with most rows, and the all-to-all is counted as if all received as much as it does.

    Per node, a token is sent once to each node that holds some of its experts, at most to as many nodes as the router takes, and passed
    on inside, once to each rank that holds some of them [1]_; what several experts of a rank give is summed there before it goes back.
    Shared experts compute beside the all-to-alls where the plan overlaps them.

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.2.2; DeepEP.
    """

    local: LocalModel
    strategy: Strategy
    groups: ExpertGroups

    def forward(self, part: Sublayer, entries: Entries, *, phase: ForwardPhase, layer: int) -> Entries:
        """Return a sublayer with the dispatch before its experts and the combine after them, where tokens are sent and summed."""
        if part.experts is None:
            return entries
        runs = _sections(part.experts, entries)
        there = self.to_experts(layer) if runs["permute"] else ()
        back = self.from_experts(layer) if runs["unpermute"] else ()
        longest = forward_runs(_same(self._longest(layer), runs), phase)
        up, down, rest = _shared_parts(runs["shared"])
        beside = bool(up and down and there and back) and self.strategy.overlap_ep is True
        return (
            *(*runs["norm"], *runs["router"], *runs["permute"]),
            *(_beside(there, up, last=False) if beside else there),
            *self._awaited(part, _computed(runs), longest, phase),
            *(_beside(back, down, last=True) if beside else back),
            *(*runs["unpermute"], *(() if beside else (*up, *down)), *rest, *runs["residual"]),
        )

    def backward(self, part: Sublayer, entries: Entries, *, gradients: Gradients, layer: int) -> Entries:
        """Return a sublayer backward with both exchanges, which no weight gradient needs."""
        if part.experts is None:
            return entries
        runs = _sections(part.experts, entries)
        moves = gradients != "weight"
        there = self.to_experts(layer, backward=True) if moves else ()
        back = self.from_experts(layer, backward=True) if moves else ()
        longest = backward_runs(_same(self._longest(layer), runs), gradients)
        rest, down, up = (each[::-1] for each in _shared_parts(runs["shared"][::-1])[::-1])
        beside = bool(up and there) and self.strategy.overlap_ep is True
        return (
            *(*runs["residual"], *rest, *(() if beside else (*down, *up)), *runs["unpermute"]),
            *(_beside(there, down, last=False) if beside else there),
            *self._awaited(part, _computed(runs, backward=True), longest, PHASES[gradients]),
            *(_beside(back, up, last=True) if beside else back),
            *(*runs["permute"], *runs["router"], *runs["norm"]),
        )

    def to_experts(self, layer: int = 0, *, backward: bool = False) -> tuple[Collective, ...]:
        """Return the collectives before the experts; backward, gradients of the outputs in full precision."""
        precision: WirePrecision = "same" if backward else self.strategy.dispatch_precision
        spread = self.local.expert_spread.dispatch(layer)
        # Scores travel with tokens, and their gradients come back.
        return (*self._exchange(spread, precision, extra=0.0 if backward else FP32_BYTES), *self._slices(spread, "all_gather"))

    def from_experts(self, layer: int = 0, *, backward: bool = False) -> tuple[Collective, ...]:
        """Return the collectives after the experts."""
        spread = self.local.expert_spread.dispatch(layer)
        ways = self._exchange(spread, "same", extra=FP32_BYTES if backward else 0.0)
        return (*self._slices(spread, "reduce_scatter"), *reversed(ways))

    def _longest(self, layer: int) -> MoeHalf:
        """Return the sublayer of the rank that has most rows."""
        parts = self.local.sublayers(layer, self.local.expert_spread.dispatch(layer).hottest)
        return next(part.experts for part in parts if part.experts)

    def _awaited(self, part: Sublayer, runs: Sequence[OperatorRun], longest: Entries, phase: Phase) -> Entries:
        """Return the operators of the experts, and the waiting for the rank that computes longest."""
        most = [entry for entry in longest if isinstance(entry, OperatorRun)]
        if [run.kernels for run in runs] == [run.kernels for run in most]:
            return tuple(runs)
        return (replace(joined_work(part, runs, phase), longest=joined_work(part, most, phase).kernels, dimension="ep"),)

    def _exchange(self, spread: Dispatch, precision: WirePrecision, *, extra: float) -> tuple[Collective, ...]:
        if spread.n_ranks == 1:
            return ()
        rows = sum(spread.rows) / (spread.n_ranks * spread.copies) * spread.skew
        width = self._width_bytes(precision) + extra
        between, inside, experts = self.groups.between, self.groups.inside, self.local.model.experts
        if experts is None or self.strategy.dispatch == "all_to_all":
            return (Collective(op="all_to_all", group=self.groups.whole, bytes=rows * width),)
        tokens = rows / experts.top_k
        once_bytes = tokens * expected_nodes(spread.n_ranks, experts) * width
        if between is None or inside is None:
            return (Collective(op="all_to_all", group=self.groups.whole, bytes=once_bytes),)
        return (
            Collective(op="all_to_all", group=between, bytes=tokens * expected_nodes(between.size, experts) * width),
            Collective(op="all_to_all", group=inside, bytes=once_bytes),
        )

    def _slices(self, spread: Dispatch, op: CollectiveOp) -> tuple[Collective, ...]:
        if spread.copies == 1:
            return ()
        rows = sum(spread.rows) / spread.n_ranks * spread.skew
        return (Collective(op=op, group=self.groups.slices, bytes=rows * self._width_bytes("same")),)

    def _width_bytes(self, precision: WirePrecision) -> float:
        number_bytes = self.local.numerics.element_bytes if precision == "same" else WIRE_BYTES[precision]
        return self.local.model.hidden_size * number_bytes


Sections = dict[str, tuple[OperatorRun, ...]]
"""Operators of each part of a sublayer with experts, in the order of the pass."""


def _sections(half: MoeHalf, entries: Entries) -> Sections:
    """Return the operators that run, by their part of the sublayer."""
    part_of = {operator.name: part.name for part in fields(half) for operator in getattr(half, part.name)}
    runs = [entry for entry in entries if isinstance(entry, OperatorRun)]
    return {part.name: tuple(run for run in runs if part_of[run.operator.name] == part.name) for part in fields(half)}


def _computed(runs: Sections, *, backward: bool = False) -> tuple[OperatorRun, ...]:
    return tuple(run for part in (COMPUTED[::-1] if backward else COMPUTED) for run in runs[part])


def _same(half: MoeHalf, runs: Sections) -> tuple[Operator, ...]:
    """Return the operators of another rank's experts that run on this one too."""
    names = {run.operator.name for run in _computed(runs)}
    return tuple(operator for part in COMPUTED for operator in getattr(half, part) if operator.name in names)


def _shared_parts(shared: tuple[OperatorRun, ...]) -> tuple[tuple[OperatorRun, ...], tuple[OperatorRun, ...], tuple[OperatorRun, ...]]:
    """Return shared experts up to their activation, their second product, and what adds its result."""
    row = next((place for place, run in enumerate(shared) if run.operator.row), len(shared))
    return shared[:row], shared[row : row + 1], shared[row + 1 :]


def _beside(ways: tuple[Collective, ...], runs: tuple[OperatorRun, ...], *, last: bool) -> Entries:
    """Return collectives, the first or the last of which runs beside some operators."""
    place = len(ways) - 1 if last else 0
    return (*ways[:place], Beside(collective=ways[place], runs=runs), *ways[place + 1 :])


def _check_skew(asked: StrategySettings) -> None:
    """Refuse a skew with a balanced load or a load from a file."""
    if not asked.gives("expert_skew"):
        return
    path = ("strategy", "expert_skew")
    if asked.expert_load.kind == "balanced":
        raise DomainError("a balanced load has no skew", path=path, hint="leave it out, or use zipf or dirichlet")
    if asked.expert_load.kind == "file":
        raise DomainError("the file says what each expert gets", path=path, hint="leave it out")


def _check_degrees(experts: Experts, strategy: Strategy) -> None:
    ep, etp, stage = strategy.ep, strategy.expert_tp, strategy.dp * strategy.cp * strategy.tp
    if experts.n_experts % ep:
        good = [degree for degree in divisors(experts.n_experts) if stage % (degree * etp) == 0]
        raise DomainError(f"{ep} does not divide {experts.n_experts} experts", path=("strategy", "ep"), hint=f"use {listed(good or [1])}")
    if experts.intermediate_size % etp:
        good = [each for each in divisors(experts.intermediate_size) if stage % (ep * each) == 0]
        message = f"{etp} does not divide the width {experts.intermediate_size} of an expert"
        hint = f"use {listed(good)}" if good else f"use 1, and an ep that divides {stage}"
        raise DomainError(message, path=("strategy", "etp"), hint=hint)
    if stage % (ep * etp):
        good = [degree for degree in divisors(experts.n_experts) if stage % (degree * etp) == 0]
        raise DomainError(
            f"ep * etp = {ep} * {etp} does not divide the dp * cp * tp = {stage} ranks of a stage",
            path=("strategy", "ep"),
            hint=f"use {listed(good)}" if good else f"use an etp that divides {stage}",
        )

"""Expert parallelism: tokens travel to the ranks that hold their experts, and back."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np

from clustersim.hardware.communication import CollectiveOp
from clustersim.program.tasks import Collective, Group, Item, Uneven, Work
from clustersim.strategy.division import Division
from clustersim.strategy.gradients import WIRE_BYTES
from clustersim.strategy.plan import Plan, Strategy
from clustersim.strategy.routing import dispatch
from clustersim.strategy.shard import numerics
from clustersim.strategy.sharding_groups import expert_grid
from clustersim.strategy.step_settings import WirePrecision
from clustersim.topology.cluster import IntArray
from clustersim.workload.shapes import FP32_BYTES
from clustersim.workload.transformer_shape import Experts


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertGroups:
    """Who exchanges tokens on one stage."""

    whole: Group
    """Ranks that hold all experts together."""
    slices: Group
    """Ranks that divide each expert."""
    between: Group | None
    """Ranks of the whole with equal places in their nodes, where tokens go to each node once."""
    inside: Group | None
    """Ranks of the whole in one node."""


def expert_groups(strategy: Strategy, division: Division, stage: int, part: int) -> ExpertGroups:
    """Return the groups of expert parallelism among the ranks of a class.

    Where a token is sent once to each node, an orbit of ranks with equal places in their nodes sends between nodes, and the ranks of a
    node pass tokens on among them; so it is done where the members of every group fill equally many places in several nodes.
    """
    grid = expert_grid(strategy, division.mesh, stage)
    lines, slices = grid.transpose(0, 2, 1).reshape(-1, strategy.ep), grid.reshape(-1, strategy.expert_tp)
    if division.n_parts > 1:
        lines, slices = (members[division.part_of(stage, members[:, 0]) == part] for members in (lines, slices))
    between, inside = _by_domain(lines, strategy.domain_size) if strategy.dispatch == "per_node" else (None, None)

    def named(name: str, members: IntArray | None) -> Group | None:
        return None if members is None else division.named(f"{name} of stage {stage}", "ep", members, part)

    return ExpertGroups(
        whole=division.named(f"ep of stage {stage}", "ep", lines, part),
        slices=division.named(f"etp of stage {stage}", "ep", slices, part),
        between=named("ep between nodes", between),
        inside=named("ep inside nodes", inside),
    )


def expected_nodes(n_nodes: int, experts: Experts) -> float:
    """Return how many of some nodes, among which experts are divided evenly, hold one of a token's experts at least, in the mean.

    A router that takes T of N groups of experts takes them evenly, and some expert of each: a node that holds several groups is reached
    unless none of them is taken, ``g (1 - C(N - N/g, T) / C(N, T))`` of g nodes. Where groups span several nodes, and where there is one
    group only, the k experts are drawn evenly, without putting back, from the M that the groups taken have:
    ``G (1 - C(M - E/g, k) / C(M, k))`` of the ``G = g T / N`` nodes of these.

    Examples
    --------
    >>> from clustersim.workload.transformer_shape import Experts
    >>> v3 = Experts(n_experts=256, top_k=8, intermediate_size=2048, n_groups=8, topk_groups=4)
    >>> [round(expected_nodes(nodes, v3), 2) for nodes in (1, 2, 4, 8, 16, 32)]
    [1.0, 1.97, 3.14, 4.0, 5.34, 6.6]
    """
    groups, taken = experts.n_groups, experts.topk_groups
    if n_nodes == 1:
        return 1.0
    if n_nodes <= groups:
        held = groups // n_nodes
        return min(float(experts.top_k), n_nodes * (1.0 - comb(groups - held, taken) / comb(groups, taken)))
    reachable, here = experts.n_experts * taken // groups, experts.n_experts // n_nodes
    return n_nodes * taken / groups * (1.0 - comb(max(0, reachable - here), experts.top_k) / comb(reachable, experts.top_k))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The way of the tokens of one layer to their experts and back.

    A rank sends each of its tokens to ``top_k`` experts in one all-to-all; ranks that divide experts then gather what each of them
    received, and reduce and scatter what experts give before the all-to-all back. All ranks that hold the experts together wait for
    the one with most rows, and the all-to-all is counted as if all received as much as it does.

    Per node, a token is sent once to each node that holds some of its experts, at most to as many nodes as the router takes, and passed
    on inside [1]_.

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.2.2; DeepEP.
    """

    plan: Plan
    groups: ExpertGroups
    layer: int

    def to_experts(self, *, backward: bool = False) -> tuple[Collective, ...]:
        """Return the collectives before the experts; backward, gradients of what they gave take this way, in full precision."""
        precision: WirePrecision = "same" if backward else self.plan.strategy.dispatch_precision
        # Scores travel with tokens, and their gradients come back.
        return (*self._exchange(precision, extra=0.0 if backward else FP32_BYTES), *self._slices("all_gather"))

    def from_experts(self, *, backward: bool = False) -> tuple[Collective, ...]:
        """Return the collectives behind the experts."""
        ways = self._exchange("same", extra=FP32_BYTES if backward else 0.0)
        return (*self._slices("reduce_scatter"), *reversed(ways))

    def awaited(self, mean: Work, longest: Work) -> Item:
        """Return what experts compute, and the waiting for the rank that computes longest."""
        return mean if mean.kernels == longest.kernels else Uneven(work=mean, longest=longest, dimension="ep")

    def _exchange(self, precision: WirePrecision, *, extra: float) -> tuple[Collective, ...]:
        strategy, spread = self.plan.strategy, dispatch(self.plan, self.layer)
        if strategy.ep == 1:
            return ()
        rows = sum(spread.rows) / (spread.n_ranks * spread.copies) * spread.skew
        width = self._width_bytes(precision) + extra
        between, inside = self.groups.between, self.groups.inside
        if between is None or inside is None:
            return (Collective(op="all_to_all", group=self.groups.whole, bytes=rows * width),)
        experts = self._experts()
        once = rows / experts.top_k * expected_nodes(between.size, experts)
        return (
            Collective(op="all_to_all", group=between, bytes=once * width),
            Collective(op="all_to_all", group=inside, bytes=rows * width),
        )

    def _slices(self, op: CollectiveOp) -> tuple[Collective, ...]:
        spread = dispatch(self.plan, self.layer)
        if spread.copies == 1:
            return ()
        rows = sum(spread.rows) / spread.n_ranks * spread.skew
        return (Collective(op=op, group=self.groups.slices, bytes=rows * self._width_bytes("same")),)

    def _width_bytes(self, precision: WirePrecision) -> float:
        number_bytes = numerics(self.plan).element_bytes if precision == "same" else WIRE_BYTES[precision]
        return self.plan.model.hidden_size * number_bytes

    def _experts(self) -> Experts:
        experts = self.plan.model.experts
        assert experts is not None, self.plan.model.name
        return experts


def _by_domain(lines: IntArray, domain_size: int) -> tuple[IntArray | None, IntArray | None]:
    """Return groups cut into what lies in one domain, and across them into ranks of equal places; nothing where that cannot be done."""
    ordered = np.take_along_axis(lines, np.argsort(lines // domain_size, axis=1, kind="stable"), axis=1)
    n_rooms = len(np.unique(lines[0] // domain_size))
    size, rest = divmod(lines.shape[1], n_rooms)
    if n_rooms == 1 or rest:
        return None, None
    members = ordered.reshape(-1, n_rooms, size)
    rooms = members // domain_size
    if (rooms != rooms[:, :, :1]).any() or (rooms[:, 1:, 0] == rooms[:, :-1, 0]).any():
        return None, None
    return members.transpose(0, 2, 1).reshape(-1, n_rooms), members.reshape(-1, size)

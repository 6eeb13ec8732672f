"""How long the parts of a model take on an accelerator, for schedules and layouts that depend on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate
from math import fsum

from clustersim.hardware.calibrations import calibration_for
from clustersim.hardware.models import Node
from clustersim.kernels.model import KernelModel
from clustersim.scenario.replaying import kernels_of
from clustersim.strategy.layers import Operators, back, boundary_bytes, front, layer_at, waits
from clustersim.strategy.memory import holdings
from clustersim.strategy.mesh import place
from clustersim.strategy.plan import Plan
from clustersim.strategy.recompute import repeated
from clustersim.strategy.schedules import SCHEDULES
from clustersim.strategy.schedules.order import PassCosts
from clustersim.workload.operators import Kernel, Operator


def arranged(plan: Plan, node: Node, *, balanced: bool) -> Plan:
    """Return a plan with what follows from how long its parts take: balanced stages, and the costs that its schedule asks for.

    The kernel model gives the times. Collectives inside layers are left out: they are the same in all of them.
    """
    kernels = kernels_of(plan, node.accelerator, calibration_for(node.accelerator))
    if balanced:
        layers = balanced_layers(plan, kernels, n_parts=plan.strategy.pp * plan.strategy.virtual_stages)
        plan = replace(plan, strategy=replace(plan.strategy, stage_layers=layers))
    schedule = SCHEDULES.get(plan.strategy.schedule)
    if schedule is None or schedule.by_times is None:
        return plan
    return replace(plan, strategy=replace(plan.strategy, costs=pass_costs(plan, node, kernels)))


def balanced_layers(plan: Plan, kernels: KernelModel, *, n_parts: int) -> tuple[int, ...]:
    """Return how many layers each part of a model gets so that the longest part is as short as can be; embedding and logits count."""
    known: dict[Operators, float] = {}
    times: list[float] = []
    for layer in range(plan.model.n_layers):
        operators = layer_at(plan, layer)
        if operators not in known:
            known[operators] = both_ways_s(plan, operators, kernels)
        times.append(known[operators])
    ends = both_ways_s(plan, front(plan), kernels), both_ways_s(plan, back(plan), kernels)
    return evenly(times, ends, n_parts)


def both_ways_s(plan: Plan, operators: Operators, kernels: KernelModel) -> float:
    """Return how long some operators take forward and backward, with what is recomputed."""
    again = operators if plan.strategy.recompute == "full" else repeated(plan, operators)
    work = [(*each.forward, *each.backward_input, *each.backward_weight) for each in operators]
    return fsum(kernels.work_s(each) for each in (*work, *(each.forward for each in again)))


def evenly(times: Sequence[float], ends: tuple[float, float], n_parts: int) -> tuple[int, ...]:
    """Return the sizes of consecutive parts whose longest is shortest, and among those the ones with the least squares.

    Parameters
    ----------
    times
        Of the things that are dealt out, in order; every part gets at least one.
    ends
        What the first and the last part have besides.

    Examples
    --------
    >>> evenly([1.0] * 7, (0.0, 1.0), 4)
    (2, 2, 2, 1)
    """
    sums, n = (0.0, *accumulate(times)), len(times)

    @cache
    def best(part: int, stop: int) -> tuple[float, float, int]:
        """Return longest time, squares and start of the last part, of so many parts up to a place."""
        extra = (ends[0] if part == 0 else 0.0) + (ends[1] if part == n_parts - 1 else 0.0)
        if part == 0:
            return sums[stop] + extra, (sums[stop] + extra) ** 2, 0
        options: list[tuple[float, float, int]] = []
        for start in range(part, stop):
            longest, squares, _ = best(part - 1, start)
            own = sums[stop] - sums[start] + extra
            options.append((max(longest, own), squares + own**2, start))
        # Where all are alike the later parts are the smaller ones: the last has the logits.
        return min(options, key=lambda option: (round(option[0], 12), round(option[1], 12), -option[2]))

    sizes: list[int] = []
    stop = n
    for part in range(n_parts - 1, -1, -1):
        start = best(part, stop)[2]
        sizes.append(stop - start)
        stop = start
    return tuple(reversed(sizes))


def pass_costs(plan: Plan, node: Node, kernels: KernelModel) -> PassCosts:
    """Return what passes through one chunk cost: the mean over the stages, and what is kept on the first."""
    layers = [layer_at(plan, layer) for layer in range(plan.model.n_layers)]
    operators = [each for layer in (front(plan), *layers, back(plan)) for each in layer]
    share = 1.0 / (plan.strategy.pp * plan.strategy.virtual_stages)
    again = operators if plan.strategy.recompute == "full" else repeated(plan, operators)
    held = holdings(plan, 0)
    kept_bytes, weight_bytes = fsum(held.kept_bytes), fsum(held.weight_bytes)

    def total_s(of: Callable[[Operator], Iterable[Kernel]], chosen: Iterable[Operator] = operators) -> float:
        return share * fsum(kernels.work_s(of(each)) for each in chosen)

    return PassCosts(
        forward_s=total_s(lambda each: each.forward),
        input_s=total_s(lambda each: (*each.backward_input, *(() if waits(each) else each.backward_weight)))
        + total_s(lambda each: each.forward, again),
        weight_s=total_s(lambda each: each.backward_weight if waits(each) else ()),
        send_s=_send_s(plan, node),
        weight_fraction=weight_bytes / kept_bytes if kept_bytes else 1.0,
    )


def _send_s(plan: Plan, node: Node) -> float:
    """Return how long the activation of a micro-batch is on the wire between the first two stages, alone."""
    ranks = place(plan.strategy).ranks[:2, 0, 0, 0]
    domain = node.n_accelerators * node.scale_up.nodes_per_domain
    near = ranks[0] // domain == ranks[1] // domain
    bandwidth_bytes_per_s = node.accelerator.scale_up_bandwidth_bytes_per_s if near else node.nic.bandwidth_bytes_per_s
    return boundary_bytes(plan) / plan.strategy.tp / bandwidth_bytes_per_s if bandwidth_bytes_per_s else 0.0

"""How long the parts of a model take on an accelerator, for schedules and layouts that depend on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from math import fsum

import numpy as np

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
from clustersim.topology.cluster import FloatArray
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
    sums = np.array([0.0, *accumulate(times)])
    # Of the parts so far, by where they stop: the longest time, and the squares.
    longest = sums + ends[0]
    squares = longest**2
    starts: list[list[int]] = []
    for part in range(1, n_parts):
        extra = ends[1] if part == n_parts - 1 else 0.0
        chosen: list[int] = [0] * len(sums)
        before, squares_before = longest, squares
        longest, squares = np.full(len(sums), np.inf), np.full(len(sums), np.inf)
        for stop in range(part + 1, len(sums)):
            own = sums[stop] - sums[part:stop] + extra
            options = np.maximum(before[part:stop], own), squares_before[part:stop] + own**2
            start = _best(*options)
            longest[stop], squares[stop], chosen[stop] = options[0][start], options[1][start], part + start
        starts.append(chosen)
    sizes: list[int] = []
    stop = len(times)
    for chosen in reversed(starts):
        sizes.append(stop - chosen[stop])
        stop = chosen[stop]
    return (stop, *reversed(sizes))


def _best(longest: FloatArray, squares: FloatArray) -> int:
    """Return the last of the options that are shortest and, among those, have the least squares; all to twelve digits after the point."""
    # Only what lies within a rounding of the least can be equal to it.
    near = np.flatnonzero(longest <= longest.min() + 2e-12).tolist()
    # Where all are alike the later parts are the smaller ones: the last has the logits.
    return min(near, key=lambda option: (round(longest.item(option), 12), round(squares.item(option), 12), -option))


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

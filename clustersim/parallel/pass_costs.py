"""Durations of the parts of a model on an accelerator, for schedules and layouts that depend on them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from math import fsum
from typing import Final

from clustersim.hardware.calibration import Calibration
from clustersim.hardware.calibrations import calibration_at
from clustersim.hardware.models import Node
from clustersim.kernels.kernel_model import KernelModel, slowest_of
from clustersim.parallel.contributors import stage_holds
from clustersim.parallel.division import place
from clustersim.parallel.layers import Operators, waits
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.recomputation import recomputation_of
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.schedules.order import PassCosts
from clustersim.parallel.shard import local_model
from clustersim.parallel.stage import Stage, stage_with
from clustersim.parallel.stages import model_chunks
from clustersim.parallel.step_settings import Training
from clustersim.parallel.training_plan import Strategy
from clustersim.program.holds import FORWARD_TO_BACKWARD, INPUT_TO_WEIGHT, held_bytes
from clustersim.workloads.model import Model
from clustersim.workloads.operators import Kernel, Operator

ATTENTION_PRECISION: Final = {"fp8": "bf16"}
"""Fused attention stays in 16 bits when the matrix products run in fp8."""


def kernels_of(training: Training, strategy: Strategy, node: Node, calibration: Calibration | None = None) -> KernelModel:
    """Return how long the work of a step takes on a node, by its own calibration unless another is given."""
    precision, accelerator = training.precision, node.accelerator
    calibration = calibration or calibration_at(node)
    workers = strategy.dp if strategy.data_parallel.mode == "async" else 1
    return KernelModel(
        accelerator=accelerator,
        calibration=calibration,
        precision=precision,
        attention_precision=ATTENTION_PRECISION.get(precision, precision),
        blocks=training.blocking_launches,
        captured=training.cuda_graphs is True,
        launch_overhead=training.launch_overhead,
        fills=training.fill_uninitialized_memory,
        slowest=slowest_of(strategy.n_ranks // workers, accelerator, calibration),
    )


NEAR: Final = 1e-9
"""Tolerance, relative and in seconds, by which the parts of the best division may seem longer than necessary."""


def arranged(model: Model, training: Training, strategy: Strategy, node: Node) -> Strategy:
    """Return a strategy completed from the times of parts: balanced stages, and the costs for its schedule.

    The kernel model gives the times. Collectives inside layers are left out: they are the same in all of them.
    """
    kernels, local = kernels_of(training, strategy, node), local_model(model, training, strategy)
    if strategy.stage_layers == "balanced":
        strategy = strategy.changed(stage_layers=balanced_layers(local, strategy, kernels, n_parts=strategy.pp * strategy.virtual_stages))
    schedule = SCHEDULES.get(strategy.schedule)
    if schedule is None or schedule.by_times is None:
        return strategy
    first = stage_with(local, training, strategy, model_chunks(strategy, model.n_layers)[0])
    return strategy.changed(costs=pass_costs(first, node, kernels))


def balanced_layers(local: LocalModel, strategy: Strategy, kernels: KernelModel, *, n_parts: int) -> tuple[int, ...]:
    """Return how many layers each part of a model gets so that the longest part is as short as can be; embedding and logits count."""

    def both_ways_s(operators: Operators) -> float:
        again = recomputation_of(strategy).repeated(local, operators)
        work = [each.kernels("forward", "input_gradient", "weight_gradient") for each in operators]
        return fsum(kernels.work_s(each) for each in (*work, *(each.kernels("recompute") for each in again)))

    times: list[float] = []
    for layer in range(local.model.n_layers):
        first = local.first_alike(layer)
        times.append(times[first] if first < layer else both_ways_s(local.layer(layer)))
    return evenly(times, (both_ways_s(local.front), both_ways_s(local.back)), n_parts)


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
    sums = [0.0, *accumulate(times)]
    n_times, limit = len(times), _reachable(sums, ends, n_parts) * (1.0 + NEAR) + NEAR
    # Of the parts so far, by where they stop: the longest time, the squares, and where the last of them starts.
    ways = {stop: (sums[stop] + ends[0], (sums[stop] + ends[0]) ** 2, 0) for stop in range(1, n_times + 1)}
    starts: list[dict[int, int]] = []
    for part in range(1, n_parts):
        extra = ends[1] if part == n_parts - 1 else 0.0
        before, ways = ways, dict[int, tuple[float, float, int]]()
        n_behind = n_parts - 1 - part
        # The parts behind this one take no more than they can.
        least = bisect_left(sums, sums[-1] + ends[1] - n_behind * limit - NEAR) if n_behind else n_times
        for stop in range(max(part + 1, least), n_times - n_behind + 1):
            options: list[tuple[float, float, int]] = []
            for start in range(stop - 1, part - 1, -1):
                own = sums[stop] - sums[start] + extra
                if own > limit:
                    break
                if start in before:
                    options.append((max(before[start][0], own), before[start][1] + own**2, start))
            if options:
                ways[stop] = _best(options)
        starts.append({stop: start for stop, (_, _, start) in ways.items()})
    sizes: list[int] = []
    stop = n_times
    for chosen in reversed(starts):
        sizes.append(stop - chosen[stop])
        stop = chosen[stop]
    return (stop, *reversed(sizes))


def _reachable(sums: Sequence[float], ends: tuple[float, float], n_parts: int) -> float:
    """Return a bound that each part of the best division meets, slightly above the least one."""
    low, high = 0.0, sums[-1] + ends[0] + ends[1]
    while high - low > NEAR * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if _suffices(sums, ends, n_parts, middle) else (middle, high)
    return high


def _suffices(sums: Sequence[float], ends: tuple[float, float], n_parts: int, longest: float) -> bool:
    """Return whether parts up to a length take everything, each as much as it can and leaving one for each that follows."""
    start = 0
    for part in range(n_parts - 1):
        room = longest - (0.0 if part else ends[0])
        stop = min(bisect_right(sums, sums[start] + room) - 1, len(sums) - n_parts + part)
        if stop <= start:
            return False
        start = stop
    return sums[-1] - sums[start] + ends[1] <= longest


def _best(options: Sequence[tuple[float, float, int]]) -> tuple[float, float, int]:
    """Return the last of the options that are shortest and, among those, have the least squares; all to twelve digits after the point."""
    # Only what lies within a rounding of the least can be equal to it.
    least = min(longest for longest, _, _ in options) + 2e-12
    near = [option for option in options if option[0] <= least]
    # Where all are alike the later parts are the smaller ones: the last has the logits.
    return min(near, key=lambda option: (round(option[0], 12), round(option[1], 12), -option[2]))


def pass_costs(stage: Stage, node: Node, kernels: KernelModel) -> PassCosts:
    """Return the costs of passes through one chunk: the mean over all stages, and the stored activations of this one."""
    local, strategy = stage.local, stage.strategy
    layers = [local.layer(layer) for layer in range(local.model.n_layers)]
    operators = [each for layer in (local.front, *layers, local.back) for each in layer]
    share = 1.0 / (strategy.pp * strategy.virtual_stages)
    again = recomputation_of(strategy).repeated(local, operators)
    holds = stage_holds(stage)
    kept_bytes, weight_bytes = (held_bytes(holds, interval=interval) for interval in (FORWARD_TO_BACKWARD, INPUT_TO_WEIGHT))

    def total_s(of: Callable[[Operator], Iterable[Kernel]], chosen: Iterable[Operator] = operators) -> float:
        return share * fsum(kernels.work_s(of(each)) for each in chosen)

    return PassCosts(
        forward_s=total_s(lambda each: each.kernels("forward")),
        input_s=total_s(lambda each: (*each.kernels("input_gradient"), *(() if waits(each) else each.kernels("weight_gradient"))))
        + total_s(lambda each: each.kernels("recompute"), again),
        weight_s=total_s(lambda each: each.kernels("weight_gradient") if waits(each) else ()),
        send_s=_send_s(strategy, local.boundary_bytes, node),
        weight_fraction=weight_bytes / kept_bytes if kept_bytes else 1.0,
    )


def _send_s(strategy: Strategy, boundary_bytes: float, node: Node) -> float:
    """Return the time of a micro-batch's activation on the wire between the first two stages, without contention."""
    ranks = place(strategy).ranks[:2, 0, 0, 0]
    near = ranks[0] // node.domain_size == ranks[1] // node.domain_size
    bandwidth_bytes_per_s = node.accelerator.scale_up_bandwidth_bytes_per_s if near else node.nic.bandwidth_bytes_per_s
    return boundary_bytes / strategy.tp / bandwidth_bytes_per_s if bandwidth_bytes_per_s else 0.0

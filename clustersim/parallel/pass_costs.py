"""Durations of the parts of a model on an accelerator, for schedules and layouts that depend on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from math import fsum, inf
from typing import Final

import numpy as np

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
from clustersim.topology.cluster import FloatArray, IntArray
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
    sums = np.array([0.0, *accumulate(times)])
    own, places = sums - sums[:, None], np.arange(len(sums), dtype=np.int64)
    # Of the parts so far, by where they stop: the longest time, and the squares.
    longest, squares = sums + ends[0], (sums + ends[0]) ** 2
    longest[0] = inf
    starts: list[IntArray] = []
    for part in range(1, n_parts):
        last = own + (ends[1] if part == n_parts - 1 else 0.0)
        ways = np.where(places[:, None] < places, np.maximum(longest[:, None], last), inf)
        summed = squares[:, None] + last**2
        # What differs by a rounding is equal. Where all are alike the later parts are the smaller ones: the last has the logits.
        rounded: FloatArray = ways.round(12)
        near = np.where(np.equal(rounded, rounded.min(axis=0)), summed.round(12), inf)
        starts.append(len(sums) - 1 - near[::-1].argmin(axis=0))
        longest, squares = (table[starts[-1], places] for table in (ways, summed))
    sizes: list[int] = []
    stop = len(times)
    for chosen in reversed(starts):
        sizes.append(stop - int(chosen[stop]))
        stop -= sizes[-1]
    return (stop, *reversed(sizes))


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

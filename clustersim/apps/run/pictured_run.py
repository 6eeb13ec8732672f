"""From a result to what pictures and pages show of it."""

from __future__ import annotations

from collections.abc import Callable
from math import fsum
from typing import TYPE_CHECKING

from clustersim.apps.serve.request_metrics import RequestLatencies
from clustersim.documents.check import choices_hint
from clustersim.measure.step_breakdown import PipelineShape
from clustersim.parallel.pass_costs import kernels_of
from clustersim.parallel.recomputation import recomputation_of
from clustersim.parallel.shard import local_model
from clustersim.report.pictured_machine import machine_of
from clustersim.report.subject import DataSheetPeaks, KernelGroup, ServedSubject, Subject
from clustersim.workloads.operators import FlashAttention, Kernel

if TYPE_CHECKING:
    from clustersim.apps.run.result import Result
    from clustersim.apps.serve.serving_result import ServingResult
    from clustersim.report.plots.canvas import Axes


def subject_of(result: Result, label: str | None = None) -> Subject:
    """Return a run as pictures see it.

    Parameters
    ----------
    label
        What to call it beside others; the name of its scenario when omitted.
    """
    plan = result.built.plan
    strategy, training = plan.strategy, plan.training
    return Subject(
        label=label or result.metrics.scenario,
        metrics=result.metrics,
        timeline=result.spans,
        pipeline=PipelineShape(
            schedule=strategy.schedule if strategy.written is None else "",
            n_stages=strategy.pp,
            n_micro_batches=plan.n_micro_batches,
            virtual_stages=strategy.virtual_stages,
        ),
        global_batch_size=training.global_batch_size,
        cost=result.cost,
        goodput=result.goodput,
        upkeep=None if result.built.maintained is None else result.built.maintained.upkeep,
        kernels=_kernel_groups(result),
        ceilings=_ceilings(result),
        machine=machine_of(result.built.cluster),
    )


def served_subject_of(result: ServingResult) -> ServedSubject:
    """Return a serving run as pictures see it."""
    run, asked = result.run, result.built.scenario.spec.requests
    latencies = RequestLatencies(run)
    loads = (
        (asked.rate, "{:.4g} requests/s"),
        (asked.concurrency, "{} clients"),
        (asked.trace and (asked.speed or 1.0), "{:.4g} x the trace"),
    )
    return ServedSubject(
        label=result.metrics.scenario,
        load=next((form.format(value) for value, form in loads if value), f"{len(run.requests):,} at once"),
        metrics=result.metrics,
        latencies_s={"ttft": latencies.ttft_s, "tpot": latencies.tpot_s, "e2e": latencies.e2e_s},
        samples=(*run.steps.samples, *run.decode_steps.samples),
        n_blocks={replica.number: replica.scheduler.pool.n_blocks for replica in run.replicas},
    )


def _ceilings(result: Result) -> DataSheetPeaks:
    node, precision = result.built.cluster.node, result.built.plan.training.precision
    return DataSheetPeaks(
        accelerator=node.accelerator.name,
        peak_flops_per_s=node.accelerator.peak_flops_per_s[precision],
        memory_bytes_per_s=node.accelerator.memory_bandwidth_bytes_per_s,
        scale_up_bytes_per_s=node.accelerator.scale_up_bandwidth_bytes_per_s,
        nic_bytes_per_s=node.nic.bandwidth_bytes_per_s * node.n_nics / node.n_accelerators,
    )


def _kernel_groups(result: Result) -> tuple[KernelGroup, ...]:
    """Return the kernels of a rank of the mean stage, by the operator that they belong to."""
    plan = result.built.plan
    model = kernels_of(plan.training, plan.strategy, result.built.cluster.node)
    local = local_model(plan.model, plan.training, plan.strategy)
    layers = [local.front, *(local.layer(layer) for layer in range(plan.model.n_layers)), local.back]
    operators = [each for layer in layers for each in layer]
    again = recomputation_of(plan.strategy).repeated(local, operators)
    groups: dict[str, list[Kernel]] = {}
    for each in operators:
        groups.setdefault(each.name, []).extend(each.kernels("forward", "input_gradient", "weight_gradient"))
    for each in again:
        groups.setdefault(each.name, []).extend(each.kernels("recompute"))
    share = 1.0 / plan.strategy.pp
    return tuple(
        KernelGroup(
            name=name,
            flops=share * fsum(_flops(kernel) for kernel in kernels),
            traffic_bytes=share * fsum(kernel.traffic_bytes for kernel in kernels),
            seconds=share * model.work_s(kernels),
        )
        for name, kernels in groups.items()
        if kernels
    )


def _flops(kernel: Kernel) -> float:
    """Return the computed FLOPs: without masked attention where the kernel is fused."""
    return kernel.flops * kernel.done_fraction if isinstance(kernel, FlashAttention) else kernel.flops


class Plots:
    """All pictures of one run: a method each, with optional axes to draw on.

    Examples
    --------
    >>> import clustersim
    >>> result = clustersim.run("llama3-8b-8xh100")
    >>> result.plot.breakdown().get_xlabel()
    'mean over ranks, s'
    """

    def __init__(self, result: Result) -> None:
        """Take the result; nothing is drawn yet."""
        self._result = result

    def __dir__(self) -> list[str]:
        """Return the names of the pictures."""
        return _names()

    def __getattr__(self, name: str) -> Callable[..., Axes]:
        """Return what draws a picture.

        Raises
        ------
        AttributeError
            When there is no such picture of one run.
        """
        if name.startswith("_") or name not in _names():
            raise AttributeError(f"there is no picture '{name}' of one run; {choices_hint(name, _names())}")

        def draw(ax: Axes | None = None) -> Axes:
            from clustersim.report.plots.canvas import style
            from clustersim.report.plots.kinds import RUN_PLOTS

            with style():
                return RUN_PLOTS[name].draw([subject_of(self._result)], ax)

        return draw


def _names() -> list[str]:
    from clustersim.report.plots.kinds import RUN_PLOTS

    return [name for name, plot in RUN_PLOTS.items() if plot.n_least == 1]

"""From a result to what pictures and pages show of it."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

from clustersim.apps.serve.request_metrics import RequestLatencies
from clustersim.measure.step_breakdown import PipelineShape
from clustersim.parallel.pass_costs import kernels_of
from clustersim.parallel.recomputation import recomputation_of
from clustersim.parallel.shard import local_model
from clustersim.report.subject import DataSheetPeaks, KernelGroup, ServedSubject, Subject, machine_of
from clustersim.workloads.operators import FlashAttention, Kernel

if TYPE_CHECKING:
    from clustersim.apps.run.result import Result
    from clustersim.apps.serve.serving_result import ServingResult


def subject_of(result: Result) -> Subject:
    """Return a run as pictures see it."""
    plan = result.built.plan
    strategy, training = plan.strategy, plan.training
    return Subject(
        label=result.metrics.scenario,
        metrics=result.metrics,
        timeline=result.spans,
        pipeline=PipelineShape(
            schedule=strategy.schedule if strategy.written is None else "",
            n_stages=strategy.pp,
            n_micro_batches=plan.n_micro_batches,
            virtual_stages=strategy.virtual_stages,
        ),
        sends_block=not strategy.overlap_p2p,
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

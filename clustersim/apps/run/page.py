"""From a result to its pictures and to its page: everything on it gathered, drawn and written."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import fsum
from typing import TYPE_CHECKING, Final

from clustersim.apps.run.result import changes_heading, verdict_sections
from clustersim.apps.serve.deployment import BuiltServing
from clustersim.apps.serve.request_metrics import RequestLatencies
from clustersim.apps.serve.serving_result import ServingResult
from clustersim.config.yaml_text import yaml_text
from clustersim.errors import ScenarioError
from clustersim.hardware.calibrations import calibration_for
from clustersim.hardware.models import Source
from clustersim.measure.step_breakdown import PipelineShape
from clustersim.parallel.pass_costs import kernels_of
from clustersim.parallel.recomputation import recomputation_of
from clustersim.parallel.shard import local_model
from clustersim.report.page.content import Image, render
from clustersim.report.page.run_page import FigureOrigin, PageContext, run_page, serving_page
from clustersim.report.subject import DataSheetPeaks, KernelGroup, ServedSubject, Subject, machine_of
from clustersim.workloads.operators import FlashAttention, Kernel

if TYPE_CHECKING:
    from pathlib import Path

    from clustersim.apps.run.result import Result
    from clustersim.report.plots.canvas import Axes
    from clustersim.report.plots.kinds import Plots


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


ZOOMED: Final = ("timeline", "links")
"""Pictures that a chart takes the place of where readers can zoom."""
IN_FOLDER: Final = ("pipeline", "breakdown", "memory", "memory_over_time")
"""Pictures in the directory of a training run; that of a serving run has all."""
CROWDED: Final = ("pipeline", "memory_over_time", "topology")
"""Number of parts from which on a picture takes a browser long to draw."""
LARGEST_SVG: Final = 250_000
"""Bytes of an SVG; a picture of more parts is smaller, and drawn sooner, as PNG."""


def folder_kinds(result: Result | ServingResult) -> Sequence[str]:
    """Return the pictures that the directory of a run has."""
    return _still_kinds(result) if isinstance(result, ServingResult) else IN_FOLDER


def _still_kinds(result: Result | ServingResult) -> list[str]:
    """Return the pictures of a run for which nothing is run again."""
    from clustersim.report.plots.kinds import RUN_PLOTS, SERVED_PLOTS

    shelf = SERVED_PLOTS if isinstance(result, ServingResult) else RUN_PLOTS
    return [kind for kind in dir(result.plot) if not shelf[kind].grows]


def page_of(result: Result | ServingResult, *, zooms: bool = False, changes: Sequence[str] | None = (), plots: Path | None = None) -> str:
    """Return the page of a result, with all pictures, or with those that stand in a folder already.

    Parameters
    ----------
    zooms
        Whether a reader can zoom into timeline and links of a training run, which takes the extra ``html``.
    changes
        Measured changes that shorten the step, as sentences; None for the command that measures them.
    plots
        The folder.
    """
    if plots is None:
        zooms = zooms and not isinstance(result, ServingResult)
        images = draw_images(result.plot, [kind for kind in _still_kinds(result) if not (zooms and kind in ZOOMED)], svg=not zooms)
    else:
        paths = {kind: plots / f"{kind}.png" for kind in folder_kinds(result)}
        images = {
            kind: Image(title=f"{kind.replace('_', ' ')} of {result.metrics.scenario}", data=path.read_bytes(), kind="png")
            for kind, path in paths.items()
            if path.is_file()
        }
    background = PageContext(
        verdicts=() if isinstance(result, ServingResult) else tuple(_verdicts(result, changes)),
        origins=tuple(_origins(result)),
        resolved_text=yaml_text(result.resolved),
        scenario_text=result.built.scenario.text,
    )
    if isinstance(result, ServingResult):
        return render(serving_page(served_subject_of(result), background, images))
    return render(run_page(subject_of(result), background, images, zooms=zooms))


def draw_images(plots: Plots, kinds: Sequence[str], *, svg: bool = True) -> dict[str, Image]:
    """Return pictures by kind; those that there are not, or that runs have nothing for, are left out.

    Parameters
    ----------
    svg
        Whether they are to be sharp at any size, as far as that is not too large; those of :data:`CROWDED` never are.
    """
    from clustersim.report.plots.canvas import style

    images: dict[str, Image] = {}
    for kind in (kind for kind in kinds if kind in dir(plots)):
        with style(), suppress(ScenarioError):  # no prices, or no failures: there is nothing to draw, and the page does without
            images[kind] = image_of(getattr(plots, kind)(), svg=svg and kind not in CROWDED)
    return images


def image_of(ax: Axes, *, svg: bool) -> Image:
    """Return a picture for a page."""
    from clustersim.report.plots.canvas import save_figure, small_png, title_of

    figure = ax.get_figure(root=True)
    assert figure is not None
    if svg:
        file = io.BytesIO()
        save_figure(figure, file, svg=True)
        if file.tell() <= LARGEST_SVG:
            return Image(title=title_of(ax), data=file.getvalue(), kind="svg")
    return Image(title=title_of(ax), data=small_png(figure), kind="png")


def _verdicts(result: Result, changes: Sequence[str] | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield measured changes or, where they are None, the command that measures them, and the other sections of a scenario."""
    lines = ("clustersim report with this directory measures them",) if changes is None else tuple(changes)
    if lines:
        yield changes_heading(result), lines
    yield from verdict_sections(result)


def _origins(result: Result | ServingResult) -> Iterator[FigureOrigin]:
    """Yield the sources of all parts of the cluster, and of the calibration of training."""
    built = result.built
    trains = not isinstance(built, BuiltServing)
    for node in [node for node, _ in built.cluster.kinds] if trains else [built.node]:
        for part in (node.accelerator, node.host, node.nic, node):
            yield from _of(part.name, part.sources)
        if trains:
            calibration = calibration_for(node.accelerator)
            yield from _of(f"calibration {calibration.name}", calibration.sources)
    if trains and built.cluster.n_nodes > 1:
        for switch in (built.cluster.fabric.leaf, built.cluster.fabric.spine):
            yield from _of(switch.name, switch.sources)


def _of(part: str, sources: Sequence[Source]) -> Iterator[FigureOrigin]:
    for source in sources:
        yield FigureOrigin(part=part, source=source)

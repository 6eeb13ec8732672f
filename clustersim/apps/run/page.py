"""From a result to its pictures and to its page: everything on it gathered, drawn and written."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import fsum
from typing import TYPE_CHECKING, Final

from clustersim.apps.run.result import changes_heading, verdict_sections
from clustersim.apps.serve.request_metrics import RequestLatencies
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
    from clustersim.apps.serve.serving_result import ServingResult
    from clustersim.report.plots.canvas import Axes


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


KINDS: Final = (
    "breakdown",
    "pipeline",
    "timeline",
    "communication",
    "memory",
    "memory_over_time",
    "links",
    "topology",
    "roofline",
    "cost",
    "goodput",
)
"""Pictures of a page, as far as there is something to show."""
SERVED_KINDS: Final = ("latency", "timeline", "kv")
"""Pictures of the page of a serving run."""
ZOOMED: Final = ("timeline", "links")
"""Those that a chart takes the place of where readers can zoom."""
IN_FOLDER: Final = {
    "pipeline": "pipeline.png",
    "breakdown": "breakdown.png",
    "memory": "memory.png",
    "memory_over_time": "memory_over_time.png",
}
"""Pictures that a run directory has anyway."""
CROWDED: Final = ("pipeline", "memory_over_time", "topology")
"""Number of parts from which on a picture takes a browser long to draw."""
LARGEST_SVG: Final = 250_000
"""Bytes of an SVG; a picture of more parts is smaller, and drawn sooner, as PNG."""


def page_of(result: Result, *, zooms: bool, changes: Sequence[str] = ()) -> str:
    """Return the page of a result, with all pictures.

    Parameters
    ----------
    changes
        Measured changes that shorten the step, as sentences.
    zooms
        Whether a reader can zoom into timeline and links, which takes the extra ``html``.
    """
    subject = subject_of(result)
    kinds = [kind for kind in KINDS if not (zooms and kind in ZOOMED)]
    return render(run_page(subject, background_of(result, changes), draw_images([subject], kinds, svg=not zooms), zooms=zooms))


def folder_page(result: Result, plots: Path, changes: Sequence[str] | None = None) -> str:
    """Return the page of a result with the pictures that stand in a folder already; without any where there is none."""
    subject = subject_of(result)
    images: dict[str, Image] = {}
    for kind, name in IN_FOLDER.items():
        if (plots / name).is_file():
            images[kind] = Image(title=f"{kind.replace('_', ' ')} of {subject.label}", data=(plots / name).read_bytes(), kind="png")
    return render(run_page(subject, background_of(result, changes), images, zooms=False))


def served_page_of(result: ServingResult, plots: Path | None = None) -> str:
    """Return the page of a serving run, with the pictures of a folder, or with pictures drawn for it where none is given."""
    subject = served_subject_of(result)
    if plots is None:
        images = draw_served([subject], SERVED_KINDS)
    else:
        names = {kind: f"{kind} of {subject.label}" for kind in SERVED_KINDS}
        images = {kind: Image(title=title, data=(plots / f"{kind}.png").read_bytes(), kind="png") for kind, title in names.items()}
    node = result.built.node
    parts = (node.accelerator, node.host, node.nic, node)
    background = PageContext(
        verdicts=(),
        origins=tuple(origin for part in parts for origin in _of(part.name, part.sources)),
        resolved_text=yaml_text(result.resolved),
        scenario_text=result.built.scenario.text,
    )
    return render(serving_page(subject, background, images))


def draw_served(subjects: Sequence[ServedSubject], kinds: Sequence[str]) -> dict[str, Image]:
    """Return pictures of serving runs by kind."""
    from clustersim.report.plots.canvas import style
    from clustersim.report.plots.kinds import SERVED_PLOTS

    with style():
        return {kind: image_of(SERVED_PLOTS[kind].draw(subjects, None), svg=True) for kind in kinds}


def draw_images(subjects: Sequence[Subject], kinds: Sequence[str], *, svg: bool = True) -> dict[str, Image]:
    """Return pictures of runs by kind; those that runs have nothing for are left out.

    Parameters
    ----------
    svg
        Whether they are to be sharp at any size, as far as that is not too large; those of :data:`CROWDED` never are.
    """
    from clustersim.report.plots.canvas import style
    from clustersim.report.plots.kinds import RUN_PLOTS

    images: dict[str, Image] = {}
    for kind in kinds:
        with style(), suppress(ScenarioError):  # no prices, or no failures: there is nothing to draw, and the page does without
            images[kind] = image_of(RUN_PLOTS[kind].draw(subjects, None), svg=svg and kind not in CROWDED)
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


def background_of(result: Result, changes: Sequence[str] | None = ()) -> PageContext:
    """Return the additional content of a page, with changes or, where they are None, the command that measures them."""
    lines = ("clustersim report with this directory measures them",) if changes is None else tuple(changes)
    measured = ((changes_heading(result), lines),) if lines else ()
    return PageContext(
        verdicts=(*measured, *verdict_sections(result)),
        origins=tuple(_origins(result)),
        resolved_text=yaml_text(result.resolved),
        scenario_text=result.built.scenario.text,
    )


def _origins(result: Result) -> Iterator[FigureOrigin]:
    """Yield the sources of all parts of the cluster, of the calibration and of the model."""
    cluster = result.built.cluster
    for node, _ in cluster.kinds:
        for part in (node.accelerator, node.host, node.nic, node):
            yield from _of(part.name, part.sources)
        calibration = calibration_for(node.accelerator)
        yield from _of(f"calibration {calibration.name}", calibration.sources)
    if cluster.n_nodes > 1:
        for switch in (cluster.fabric.leaf, cluster.fabric.spine):
            yield from _of(switch.name, switch.sources)


def _of(part: str, sources: Sequence[Source]) -> Iterator[FigureOrigin]:
    for source in sources:
        yield FigureOrigin(part=part, source=source)

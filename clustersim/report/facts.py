"""Lines shared by the terminal report and the Markdown summary, as plain cells of text."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from types import MappingProxyType
from typing import Final

from clustersim.measure.error_bars import ALL_RUNS, TIGHT
from clustersim.measure.metrics import JobReport, Memory, Metrics, StageMemory, TierUse, nine_digits
from clustersim.measure.steps_report import StepsReport, WaitedFor
from clustersim.trace.timeline import Timeline
from clustersim.units.divisors import count_text
from clustersim.units.grouping import grouped
from clustersim.units.quantity import format_alike, format_quantity, format_range

STEP_TIME: Final = "step time"
"""Name of the first figure."""
N_STAGES_SHOWN: Final = 6
"""Stages listed one by one; of more, those that need most."""

_ROUND_OFF_PERCENT: Final = 1e-6
LEAST_PERCENT: Final = 0.05
"""Below it one decimal shows nothing."""
LEAST_GIB: Final = 0.1
"""Below it memory is shown in MiB."""
N_LINKS_SHOWN: Final = 5
N_CHOICES_SHOWN: Final = 8
N_MEETINGS_SHOWN: Final = 3

LIGHT: Final = (
    *("assumed_reserve", "unseen_figures", "assumed_constants", "assumed_kernels"),
    *("no_interference", "chosen_placement", "no_network_power"),
)
"""Codes of flags that stand in one line of a short report: they move memory or power and not the step, or move the step by little."""
OF_THE_HOST: Final = "assumed_launch_overhead"
"""Code of a flag that moves the step only where it waits for its host."""
LEAST_HOST: Final = 0.01
"""Share of a step that waits for its host, from which on its flag is told."""


def is_light(code: str, metrics: Metrics) -> bool:
    """Return whether a flag stands in the one line of a short report."""
    return code in LIGHT or (code == OF_THE_HOST and metrics.breakdown_s.host < LEAST_HOST * metrics.step_time_s)


MEMORY_PARTS: Final = ("parameters", "gradients", "optimizer", "activations", "buffers")

TIER_LABELS: Final = MappingProxyType(
    {
        "nvlink": "NVLink",
        "pcie": "PCIe",
        "socket": "socket to socket",
        "nic": "NIC to leaf",
        "leaf": "leaf to spine",
        "spine": "spine to core",
        "memory": "host memory",
        "storage": "NVMe",
    }
)


def layout_line(metrics: Metrics, timeline: Timeline) -> str:
    """Return how the ranks are divided, such as ``512 GPUs (h100-sxm5-80g): dp 16, tp 8, pp 4``."""
    parallelism = metrics.parallelism
    degrees = {"dp": parallelism.dp, "tp": parallelism.tp, "pp": parallelism.pp, "cp": parallelism.cp}
    experts = f", and ep {parallelism.ep} of the same ranks" if parallelism.ep > 1 else ""
    division = ", ".join(f"{name} {degree}" for name, degree in degrees.items() if degree > 1 or name in {"dp", "tp", "pp"})
    classes = len(timeline.rank_classes)
    replayed = f"; {count_text(classes, 'rank class', 'rank classes')} replayed" if timeline.engine.folded else ""
    kinds = f" ({', '.join(filter(None, (metrics.accelerators, metrics.domains)))})" if metrics.accelerators else ""
    return "; ".join(filter(None, (f"{gpus_text(metrics)}{kinds}: {division}{experts}", metrics.trained))) + replayed


def gpus_text(metrics: Metrics) -> str:
    """Return ``1 GPU`` or ``512 GPUs``."""
    return count_text(metrics.gpus, "GPU")


def unfit_text(fits: Mapping[str, bool]) -> str:
    """Return which runs do not fit in memory, as the end of a sentence; empty where all fit.

    Parameters
    ----------
    fits
        Whether each run fits, by its name.
    """
    unfit = [name for name, each in fits.items() if not each]
    if not unfit:
        return ""
    if len(unfit) == len(fits):
        return "; does not fit in memory" if len(fits) == 1 else "; none of them fits in memory"
    return f"; {' and '.join(unfit)} {'does' if len(unfit) == 1 else 'do'} not fit in memory"


def headline(metrics: Metrics) -> tuple[tuple[str, str], ...]:
    """Return (name, value) of the figures that people compare; a sample that is one token is called a sample."""
    unit = "samples" if metrics.tokens_per_s == metrics.samples_per_s else "tokens"
    return (
        (STEP_TIME, format_quantity(metrics.step_time_s, "s", 4)),
        (f"{unit}/s", rate_text(metrics.tokens_per_s)),
        (f"{unit}/s/GPU", rate_text(metrics.tokens_per_s_per_gpu)),
        ("MFU", percent_text(metrics.mfu)),
        ("HFU", percent_text(metrics.hfu)),
        ("TFLOP/s per GPU", f"{metrics.tflops_per_gpu:,.1f}"),
    )


def hfu_line(metrics: Metrics) -> str:
    """Return the difference of HFU and MFU in words; empty where they are equal."""
    again = percent_text(1.0 - metrics.mfu / metrics.hfu) if metrics.hfu else "0.0 %"
    if again == "0.0 %":
        return ""
    return f"MFU counts the FLOPs of the model once; HFU counts those recomputed too, {again} of all that are performed"


def interval_text(metrics: Metrics) -> str:
    """Return the interval of the step time, such as ``7.9 to 9.6 s``; empty where there is none."""
    if metrics.step_time_interval_s is None:
        return ""
    return format_range(*metrics.step_time_interval_s, "s", as_of=metrics.step_time_s)


def interval_note(metrics: Metrics) -> str:
    """Return the interval in few words, to stand below the step time; empty where there is none."""
    level = metrics.step_time_interval_level_fraction
    return f"{100 * level:.0f} %: {interval_text(metrics)}" if level is not None else ""


def interval_line(metrics: Metrics) -> str:
    """Return the meaning of the interval of the step time; empty where there is none."""
    level, kind = metrics.step_time_interval_level_fraction, metrics.step_time_interval_kind
    if level is None or kind is None:
        return ""
    of = "" if kind == ALL_RUNS else f" ({kind})"
    return f"{100 * level:.0f} % interval of the step time: {interval_text(metrics)}, from published runs beside predictions{of}"


def memory_verdict(metrics: Metrics) -> str:
    """Return whether the plan fits, and by how much."""
    memory = metrics.memory
    margin = memory_text(margin_bytes(memory))
    of = f"{memory_text(memory.peak_bytes)} of {memory_text(memory.capacity_bytes)}"
    if not memory.fits:
        return f"does not fit with {of}, {margin} too much"
    if memory.verdict == TIGHT:
        return f"fits tightly with {of}, {margin} to spare: less than the error of predicted peaks"
    return f"fits with {of}, {margin} to spare"


def margin_bytes(memory: Memory) -> float:
    """Return how far the peak is from the capacity: the difference of both as they are shown, so that the three add up."""
    peak_gib, capacity_gib = memory.peak_bytes / 2**30, memory.capacity_bytes / 2**30
    if min(peak_gib, abs(capacity_gib - peak_gib)) < LEAST_GIB:
        return abs(memory.capacity_bytes - memory.peak_bytes)
    return abs(round(capacity_gib, 1) - round(peak_gib, 1)) * 2**30


def memory_text(size_bytes: float) -> str:
    """Return a size of memory in the unit that drivers and frameworks report.

    Examples
    --------
    >>> memory_text(85.52e9), memory_text(2**20)
    ('79.6 GiB', '1.0 MiB')
    """
    gib = size_bytes / 2**30
    return f"{gib:,.1f} GiB" if gib >= LEAST_GIB else f"{size_bytes / 2**20:,.1f} MiB"


def holds_memory(key: str) -> bool:
    """Return whether a figure of bytes is one of memory, and not of traffic or files."""
    return "memory" in key or "peak_bytes" in key or key.removesuffix("_bytes") in (*MEMORY_PARTS, "states")


def is_share(key: str) -> bool:
    """Return whether a figure is a share, which is shown in percent."""
    return key in {"mfu", "hfu"} or key.endswith("_fraction")


def shown_stages(metrics: Metrics, most: int = N_STAGES_SHOWN) -> tuple[tuple[tuple[str, StageMemory], ...], str]:
    """Return the stages to list, neighbours of equal need as one, each with its label; and a line on those left out (empty if none is)."""
    alike = groupby(
        metrics.memory.by_stage, lambda stage: [memory_text(size) for size in (*memory_parts(stage).values(), stage.peak_bytes)]
    )
    rows = [list(stages) for _, stages in alike]
    by_need = sorted(rows, key=lambda row: (-row[0].peak_bytes, row[0].stage))
    kept = sorted(by_need[:most], key=lambda row: row[0].stage)
    labels = [f"stage {row[0].stage}" if len(row) == 1 else f"stages {row[0].stage}-{row[-1].stage}" for row in kept]
    shown = tuple((label, row[0]) for label, row in zip(labels, kept, strict=True))
    left = by_need[most:]
    n_left = count_text(sum(map(len, left)), "more stage")
    return shown, f"and {n_left} with at most {memory_text(left[0][0].peak_bytes)} each" if left else ""


def memory_parts(stage: StageMemory) -> dict[str, float]:
    """Return bytes by what they hold, in the order of :data:`MEMORY_PARTS`."""
    return {part: getattr(stage, f"{part}_bytes") for part in MEMORY_PARTS}


def link_rows(metrics: Metrics, timeline: Timeline) -> tuple[tuple[str, ...], ...]:
    """Return tier, mean and peak utilisation, bytes and busiest link of the busiest tiers, the one nearest to saturation first."""
    used = [tier for tier in metrics.links if tier.bytes > 0]
    tiers = sorted(used, key=lambda tier: (-tier.peak_utilisation, -tier.mean_utilisation, tier.tier))
    return tuple(_link_row(tier, timeline) for tier in tiers[:N_LINKS_SHOWN])


def choice_rows(metrics: Metrics) -> tuple[tuple[str, str, str, str], ...]:
    """Return dimension, operation with its ranks, size and algorithm of the largest collectives, by algorithm."""
    largest: dict[tuple[str, str, int, str, str], float] = {}
    for choice in metrics.collectives:
        key = (choice.dimension, choice.op, choice.ranks, choice.algorithm, choice.protocol)
        largest[key] = max(largest.get(key, 0.0), choice.bytes)
    rows = sorted(largest.items(), key=lambda row: (-row[1], row[0]))
    return tuple(
        (dimension.upper(), f"{op.replace('_', '-')} of {ranks}", format_quantity(size, "B"), f"{algorithm} ({protocol})")
        for (dimension, op, ranks, algorithm, protocol), size in rows[:N_CHOICES_SHOWN]
    )


def meeting_lines(metrics: Metrics) -> tuple[str, ...]:
    """Return the longest contention: one sentence for each set of operations, with its link."""
    longest: dict[tuple[str, ...], tuple[float, str]] = {}
    for link in metrics.busiest_links:
        for meeting in link.meetings:
            if nine_digits(meeting.seconds) > nine_digits(longest.get(meeting.names, (0.0, ""))[0]):
                longest[meeting.names] = (meeting.seconds, link.name)
    ordered = sorted(longest.items(), key=lambda entry: (-nine_digits(entry[1][0]), entry[0]))
    return tuple(
        f"contention: {_together(names)} on {name}, {format_quantity(seconds, 's')}"
        for names, (seconds, name) in ordered[:N_MEETINGS_SHOWN]
    )


def neighbour_lines(metrics: Metrics) -> tuple[str, ...]:
    """Return what else there was on the cluster, and what it cost: nothing where there was nothing."""
    if metrics.step_time_alone_s is None:
        return ()
    longer = metrics.step_time_s / metrics.step_time_alone_s - 1.0
    alone = f"without them the step takes {format_quantity(metrics.step_time_alone_s, 's', 4)}, with them {percent_text(longer)} longer"
    return (alone, *(_job_line(job) for job in metrics.jobs), *_shared_lines(metrics))


def _shared_lines(metrics: Metrics) -> tuple[str, ...]:
    """Return for each set of jobs the link with the longest contention, and the number of other links."""
    lines: list[str] = []
    for jobs, links in grouped((link.jobs, link) for link in metrics.shared_links).items():
        n_more = sum(link.n_links for link in links) - 1
        more = f", and on {count_text(n_more, 'more link')}" if n_more else ""
        share = percent_text(links[0].contended_s / metrics.step_time_s)
        longest = format_quantity(links[0].contended_s, "s")
        lines.append(f"contention: {' with '.join(jobs)} on {links[0].name}, {longest}, {share} of the step{more}")
    return tuple(lines)


def steps_lines(metrics: Metrics) -> tuple[str, ...]:
    """Return how long steps took, who they waited for and how old gradients were: nothing where one step of like ranks was replayed."""
    report = metrics.steps
    if report is None:
        return ()
    return tuple(filter(None, (_times_line(report), _waited_line(report), _idle_line(report), _staleness_line(report))))


def _times_line(report: StepsReport) -> str:
    if report.confidence_interval_s is None:
        return ""
    interval = format_range(*report.confidence_interval_s, "s", 4, as_of=report.mean_s)
    mean, middle, tail = format_alike((report.mean_s, report.median_s, report.p95_s), "s", 4, as_of=report.mean_s)
    return f"{count_text(report.steps, 'step')}: mean {mean} (95 % confidence {interval}), median {middle}, 95th percentile {tail}"


def _waited_line(report: StepsReport) -> str:
    if not report.waited_for:
        return ""
    first, *others = report.waited_for
    share = f", in {percent_text(first.steps_fraction)} of the steps" if report.steps > 1 else ""
    line = f"the step waited for {waited_name(first)}: {format_quantity(first.waited_s, 's')} on average{share}"
    return line + (f"; then for {waited_name(others[0])}: {format_quantity(others[0].waited_s, 's')}" if others else "")


def waited_name(waited: WaitedFor) -> str:
    """Return who was waited for: a class of ranks, and which of them are slow where not all are."""
    return f"{waited.name} ({waited.slow} slow)" if waited.slow else waited.name


def _idle_line(report: StepsReport) -> str:
    workers = sorted(report.workers, key=lambda worker: worker.idle_fraction)
    if len(workers) == 1:
        return ""
    least, most = workers[0], workers[-1]
    return f"idle: {percent_text(least.idle_fraction)} ({least.name}) to {percent_text(most.idle_fraction)} ({most.name}) of the time"


def _staleness_line(report: StepsReport) -> str:
    ages = report.staleness
    dropped = sum(worker.dropped for worker in report.workers)
    late = f"{count_text(dropped, 'gradient')} came too late to be used" if dropped else ""
    if ages is None:
        return late
    line = f"staleness of gradients: mean {ages.mean:.2f} updates, 95 % at most {ages.p95}, largest {ages.maximum}"
    line += f"; the fastest worker was at most {count_text(ages.max_lead, 'step')} ahead"
    return f"{line}; {late}" if late else line


def _job_line(job: JobReport) -> str:
    ended, gpus = count_text(job.steps, "step"), count_text(job.ranks, "GPU")
    took = "" if job.step_time_s is None else f" of {format_quantity(job.step_time_s, 's', 4)}"
    return f"job {job.name} on {gpus}: {ended}{took} meanwhile, {format_quantity(job.step_time_alone_s, 's', 4)} alone"


def _together(names: tuple[str, ...]) -> str:
    return " with ".join(names if len(names) > 1 else (*names, "another"))


def percent_text(fraction: float) -> str:
    """Return a share as people write it; near nothing and near all with one significant digit, for 0.0 and 100.0 % are exact.

    Examples
    --------
    >>> percent_text(0.4213), percent_text(0.0003), percent_text(0.9998), percent_text(1.0)
    ('42.1 %', '0.03 %', '99.98 %', '100.0 %')
    """
    percent = 100 * fraction
    if _ROUND_OFF_PERCENT < 100 - percent < LEAST_PERCENT:
        return f"{100 - float(f'{100 - percent:.1g}'):.9g} %"
    return f"{percent:.1f} %" if abs(percent) >= LEAST_PERCENT or not percent else f"{float(f'{percent:.1g}'):f}".rstrip("0") + " %"


def figure_text(name: str, value: str = "", unit: str = "") -> str:
    """Return the words for a figure of a result or of a table, with its unit or another one, and a value where one is given.

    Examples
    --------
    >>> [figure_text(name) for name in ("step_time_s", "tokens_per_s", "mfu", "cost.per_million_tokens.usd")]
    ['step time, s', 'tokens/s', 'MFU', 'cost per million tokens, USD']
    >>> figure_text("step_time_s", "16.7")
    'step time 16.7 s'
    """
    if name in {"mfu", "hfu"}:
        return f"{name.upper()} {value}".rstrip()
    words = name.replace(".", "_").replace("_per_s", "/s").replace("/s_per_", "/s per ")
    units = {"_usd": "USD", "_bytes": "B", "_kwh": "kWh", "_s": "s"}
    suffix = next((each for each in units if words.endswith(each)), "")
    plain = words.removesuffix(suffix).replace("_", " ").replace("gpu", "GPU")
    unit = unit or units.get(suffix, "")
    return f"{plain} {value} {unit}".strip() if value else f"{plain}, {unit}" if unit else plain


def rate_text(value: float) -> str:
    """Return a rate with four significant digits at least.

    Examples
    --------
    >>> rate_text(1417249.3), rate_text(12.3456)
    ('1,417,249', '12.35')
    """
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _link_row(tier: TierUse, timeline: Timeline) -> tuple[str, ...]:
    links = [link for link in timeline.links if link.tier == tier.tier]
    busiest = max(links, key=lambda link: (nine_digits(link.peak_utilisation), nine_digits(link.bytes)), default=None)
    name, size = TIER_LABELS.get(tier.tier, tier.tier), format_quantity(tier.bytes, "B")
    return name, percent_text(tier.mean_utilisation), percent_text(tier.peak_utilisation), size, busiest.name if busiest else ""

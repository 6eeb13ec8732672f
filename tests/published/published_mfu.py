"""Highest model FLOPs utilisation of the published runs, by generation of accelerators, precision and kind of model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from clustersim.apps.run.intervals import PublishedMfu, class_of
from clustersim.apps.validate.rows import step_time_of
from clustersim.apps.validate.sources import PublishedSource, read_source, source_names
from clustersim.config.build import build
from clustersim.config.load import load_scenario
from clustersim.config.yaml_text import yaml_text
from clustersim.parallel.flops import step_flops
from clustersim.report.facts import percent_text
from clustersim.workloads.reading.model_spec import MEASURED_SPEED

_HEADER: Final = """\
# The highest model FLOPs utilisation of the published runs in scenarios/published. Made by tests/published/test_published_mfu.py with
# --update-golden; docs/theory/search.md explains it. Not to be edited.
"""


LEAST_MFU: Final = 0.1
"""Minimum MFU of a run that says what can be reached. Steps below it wait for the host or the network, as those of tests do."""


def highest_published(sources: Iterable[PublishedSource] | None = None) -> tuple[PublishedMfu, ...]:
    """Return the published run with the highest MFU of each class, from the scenarios of the sources, without a simulation.

    Runs whose source gives the speed of one accelerator do not count, nor those below ``LEAST_MFU``. What a source hides of a
    run is no part of the FLOPs of its model.
    """
    best: dict[tuple[str, str, bool], PublishedMfu] = {}
    runs: dict[tuple[str, str, bool], int] = {}
    for source in map(read_source, source_names()) if sources is None else sources:
        for index, row in enumerate(source.spec.rows):
            built = build(load_scenario(source.alternatives(index)[0]))
            if MEASURED_SPEED in dict(built.loaded.flags):
                continue
            plan, accelerator, of = built.plan, built.cluster.node.accelerator, class_of(built)
            peak_flops_per_s = plan.n_ranks * accelerator.peak_flops_per_s[plan.training.precision]
            mfu = round(
                step_flops(plan.model, plan.training, plan.strategy).model
                / step_time_of(row.measured, plan.training, plan.n_ranks)[0]
                / peak_flops_per_s,
                4,
            )
            if mfu < LEAST_MFU:
                continue
            runs[of] = runs.get(of, 0) + 1
            if of not in best or mfu > best[of].mfu:
                best[of] = PublishedMfu(
                    generation=of[0],
                    precision=of[1],
                    experts=of[2],
                    mfu=mfu,
                    row=row.id,
                    source=source.spec.source_id,
                    model=plan.model.name,
                    accelerators=plan.n_ranks,
                    accelerator=accelerator.name,
                    runs=1,
                )
    ordered = sorted(best)
    return tuple(best[each].model_copy(update={"runs": runs[each]}) for each in ordered)


def published_mfu_text(found: Iterable[PublishedMfu]) -> str:
    """Return the highest MFU as YAML."""
    rows = [each.model_dump() for each in found]
    return _HEADER + yaml_text({"sources": [*sorted({str(row["source"]) for row in rows})], "highest": [*rows]})


def published_mfu_table(found: Iterable[PublishedMfu]) -> str:
    """Return the highest MFU as a table of Markdown."""
    rows = [
        (
            each.generation,
            each.precision,
            "experts" if each.experts else "dense",
            percent_text(each.mfu),
            each.model,
            f"{each.accelerators:,} {each.accelerator}",
            f"`{each.source}`",
            f"{each.runs:,}",
        )
        for each in found
    ]
    return markdown_table(("generation", "precision", "kind", "highest MFU", "model", "on", "source", "runs"), rows)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table that reads well as plain text too, with code in its cells."""
    widths = [max(3, *map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = "|" + "|".join("-" * (width + 1) + (":" if column else "-") for column, width in enumerate(widths)) + "|"
    padded = (
        "| " + " | ".join(f"{cell:{'>' if column else '<'}{widths[column]}}" for column, cell in enumerate(row)) + " |"
        for row in (header, *rows)
    )
    first, *others = padded
    return "\n".join([first, rule, *others])

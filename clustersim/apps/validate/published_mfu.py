"""Highest model FLOPs utilisation that was published, by generation of accelerators, precision and kind of model.

The layout that a search chooses is the best of thousands, and so the one whose error is most in its favour. Its MFU is held against
what anybody has measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from clustersim.apps.validate.rows import step_time_of
from clustersim.apps.validate.sources import PublishedSource, read_source, source_names
from clustersim.config.build import Built, build
from clustersim.config.load import load_scenario
from clustersim.config.yaml_text import yaml_text
from clustersim.documents.check import validate_document
from clustersim.documents.files import data_path
from clustersim.documents.text import read_document
from clustersim.hardware.profile_schema import Checked
from clustersim.notices import Flag
from clustersim.parallel.flops import step_flops
from clustersim.parallel.shard import local_model
from clustersim.report.facts import percent_text
from clustersim.report.summary import markdown_table
from clustersim.units.fields import PositiveInt, PositiveRatio
from clustersim.workloads.reading.model_spec import MEASURED_SPEED

SHIPPED: Final = Path("residuals") / "mfu.yaml"
"""Below ``hardware_profiles``."""
ABOVE_PUBLISHED: Final = "above_published"
_HEADER: Final = """\
# The highest model FLOPs utilisation of the published runs in scenarios/published. Made by tests/published/test_published_mfu.py with
# --update-golden; docs/theory/search.md explains it. Not to be edited.
"""


class PublishedMfu(Checked):
    """The published run with the highest MFU of its class."""

    generation: str
    precision: str
    """``fp16`` counts as ``bf16``, which has the same peak."""
    experts: bool
    mfu: Annotated[PositiveRatio, Field(le=1.0)]
    """By the FLOPs that this program counts, which need not be those of the source."""
    row: str
    source: str
    model: str
    accelerators: PositiveInt
    accelerator: str
    runs: PositiveInt
    """Published runs of the class."""

    def text(self) -> str:
        """Return the run in words."""
        return f"{percent_text(self.mfu)}: {self.model} on {self.accelerators:,} {self.accelerator} ({self.source}, {self.row})"


@dataclass(frozen=True, slots=True)
class _Class:
    """Runs whose MFU are held against each other."""

    generation: str
    precision: str
    experts: bool


LEAST_MFU: Final = 0.1
"""Minimum MFU of a run that says what can be reached. Steps below it wait for the host or the network, as those of tests do."""


def _class_of(built: Built) -> _Class:
    precision = built.plan.training.precision
    kind = "bf16" if precision == "fp16" else precision
    return _Class(
        built.cluster.node.accelerator.generation,
        kind,
        local_model(built.plan.model, built.plan.training, built.plan.strategy).model.experts is not None,
    )


def highest_published(sources: Iterable[PublishedSource] | None = None) -> tuple[PublishedMfu, ...]:
    """Return the published run with the highest MFU of each class, from the scenarios of the sources, without a simulation.

    Runs whose source gives the speed of one accelerator do not count, nor those below ``LEAST_MFU``. What a source hides of a
    run is no part of the FLOPs of its model.
    """
    best: dict[_Class, PublishedMfu] = {}
    runs: dict[_Class, int] = {}
    for source in map(read_source, source_names()) if sources is None else sources:
        for index, row in enumerate(source.spec.rows):
            built = build(load_scenario(source.alternatives(index)[0]))
            if MEASURED_SPEED in dict(built.loaded.flags):
                continue
            plan, accelerator, of = built.plan, built.cluster.node.accelerator, _class_of(built)
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
                    generation=of.generation,
                    precision=of.precision,
                    experts=of.experts,
                    mfu=mfu,
                    row=row.id,
                    source=source.spec.source_id,
                    model=plan.model.name,
                    accelerators=plan.n_ranks,
                    accelerator=accelerator.name,
                    runs=1,
                )
    ordered = sorted(best, key=lambda each: (each.generation, each.precision, each.experts))
    return tuple(best[each].model_copy(update={"runs": runs[each]}) for each in ordered)


def beside_published(found: PublishedMfu | None) -> str:
    """Return the highest MFU that was published in a class, in words."""
    if found is None:
        return "no run like it was published"
    kind = f"{'models with experts' if found.experts else 'dense models'} in {found.precision} on {found.generation}"
    return f"the highest published of {kind} is {found.text()}"


def above_published(mfu: float, found: PublishedMfu | None) -> tuple[Flag, ...]:
    """Return a flag where a predicted MFU is higher than any that was published, or none like it was."""
    if found is not None and mfu <= found.mfu:
        return ()
    return (Flag(code=ABOVE_PUBLISHED, message=f"an MFU of {percent_text(mfu)} is above all published runs; {beside_published(found)}"),)


class _File(Checked):
    """``mfu.yaml`` in ``hardware_profiles/residuals``."""

    sources: list[str]
    highest: list[PublishedMfu] = Field(min_length=1)


def shipped_path() -> Path:
    """Return where the highest MFU of this version are kept."""
    return data_path("hardware_profiles") / SHIPPED


def published_mfu_text(found: Iterable[PublishedMfu]) -> str:
    """Return the highest MFU as YAML."""
    rows = [each.model_dump() for each in found]
    return _HEADER + yaml_text({"sources": [*sorted({str(row["source"]) for row in rows})], "highest": [*rows]})


@lru_cache(maxsize=1)
def shipped_highest() -> tuple[PublishedMfu, ...]:
    """Return the highest published MFU of each class in this version."""
    return tuple(validate_document(_File, read_document(shipped_path())).highest)


def published_beside(built: Built) -> PublishedMfu | None:
    """Return the published run with the highest MFU of the class of a run; None where none was published."""
    of = _class_of(built)
    return next((each for each in shipped_highest() if _Class(each.generation, each.precision, each.experts) == of), None)


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

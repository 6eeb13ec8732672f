"""The error bar of a run: which kind it is, and where runs of that kind were measured beside their predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, model_validator

from clustersim.documents.check import choices_hint, validate_document
from clustersim.documents.data import data_path
from clustersim.documents.text import read_document
from clustersim.errors import ScenarioError
from clustersim.hardware.schema import Checked
from clustersim.report.error_bars import (
    CONVOLUTIONAL,
    DENSE,
    EXPERTS,
    MANY_NODES,
    MEASURED_ACCELERATOR,
    ONE_NODE,
    OTHER_ACCELERATOR,
    SERVED,
    WORDS,
    Band,
    Bands,
    RunKind,
    kind_text,
)
from clustersim.report.metrics import Flag, Metrics
from clustersim.scenario.build import Built
from clustersim.strategy.plan import Plan
from clustersim.units.fields import PositiveInt, PositiveRatio
from clustersim.workload.convolution import Convolution
from clustersim.workload.layered import Layered

SHIPPED: Final = Path("residuals") / "step-time.yaml"
"""Below ``hardware_profiles``."""

NOT_MEASURED: Final = ("related_calibration", "borrowed_calibration")
"""Codes of flags that say that the accelerator itself was not calibrated."""

Level = Annotated[PositiveRatio, Field(lt=1.0)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class BandSpec(Checked):
    """One band of the file."""

    kind: list[str] = Field(max_length=len(WORDS))
    least: PositiveRatio
    most: PositiveRatio

    @model_validator(mode="after")
    def _check_kind(self) -> BandSpec:
        for word, words in zip(self.kind, WORDS, strict=False):
            if word not in words:
                raise ScenarioError(f"unknown kind '{word}'", field="kind", hint=choices_hint(word, words))
        return self

    @model_validator(mode="after")
    def _check_order(self) -> BandSpec:
        if self.most < self.least:
            raise ScenarioError("'most' is below 'least'", field="most", hint="exchange them")
        return self

    def band(self) -> Band:
        """Return what is looked up."""
        return Band(kind=tuple(self.kind), least_fraction=self.least, most_fraction=self.most)


class KindSpec(BandSpec):
    """Of one kind of runs, from all sources."""

    borrowed_from: list[str] | None = None
    """The kind that the band is of, where there is too little of this one."""
    rows: PositiveInt
    sources: PositiveInt


class HeldOutSpec(BandSpec):
    """Of one kind of runs, from all sources but one."""

    without: str


class CoverageSpec(Checked):
    """Share of rows that lie in the intervals which the other sources alone would give."""

    weighted: Share
    rows: Share
    sources: Share


class MadeFromSpec(Checked):
    """What the file was made from."""

    rows: PositiveInt
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class ResidualsSpec(Checked):
    """``hardware_profiles/residuals/step-time.yaml``."""

    level: Level
    sources: list[str] = Field(min_length=1)
    made_from: MadeFromSpec
    widening: PositiveRatio
    coverage: CoverageSpec
    kinds: list[KindSpec] = Field(min_length=1)
    held_out: list[HeldOutSpec] = Field(default=[])

    @model_validator(mode="after")
    def _check_all_runs(self) -> ResidualsSpec:
        if [] not in [each.kind for each in self.kinds]:
            raise ScenarioError("no kind stands for all runs", field="kinds", hint="add one whose kind is []")
        return self


def read_bands(path: Path) -> Bands:
    """Return the bands of a file.

    Raises
    ------
    ScenarioError
        When it cannot be used.
    """
    spec = validate_document(ResidualsSpec, read_document(path))
    return Bands(
        level_fraction=spec.level,
        by_kind={tuple(each.kind): _own_or_borrowed(each) for each in spec.kinds},
        held_out={(each.without, tuple(each.kind)): each.band() for each in spec.held_out},
    )


def _own_or_borrowed(spec: KindSpec) -> Band:
    return spec.band() if spec.borrowed_from is None else replace(spec.band(), kind=tuple(spec.borrowed_from))


def shipped_path() -> Path:
    """Return where the bands of this version are kept."""
    return data_path("hardware_profiles") / SHIPPED


@lru_cache(maxsize=1)
def shipped_bands() -> Bands:
    """Return the bands of this version."""
    return read_bands(shipped_path())


def run_kind(plan: Plan, n_nodes: int, flags: Sequence[Flag]) -> RunKind:
    """Return which kind a run is.

    Parameters
    ----------
    flags
        Of its result; they say whether the accelerator itself was calibrated.
    """
    measured = not any(flag.code in NOT_MEASURED for flag in flags)
    return (
        _family(plan),
        ONE_NODE if n_nodes == 1 else MANY_NODES,
        MEASURED_ACCELERATOR if measured else OTHER_ACCELERATOR,
    )


def _family(plan: Plan) -> str:
    if plan.strategy.data_parallel.service is not None:
        return SERVED
    if isinstance(plan.model, Layered):
        kernels = (kernel for does in plan.model.each_layer() for operator in does for kernel in operator.forward)
        return CONVOLUTIONAL if any(isinstance(kernel, Convolution) for kernel in kernels) else DENSE
    return DENSE if plan.model.experts is None else EXPERTS


def with_error_bar(metrics: Metrics, built: Built) -> Metrics:
    """Return metrics with the interval that the step time is expected in."""
    bands = shipped_bands()
    kind = run_kind(built.plan, len(built.nodes), metrics.flags)
    band = bands.band(kind)
    return replace(
        metrics,
        step_time_interval_s=band.interval_s(metrics.step_time_s),
        step_time_interval_kind=kind_text(band.kind),
        step_time_interval_level_fraction=bands.level_fraction,
        flags=(*metrics.flags, *_flags(built, kind, band)),
    )


def _flags(built: Built, kind: RunKind, band: Band) -> Iterator[Flag]:
    if band.kind != kind:
        known = f"the interval of the step time is that of {kind_text(band.kind)}, and holds what few there are"
        message = f"too few sources have measured such runs ({kind_text(kind)}); {known}"
        yield Flag(code="interval_borrowed", message=message)
    if not band.least_fraction <= 1.0 <= band.most_fraction:
        side = "slower" if band.least_fraction > 1.0 else "faster"
        message = f"the step time lies outside of its interval: nearly all measured runs of this kind were {side} than predicted"
        yield Flag(code="interval_beside_prediction", message=message)
    if built.jobs or built.background or built.uneven is not None:
        message = "the interval of the step time comes from runs that had the cluster to themselves and even ranks"
        yield Flag(code="interval_undisturbed", message=message)

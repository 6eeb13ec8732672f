"""The error bars of a run: where step times of its kind, and peaks of memory, were measured beside their predictions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, model_validator

from clustersim.config.build import Built
from clustersim.config.resolve import resolved_cluster
from clustersim.documents.check import choices_hint, validate_document
from clustersim.documents.data import data_path
from clustersim.documents.text import read_document
from clustersim.errors import ScenarioError
from clustersim.hardware.models import Accelerator
from clustersim.hardware.profile_schema import Checked
from clustersim.measure.error_bars import (
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
    ErrorBar,
    RunKind,
    kind_text,
    memory_verdict_of,
)
from clustersim.measure.metrics import Memory, Metrics
from clustersim.notices import Flag
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.shard import local_model
from clustersim.parallel.step_settings import DataParallel
from clustersim.parallel.training_plan import Plan
from clustersim.units.fields import PositiveInt, PositiveRatio
from clustersim.workloads.convolution import Convolution

SHIPPED: Final = Path("residuals") / "step-time.yaml"
"""Below ``hardware_profiles``."""
MEMORY: Final = "memory.yaml"
"""Beside it: the same of peaks of memory, of which there are too few for kinds of their own."""

NOT_MEASURED: Final = ("related_calibration", "borrowed_calibration")
"""Codes of flags that say that the accelerator itself was not calibrated."""

MACHINE_DIGITS: Final = 8

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
    """Band of one kind of runs, from all sources."""

    borrowed_from: list[str] | None = None
    """The kind that the band is of, where there is too little of this one."""
    rows: PositiveInt
    sources: PositiveInt


class HeldOutSpec(BandSpec):
    """Band of one kind of runs, from all sources but one."""

    without: str


class CoverageSpec(Checked):
    """Share of rows that lie in the intervals which the other sources alone would give."""

    weighted: Share
    rows: Share
    sources: Share


class MadeFromSpec(Checked):
    """Data that the file was made from."""

    rows: PositiveInt
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class RatioSpec(Checked):
    """Pairs of rows of one kind, each of one source and one machine."""

    kind: list[str] = Field(max_length=len(WORDS))
    most: Annotated[PositiveRatio, Field(ge=1.0)]
    borrowed_from: list[str] | None = None
    pairs: PositiveInt
    sources: PositiveInt


class RatiosSpec(Checked):
    """Errors of ratios of two times on one machine."""

    widening: PositiveRatio
    coverage: Share
    kinds: list[RatioSpec] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_all_runs(self) -> RatiosSpec:
        if [] not in [each.kind for each in self.kinds]:
            raise ScenarioError("no kind stands for all runs", field="ratios.kinds", hint="add one whose kind is []")
        return self


class UnmeasuredSpec(Checked):
    """Error bars of accelerators without a published step."""

    measured: list[str] = Field(min_length=1)
    """Accelerators of the rows."""
    widening: Annotated[PositiveRatio, Field(ge=1.0)]


class ResidualsSpec(Checked):
    """``step-time.yaml`` and ``memory.yaml`` in ``hardware_profiles/residuals``."""

    level: Level
    sources: list[str] = Field(min_length=1)
    made_from: MadeFromSpec
    widening: PositiveRatio
    coverage: CoverageSpec
    kinds: list[KindSpec] = Field(min_length=1)
    held_out: list[HeldOutSpec] = Field(default=[])
    ratios: RatiosSpec | None = None
    """Absent in ``memory.yaml``, as what follows."""
    unmeasured: UnmeasuredSpec | None = None

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
    found = Bands(
        level_fraction=spec.level,
        by_kind={tuple(each.kind): _own_or_borrowed(each) for each in spec.kinds},
        held_out={(each.without, tuple(each.kind)): each.band() for each in spec.held_out},
    )
    if spec.ratios is not None:
        found = replace(found, ratios={tuple(each.kind): each.most for each in spec.ratios.kinds})
    if spec.unmeasured is not None:
        found = replace(found, accelerators=tuple(spec.unmeasured.measured), unmeasured_widening=spec.unmeasured.widening)
    return found


def _own_or_borrowed(spec: KindSpec) -> Band:
    return spec.band() if spec.borrowed_from is None else replace(spec.band(), kind=tuple(spec.borrowed_from))


def shipped_path() -> Path:
    """Return where the bands of this version are kept."""
    return data_path("hardware_profiles") / SHIPPED


@lru_cache(maxsize=1)
def shipped_bands() -> Bands:
    """Return the bands of this version."""
    return read_bands(shipped_path())


@lru_cache(maxsize=1)
def shipped_memory_band() -> Band:
    """Return where measured peaks of memory lie, as shares of predicted ones."""
    return read_bands(shipped_path().with_name(MEMORY)).band(())


def run_kind(plan: Plan, n_nodes: int, flags: Sequence[Flag]) -> RunKind:
    """Return which kind a run is.

    Parameters
    ----------
    flags
        Of its result; they say whether the accelerator itself was calibrated.
    """
    measured = not any(flag.code in NOT_MEASURED for flag in flags)
    return (
        _family(local_model(plan), plan.strategy.data_parallel),
        ONE_NODE if n_nodes == 1 else MANY_NODES,
        MEASURED_ACCELERATOR if measured else OTHER_ACCELERATOR,
    )


def _family(local: LocalModel, gradients: DataParallel) -> str:
    if gradients.service is not None:
        return SERVED
    if local.model.experts is not None:
        return EXPERTS
    runs = local.runs(range(local.model.n_layers))
    kernels = (kernel for operators, _ in runs for operator in operators for kernel in operator.kernels("forward"))
    return CONVOLUTIONAL if any(isinstance(kernel, Convolution) for kernel in kernels) else DENSE


def with_error_bar(metrics: Metrics, built: Built) -> Metrics:
    """Return metrics with the intervals that the step time and the peak of memory are expected in."""
    bands = shipped_bands()
    kind = run_kind(built.plan, len(built.nodes), metrics.flags)
    strange = strange_accelerators(built, bands)
    band = bands.band(kind).wider(bands.unmeasured_widening) if strange else bands.band(kind)
    return replace(
        metrics,
        step_time_interval_s=band.interval_s(metrics.step_time_s),
        step_time_interval_kind=kind_text(band.kind),
        step_time_interval_level_fraction=bands.level_fraction,
        memory=_judged(metrics.memory),
        error_bar=ErrorBar(
            least_fraction=band.least_fraction,
            most_fraction=band.most_fraction,
            ratio_most_fraction=bands.ratio(kind),
            machine=machine_of(built),
        ),
        flags=(*metrics.flags, *_flags(built, kind, band), *_strange_flags(strange, bands)),
    )


def strange_accelerators(built: Built, bands: Bands) -> tuple[str, ...]:
    """Return the accelerators of a cluster on which no step was measured, neither by a source nor by the user."""
    accelerators = [node.accelerator for node, _ in built.cluster.kinds]
    strange = [each.name for each in accelerators if each.name not in bands.accelerators and not _is_users_own(each)]
    return tuple(dict.fromkeys(strange))


def _is_users_own(accelerator: Accelerator) -> bool:
    return accelerator.calibration is not None and accelerator.name in accelerator.calibration.accelerators


def machine_of(built: Built) -> str:
    """Return eight hexadecimal digits that runs on the same hardware with the same constants share, on however many nodes."""
    machine = resolved_cluster(built)
    if len(built.cluster.kinds) == 1:
        machine.pop("nodes", None)
    constants = built.constants.text if built.constants is not None else ""
    canonical = json.dumps([machine, constants], sort_keys=True, separators=(",", ":"))
    return sha256(canonical.encode()).hexdigest()[:MACHINE_DIGITS]


def _strange_flags(strange: Sequence[str], bands: Bands) -> Iterator[Flag]:
    if strange:
        message = f"not measured: the interval is that of generations left out, {bands.unmeasured_widening:.3g} times as wide"
        yield Flag(
            code="interval_not_measured", message=f"{' and '.join(strange)}, on which no run was published, {_is(strange)} {message}"
        )


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _judged(memory: Memory) -> Memory:
    band = shipped_memory_band()
    return replace(
        memory,
        verdict=memory_verdict_of(memory.peak_bytes, memory.capacity_bytes, band),
        peak_interval_bytes=(band.least_fraction * memory.peak_bytes, band.most_fraction * memory.peak_bytes),
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

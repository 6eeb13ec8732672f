"""The error bars of a run: where step times of its kind, and peaks of memory, were measured beside their predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from clustersim.config import usual
from clustersim.config.build import Built
from clustersim.config.resolve import digits_of, resolved_cluster
from clustersim.documents.check import validate_document
from clustersim.documents.files import data_path
from clustersim.documents.text import read_document
from clustersim.hardware.catalog import profile_names
from clustersim.hardware.models import Accelerator
from clustersim.hardware.profile_schema import Checked
from clustersim.measure.error_bars import (
    EXPERTS,
    SHORT_STEP,
    USUAL_SETTINGS,
    Band,
    Bands,
    ErrorBar,
    Reach,
    RunKind,
    Spread,
    Word,
    kind_of,
    kind_text,
    memory_verdict_of,
)
from clustersim.measure.metrics import Memory, Metrics
from clustersim.notices import Flag
from clustersim.report.facts import percent_text
from clustersim.units.fields import PositiveInt, PositiveRatio
from clustersim.workloads.model import Model

STEP_TIME: Final = "step-time.yaml"
"""File of the error bars of step times."""
MEMORY: Final = "memory.yaml"
"""File of the same of peaks of memory, of which there are too few for kinds of their own."""
MFU: Final = "mfu.yaml"
"""File of the highest published MFU of each class."""
ABOVE_PUBLISHED: Final = "above_published"


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


def class_of(built: Built) -> tuple[str, str, bool]:
    """Return generation, precision and whether there are experts: the class of a run, in which MFU are held against each other."""
    precision = built.plan.training.precision
    return built.cluster.node.accelerator.generation, "bf16" if precision == "fp16" else precision, built.plan.model.experts is not None


def beside_published(found: PublishedMfu | None) -> str:
    """Return the highest MFU that was published in a class, in words."""
    if found is None:
        return "no run like it was published"
    kind = f"{'models with experts' if found.experts else 'dense models'} in {found.precision} on {found.generation}"
    return f"the highest published of {kind} is {found.text()}"


def above_published(mfu: float, found: PublishedMfu | None) -> tuple[Flag, ...]:
    """Return a flag where a predicted MFU is higher than any that was published of its class."""
    if found is None or mfu <= found.mfu:
        return ()
    return (Flag(code=ABOVE_PUBLISHED, message=f"an MFU of {percent_text(mfu)} is above all published runs; {beside_published(found)}"),)


class _File(Checked):
    """``mfu.yaml``."""

    sources: list[str]
    highest: list[PublishedMfu] = Field(min_length=1)


def residuals_path(name: str) -> Path:
    """Return the path of a file with errors of this version, such as :data:`STEP_TIME`."""
    return data_path("hardware_profiles", "residuals", name)


@lru_cache(maxsize=1)
def shipped_highest() -> tuple[PublishedMfu, ...]:
    """Return the highest published MFU of each class in this version."""
    return tuple(validate_document(_File, read_document(residuals_path(MFU))).highest)


def published_beside(built: Built) -> PublishedMfu | None:
    """Return the published run with the highest MFU of the class of a run; None where none was published."""
    of = class_of(built)
    return next((each for each in shipped_highest() if (each.generation, each.precision, each.experts) == of), None)


SHORT_S: Final = 0.5
"""Duration of a step below which errors are larger, in seconds; 0.2, 1 and 2 s tell sources that were left out apart less well."""

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class FactorSpec(Checked):
    """Growth of errors with one word of a kind."""

    word: Word
    factor: Annotated[PositiveRatio, Field(ge=1.0)]
    rows: PositiveInt
    sources: PositiveInt
    covered: Share
    """Share of its rows that lie in intervals which the other sources alone give."""


class SpreadSpec(Checked):
    """Interval of most runs, from all sources or from all but one."""

    without: str = ""
    middle: PositiveRatio
    most: Annotated[PositiveRatio, Field(ge=1.0)]
    factors: dict[Word, PositiveRatio] = Field(default={})


class RatiosSpec(Checked):
    """Errors of ratios of two times on one machine, and the pairs behind them."""

    most: Annotated[PositiveRatio, Field(ge=1.0)]
    """Largest expected error as a factor, of runs whose errors nothing makes larger."""
    pairs: PositiveInt
    sources: PositiveInt
    coverage: Share
    """Share of pairs that lie within what the other sources give; a source counts as the root of its pairs' rows."""


class ResidualsSpec(Checked):
    """``step-time.yaml`` and ``memory.yaml`` in ``hardware_profiles/residuals``."""

    level: Annotated[PositiveRatio, Field(lt=1.0)]
    sources: list[str] = Field(min_length=1)
    made_from: dict[str, int | str]
    """Number of rows, and their digest."""
    coverage: dict[str, Share]
    """Share of rows inside the intervals from the other sources alone."""
    spread: SpreadSpec
    factors: list[FactorSpec] = Field(default=[])
    held_out: list[SpreadSpec] = Field(default=[])
    ratios: RatiosSpec | None = None
    """Absent in ``memory.yaml``, as what follows."""
    reach: Reach | None = None


def read_bands(path: Path) -> Bands:
    """Return the bands of a file."""
    spec = validate_document(ResidualsSpec, read_document(path))
    found = Bands(
        level_fraction=spec.level,
        spread=_spread(spec.spread, {each.word: each.factor for each in spec.factors}),
        held_out={each.without: _spread(each, {**each.factors}) for each in spec.held_out},
        reach=spec.reach,
    )
    return found if spec.ratios is None else replace(found, ratio_most_fraction=spec.ratios.most)


def _spread(spec: SpreadSpec, factors: Mapping[str, float]) -> Spread:
    return Spread(middle_fraction=spec.middle, most_fraction=spec.most, factors=factors)


@lru_cache(maxsize=1)
def shipped_bands() -> Bands:
    """Return the bands of this version."""
    return read_bands(residuals_path(STEP_TIME))


def shipped_support(kind: str) -> tuple[int, int]:
    """Return the numbers of published runs and of their sources behind the interval of a kind, of its rarest feature."""
    spec = validate_document(ResidualsSpec, read_document(residuals_path(STEP_TIME)))
    counts = [(each.rows, each.sources) for each in spec.factors if each.word in kind.split(", ")]
    return min(counts, default=(int(spec.made_from["rows"]), len(spec.sources)))


@lru_cache(maxsize=1)
def shipped_memory_band() -> Band:
    """Return where measured peaks of memory lie, as shares of predicted ones."""
    return read_bands(residuals_path(MEMORY)).spread.band(())


def run_kind(model: Model, step_time_s: float, flags: Sequence[Flag]) -> RunKind:
    """Return what makes the error of a run larger.

    Parameters
    ----------
    step_time_s
        Predicted duration of a step, in seconds.
    flags
        Of its result; they say whether usual settings were taken, as they are too where neither a preset nor a scenario says the kernels.
    """
    taken = (usual.USUAL_SETTINGS, usual.ASSUMED_KERNELS.code)
    true = {
        EXPERTS: model.experts is not None,
        USUAL_SETTINGS: any(flag.code in taken for flag in flags),
        SHORT_STEP: step_time_s < SHORT_S,
    }
    return kind_of([word for word, holds in true.items() if holds])


def with_error_bar(metrics: Metrics, built: Built) -> Metrics:
    """Return metrics with the intervals that the step time and the peak of memory are expected in."""
    bands = shipped_bands()
    kind = run_kind(built.plan.model, metrics.step_time_s, metrics.flags)
    band, ratio_most, beyond = bands.spread.band(kind), bands.ratio(kind), tuple(beyond_reach(built, metrics.gpus, bands.reach))
    widening, ratio_widening = _widenings(metrics, bands.reach, beyond)
    if beyond:
        band, ratio_most = band.wider(widening), ratio_most**ratio_widening
    return replace(
        metrics,
        step_time_interval_s=band.interval_s(metrics.step_time_s),
        step_time_interval_kind=kind_text(kind),
        step_time_interval_level_fraction=bands.level_fraction,
        memory=_judged(metrics.memory),
        error_bar=ErrorBar(
            least_fraction=band.least_fraction,
            most_fraction=band.most_fraction,
            ratio_most_fraction=ratio_most,
            machine=machine_of(built),
        ),
        flags=(*metrics.flags, *_flags(built, beyond, widening), *above_published(metrics.mfu, published_beside(built))),
    )


def _widenings(metrics: Metrics, reach: Reach | None, beyond: Sequence[str]) -> tuple[float, float]:
    """Return the growth of the errors of times and of ratios of two of them, as factors of logarithms."""
    if reach is None or not beyond:
        return 1.0, 1.0
    borrowed = any(flag.code == "borrowed_calibration" for flag in metrics.flags)
    return (reach.borrowed_widening, reach.borrowed_ratio_widening) if borrowed else (reach.widening, reach.widening)


def beyond_reach(built: Built, n_accelerators: int, reach: Reach | None) -> Iterator[str]:
    """Yield each thing of a run that goes beyond what was measured, by a source or by the user, in words."""
    if reach is None:
        return
    accelerators = [node.accelerator for node, _ in built.cluster.kinds]
    strange = [each.name for each in accelerators if each.name not in reach.accelerators and not _is_users_own(each)]
    yield from dict.fromkeys(strange)
    if n_accelerators > reach.n_accelerators:
        yield f"more than {reach.n_accelerators} accelerators"
    if built.plan.training.seq_length > reach.seq_length:
        yield f"sequences of more than {reach.seq_length} tokens"


def _is_users_own(accelerator: Accelerator) -> bool:
    return accelerator.calibration is not None and accelerator.name in accelerator.calibration.accelerators


def machine_of(built: Built) -> str:
    """Return eight hexadecimal digits that runs on the same hardware with the same constants share, on however many nodes."""
    machine = resolved_cluster(built)
    if len(built.cluster.kinds) == 1:
        machine.pop("nodes", None)
    constants = built.constants.text if built.constants is not None else ""
    return digits_of([machine, constants])


def _judged(memory: Memory) -> Memory:
    band = shipped_memory_band()
    return replace(
        memory,
        verdict=memory_verdict_of(memory.peak_bytes, memory.capacity_bytes, band),
        peak_interval_bytes=(band.least_fraction * memory.peak_bytes, band.most_fraction * memory.peak_bytes),
    )


def _flags(built: Built, beyond: Sequence[str], widening: float) -> Iterator[Flag]:
    if beyond:
        own = [
            each
            for each in beyond
            if each in {node.accelerator.name for node, _ in built.cluster.kinds} - set(profile_names("accelerators"))
        ]
        rest = [each for each in beyond if each not in own]
        said = [f"no run of {each}, an accelerator of your own, was measured" for each in own]
        said += [f"too few measured runs had {' or '.join(rest)}"] if rest else []
        message = f"{'; '.join(said)}; the interval of the step time is {widening:.3g} times as wide"
        yield Flag(code="interval_not_measured", message=message)
    if built.jobs or built.background or built.uneven is not None:
        message = "the interval of the step time comes from runs that had the cluster to themselves and even ranks"
        yield Flag(code="interval_undisturbed", message=message)

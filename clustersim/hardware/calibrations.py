"""Find the calibration of an accelerator's generation and check it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from clustersim.documents.check import validate_document
from clustersim.documents.files import data_names, data_path
from clustersim.documents.text import read_document
from clustersim.errors import ScenarioError
from clustersim.hardware.calibration import (
    FURTHER_S,
    MOST_SPREAD,
    POWER_EXPONENT,
    PRODUCT_S,
    AttentionCalibration,
    AttentionPass,
    BandwidthCeilings,
    BySpan,
    Calibration,
    FamilyCalibration,
    GemmCalibration,
    LaunchCalibration,
    LibraryLimits,
    NetworkCalibration,
)
from clustersim.hardware.catalog import load_accelerator, read_spec
from clustersim.hardware.models import Accelerator, Node
from clustersim.hardware.profile_schema import Checked, PositiveBandwidth, Spec
from clustersim.hardware.provenance import built_sources
from clustersim.units.fields import PositiveInt, PositiveRatio, Seconds

BEST_ATTENTION: Final = "flash"
"""Stands for the best generation of fused attention that an accelerator has."""

SAME_CHIP: Final = 0.05
"""Share by which the multiprocessors of two products of one chip differ at most."""
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[PositiveRatio, Field(le=1.0)]


class TileSpec(Checked):
    """One tile that the library of matrix products chooses from."""

    rows: PositiveInt
    columns: PositiveInt
    share: PositiveRatio


class SustainedSpec(Checked):
    """Share of the peak for each precision; ``default`` serves those that were not measured."""

    default: Share
    fp32: Share | None = None
    tf32: Share | None = None
    fp16: Share | None = None
    bf16: Share | None = None
    fp8: Share | None = None


class UnalignedSpec(Checked):
    """Share left of the rate of products whose rows begin anywhere, at an even number of 16 bits or at an odd one."""

    even: Share = 1.0
    odd: Share = 1.0


class EfficiencySpec(Checked):
    """Usable share of the bandwidth of each tier."""

    nvlink: Share
    pcie: Share
    socket: Share
    nic: Share
    leaf: Share
    spine: Share
    memory: Share
    """Share for host memory."""


class GemmSpec(Checked):
    """Matrix products."""

    sustained_fraction: SustainedSpec
    under_load: SustainedSpec
    depth_overhead: NonNegative
    unaligned_fraction: UnalignedSpec = UnalignedSpec()
    power_exponent: Share = POWER_EXPONENT
    clock_spread: Annotated[float, Field(ge=0, le=MOST_SPREAD)] = 0.0
    under_load_ranks: PositiveInt = 1
    burst_fraction: Share | None = None
    tiles: list[TileSpec] = Field(min_length=1)


class AttentionPassSpec(Checked):
    """One direction of fused attention."""

    fraction: Share
    half_length: NonNegative
    causal_half_length: NonNegative


class AttentionSpec(Checked):
    """One generation of fused attention."""

    forward: AttentionPassSpec
    backward: AttentionPassSpec
    half_head_dim: NonNegative


class AttentionsSpec(Checked):
    """Fused attention: constants of each generation of kernels that runs on the accelerator, and the fastest of them."""

    best: Literal["flash_4", "flash_3", "flash_2", "flash_1"]
    flash_4: AttentionSpec | None = None
    flash_3: AttentionSpec | None = None
    flash_2: AttentionSpec | None = None
    flash_1: AttentionSpec | None = None

    @model_validator(mode="after")
    def _check_best(self) -> AttentionsSpec:
        if self.best not in self.generations():
            raise ScenarioError(f"nothing is said of {self.best}", field="best", hint=f"name one of {', '.join(self.generations())}")
        return self

    def generations(self) -> dict[str, AttentionSpec]:
        """Return the known ones, the latest first."""
        known = {"flash_4": self.flash_4, "flash_3": self.flash_3, "flash_2": self.flash_2, "flash_1": self.flash_1}
        return {name: spec for name, spec in known.items() if spec is not None}


class LaunchSpec(Checked):
    """Costs that do not depend on size."""

    kernel: Seconds
    dispatch: Seconds
    step: Seconds
    further: Seconds = FURTHER_S
    product: Seconds = PRODUCT_S


class FamilySpec(Checked):
    """One family of collective algorithms."""

    start: Seconds
    chunk: Seconds


class CeilingsSpec(Checked):
    """Bandwidth that multiprocessors can drive, as a share of the data-sheet bandwidth."""

    nvls: Share
    exchange: Share
    pair: Share
    peer: Share


class FamiliesSpec(Checked):
    """All families."""

    ring: FamilySpec
    tree: FamilySpec
    nvls: FamilySpec
    exchange: FamilySpec


class BySpanSpec(Checked):
    """A bandwidth in groups of one, two and more domains."""

    one: PositiveBandwidth | None = None
    """Absent where a group always spans several."""
    two: PositiveBandwidth
    more: PositiveBandwidth


class LibrarySpec(Checked):
    """Limits by which the communication library chooses."""

    compute_capability: NonNegative
    tree_channel: BySpanSpec
    nvls_tree_channel: BySpanSpec | None = None
    ll: BySpanSpec
    nvls_share: Share
    fewest_nvls_ranks: PositiveInt


class NetworkSpec(Checked):
    """Collectives."""

    efficiency: EfficiencySpec
    families: FamiliesSpec
    ceilings: CeilingsSpec
    multiprocessors: PositiveInt
    library: LibrarySpec | None = None
    """Absent in a calibration of one's own: those of the shipped one of its generation."""


class CalibrationSpec(Spec):
    """``hardware_profiles/calibration/<generation>.yaml``."""

    generation: str
    lends: bool = False
    """True for the one calibration whose constants generations without their own borrow: the one with the most measurements."""
    accelerators: list[str] = Field(min_length=1)
    """Those that were measured; the rest of the generation shares their constants, and results say so."""
    notes: dict[str, str] = Field(default_factory=dict)
    """Flags that every result with this calibration carries."""
    gemm: GemmSpec
    attention: AttentionsSpec
    memory_fraction: Share
    launch: LaunchSpec
    network: NetworkSpec


def read_calibration(path: Path) -> Calibration:
    """Return the calibration that a file describes; every number in it stands under a source."""
    spec, document = read_spec(CalibrationSpec, path)
    if spec.network.library is None and path == calibration_path(spec.generation):
        field = "network.library"
        raise ScenarioError(
            f"'{field}' is missing", field=field, hint="a shipped calibration has its own", place=document.place(("network",))
        )
    gemm, launch = spec.gemm, spec.launch
    return Calibration(
        name=spec.name,
        generation=spec.generation,
        gemm=GemmCalibration(
            sustained_fraction=gemm.sustained_fraction.model_dump(exclude_none=True),
            under_load=gemm.under_load.model_dump(exclude_none=True),
            depth_overhead=gemm.depth_overhead,
            power_exponent=gemm.power_exponent,
            clock_spread=gemm.clock_spread,
            under_load_ranks=gemm.under_load_ranks,
            burst_fraction=gemm.burst_fraction,
            unaligned_fraction={"whole": 1.0, "even": gemm.unaligned_fraction.even, "odd": gemm.unaligned_fraction.odd},
            tiles=tuple((tile.rows, tile.columns, tile.share) for tile in gemm.tiles),
        ),
        attention=_attention(spec.attention),
        memory_fraction=spec.memory_fraction,
        launch=LaunchCalibration(
            kernel_s=launch.kernel, dispatch_s=launch.dispatch, step_s=launch.step, further_s=launch.further, product_s=launch.product
        ),
        network=_network(spec.network, spec.generation),
        accelerators=tuple(spec.accelerators),
        sources=built_sources(spec),
        notes=tuple(spec.notes.items()),
    )


def _attention(spec: AttentionsSpec) -> dict[str, AttentionCalibration]:
    generations = {
        name: AttentionCalibration(
            forward=AttentionPass(**generation.forward.model_dump()),
            backward=AttentionPass(**generation.backward.model_dump()),
            half_head_dim=generation.half_head_dim,
        )
        for name, generation in spec.generations().items()
    }
    return {BEST_ATTENTION: generations[spec.best], **generations}


def _network(spec: NetworkSpec, generation: str) -> NetworkCalibration:
    families = spec.families
    return NetworkCalibration(
        efficiency=spec.efficiency.model_dump(),
        families={
            "ring": _family(families.ring),
            "tree": _family(families.tree),
            "nvls": _family(families.nvls),
            "exchange": _family(families.exchange),
        },
        ceilings=BandwidthCeilings(**spec.ceilings.model_dump()),
        multiprocessors=spec.multiprocessors,
        library=_library(spec.library) if spec.library is not None else calibration_of_generation(generation).network.library,
    )


def _library(spec: LibrarySpec) -> LibraryLimits:
    nvls_tree = spec.nvls_tree_channel
    return LibraryLimits(
        compute_capability=spec.compute_capability,
        tree_channel_bytes_per_s=_by_span(spec.tree_channel),
        nvls_tree_channel_bytes_per_s=None if nvls_tree is None else _by_span(nvls_tree),
        ll_bytes_per_s=_by_span(spec.ll),
        nvls_share=spec.nvls_share,
        fewest_nvls_ranks=spec.fewest_nvls_ranks,
    )


def _by_span(spec: BySpanSpec) -> BySpan:
    return BySpan(one=spec.two if spec.one is None else spec.one, two=spec.two, more=spec.more)


def _family(spec: FamilySpec) -> FamilyCalibration:
    return FamilyCalibration(start_s=spec.start, chunk_s=spec.chunk)


def calibration_for(accelerator: Accelerator) -> Calibration:
    """Return the calibration of an accelerator: its own, that of its generation, or a borrowed one of another generation, noted as such."""
    calibration = accelerator.calibration or calibration_of_generation(accelerator.generation)
    if accelerator.name in calibration.accelerators:
        return calibration
    if calibration.generation == accelerator.generation:
        measured = ", ".join(calibration.accelerators)
        note = ("related_calibration", f"{accelerator.name} itself was not measured; it shares the constants of {measured}")
        calibration = _at_power(calibration, accelerator)
    elif accelerator.calibration is not None:
        message = f"{calibration.name} is a calibration of {calibration.generation}, and {accelerator.name} is {accelerator.generation}"
        note = ("foreign_calibration", message)
    else:
        others = ", ".join(name for name in calibration_names() if name != calibration.generation)
        message = (
            f"{accelerator.name} (generation {accelerator.generation}) has no calibration; constants of {calibration.name} are borrowed: "
            "shares of peak rates that products, attention and memory reach, times of launches, collectives; "
            f"'generation' of the accelerator takes others ({others}), and cluster.calibration measured ones"
        )
        note = ("borrowed_calibration", message)
    return replace(calibration, notes=(*calibration.notes, note))


def calibration_at(node: Node) -> Calibration:
    """Return the calibration of the accelerators of a node, with the times of its host."""
    calibration, pace = calibration_for(node.accelerator), node.host.pace
    if pace == 1.0:
        return calibration
    launch = calibration.launch
    slower = replace(launch, dispatch_s=launch.dispatch_s * pace, further_s=launch.further_s * pace, step_s=launch.step_s * pace)
    return replace(calibration, launch=slower)


def _at_power(calibration: Calibration, accelerator: Accelerator) -> Calibration:
    """Return a calibration for an accelerator of the same generation with another power limit for each operation of its peak.

    Where products are held back by power, the clock follows the power above idle, and the rates of products and of fused attention follow
    the clock, up to the share of the peak that products reach where nothing holds them back. Nothing is changed where products keep their
    rate under load, where a power is not known, nor where another chip of the generation has more power for an operation: what else it
    spends power on is not known.
    """
    gemm, limited = calibration.gemm, _joules_per_operation(accelerator)
    measured = [
        (joules, each) for each in map(load_accelerator, calibration.accelerators) if (joules := _joules_per_operation(each)) is not None
    ]
    if limited is None or not measured or gemm.under_load["default"] == 1.0:
        return calibration
    measured.sort(key=lambda known: abs(known[0] - limited))
    nearest, card = measured[0]
    if limited > nearest and abs(accelerator.n_multiprocessors / card.n_multiprocessors - 1.0) > SAME_CHIP:
        return calibration
    idle = next((joules * each.idle_power_w / each.power_w for joules, each in measured if each.idle_power_w and each.power_w), 0.0)
    most = 1.0 if gemm.burst_fraction is None else gemm.burst_fraction / gemm.sustained_fraction["default"]
    clock = (max(limited - idle, 0.0) / (nearest - idle)) ** gemm.power_exponent
    under_load = {name: min(share * clock, max(most, share)) for name, share in gemm.under_load.items()}
    clock = under_load["default"] / gemm.under_load["default"]
    attention = {name: _at_clock(generation, clock) for name, generation in calibration.attention.items()}
    return replace(calibration, gemm=replace(gemm, under_load=under_load), attention=attention)


def _joules_per_operation(accelerator: Accelerator) -> float | None:
    """Return the power limit over the dense 16-bit peak, in joules; None where either is unknown."""
    peak = accelerator.peak_flops_per_s.get("fp16")
    return None if accelerator.power_w is None or peak is None else accelerator.power_w / peak


def _at_clock(attention: AttentionCalibration, clock: float) -> AttentionCalibration:
    forward, backward = (replace(each, fraction=each.fraction * clock) for each in (attention.forward, attention.backward))
    return replace(attention, forward=forward, backward=backward)


def calibration_names() -> tuple[str, ...]:
    """Return the generations that have a shipped calibration."""
    return data_names("hardware_profiles", "calibration")


def calibration_path(generation: str) -> Path:
    """Return the file of a generation's shipped calibration, or of the one that it borrows."""
    own = data_path("hardware_profiles", "calibration", f"{generation}.yaml")
    return own if own.is_file() else _lender()


@lru_cache
def _lender() -> Path:
    # A test holds that there is one.
    paths = map(calibration_path, calibration_names())
    return next(path for path in paths if validate_document(CalibrationSpec, read_document(path)).lends)


@lru_cache
def calibration_of_generation(generation: str) -> Calibration:
    """Return the shipped calibration of a generation, or that of the generation from which others borrow."""
    return read_calibration(calibration_path(generation))

"""Measured efficiencies of an accelerator generation, apart from its data-sheet peaks.

The classes are also the schema of a file, whose keys are their fields without the units: ``kernel: 2 us`` gives ``kernel_s``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, with_config
from pydantic_core import PydanticKnownError

from clustersim.documents.form import UNITLESS, Form
from clustersim.hardware.library_costs import LATENCIES, PROTOCOLS, AlgorithmLatencies, Family, Protocol
from clustersim.hardware.source import Source
from clustersim.units.fields import Bytes, NonNegative, PositiveBandwidth, PositiveInt, PositiveRatio, Seconds, Share, mistake

Alignment = Literal["whole", "even", "odd"]
"""Alignment of rows, by the size of a kernel's reads: vectors of 16 bytes; 4 or 8 bytes; or less, a number of 16 bits."""
UNSLOWED: Final[Mapping[Alignment, float]] = MappingProxyType({"whole": 1.0, "even": 1.0, "odd": 1.0})
BEST_ATTENTION: Final = "flash"
"""Stands for the best generation of fused attention that an accelerator has."""

MOST_SPREAD: Final = 0.2
"""Largest standard deviation of clocks that is taken."""


def _refuse(_: object) -> object:
    raise PydanticKnownError("extra_forbidden")


NO_KEY: Final = BeforeValidator(_refuse)
"""Mark of attributes that no file gives."""


@with_config(UNITLESS)
@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionShares:
    """Share for each precision; ``default`` serves those that were not measured."""

    default: Share
    fp32: Share | None = None
    tf32: Share | None = None
    fp16: Share | None = None
    bf16: Share | None = None
    fp8: Share | None = None


@with_config(UNITLESS)
@dataclass(frozen=True, slots=True, kw_only=True)
class UnalignedShares:
    """Share left of the rate of products whose rows begin at an even number of 16 bits or at an odd one."""

    even: Share | None = None
    odd: Share | None = None


class Tile(NamedTuple):
    """One tile of a matrix product, and its share of the sustained rate."""

    rows: PositiveInt
    columns: PositiveInt
    share: PositiveRatio


@with_config(UNITLESS)
@dataclass(frozen=True, slots=True, kw_only=True)
class GemmCalibration:
    """Matrix products: rate of a full wave of tiles, and loss of a partial one."""

    sustained_fraction: Annotated[Mapping[str, float], Form(PrecisionShares)]
    """Share of the dense peak reached by a deep product of full waves, by precision, in measurements of seconds."""
    under_load: Annotated[Mapping[str, float], Form(PrecisionShares)]
    """Share left of that rate, for each precision, when products run for hours and the accelerator is held at its power limit."""
    depth_overhead: NonNegative
    """Steps of k that fill and drain of a tile's pipeline cost."""
    tiles: Annotated[tuple[Tile, ...], Field(min_length=1)]
    """Tiles that the library chooses from."""
    unaligned_fraction: Annotated[Mapping[Alignment, float], Form(UnalignedShares), AfterValidator(lambda given: {**UNSLOWED, **given})] = (
        field(default_factory=lambda: UNSLOWED)
    )
    """Share left of the rate where rows are not aligned to 16 bytes, such as those of 50257 logits."""
    power_exponent: Share
    """The clock goes as this power of the watts above idle for each operation: between a third, where voltage falls with the clock (dynamic
    power goes as ``f V^2``), and 1, where voltage is at its floor."""
    clock_spread: Annotated[NonNegative, Field(le=MOST_SPREAD)] = 0.0
    """Standard deviation between accelerators of one kind, of the clock at which they run products, relative to its mean."""
    under_load_ranks: PositiveInt = 1
    """Accelerators of the steps to which ``under_load`` was fitted, as a geometric mean: it is the share of the slowest of them."""
    burst_fraction: Share | None = None
    """Share of the 16-bit peak that products reach where no power limit holds them back; None where that is the sustained fraction."""


@with_config(UNITLESS)
@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionPass:
    """One direction of fused attention: rate for long sequences and the length at which half of it is reached."""

    fraction: Share
    """Share of the dense peak."""
    half_length: NonNegative
    """Tokens; without a causal mask."""
    causal_half_length: NonNegative
    """Tokens; with one: blocks on the diagonal are computed in full."""


@with_config(UNITLESS)
@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCalibration:
    """One generation of fused attention."""

    forward: AttentionPass
    backward: AttentionPass
    half_head_dim: NonNegative
    """Head dimension at which half of the rate is reached."""


@with_config(UNITLESS)
@dataclass(frozen=True, slots=True, kw_only=True)
class Attentions:
    """Fused attention: constants of each generation of kernels that runs on the accelerator, and the fastest of them."""

    best: Literal["flash_4", "flash_3", "flash_2", "flash_1"]
    flash_4: AttentionCalibration | None = None
    flash_3: AttentionCalibration | None = None
    flash_2: AttentionCalibration | None = None
    flash_1: AttentionCalibration | None = None


def _with_best(given: Mapping[str, AttentionCalibration]) -> dict[str, AttentionCalibration]:
    known = {name: each for name, each in given.items() if name != "best"}
    best = str(given["best"])
    if best not in known:
        raise mistake(f"nothing is said of {best}", f"name one of {', '.join(known)}")
    return {BEST_ATTENTION: known[best], **known}


Attention = Annotated[Mapping[str, AttentionCalibration], Form(Attentions), AfterValidator(_with_best)]


@with_config(UNITLESS)
@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCalibration:
    """Costs that do not depend on size."""

    kernel_s: Seconds
    """From the end of one kernel to the start of the next on a busy stream."""
    dispatch_s: Seconds
    """Host time to issue one kernel."""
    step_s: Seconds
    """Host time of one step that nothing hides: data, logging, scheduler, loss scale."""
    further_s: Seconds
    """Host time to issue each further kernel of one call, such as grouped products."""
    product_s: Seconds
    """Accelerator time of each of several products on concurrent streams, above their share of the waves."""
    waited_send_s: Seconds = 0.0
    """Host time of a send and a receive that it waits for, so that nothing is issued meanwhile."""


@with_config(UNITLESS)
@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyCalibration:
    """Costs of one family of collective algorithms besides its hops and its bytes."""

    start_s: Seconds
    """Start of one call, above the constants of the library."""
    chunk_s: Seconds
    """Overhead of one chunk of the tensor at one step inside a domain; it makes the ramp-up."""


@with_config(UNITLESS)
@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthCeilings:
    """Share of the data-sheet bandwidth beyond which the multiprocessors that drive the links are the limit."""

    nvls: Share
    """Ceiling of NVLink, with the switch adding."""
    exchange: Share
    """Ceiling of NVLink, with a rank that sends to all others concurrently."""
    pair: Share
    """Ceiling of NVLink, with two ranks."""
    peer: Share
    """Ceiling of PCIe, between accelerators."""


@with_config(UNITLESS)
@dataclass(frozen=True, slots=True, kw_only=True)
class BySpan:
    """A bandwidth in groups of one, two and more domains, in bytes per second."""

    two: PositiveBandwidth
    more: PositiveBandwidth
    one: PositiveBandwidth | None = None
    """None where a group always spans several domains."""

    def at(self, n_domains: int) -> float:
        """Return the bandwidth in a group over a number of domains."""
        return (self.two if self.one is None else self.one, self.two, self.more)[min(n_domains, 3) - 1]


@with_config(UNITLESS)
@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryLimits:
    """Limits by which the communication library chooses an algorithm: those of the oldest accelerator of a group."""

    compute_capability: NonNegative
    """Age of the generation; 0 for one that is not NVIDIA's."""
    tree_channel_bytes_per_s: BySpan
    """Most that one channel of a tree moves, in and out together."""
    nvls_tree_channel_bytes_per_s: BySpan | None = None
    """The same where the switches of the domains add; None where they never do."""
    ll_bytes_per_s: BySpan
    """Most bus bandwidth of the LL protocol."""
    nvls_share: Share
    """Share of its bandwidth that a switch that adds is expected to reach; it does not enter predicted times."""
    fewest_nvls_ranks: PositiveInt
    """Ranks from which NVLS is chosen."""
    in_flight_bytes: Annotated[Bytes, Field(gt=0)]
    """Largest chunk, over all channels: what their buffers hold."""


@with_config(UNITLESS)
@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Usable share of the bandwidth of each tier; ``memory`` is that of the host."""

    nvlink: Share
    pcie: Share
    socket: Share
    nic: Share
    leaf: Share
    spine: Share
    memory: Share


@with_config(UNITLESS)
@dataclass(frozen=True, slots=True, kw_only=True)
class Families:
    """Costs of all families."""

    ring: FamilyCalibration
    tree: FamilyCalibration
    nvls: FamilyCalibration
    exchange: FamilyCalibration


@with_config(UNITLESS)
@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkCalibration:
    """Collectives: start and ramp-up times, ceilings, and the usable share of each tier."""

    efficiency: Annotated[Mapping[str, float], Form(Efficiency)]
    """Usable share of the data-sheet bandwidth for each tier of links."""
    families: Annotated[Mapping[Family, FamilyCalibration], Form(Families)]
    """By family of algorithms: ring, tree, nvls, exchange."""
    ceilings: BandwidthCeilings
    multiprocessors: PositiveInt
    """That the library's kernels hold while a collective inside a domain runs: one for each channel."""
    library: LibraryLimits
    latencies: Annotated[Mapping[Family, AlgorithmLatencies], NO_KEY] = field(default_factory=lambda: LATENCIES)
    """Latencies that the communication library itself counts."""
    protocols: Annotated[tuple[Protocol, ...], NO_KEY] = PROTOCOLS
    """Those that the library may use."""
    of_kinds: Annotated[tuple[NetworkCalibration, ...], NO_KEY] = ()
    """Constants of each kind of node, in order, where a cluster has several that differ; these constants are then the slowest of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """All constants of one generation, with what they were fitted to."""

    name: str
    generation: str
    gemm: GemmCalibration
    attention: Mapping[str, AttentionCalibration]
    """By generation of the kernel, such as ``flash_2``; ``flash`` is the best of them."""
    memory_fraction: Share
    """Share of the data-sheet memory bandwidth that streaming kernels reach."""
    launch: LaunchCalibration
    network: NetworkCalibration
    accelerators: tuple[str, ...]
    """Those that were measured."""
    sources: tuple[Source, ...]
    notes: tuple[tuple[str, str], ...] = ()
    """(code, message) of the flags of these constants."""

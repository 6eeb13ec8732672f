"""Find the calibration of an accelerator or of several kinds of nodes, check it, and read or change single constants by their names.

A communication library settles on one plan for all members of a group, which the least of them can follow: NCCL chooses by the oldest
generation in the group, and takes as many channels, and as much bandwidth of each, as every member has [1]_.

References
----------
.. [1] NVIDIA NCCL 2.30.7, ``src/graph/tuning.cc`` (``minCompCap``) and ``src/init.cc`` (least of the channels and bandwidths of all ranks).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import Field, model_validator

from clustersim.documents.check import validate_document
from clustersim.documents.files import data_names, data_path
from clustersim.documents.form import attribute_of
from clustersim.documents.text import is_mapping, read_document
from clustersim.errors import ScenarioError
from clustersim.hardware.calibration import (
    BEST_ATTENTION,
    Attention,
    AttentionCalibration,
    BandwidthCeilings,
    Calibration,
    FamilyCalibration,
    GemmCalibration,
    LaunchCalibration,
    NetworkCalibration,
)
from clustersim.hardware.catalog import load_accelerator, read_spec
from clustersim.hardware.models import Accelerator, Node
from clustersim.hardware.profile_schema import PeakPrecision, Spec
from clustersim.units.divisors import listed
from clustersim.units.fields import Share

SAME_CHIP: Final = 0.05
"""Share by which the multiprocessors of two products of one chip differ at most."""


class CalibrationSpec(Spec):
    """``hardware_profiles/calibration/<generation>.yaml``."""

    generation: str
    lends: bool = False
    """True for the one calibration whose constants generations without their own borrow: the one with the most measurements."""
    accelerators: list[str] = Field(min_length=1)
    """Those that were measured; the rest of the generation shares their constants, and results say so."""
    notes: dict[str, str] = Field(default_factory=dict)
    """Flags that every result with this calibration carries."""
    gemm: GemmCalibration
    attention: Attention
    memory_fraction: Share
    launch: LaunchCalibration
    network: NetworkCalibration

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: object) -> object:
        """Give a calibration of one's own the limits of the library of its generation."""
        if is_mapping(data) and is_mapping(network := data.get("network")) and "library" not in network:
            shipped = read_document(calibration_path(str(data.get("generation")))).data["network"]
            if is_mapping(shipped) and "library" in shipped:
                return {**data, "network": {**network, "library": shipped["library"]}}
        return data


def read_calibration(path: Path) -> Calibration:
    """Return the calibration that a file describes; every number in it stands under a source."""
    spec, _ = read_spec(CalibrationSpec, path)
    given: dict[str, Any] = {each.name: getattr(spec, each.name) for each in fields(Calibration)}
    given |= {"accelerators": tuple(spec.accelerators), "notes": tuple(spec.notes.items())}
    return Calibration(**given)


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
    of_host = ("dispatch_s", "further_s", "step_s", "waited_send_s")
    slower = replace(launch, **{name: getattr(launch, name) * pace for name in of_host})
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
    known = generation in calibration_names()
    return data_path("hardware_profiles", "calibration", f"{generation}.yaml") if known else _lender()


@lru_cache
def _lender() -> Path:
    # A test holds that there is one.
    paths = map(calibration_path, calibration_names())
    return next(path for path in paths if validate_document(CalibrationSpec, read_document(path)).lends)


@lru_cache
def calibration_of_generation(generation: str) -> Calibration:
    """Return the shipped calibration of a generation, or that of the generation from which others borrow."""
    return read_calibration(calibration_path(generation))


def calibration_of(nodes: Sequence[Node]) -> Calibration:
    """Return the calibration of a cluster of some kinds of nodes.

    Its network constants hold for groups that span all kinds; ``network.of_kinds`` has those of each kind. All else is that of the
    first kind: how fast ranks compute is the business of each kind (:func:`calibration_at`).

    Parameters
    ----------
    nodes
        One of each kind, in the order of the cluster.
    """
    found = [calibration_at(node) for node in nodes]
    notes = dict.fromkeys(note for calibration in found for note in calibration.notes)
    names = list(dict.fromkeys(calibration.name for calibration in found))
    if len(names) == 1:
        return replace(found[0], notes=tuple(notes))
    kinds = listed(list(dict.fromkeys(node.name for node in nodes)), "and")
    message = f"groups that span {kinds} go by the slower of the constants of {listed(names, 'and')} throughout; no such group was measured"
    sources = dict.fromkeys(source for calibration in found for source in calibration.sources)
    return replace(
        found[0],
        name="+".join(names),
        network=replace(slowest([calibration.network for calibration in found]), of_kinds=tuple(each.network for each in found)),
        accelerators=tuple(dict.fromkeys(name for calibration in found for name in calibration.accelerators)),
        sources=tuple(sources),
        notes=(*notes, ("mixed_calibration", message)),
    )


def slowest(networks: Sequence[NetworkCalibration]) -> NetworkCalibration:
    """Return constants that are nowhere better than any of some.

    The longest times, the least shares, the most multiprocessors held, the limits of the oldest generation, and the protocols that all
    have. What the library itself counts does not go by the kind of node.

    Examples
    --------
    >>> from clustersim.hardware.calibrations import calibration_of_generation
    >>> slowest([calibration_of_generation(each).network for each in ("hopper", "ampere")]).library.compute_capability
    8.0
    """
    first = networks[0]
    return replace(
        first,
        efficiency={tier: min(network.efficiency[tier] for network in networks) for tier in first.efficiency},
        families={
            family: FamilyCalibration(
                start_s=max(network.families[family].start_s for network in networks),
                chunk_s=max(network.families[family].chunk_s for network in networks),
            )
            for family in first.families
        },
        ceilings=BandwidthCeilings(
            **{each.name: min(getattr(network.ceilings, each.name) for network in networks) for each in fields(BandwidthCeilings)}
        ),
        multiprocessors=max(network.multiprocessors for network in networks),
        library=min((network.library for network in networks), key=lambda limits: limits.compute_capability),
        protocols=tuple(protocol for protocol in first.protocols if all(protocol in network.protocols for network in networks)),
        of_kinds=(),
    )


TILES: Final = "gemm.tiles."
"""Begins the name of the share of all tiles of one area, such as ``gemm.tiles.16384``."""
DEFAULT: Final = "default"
PRECISIONS: Final[tuple[str, ...]] = get_args(PeakPrecision)


def constant(calibration: Calibration, name: str) -> float:
    """Return a constant by its dotted name, in SI units.

    Names are those of the file: ``gemm.under_load.default``, ``attention.flash_2.forward.fraction``, ``launch.dispatch``,
    ``network.families.ring.start``. ``gemm.tiles.<rows times columns>`` is the share of all tiles of one area. A precision that has no
    share of its own has that of ``default``.

    Raises
    ------
    ScenarioError
        There is no such constant.

    Examples
    --------
    >>> from clustersim.hardware.calibrations import calibration_of_generation
    >>> constant(calibration_of_generation("hopper"), "network.multiprocessors")
    24.0
    """
    if name.startswith(TILES):
        shares = [share for rows, columns, share in calibration.gemm.tiles if f"{rows * columns}" == name.removeprefix(TILES)]
        if not shares:
            raise _unknown(name)
        return shares[0]
    value: object = calibration
    for part in name.split("."):
        value = _part(value, part, name)
    if not isinstance(value, int | float):
        raise _unknown(name)
    return float(value)


def changed(calibration: Calibration, values: Mapping[str, float]) -> Calibration:
    """Return a calibration with other values of some constants; names are those of :func:`constant`."""
    for name, value in values.items():
        constant(calibration, name)
        calibration = _tiled(calibration, name, value) if name.startswith(TILES) else _changed(calibration, name, value)
    return calibration


def tile_areas(calibration: Calibration) -> tuple[int, ...]:
    """Return the areas of the tiles of a calibration, the largest first."""
    return tuple(sorted({rows * columns for rows, columns, _ in calibration.gemm.tiles}, reverse=True))


def _tiled(calibration: Calibration, name: str, value: float) -> Calibration:
    area = name.removeprefix(TILES)
    tiles = tuple(each._replace(share=value) if f"{each.rows * each.columns}" == area else each for each in calibration.gemm.tiles)
    return replace(calibration, gemm=replace(calibration.gemm, tiles=tiles))


def _changed(calibration: Calibration, name: str, value: float) -> Calibration:
    parts = name.split(".")
    if parts[0] != "attention":
        return _put_in(calibration, parts, value)
    # The best generation stands there twice, under its own name and as the best.
    best = calibration.attention[BEST_ATTENTION]
    twins = [parts[1], BEST_ATTENTION] if calibration.attention[parts[1]] == best else [parts[1]]
    for twin in twins:
        calibration = _put_in(calibration, ["attention", twin, *parts[2:]], value)
    return calibration


def _put_in(calibration: Calibration, parts: Sequence[str], value: float) -> Calibration:
    found = _put(calibration, parts, value)
    assert isinstance(found, Calibration)
    return found


def _put(whole: object, parts: Sequence[str], value: float) -> object:
    if not parts:
        return value
    if is_mapping(whole):
        return {**whole, parts[0]: _put(whole.get(parts[0]), parts[1:], value)}
    assert is_dataclass(whole)  # the name was read before
    assert not isinstance(whole, type)
    field = attribute_of(whole, parts[0])
    assert field is not None
    return replace(whole, **{field: _put(getattr(whole, field), parts[1:], value)})


def _part(whole: object, part: str, name: str) -> object:
    if is_mapping(whole):
        if part in whole:
            return whole[part]
        if part in PRECISIONS and DEFAULT in whole:
            return whole[DEFAULT]
    elif is_dataclass(whole):
        field = attribute_of(whole, part)
        if field is not None:
            return getattr(whole, field)
    raise _unknown(name)


def _unknown(name: str) -> ScenarioError:
    hint = "names are those of a calibration file, such as gemm.under_load.default or launch.dispatch"
    return ScenarioError(f"there is no constant '{name}'", hint=hint)

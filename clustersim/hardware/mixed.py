"""Constants of a cluster with nodes of several kinds, for groups of ranks that span kinds.

A communication library settles on one plan for all members of a group, which the least of them can follow: NCCL chooses by the oldest
generation in the group, and takes as many channels, and as much bandwidth of each, as every member has [1]_.

References
----------
.. [1] NVIDIA NCCL 2.30.7, ``src/graph/tuning.cc`` (``minCompCap``) and ``src/init.cc`` (least of the channels and bandwidths of all ranks).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clustersim.hardware.calibration import BandwidthCeilings, Calibration, FamilyCalibration, NetworkCalibration
from clustersim.hardware.calibrations import calibration_at
from clustersim.hardware.models import Node
from clustersim.units.divisors import listed


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
            nvls=min(network.ceilings.nvls for network in networks),
            exchange=min(network.ceilings.exchange for network in networks),
            pair=min(network.ceilings.pair for network in networks),
            peer=min(network.ceilings.peer for network in networks),
        ),
        multiprocessors=max(network.multiprocessors for network in networks),
        library=min((network.library for network in networks), key=lambda limits: limits.compute_capability),
        protocols=tuple(protocol for protocol in first.protocols if all(protocol in network.protocols for network in networks)),
        of_kinds=(),
    )

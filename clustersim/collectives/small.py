"""Collectives of small messages inside a node, as inference engines have them: one-shot and two-shot kernels, or the library."""

from __future__ import annotations

from dataclasses import dataclass, field

from clustersim.hardware.models import Accelerator
from clustersim.hardware.serving_constants import CollectiveConstants, collective_constants


@dataclass(slots=True)
class SmallCollectives:
    """Times of collectives among accelerators of one node, from constants fitted to measurements.

    Engines bring all-reduce kernels of their own for small messages and hand large ones to NCCL; the smaller time of both is taken.
    """

    accelerator: Accelerator
    framework: str
    notes: list[str] = field(default_factory=list[str])
    _constants: dict[tuple[str, str, int], CollectiveConstants] = field(default_factory=dict[tuple[str, str, int], CollectiveConstants])

    def all_reduce_s(self, size_bytes: float, n_ranks: int) -> float:
        """Return the time to sum a tensor of all ranks, in seconds; 0 for one rank."""
        if n_ranks == 1:
            return 0.0
        return min(self._time_s(library, "all_reduce", size_bytes, n_ranks) for library in (self.framework, "nccl"))

    def all_gather_s(self, size_bytes: float, n_ranks: int) -> float:
        """Return the time to gather a tensor of this size from its parts, in seconds."""
        return self._time_s("nccl", "all_gather", size_bytes, n_ranks) if n_ranks > 1 else 0.0

    def reduce_scatter_s(self, size_bytes: float, n_ranks: int) -> float:
        """Return the time to sum tensors of this size and leave each rank a part, in seconds."""
        return self._time_s("nccl", "reduce_scatter", size_bytes, n_ranks) if n_ranks > 1 else 0.0

    def send_s(self, size_bytes: float) -> float:
        """Return the time to send to the next stage of a pipeline, in seconds: as the exchange of two ranks."""
        return self._time_s("nccl", "all_to_all", size_bytes, 2)

    def _time_s(self, library: str, operation: str, size_bytes: float, n_ranks: int) -> float:
        key = library, operation, n_ranks
        found = self._constants.get(key)
        if found is None:
            found, lent = collective_constants(self.accelerator, library, operation, n_ranks)
            self._constants[key] = found
            if lent is not None:
                self.notes.append(f"{lent.wanted} takes the constants of {lent.lent}; it was not measured")
        two_shot_s = found.two_shot_s + found.two_shot_s_per_byte * size_bytes
        return found.floor_s + min(found.one_shot_s_per_byte * size_bytes, two_shot_s)

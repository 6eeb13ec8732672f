"""Training state in host memory or on NVMe: gradients go there, processors update it, parameters come back.

References
----------
.. [1] J. Ren et al., "ZeRO-Offload: democratizing billion-scale model training", USENIX ATC 2021, arXiv 2101.06840.
.. [2] S. Rajbhandari et al., "ZeRO-Infinity: breaking the GPU memory wall for extreme scale deep learning", SC 2021,
   arXiv 2104.07857.
.. [3] DeepSpeed, ``csrc/includes/cpu_adam.h`` (tiles), ``runtime/zero/stage_1_and_2.py`` and ``stage3.py`` (what is copied when).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from clustersim.hardware.library_costs import Place
from clustersim.parallel.division import Division
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.optimizer import UPDATE_BYTES, state_bytes_per_parameter
from clustersim.parallel.shard import numerics
from clustersim.parallel.stage import Stage
from clustersim.parallel.step_settings import Training
from clustersim.parallel.training_plan import Strategy
from clustersim.parallel.weights import Weights
from clustersim.program.program import Key, ProgramBuilder
from clustersim.program.tasks import HostCopy, HostUpdate
from clustersim.topology.cluster import IntArray
from clustersim.workloads.shapes import FP32_BYTES

TO_HOST: Final = "to_host"
FROM_HOST: Final = "from_host"
HOST_UPDATE: Final = "host_update"
FROM_NVME: Final = "from_nvme"
TO_NVME: Final = "to_nvme"
"""Streams: the two copy engines of an accelerator, the processors of its node, and reads and writes of the drives."""

TILE_PARAMETERS: Final = 128 * 2**20
"""Parameters that the processors update before the copy of the new ones starts, while they go on with the next [3]_."""

NVME_TILES: Final = 3
"""Tiles of optimizer state in memory at the same time: one is read, one is updated, one is written."""


def offloads(strategy: Strategy) -> bool:
    """Return whether processors update the parameters instead of accelerators."""
    return strategy.offload.optimizer != "accelerator"


def state_bytes(training: Training, local: LocalModel) -> float:
    """Return the optimizer state per parameter on the host: a weight in fp32 and its moments, in bytes."""
    return FP32_BYTES + state_bytes_per_parameter(training, local)


def host_update_bytes(training: Training) -> float:
    """Return what processors read and write in memory to update one parameter.

    The gradient is read and written once to undo the loss scale and to clip it, the update reads gradient, weight and moments and
    writes all but the gradient, in fp32, and the new weight is written in the numbers that the accelerator computes with.
    """
    number = numerics(training)
    narrow_bytes = number.element_bytes if number.element_bytes < FP32_BYTES else 0.0
    return number.gradient_bytes + FP32_BYTES + UPDATE_BYTES[training.optimizer] + narrow_bytes


def sums_on_host(strategy: Strategy, n_micro_batches: int) -> bool:
    """Return whether gradients of several micro-batches are added up away from the accelerator."""
    several = n_micro_batches > 1 and not strategy.data_parallel.no_sync
    return several and strategy.offload.gradients != "accelerator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """Chunking of a shard's optimizer update."""

    count: int
    parameters: float
    """Parameters of one tile."""


def tiles(shard: float) -> Tiles:
    """Return as few equal tiles as stay within the size of one.

    Examples
    --------
    >>> tiles(0.3e9).count
    3
    """
    count = max(1, ceil(shard / TILE_PARAMETERS))
    return Tiles(count=count, parameters=shard / count)


@dataclass(slots=True, kw_only=True)
class HostSide:
    """Adds the transfers between the ranks of a stage and their hosts to a program, and the work of the hosts.

    Weights are those of one rank before sharding; each rank moves its shard of them.
    """

    builder: ProgramBuilder
    division: Division
    stage: Stage
    n_micro_batches: int
    """Micro-batches that there are passes of."""
    _copies: dict[tuple[str, Place, Place, float], HostCopy] = field(default_factory=dict[tuple[str, Place, Place, float], HostCopy])
    _n_added: int = 0

    def add_gradient_copy(self, weights: Weights, *, after: Sequence[Key], micro_batch: int) -> tuple[Key, ...]:
        """Add the copy of reduced gradients to the optimizer's memory; return the last tasks.

        Gradients that live on the accelerator are copied in the last micro-batch. Those that live elsewhere leave it in every one that
        is reduced; from the second on, the sum so far is fetched first, because the accelerator adds [3]_. Sums that are not final
        stay in memory.
        """
        strategy, last = self.stage.strategy, micro_batch == self.n_micro_batches - 1
        offload = strategy.offload
        if not offloads(strategy) or (offload.gradients == "accelerator" and not last):
            return ()
        size_bytes = self._shard(weights) * self.stage.local.numerics.gradient_bytes
        label = (micro_batch, -1)
        if sums_on_host(strategy, self.n_micro_batches) and micro_batch > 0:
            after = [self._copy("gradients so far", ("host", "accelerator"), size_bytes, after=after, label=label)]
        place: Place = "nvme" if last and offload.gradients == "nvme" else "host"
        return (self._copy("gradients to host", ("accelerator", place), size_bytes, after=after, label=label),)

    def add_parameter_fetch(self, weights: Weights, *, after: Sequence[Key], label: tuple[int, int] = (-1, -1)) -> tuple[Key, ...]:
        """Add the copy of a layer's shard to the accelerator, before its all-gather; return the last tasks.

        Parameters
        ----------
        after
            What must have ended so that there is room for it.
        """
        place = self.stage.strategy.offload.parameters
        if place == "accelerator":
            return ()
        size_bytes = self._shard(weights) * self.stage.local.numerics.element_bytes
        return (self._copy("parameters from host", (place, "accelerator"), size_bytes, after=after, label=label),)

    def add_update(self, weights: Weights, *, after: Sequence[Key]) -> tuple[Key, ...]:
        """Add the update by the processors, tile by tile; return what has ended when all new parameters are where they belong.

        Reading from drives, updating, writing to drives, and copying new parameters to the accelerator each go on with the next
        tile while the others are behind. The update waits for all gradients, because it needs their norm.

        Parameters
        ----------
        after
            What else must have ended, such as the norm of the gradients of all ranks.
        """
        cut = tiles(self._shard(weights))
        gradients = [key for lane in self.division.lanes(self.stage.number, TO_HOST) for key in self.builder.last(lane)]
        ready = tuple(dict.fromkeys([*after, *gradients]))
        done: list[tuple[Key, ...]] = []
        for number in range(cut.count):
            room = done[number - NVME_TILES] if number >= NVME_TILES else ()
            done.append(self._add_tile(cut.parameters, ready=ready, room=room))
        return tuple(dict.fromkeys(key for keys in done for key in keys))

    def _add_tile(self, parameters: float, *, ready: tuple[Key, ...], room: tuple[Key, ...]) -> tuple[Key, ...]:
        offload, training, local = self.stage.strategy.offload, self.stage.training, self.stage.local
        number = local.numerics
        kept_bytes = parameters * state_bytes(training, local) if offload.optimizer == "nvme" else 0.0
        read_bytes = kept_bytes + (parameters * number.gradient_bytes if offload.gradients == "nvme" else 0.0)
        written_bytes = kept_bytes + (parameters * number.element_bytes if offload.parameters == "nvme" else 0.0)
        if read_bytes:
            # Nothing is read before there is room for it, nor before the update begins.
            ready = (self._copy("optimizer state", ("nvme", "host"), read_bytes, after=(*ready, *room)),)
        update = HostUpdate(name="update on host", ranks=self._ranks(), bytes=parameters * host_update_bytes(training))
        done: Key = ("host_update", self.stage.number, self._next())
        self.builder.add(done, update, self.division.lanes(self.stage.number, HOST_UPDATE), after=ready)
        ends: list[Key] = []
        if written_bytes:
            ends.append(self._copy("optimizer state", ("host", "nvme"), written_bytes, after=[done]))
        if offload.parameters == "accelerator":
            ends.append(self._copy("new parameters", ("host", "accelerator"), parameters * number.element_bytes, after=[done]))
        return tuple(ends) or (done,)

    def _copy(
        self, name: str, way: tuple[Place, Place], size_bytes: float, *, after: Sequence[Key], label: tuple[int, int] = (-1, -1)
    ) -> Key:
        key: Key = (_stream(*way), self.stage.number, self._next())
        self.copy_as(key, name, way, size_bytes, after=after, label=label)
        return key

    def copy_as(
        self, key: Key, name: str, way: tuple[Place, Place], size_bytes: float, *, after: Sequence[Key], label: tuple[int, int]
    ) -> None:
        """Add a copy under a given name.

        Parameters
        ----------
        key
            Its name in the program.
        name
            What is copied, for the timeline.
        way
            From where to where.
        size_bytes
            Of one rank.
        after
            What must have ended.
        label
            Micro-batch and chunk.
        """
        known = (name, *way, size_bytes)
        action = self._copies.get(known)
        if action is None:
            # One object for equal copies, so that it is laid once.
            source, destination = way
            action = HostCopy(name=name, ranks=self._ranks(), bytes=size_bytes, source=source, destination=destination)
            self._copies[known] = action
        self.builder.add(key, action, self.division.lanes(self.stage.number, _stream(*way)), after=after, label=label)

    def _shard(self, weights: Weights) -> float:
        return weights.shard(self.stage.strategy.sharding)

    def _ranks(self) -> IntArray:
        return self.division.mesh.stage_ranks(self.stage.number)

    def _next(self) -> int:
        self._n_added += 1
        return self._n_added


def _stream(source: Place, destination: Place) -> str:
    """Return the stream of a copy: the engine of the accelerator in that direction, or the drives where it takes no part."""
    if source == "accelerator":
        return TO_HOST
    if destination == "accelerator":
        return FROM_HOST
    return FROM_NVME if source == "nvme" else TO_NVME

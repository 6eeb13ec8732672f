"""The update of parameters at the end of a step, on accelerators or on the processors of their hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from clustersim.errors import DomainError
from clustersim.hardware.catalog import load_node, profile_names
from clustersim.parallel.contributors.contributor import Contributor
from clustersim.parallel.gradients import COPY_STREAM, GRADIENT_STREAM
from clustersim.parallel.layers import heaviest_run
from clustersim.parallel.offload import NVME_TILES, TILE_PARAMETERS, offloads, state_bytes, sums_on_host
from clustersim.parallel.optimizer import offloaded_update, optimizer_bytes_per_parameter, optimizer_update, update_copies_bytes
from clustersim.parallel.stage import Stage
from clustersim.parallel.step_settings import Training
from clustersim.parallel.training_plan import SHARDS_GRADIENTS, SHARDS_OPTIMIZER, SHARDS_PARAMETERS, Strategy, StrategySettings
from clustersim.parallel.units import BUCKETS_IN_USE, reduction_units
from clustersim.program.holds import UPDATE, Hold
from clustersim.program.program import Key
from clustersim.program.tasks import Compute
from clustersim.topology.wired import Cluster
from clustersim.workloads.model import Model

BUFFERED_TILES: Final = 2
"""Tiles of new parameters in page-locked memory: one is filled while the other is copied (ZeRO-Offload, section 5.1)."""


class OptimizerUpdate(Contributor):
    """Clipping and update of the shard of each rank, which wait for all gradients."""

    @classmethod
    def applies(cls, strategy: Strategy) -> bool:
        """Return whether every rank updates its own parameters."""
        return not strategy.data_parallel.central and not offloads(strategy)

    @classmethod
    def refuse(cls, strategy: Strategy, asked: StrategySettings, *, model: Model, training: Training) -> None:
        """Refuse narrow moments without fused kernels, and Muon where a rank keeps parts of matrices."""
        del asked
        if training.moment_precision != "fp32" and training.optimizer_kernels != "fused":
            message = f"kernels of one operation each keep moments in fp32, not in {training.moment_precision}"
            raise DomainError(message, path=("training", "moment_precision"), hint="use optimizer_kernels: fused")
        if training.optimizer == "muon" and (
            not model.divisible or strategy.data_parallel.central or (strategy.zero_stage and not strategy.deals_tensors)
        ):
            message = "Muon updates whole matrices of a transformer's layers"
            hint = "use zero_stage: 0, or zero_stage: 1 with gather: tensor, which deals whole tensors to ranks"
            raise DomainError(message, path=("training", "optimizer"), hint=hint)

    @classmethod
    def holds(cls, stage: Stage) -> tuple[Hold, ...]:
        """Return the optimizer's state, and the copies that an update makes."""
        parameters = stage.kept_parameters(SHARDS_OPTIMIZER)
        copies_bytes = parameters * update_copies_bytes(stage.training)
        return (
            Hold(category="optimizer", owner="optimizer", bytes=parameters * optimizer_bytes_per_parameter(stage.training, stage.local)),
            Hold(category="optimizer", owner="optimizer", bytes=copies_bytes, interval=UPDATE),
        )

    def finish(self) -> None:
        """Add the update of all stages."""
        for stage in self.step.stages:
            self._update(stage.number, optimizer_update(stage))

    def _update(self, stage: int, action: Compute) -> tuple[Key, ...]:
        """Add what accelerators do of an update; return the reductions that they wait for."""
        division, builder, reduced = self.step.division, self.step.builder, dict[Key, None]()
        for part, lane in enumerate(division.lanes(stage)):
            own = [key for stream in (GRADIENT_STREAM, COPY_STREAM) for key in builder.last(division.lane(stage, part, stream))]
            builder.add(("optimizer", lane.rank_class), action, [lane], after=own)
            reduced |= dict.fromkeys(own)
        self.step.updated[stage] = tuple((("optimizer", lane.rank_class),) for lane in division.lanes(stage))
        return tuple(reduced)


class OffloadedUpdate(OptimizerUpdate):
    """Update by the processors of the hosts (ZeRO-Offload, ZeRO-Infinity)."""

    @classmethod
    def applies(cls, strategy: Strategy) -> bool:
        """Return whether optimizer states are offloaded."""
        return offloads(strategy)

    @classmethod
    def refuse(cls, strategy: Strategy, asked: StrategySettings, *, model: Model, training: Training) -> None:
        """Refuse parts of the training state that cannot go without another or with this ``zero_stage``."""
        parts = asked.offload.parts
        if "optimizer" in parts and (training.moment_precision != "fp32" or training.optimizer == "muon"):
            field = "optimizer" if training.optimizer == "muon" else "moment_precision"
            hint = "leave out strategy.offload, or use another optimizer with moments in fp32"
            raise DomainError("processors update with moments in fp32, and without Muon", path=("training", field), hint=hint)
        for part in parts:
            if part not in ("optimizer", "activations") and "optimizer" not in parts:
                hint = f"write [optimizer, {part}]: the processors that hold the optimizer update what is there"
                raise DomainError(f"{part} cannot be offloaded without the optimizer", path=("strategy", "offload"), hint=hint)
        if "gradients" in parts and asked.zero_stage < SHARDS_GRADIENTS:
            raise DomainError(
                f"with zero_stage {asked.zero_stage} gradients stay on the accelerator until the last micro-batch",
                path=("strategy", "offload"),
                hint="use zero_stage: 2, or offload the optimizer alone, to which they are then copied",
            )
        if "parameters" in parts and asked.zero_stage < SHARDS_PARAMETERS:
            message = f"with zero_stage {asked.zero_stage} every rank needs all parameters at any time"
            raise DomainError(message, path=("strategy", "offload"), hint="use zero_stage: 3, or leave parameters out")

    @classmethod
    def refuse_placed(cls, strategy: Strategy, *, model: Model, cluster: Cluster, nodes: Sequence[int]) -> None:
        """Refuse drives that a node lacks, with the nodes that have some."""
        if not strategy.offload.to_drives:
            return
        for node in map(cluster.node_at, nodes):
            if node.host.storage_bandwidth_bytes_per_s is None:
                known = [name for name in profile_names("nodes") if load_node(name).host.storage_bandwidth_bytes_per_s is not None]
                hint = f"use {{to: host}}, or a node with NVMe: {', '.join(known)}"
                raise DomainError(f"{node.name} has no NVMe", path=("strategy", "offload"), hint=hint)

    @classmethod
    def holds(cls, stage: Stage) -> tuple[Hold, ...]:
        """Return the state in the host memory of a rank's node, and its buffers on the accelerator.

        What lives on drives passes through the memory of the node in tiles.
        """
        offload, number = stage.strategy.offload, stage.local.numerics
        shard = stage.weights.shard(stage.strategy.sharding)
        tile = min(shard, TILE_PARAMETERS)
        passing = min(NVME_TILES * tile, shard)
        # Sums of several micro-batches wait in memory, and go to the drives when they are final.
        gradients = shard if offload.gradients != "nvme" or sums_on_host(stage.strategy, stage.n_micro_batches) else passing
        held = stage.weights.held.shard(stage.strategy.sharding)
        parameters = held if offload.parameters == "host" else min(BUFFERED_TILES * tile, shard)
        state = passing if offload.optimizer == "nvme" else shard
        return (
            Hold(category="buffers", owner="offload", bytes=_buffers_bytes(stage)),
            Hold(category="parameters", owner="offload", bytes=parameters * number.element_bytes, place="host"),
            Hold(category="gradients", owner="offload", bytes=gradients * number.gradient_bytes, place="host"),
            Hold(category="optimizer", owner="offload", bytes=state * state_bytes(stage.training, stage.local), place="host"),
        )

    def finish(self) -> None:
        """Add the update of all stages."""
        for stage in self.step.stages:
            reduced = self._update(stage.number, offloaded_update(stage))
            own = [key for keys in self.step.updated[stage.number] for key in keys]
            done = self.step.host(stage.number).add_update(stage.weights, after=[*reduced, *own])
            self.step.updated[stage.number] = (done,) * self.step.division.n_parts


def _buffers_bytes(stage: Stage) -> float:
    """Return the buffers of what an accelerator offloads.

    Gradients that leave are held as the shards of two buckets, or with ZeRO-3 of two units, one just reduced and one copied. Parameters
    that leave come back as the shards of as many layers as are gathered ahead, and of the one that computes.
    """
    strategy, number, chunks = stage.strategy, stage.local.numerics, stage.chunks
    offload, sharding, layers = strategy.offload, strategy.sharding, stage.local.layer_weights()
    buffers_bytes = 0.0
    if offload.gradients != "accelerator" and strategy.zero_stage == SHARDS_PARAMETERS:
        units = [[unit.weights.shard(sharding) for unit in reduction_units(stage.local, strategy, chunk)] for chunk in chunks]
        buffers_bytes += max(heaviest_run(chunk, BUCKETS_IN_USE) for chunk in units) * number.gradient_bytes
    elif offload.gradients != "accelerator":
        whole_bytes = sum(layers[layer].total for chunk in chunks for layer in chunk.layers) * number.gradient_bytes
        buffers_bytes += BUCKETS_IN_USE * min(strategy.data_parallel.bucket_bytes, whole_bytes) / sharding.degree
    if offload.parameters != "accelerator":
        ahead = strategy.prefetch if strategy.data_parallel.overlap else 0
        shards = [[layers[layer].held.shard(sharding) for layer in chunk.layers] for chunk in chunks]
        buffers_bytes += max(heaviest_run(chunk, 1 + ahead) for chunk in shards) * number.element_bytes
    return buffers_bytes

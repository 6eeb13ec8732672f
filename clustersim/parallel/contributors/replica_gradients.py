"""Gradients reduced within one model replica: tied embeddings, copies of the model, and the norm of all gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from clustersim.parallel.contributors.contributor import Contributor
from clustersim.parallel.gradients import GRADIENT_STREAM
from clustersim.parallel.stages import places_of
from clustersim.parallel.training_plan import SHARDS_GRADIENTS, Strategy
from clustersim.program.tasks import Collective, Communicate, RankGroups

NORM_BYTES: Final = 4.0


class ReplicaGradients(Contributor):
    """All-reduces among the stages, and among the tensor-parallel ranks, of one replica."""

    @classmethod
    def applies(cls, strategy: Strategy) -> bool:
        """Return whether several ranks hold a replica, and update it themselves."""
        return strategy.tp * strategy.pp > 1 and strategy.data_parallel.service is None

    def finish(self) -> None:
        """Add the all-reduces at the end of a step."""
        self._add_copies()
        self._add_embedding()
        # Checked later, the norm goes from stage to stage with the first activations of the next step: a few bytes, and nobody waits.
        if not self.step.strategy.optimizer_post_validation:
            self._add_norm()

    def _add_copies(self) -> None:
        """Sum the gradients of the copies of the model, which processed different micro-batches."""
        strategy = self.step.strategy
        for stage in self.step.stages[: strategy.pp // 2] if places_of(strategy).n_copies > 1 else ():
            pair = stage.number, strategy.pp - 1 - stage.number
            size_bytes = stage.weights.shard(strategy.sharding) * stage.local.numerics.gradient_bytes
            self._add_pairs(f"copies {pair[0]}, {pair[1]}", "gradients of copies", pair, size_bytes)

    def _add_embedding(self) -> None:
        """Sum the gradients of a tied head, which is a copy of the embedding on another stage, and of the embedding."""
        strategy = self.step.strategy
        ends = places_of(strategy).routes[0]
        first, last = ends[0][0], ends[-1][0]
        local, chunks = self.step.stages[last].local, self.step.stages[last].chunks
        beside = any(chunk.last and chunk.beside_first for chunk in chunks)
        if first == last or beside or not local.tied_parameters:
            return
        # Shards of the table are added up where gradients are sharded.
        shards = strategy.sharding.degree if strategy.zero_stage >= SHARDS_GRADIENTS else 1
        size_bytes = local.tied_parameters / shards * local.numerics.gradient_bytes
        self._add_pairs("embedding", "embedding gradient", (first, last), size_bytes)

    def _add_pairs(self, group_name: str, name: str, stages: tuple[int, int], size_bytes: float) -> None:
        """Add all-reduces between the ranks of two stages."""
        division = self.step.division
        for part in range(division.n_parts):
            pairs = np.stack([division.ranks(stage, part) for stage in stages], axis=1)
            self._add(name, division.named(group_name, "pp", pairs, part), size_bytes, stages=stages, part=part)

    def _add_norm(self) -> None:
        """Add the norm of all gradients: one number, for which all ranks of a replica wait."""
        strategy, division = self.step.strategy, self.step.division
        for part, of_part in enumerate(division.parts):
            ranks = division.mesh.ranks[:, list(of_part)]
            members = ranks.transpose(1, 2, 0, 3).reshape(len(of_part) * strategy.cp, -1)
            group = division.named("model", "pp" if strategy.pp > 1 else "tp", members, part)
            self._add("gradient norm", group, NORM_BYTES, stages=division.stages, part=part)

    def _add(self, name: str, group: RankGroups, size_bytes: float, *, stages: Sequence[int], part: int) -> None:
        """Add an all-reduce after the passes of some stages."""
        division, builder = self.step.division, self.step.builder
        action = Communicate(name=name, collective=Collective(op="all_reduce", group=group, bytes=size_bytes))
        after = [key for stage in stages for key in builder.last(division.lane(stage, part))]
        lanes = [division.lane(stage, part, GRADIENT_STREAM) for stage in stages]
        builder.add((name, group.name), action, lanes, after=after)

"""Contributors: parallel techniques, each of which adds its own tasks to a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from clustersim.errors import DomainError
from clustersim.hardware.library_costs import CollectiveOp
from clustersim.parallel.division import Division
from clustersim.parallel.groups import ParallelGroups
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.offload import HostSide
from clustersim.parallel.pipeline import Piece, StagePieces
from clustersim.parallel.schedules.order import StageOrder
from clustersim.parallel.stage import Stage
from clustersim.parallel.stage_work import Cut
from clustersim.parallel.stages import orders_of
from clustersim.parallel.step_settings import Training
from clustersim.parallel.sublayers import LayerTechnique
from clustersim.parallel.training_plan import Dimension, Strategy, StrategySettings
from clustersim.program.holds import Hold
from clustersim.program.program import Key, ProgramBuilder
from clustersim.program.tasks import Collective, Communicate, RankGroups
from clustersim.topology.wired import Cluster
from clustersim.workloads.model import Model


@dataclass(slots=True, kw_only=True)
class Step:
    """An optimizer step while it is lowered: the state that all contributors share."""

    stages: tuple[Stage, ...]
    n_micro_batches: int
    """Micro-batches that there are passes of, where passes of others are left out."""
    division: Division
    builder: ProgramBuilder = field(default_factory=ProgramBuilder)
    updated: dict[int, tuple[tuple[Key, ...], ...]] = field(default_factory=dict[int, tuple[tuple[Key, ...], ...]])
    """Tasks that end with the new weights of a stage, for each part of the replicas."""
    _hosts: dict[int, HostSide] = field(default_factory=dict[int, HostSide])
    _collectives: dict[tuple[str, str, str, float, int], Communicate] = field(
        default_factory=dict[tuple[str, str, str, float, int], Communicate]
    )

    @property
    def strategy(self) -> Strategy:
        """Strategy, the same for all stages."""
        return self.stages[0].strategy

    @property
    def orders(self) -> tuple[StageOrder, ...]:
        """Orders of the passes of all stages."""
        return orders_of(self.strategy, self.n_micro_batches)

    def host(self, stage: int) -> HostSide:
        """Return the copy engines and processors beside the ranks of a stage."""
        side = self._hosts.get(stage)
        if side is None:
            side = self._hosts[stage] = HostSide(
                builder=self.builder, division=self.division, stage=self.stages[stage], n_micro_batches=self.n_micro_batches
            )
        return side

    def collective(self, name: str, op: CollectiveOp, group: RankGroups, size_bytes: float, n_calls: int = 1) -> Communicate:
        """Return a collective of data parallelism; the same object for equal ones, so that it is priced once."""
        known = (name, op, group.name, size_bytes, n_calls)
        action = self._collectives.get(known)
        if action is None:
            algorithm = self.strategy.data_parallel.algorithm
            collective = Collective(op=op, group=group, bytes=size_bytes, pieces=n_calls, algorithm=algorithm)
            action = self._collectives[known] = Communicate(name=name, collective=collective)
        return action


class StageContributor:
    """Tasks of one technique beside the passes of one stage; by default none.

    A pass is named by its position in the order of the stage.
    """

    def cut(self, position: int, cut: Cut) -> Cut:
        """Return the cut of a pass, with the borders that this technique needs."""
        return cut

    def pieces(self, position: int, pieces: tuple[Piece, ...], added: StagePieces) -> tuple[Piece, ...]:
        """Return the pieces of a pass of one part of the replicas, with the work and the waiting that this technique adds.

        Parameters
        ----------
        added
            Pieces of the passes before it, and the part that they belong to.
        """
        return pieces

    def beside(self, position: int, parts: Sequence[StagePieces]) -> None:
        """Add the tasks that overlap with a pass, once the pieces of all passes of the stage are known.

        Parameters
        ----------
        parts
            Pieces of the stage, for each part of the replicas.
        """


class Contributor:
    """A parallel technique: its refusals, the memory it holds, and its tasks before, beside and after passes; none by default."""

    def __init__(self, step: Step) -> None:
        """Take part in a step."""
        self.step = step

    @classmethod
    def applies(cls, strategy: Strategy) -> bool:
        """Return whether the settings of this technique ask for anything; by default always."""
        return True

    @classmethod
    def refuse_model(cls, model: Model, asked: StrategySettings) -> None:
        """Refuse settings that the model does not allow on any cluster.

        Raises
        ------
        DomainError
            At the setting to change, with what would do.
        """

    @classmethod
    def refuse(cls, strategy: Strategy, asked: StrategySettings, *, model: Model, training: Training) -> None:
        """Refuse settings that this technique does not support on a number of ranks, or in combination.

        Raises
        ------
        DomainError
            At the setting to change, with what would do.
        """

    @classmethod
    def refuse_placed(cls, strategy: Strategy, *, model: Model, cluster: Cluster, nodes: Sequence[int]) -> None:
        """Refuse settings that the layers of each stage, or the nodes of the cluster that the ranks are on, do not allow.

        Raises
        ------
        DomainError
            At the setting to change, with what would do.
        """

    @classmethod
    def holds(cls, stage: Stage) -> tuple[Hold, ...]:
        """Return the memory that this technique holds for a rank of a stage."""
        return ()

    @classmethod
    def inside(cls, local: LocalModel, strategy: Strategy, groups: ParallelGroups) -> LayerTechnique:
        """Return the part of this technique inside layers, for the ranks of a class."""
        return LayerTechnique()

    def begin(self) -> None:
        """Add the tasks at the beginning of a step."""

    def stage(self, stage: int, order: StageOrder) -> StageContributor | None:
        """Return the tasks beside the passes of a stage; None without any."""
        return None

    def finish(self) -> None:
        """Add the tasks at the end of a step."""


def check_division(model: Model, dimension: Dimension, degree: int) -> None:
    """Refuse to divide a model that is a list of layers.

    Raises
    ------
    DomainError
        At the degree.
    """
    if degree > 1 and not model.divisible:
        hint = "a list of layers is trained by replicas alone: dp, with any zero_stage, or parameter servers"
        raise DomainError(f"{degree} parts of {model.name}, which is not a transformer", path=("strategy", dimension), hint=hint)

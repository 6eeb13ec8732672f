"""Parallel techniques as contributors to a step: one file and one row for each."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from clustersim.parallel.contributors.activation_offload import ActivationOffload
from clustersim.parallel.contributors.activation_recomputation import ActivationRecomputation
from clustersim.parallel.contributors.amax_reduction import AmaxReduction
from clustersim.parallel.contributors.context_parallel import ContextParallelism
from clustersim.parallel.contributors.contributor import Contributor
from clustersim.parallel.contributors.data_loading import DataLoading
from clustersim.parallel.contributors.expert_parallel import ExpertParallelism
from clustersim.parallel.contributors.gradient_reduction import GradientReduction
from clustersim.parallel.contributors.model_state import ModelState
from clustersim.parallel.contributors.optimizer_update import OffloadedUpdate, OptimizerUpdate
from clustersim.parallel.contributors.parameter_server import ParameterServers
from clustersim.parallel.contributors.pipeline_parallel import PipelineParallelism
from clustersim.parallel.contributors.replica_gradients import ReplicaGradients
from clustersim.parallel.contributors.single_process import SingleProcess
from clustersim.parallel.contributors.state_sharding import ParameterSharding, StateSharding
from clustersim.parallel.contributors.tensor_parallel import TensorParallelism
from clustersim.parallel.groups import ParallelGroups
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.schedules.order import StageOrder, order_tasks
from clustersim.parallel.stage import Stage
from clustersim.parallel.sublayers import LayerTechnique
from clustersim.parallel.training_plan import Strategy
from clustersim.program.holds import Hold, MemoryPlace, held_over

CONTRIBUTORS: Final[tuple[type[Contributor], ...]] = (
    ModelState,
    ActivationRecomputation,
    ExpertParallelism,
    TensorParallelism,
    ContextParallelism,
    AmaxReduction,
    DataLoading,
    ParameterServers,
    SingleProcess,
    ParameterSharding,
    ActivationOffload,
    GradientReduction,
    ReplicaGradients,
    OptimizerUpdate,
    OffloadedUpdate,
    StateSharding,
    PipelineParallelism,
)
"""All techniques, in the order in which each changes a layer, and adds its tasks beside a pass and at the end of a step."""


def layer_techniques(local: LocalModel, strategy: Strategy, groups: ParallelGroups) -> tuple[LayerTechnique, ...]:
    """Return what techniques do inside the layers of some ranks."""
    return tuple(contributor.inside(local, strategy, groups) for contributor in CONTRIBUTORS if contributor.applies(strategy))


ALLOCATOR_FRACTION: Final = 0.065
"""Memory that PyTorch's caching allocator reserved beyond the peak of what was allocated, as a share of that peak: the largest of four
layouts of a Llama on B200 (MooreThreads SimuMax 1.2, ``docs/b200/b200_release_v1.2_summary.json``), where the others had 0.03."""


def stage_peak(stage: Stage, *, place: MemoryPlace = "accelerator", order: StageOrder | None = None) -> tuple[Hold, ...]:
    """Return the holds of a rank of a stage in one memory at its peak, each with all its bytes.

    Parameters
    ----------
    order
        Of the passes; the one of the schedule when left out.
    """
    return held_over(stage_holds(stage, place), order_tasks(stage.order if order is None else order)).peak()


def stage_holds(stage: Stage, place: MemoryPlace = "accelerator") -> tuple[Hold, ...]:
    """Return what all techniques hold in one place for a rank of a stage."""
    return tuple(hold for hold in _all_holds(stage) if hold.place == place)


@lru_cache(maxsize=128)
def _all_holds(stage: Stage) -> tuple[Hold, ...]:
    applied = (contributor for contributor in CONTRIBUTORS if contributor.applies(stage.strategy))
    return tuple(hold for contributor in applied for hold in contributor.holds(stage))

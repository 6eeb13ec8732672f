"""Parallel techniques as contributors to a step: one file and one row for each."""

from __future__ import annotations

from typing import Final

from clustersim.parallel.contributors.activation_offload import ActivationOffload
from clustersim.parallel.contributors.context_parallel import ContextParallelism
from clustersim.parallel.contributors.contributor import Contributor
from clustersim.parallel.contributors.data_loading import DataLoading
from clustersim.parallel.contributors.expert_parallel import ExpertParallelism
from clustersim.parallel.contributors.gradient_reduction import GradientReduction
from clustersim.parallel.contributors.model_state import ModelState
from clustersim.parallel.contributors.optimizer_update import OffloadedUpdate, OptimizerUpdate
from clustersim.parallel.contributors.parameter_server import ParameterServers
from clustersim.parallel.contributors.pipeline_parallel import PipelineParallelism
from clustersim.parallel.contributors.recomputation import ActivationRecomputation
from clustersim.parallel.contributors.replica_gradients import ReplicaGradients
from clustersim.parallel.contributors.single_process import SingleProcess
from clustersim.parallel.contributors.state_sharding import ParameterSharding, StateSharding
from clustersim.parallel.contributors.tensor_parallel import TensorParallelism
from clustersim.parallel.groups import ParallelGroups
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.sublayers import LayerTechnique
from clustersim.parallel.training_plan import Strategy

CONTRIBUTORS: Final[tuple[type[Contributor], ...]] = (
    ModelState,
    ActivationRecomputation,
    ExpertParallelism,
    TensorParallelism,
    ContextParallelism,
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

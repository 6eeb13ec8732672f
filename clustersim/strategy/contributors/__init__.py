"""Parallel techniques as contributors to a step: one file and one row for each."""

from __future__ import annotations

from typing import Final

from clustersim.strategy.contributors.activation_offload import ActivationOffload
from clustersim.strategy.contributors.context_parallel import ContextParallelism
from clustersim.strategy.contributors.contributor import Contributor
from clustersim.strategy.contributors.data_loading import DataLoading
from clustersim.strategy.contributors.expert_parallel import ExpertParallelism
from clustersim.strategy.contributors.gradient_reduction import GradientReduction
from clustersim.strategy.contributors.model_state import ModelState
from clustersim.strategy.contributors.optimizer_update import OffloadedUpdate, OptimizerUpdate
from clustersim.strategy.contributors.parameter_server import ParameterServers
from clustersim.strategy.contributors.recomputation import ActivationRecomputation
from clustersim.strategy.contributors.replica_gradients import ReplicaGradients
from clustersim.strategy.contributors.single_process import SingleProcess
from clustersim.strategy.contributors.state_sharding import ParameterSharding, StateSharding
from clustersim.strategy.contributors.tensor_parallel import TensorParallelism
from clustersim.strategy.groups import ParallelGroups
from clustersim.strategy.local_model import LocalModel
from clustersim.strategy.plan import Strategy
from clustersim.strategy.sequence import LayerTechnique

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
)
"""All techniques, in the order in which each changes a layer, and adds its tasks beside a pass and at the end of a step."""


def layer_techniques(local: LocalModel, strategy: Strategy, groups: ParallelGroups) -> tuple[LayerTechnique, ...]:
    """Return what techniques do inside the layers of some ranks."""
    return tuple(contributor.inside(local, strategy, groups) for contributor in CONTRIBUTORS if contributor.applies(strategy))

"""A model as the strategies see it: what stands before the layers, the layers one by one, and what stands behind them."""

from __future__ import annotations

from itertools import groupby
from math import fsum

from clustersim.strategy.plan import Plan
from clustersim.strategy.shard import local_shape, numerics
from clustersim.workload.ends import embedding_operators, head_operators
from clustersim.workload.layer import layer_operators
from clustersim.workload.operators import Operator

Operators = tuple[Operator, ...]


def n_layers(plan: Plan) -> int:
    """Return how many layers there are, the ends left out."""
    return plan.model.n_layers


def layer_at(plan: Plan, layer: int) -> Operators:
    """Return the operators of one layer on one rank, in execution order."""
    del layer  # all layers of a transformer are alike
    return layer_operators(plan.model, local_shape(plan), numerics(plan))


def front(plan: Plan) -> Operators:
    """Return what the first stage does before the first layer."""
    return embedding_operators(plan.model, local_shape(plan), numerics(plan))


def back(plan: Plan) -> Operators:
    """Return what the last stage does behind the last layer, loss included."""
    return head_operators(plan.model, local_shape(plan), numerics(plan))


def layer_runs(plan: Plan, start: int, stop: int) -> tuple[tuple[Operators, int], ...]:
    """Return layers ``start`` to ``stop``, the last one excluded, as (operators, how many equal ones in a row)."""
    equal = groupby(layer_at(plan, layer) for layer in range(start, stop))
    return tuple((operators, sum(1 for _ in run)) for operators, run in equal)


def parameters_of(operators: Operators) -> float:
    """Return the parameters of some operators on one rank."""
    return fsum(operator.parameters for operator in operators)


def layer_parameters(plan: Plan) -> tuple[float, ...]:
    """Return the parameters of each layer on one rank, in forward order."""
    return tuple(parameters_of(operators) for operators, count in layer_runs(plan, 0, n_layers(plan)) for _ in range(count))

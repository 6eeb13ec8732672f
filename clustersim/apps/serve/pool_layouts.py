"""The layout of the replicas of each pool."""

from __future__ import annotations

from collections.abc import Sequence

from clustersim.config.serving_scenario import ReplicaPoolSpec, ServingSpec
from clustersim.errors import ScenarioError
from clustersim.hardware.models import Node
from clustersim.serving.batch import ServingLayout
from clustersim.serving.expert_exchange import expert_exchange
from clustersim.workloads.model import Model
from clustersim.workloads.transformer import Transformer

Asked = tuple[str, ServingLayout, int]
"""Role, layout and number of the replicas of a pool."""
Ranks = tuple[tuple[int, ...], ...]
"""Accelerators of each replica of a pool."""


def asked_layouts(serving: ServingSpec, node: Node, model: Model, n_accelerators: int) -> list[Asked]:
    """Return role, layout and number of the replicas of each pool.

    Raises
    ------
    ScenarioError
        When they need more accelerators than there are, or sizes do not divide.
    """
    apart = serving.disaggregated
    if apart is not None:
        found = [
            (role, _layout(pool, serving, node, model), pool.replicas)
            for role, pool in (("prefill", apart.prefill), ("decode", apart.decode))
        ]
    else:
        layout = _layout(serving, serving, node, model)
        n_replicas = serving.replicas if isinstance(serving.replicas, int) else max(1, n_accelerators // layout.n_accelerators)
        found = [("replica", layout, n_replicas)]
    needed = sum(layout.n_accelerators * n_replicas for _, layout, n_replicas in found)
    if needed > n_accelerators:
        parts = " and ".join(
            f"{n_replicas} {role}{'s' if n_replicas > 1 else ''} of {layout.n_accelerators}" for role, layout, n_replicas in found
        )
        raise ScenarioError(
            f"{parts}: that is {needed} accelerators, and the cluster has {n_accelerators}",
            field="serving.disaggregated"
            if apart is not None
            else "serving.tp"
            if len(found) == 1 and found[0][2] == 1
            else "serving.replicas",
            hint="use fewer accelerators in a replica, fewer replicas, or more nodes",
        )
    for role, layout, _ in found:
        if (layout.tp * layout.dp) % layout.ep:
            field = "serving.ep" if apart is None else f"serving.disaggregated.{role}.ep"
            raise ScenarioError(
                f"ep = {layout.ep} does not divide tp x dp = {layout.tp * layout.dp}",
                field=field,
                hint=f"use {layout.tp * layout.dp} or a divisor",
            )
    if serving.expert_exchange == "all_to_all" and all(layout.exchange is None for _, layout, _ in found):
        raise ScenarioError(
            "expert_exchange does nothing without attention data parallelism",
            field="serving.expert_exchange",
            hint="delete it, or give dp: with it ranks have tokens of their own",
        )
    return found


def _layout(pool: ReplicaPoolSpec | ServingSpec, serving: ServingSpec, node: Node, model: Model) -> ServingLayout:
    experts = model.experts if isinstance(model, Transformer) else None
    if experts is None:
        for key, asked in (
            ("redundant_experts", pool.redundant_experts),
            ("expert_exchange", serving.expert_exchange == "all_to_all"),
            ("two_batch_overlap", serving.two_batch_overlap),
        ):
            if asked:
                raise ScenarioError(f"{key} does nothing: {model.name} has no experts", field=f"serving.{key}", hint="delete it")
    exchange = None
    if experts is not None and serving.expert_exchange == "all_to_all" and pool.tp * pool.dp > 1 and pool.dp > 1:
        exchange = expert_exchange(node, pool.tp * pool.dp, (experts.n_groups, experts.topk_groups))
    return ServingLayout(
        tp=pool.tp,
        pp=pool.pp,
        ep=pool.ep,
        dp=pool.dp,
        redundant_experts=pool.redundant_experts,
        exchange=exchange,
        overlaps_batches=serving.two_batch_overlap,
    )


def placed_ranks(layouts: Sequence[Asked], per_node: int, n_accelerators: int) -> tuple[Ranks, ...]:
    """Return the accelerators of each pool's replicas, one replica after the other, inside a node where there is room for that."""
    for inside in (True, False):
        found: list[list[tuple[int, ...]]] = []
        first = 0
        for _, layout, n_replicas in layouts:
            size = layout.n_accelerators
            found.append([])
            for _ in range(n_replicas):
                if inside and first % per_node and first % per_node + size > per_node:
                    first += per_node - first % per_node
                found[-1].append(tuple(range(first, first + size)))
                first += size
        if first <= n_accelerators:
            break
    return tuple(tuple(replicas) for replicas in found)

"""What a scenario trains and how, on some nodes: model, training and strategy, checked against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from clustersim.hardware.models import Fabric, Node
from clustersim.report.metrics import Flag
from clustersim.scenario.constraints import (
    check_batch,
    check_recomputed_layers,
    resolve_dp,
)
from clustersim.scenario.data_parallel import data_parallel, server_flags
from clustersim.scenario.expert_load import expert_load_of
from clustersim.scenario.jobs import Planned
from clustersim.scenario.keys import dotted
from clustersim.scenario.layout import rank_layout
from clustersim.scenario.load import Scenario
from clustersim.scenario.model_spec import load_model
from clustersim.scenario.offloading import check_drives
from clustersim.scenario.pass_costs import arranged
from clustersim.scenario.pipelining import Pipelining, pipelining_of
from clustersim.scenario.schema import ScenarioSpec
from clustersim.scenario.training import training_of
from clustersim.strategy.contributors import CONTRIBUTORS
from clustersim.strategy.contributors.contributor import check_division
from clustersim.strategy.needs import idle
from clustersim.strategy.plan import Dimension, Plan, Strategy, StrategySettings
from clustersim.strategy.stages import model_chunks

NEAR_STAGES: tuple[Dimension, ...] = ("tp", "cp", "ep", "pp", "dp")
"""Stages of one replica are neighbours, and replicas are far from each other."""

FAR_STAGES: tuple[Dimension, ...] = ("tp", "cp", "ep", "dp", "pp")
"""Replicas of one stage are neighbours, and stages are far from each other."""


def plan_on(scenario: Scenario, nodes: Sequence[Node], fabric: Fabric) -> Planned:
    """Return what a scenario trains, and how, on some nodes; the first of them stands for all where kinds do not matter.

    A setting that does nothing in this plan is as good as left out.
    """
    planned = _planned(scenario, nodes, fabric)
    effective, flags = _without_idle(scenario, planned.plan)
    if effective is not scenario:
        planned = _planned(effective, nodes, fabric)
    # A resolved scenario leaves nothing open, and brings what was assumed for the one that it stands for.
    brought = tuple(Flag(code=each.code, message=each.message) for each in scenario.spec.assumed)
    return replace(planned, flags=tuple(dict.fromkeys((*brought, *flags, *planned.flags))))


def _planned(scenario: Scenario, nodes: Sequence[Node], fabric: Fabric) -> Planned:
    spec, node = scenario.spec, nodes[0]
    loaded = load_model(scenario.document.data.get("model"), document=scenario.document)
    model = loaded.model
    # What the model allows comes before what the cluster does: it is the narrower choice.
    for contributor in CONTRIBUTORS:
        contributor.refuse_model(model, spec.strategy)
    check_division(model, "pp", spec.strategy.pp)
    found = pipelining_of(spec.strategy, model.n_layers, scenario.folder)
    placement, more_flags = placement_of(spec.strategy, nodes, fabric)
    strategy = _strategy(spec, nodes, found).changed(placement=placement)
    load, load_flags = expert_load_of(spec.strategy, model, scenario=scenario.document.name)
    strategy, more_flags = strategy.changed(expert_load=load, expert_skew=load.skew), (*more_flags, *load_flags)
    training, training_flags = training_of(spec, loaded, nodes)
    plan = Plan(model=model, training=training, strategy=strategy)
    for contributor in CONTRIBUTORS:
        contributor.refuse(plan, spec.strategy)
    check_batch(spec.training, spec.strategy, strategy.dp, found)
    plan = arranged(plan, node)
    chunks = [chunk for stage in model_chunks(plan.strategy, model.n_layers) for chunk in stage]
    check_recomputed_layers(spec.strategy.recompute_layers, max(chunk.n_layers for chunk in chunks))
    kinds = {id(each): each for each in nodes}.values()
    flags = (
        *(Flag(code=code, message=message) for code, message in loaded.flags),
        *training_flags,
        *_reach_flags(strategy, min(kinds, key=lambda each: each.scale_up.nodes_per_domain)),
        *server_flags(plan, node),
        *more_flags,
    )
    return Planned(loaded=loaded, plan=plan, flags=flags)


def _without_idle(scenario: Scenario, plan: Plan) -> tuple[Scenario, tuple[Flag, ...]]:
    """Return a scenario without settings that do nothing in its plan, and flags for those that somebody asked for."""
    unused = idle(plan)
    vain = [each for each in unused if each.written_in(scenario.spec)]
    keys = {each: dotted(each.path, {}) for each in unused if each.asked_in(scenario.spec)}
    flags = tuple(
        Flag(code="no_effect", message=f"{key.rpartition('.')[2]} does nothing {each.reason}")
        for each, key in keys.items()
        if key not in scenario.of_preset
    )
    spec = scenario.spec
    for each in vain:
        spec = each.left_out(spec)
    return (replace(scenario, spec=spec) if vain else scenario), flags


def _strategy(spec: ScenarioSpec, nodes: Sequence[Node], found: Pipelining) -> Strategy:
    asked, node, n_nodes = spec.strategy, nodes[0], len(nodes)
    dp = resolve_dp(asked, n_nodes * node.n_accelerators)
    check_drives(asked, nodes)
    completed = asked.completed(
        overlap_p2p=found.sends_beside,
        optimizer_post_validation=found.validates_later,
        recompute_modules=("core_attention",),
    )
    return Strategy.of(
        completed,
        dp=dp,
        sequence_parallel=asked.tp > 1 and (asked.sequence_parallel or not asked.gives("sequence_parallel")),
        schedule=found.name,
        written=found.written,
        virtual_stages=found.chunks,
        optimizer_post_validation=asked.pp > 1 and completed.optimizer_post_validation,
        data_parallel=data_parallel(asked, node, n_nodes),
        shard_degree=None if asked.shard_degree == dp * asked.cp else asked.shard_degree,
        node_size=node.n_accelerators,
        domain_size=node.n_accelerators * node.scale_up.nodes_per_domain,
        preset=None,
    )


def _reach_flags(strategy: Strategy, node: Node) -> tuple[Flag, ...]:
    """Return what must be said of tensor parallelism that leaves the scale-up domain of a node."""
    domain_size = node.n_accelerators * node.scale_up.nodes_per_domain
    message = f"groups of tp = {strategy.tp} ranks reach beyond the scale-up domain of {domain_size} GPUs"
    return tuple(
        Flag(code="tp_across_fabric", message=message)
        for span in rank_layout(strategy, node_size=node.n_accelerators, domain_size=domain_size)
        if span.dimension == "tp" and span.reach == "across the fabric"
    )


def placement_of(asked: StrategySettings, nodes: Sequence[Node], fabric: Fabric) -> tuple[tuple[Dimension, ...], tuple[Flag, ...]]:
    """Return the order of dimensions, fastest-varying first, and what was chosen where the scenario says ``auto``.

    Tensor parallelism, which communicates several times in every layer, comes first and stays in the scale-up domain as far as it fits;
    then context and expert parallelism, once or twice in every layer. All stages of a group of replicas come next where they fit
    under one leaf, so that what they send stays there; otherwise replicas do, because stages send least of all.
    """
    if asked.placement:
        return asked.placement, ()
    etp = asked.tp if asked.etp is None else asked.etp
    near = max(asked.tp * asked.cp, asked.ep * etp)
    leaf = fabric.nodes_per_leaf * nodes[0].n_accelerators
    order = NEAR_STAGES if asked.pp > 1 and prod((near, asked.pp)) <= leaf else FAR_STAGES
    under = f"{near * asked.pp} ranks of neighbouring stages fit under a leaf of {leaf}"
    why = under if order is NEAR_STAGES else "stages are placed apart" if asked.pp > 1 else "there are no stages"
    return order, (Flag(code="chosen_placement", message=f"placement auto: [{', '.join(order)}], because {why}"),)

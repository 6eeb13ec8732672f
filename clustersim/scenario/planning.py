"""What a scenario trains and how, on some nodes: model, training and strategy, checked against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clustersim.hardware.models import Fabric, Node
from clustersim.report.metrics import Flag
from clustersim.scenario.constraints import (
    check_batch,
    check_recomputation,
    check_sequence_parallelism,
    check_tensor_parallelism,
    resolve_dp,
    shard_degree,
    tensor_overlap,
)
from clustersim.scenario.context_checks import check_context
from clustersim.scenario.data_parallel import data_parallel, server_flags
from clustersim.scenario.expert_checks import check_experts
from clustersim.scenario.expert_load import expert_load_of
from clustersim.scenario.jobs import Planned
from clustersim.scenario.layered_checks import check_layered
from clustersim.scenario.layout import rank_layout
from clustersim.scenario.load import Scenario
from clustersim.scenario.model_spec import load_model
from clustersim.scenario.offloading import offload_of
from clustersim.scenario.pass_costs import arranged
from clustersim.scenario.pipelining import Pipelining, pipelining_of
from clustersim.scenario.placement import placement_of
from clustersim.scenario.schema import DIMENSIONS, ScenarioSpec
from clustersim.scenario.training import training_of
from clustersim.strategy.plan import SHARDS_PARAMETERS, Plan, Strategy
from clustersim.strategy.shard import model_chunks
from clustersim.workload.layered import Layered
from clustersim.workload.transformer import Transformer


def plan_on(scenario: Scenario, nodes: Sequence[Node], fabric: Fabric) -> Planned:
    """Return what a scenario trains, and how, on some nodes; the first of them stands for all where kinds do not matter."""
    spec, node = scenario.spec, nodes[0]
    loaded = load_model(scenario.document.data.get("model"), document=scenario.document)
    model = loaded.model
    # What the model allows comes before what the cluster does: it is the narrower choice.
    if isinstance(model, Layered):
        check_layered(spec, model)
    else:
        check_tensor_parallelism(model, spec.strategy.tp)
    found = pipelining_of(spec.strategy, model.n_layers, scenario.folder)
    strategy = _strategy(spec, nodes, found)
    placement, more_flags = placement_of(spec.strategy, nodes, fabric)
    strategy = replace(strategy, placement=placement)
    if not isinstance(model, Layered):
        check_experts(model, spec.strategy, strategy)
        load, load_flags = expert_load_of(spec.strategy, model, scenario=scenario.document.name)
        strategy, more_flags = replace(strategy, expert_load=load), (*more_flags, *load_flags)
    training, training_flags = training_of(spec, loaded, nodes)
    if not isinstance(model, Layered):
        check_context(model, training, cp=strategy.cp, tp=strategy.tp, kind=strategy.context_parallel)
    check_batch(spec.training, spec.strategy, strategy.dp, found)
    if strategy.sequence_parallel:
        check_sequence_parallelism(training.seq_length, strategy.tp, chosen=spec.strategy.sequence_parallel is not None)
    plan = arranged(Plan(model=model, training=training, strategy=strategy), node, balanced=spec.strategy.stage_layers == "balanced")
    check_recomputation(max(chunk.n_layers for stage in model_chunks(plan) for chunk in stage), spec.strategy)
    kinds = {id(each): each for each in nodes}.values()
    flags = (
        *(Flag(code=code, message=message) for code, message in loaded.flags),
        *training_flags,
        *_strategy_flags(spec, strategy, model, min(kinds, key=lambda each: each.scale_up.nodes_per_domain)),
        *server_flags(plan, node),
        *more_flags,
    )
    # A resolved scenario leaves nothing open, and brings what was assumed for the one that it stands for.
    brought = tuple(Flag(code=each.code, message=each.message) for each in spec.assumed)
    return Planned(loaded=loaded, plan=plan, flags=tuple(dict.fromkeys((*brought, *flags))))


def _strategy(spec: ScenarioSpec, nodes: Sequence[Node], found: Pipelining) -> Strategy:
    asked, node, n_nodes = spec.strategy, nodes[0], len(nodes)
    later = asked.optimizer_post_validation
    dp = resolve_dp(asked, n_nodes * node.n_accelerators)
    return Strategy(
        dp=dp,
        tp=asked.tp,
        pp=asked.pp,
        cp=asked.cp,
        ep=asked.ep,
        sequence_parallel=asked.tp > 1 and asked.sequence_parallel is not False,
        schedule=found.name,
        written=found.written,
        virtual_stages=found.chunks,
        stage_layers=tuple(asked.stage_layers) if isinstance(asked.stage_layers, list) else None,
        optimizer_post_validation=asked.pp > 1 and (found.validates_later if later is None else later),
        zero_stage=asked.zero_stage,
        recompute=asked.recompute,
        recompute_layers=asked.recompute_layers,
        recompute_stops_early=asked.recompute_stops_early,
        data_parallel=data_parallel(asked, node, n_nodes),
        overlap_p2p=found.sends_beside if asked.overlap_p2p is None else asked.overlap_p2p,
        overlap_tp=tensor_overlap(asked),
        placement=DIMENSIONS,
        shard_degree=shard_degree(asked, dp),
        gather=asked.gather,
        prefetch=asked.prefetch,
        reshard_after_forward=asked.reshard_after_forward,
        keep_ends=asked.keep_ends,
        offload=offload_of(asked.offload, nodes, zero_stage=asked.zero_stage),
        etp=asked.etp,
        overlap_ep=asked.overlap_ep and asked.ep > 1,
        dispatch_precision=asked.dispatch_precision if asked.ep > 1 else "same",
        dispatch=asked.dispatch if asked.ep > 1 else "all_to_all",
        domain_size=node.n_accelerators * node.scale_up.nodes_per_domain,
        recompute_modules=tuple(asked.recompute_modules or ("core_attention",)),
        context_parallel=asked.context_parallel if asked.cp > 1 else "ring",
    )


def _idle_flags(spec: ScenarioSpec, strategy: Strategy, model: Transformer | Layered) -> tuple[Flag, ...]:
    """Return which keys that the scenario sets, and not a preset, do nothing in this layout."""
    asked, fields = spec.strategy, type(spec.strategy).model_fields
    sharded = strategy.zero_stage == SHARDS_PARAMETERS
    experts = model.experts if isinstance(model, Transformer) else None
    full = asked.expert_load == "balanced" and (asked.expert_capacity or 0.0) >= 1.0
    idle = (
        (experts is None, ("expert_capacity", "expert_skew"), "without experts"),
        (experts is not None and full, ("expert_capacity",), "where every expert gets the mean"),
        (strategy.ep > 1 and experts is not None and not experts.shared_size, ("overlap_ep",), "without shared experts"),
        (not sharded, ("prefetch", "reshard_after_forward", "keep_ends", "gather"), "without zero_stage 3"),
        (strategy.ep == 1, ("dispatch", "dispatch_precision", "overlap_ep"), "with ep 1"),
        (strategy.cp == 1, ("context_parallel",), "with cp 1"),
    )
    unused = [(key, why) for holds, keys, why in idle if holds for key in keys if getattr(asked, key) != fields[key].default]
    return tuple(Flag(code="no_effect", message=f"{key} does nothing {why}") for key, why in unused if asked.preset is None)


def _strategy_flags(spec: ScenarioSpec, strategy: Strategy, model: Transformer | Layered, node: Node) -> tuple[Flag, ...]:
    flags: list[Flag] = []
    if spec.strategy.sequence_parallel and strategy.tp == 1:
        flags.append(Flag(code="no_effect", message="sequence_parallel does nothing with tp 1"))
    gradients = strategy.data_parallel
    moves_weights = strategy.zero_stage > 0 or gradients.service is not None or gradients.single_process
    if gradients.gather_precision != "same" and not moves_weights:
        flags.append(Flag(code="no_effect", message="gather_precision does nothing where every rank keeps and updates all parameters"))
    flags += _idle_flags(spec, strategy, model)
    domain_size = node.n_accelerators * node.scale_up.nodes_per_domain
    for span in rank_layout(strategy, node_size=node.n_accelerators, domain_size=domain_size):
        if span.dimension == "tp" and span.reach == "across the fabric":
            message = f"groups of tp = {span.degree} ranks reach beyond the scale-up domain of {domain_size} GPUs"
            flags.append(Flag(code="tp_across_fabric", message=message))
    return tuple(flags)

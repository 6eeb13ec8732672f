"""Plan of a scenario on some nodes: model, training and strategy, checked against each other.

Techniques refuse their own settings (``parallel/contributors``); refused here are settings of training that contradict model or
accelerators, which no technique reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod
from typing import Final

from clustersim.config.constraints import (
    check_attention,
    check_batch,
    check_training,
    resolve_dp,
    scaling_of,
)
from clustersim.config.expert_load import expert_load_of
from clustersim.config.job_settings import Planned
from clustersim.config.keys import dotted
from clustersim.config.load import Scenario
from clustersim.config.machine import server_flags
from clustersim.config.pipelining import Pipelining, pipelining_of
from clustersim.config.scenario_schema import ScenarioSpec
from clustersim.config.usual import ASSUMED_KERNELS, Circumstances, completed_as_usual, usual_flags, usual_settings
from clustersim.errors import DomainError, ScenarioError
from clustersim.hardware.calibrations import calibration_for
from clustersim.hardware.models import Accelerator, Fabric, Node, ServerHosts
from clustersim.notices import Flag
from clustersim.parallel.contributors import CONTRIBUTORS
from clustersim.parallel.contributors.parameter_server import hosts_of
from clustersim.parallel.needs import Idle, idle
from clustersim.parallel.pass_costs import arranged
from clustersim.parallel.stage import stage_of
from clustersim.parallel.step_settings import PARAMETER_SERVER, DataParallel, DataParallelSettings, Precision, Training
from clustersim.parallel.training_plan import SHARDS_GRADIENTS, Dimension, Plan, Strategy, StrategySettings
from clustersim.topology import SYMMETRIC
from clustersim.workloads.model import Model
from clustersim.workloads.reading.model_spec import MEASURED_SPEED, LoadedModel, load_model

PRECISION_ORDER: Final[tuple[Precision, ...]] = ("bf16", "fp16", "fp32")
"""Which precision is assumed: the first that the accelerator has."""


_SHORT: Final = ("fp16", "bf16", "fp8")


def training_of(spec: ScenarioSpec, loaded: LoadedModel, nodes: Sequence[Node]) -> tuple[Training, tuple[Flag, ...]]:
    """Return one optimizer step, and what was assumed of it."""
    asked = spec.training
    if not loaded.model.divisible:
        _check_layered(asked, loaded.model)
    accelerators = list({node.accelerator.name: node.accelerator for node in nodes}.values())
    precision, flags = precision_of(asked, accelerators)
    check_attention(asked.attention, accelerators)
    seq_length, length_flags = _seq_length(asked, loaded.model)
    check_training(asked, seq_length=seq_length, precision=precision)
    training = asked.completed(
        precision=precision,
        optimizer_kernels="foreach" if asked.kernels == "eager" else "fused",
        gradient_precision="fp32" if precision in _SHORT else "same",
        fp8_scaling=scaling_of(asked, accelerators),
        grouped_experts=asked.kernels == "fused",
        channels_last=precision in _SHORT,
    ).changed(seq_length=seq_length)
    return training, (*flags, *length_flags)


def _check_layered(training: Training, model: Model) -> None:
    """Refuse settings that a list of layers determines."""
    if training.gives("seq_length"):
        message = f"the layers of {model.name} say how large a sample is"
        hint = f"leave it out: a sample counts as tokens_per_sample = {model.max_positions} of the model"
        raise ScenarioError(message, field="training.seq_length", hint=hint)
    if training.gives("attention"):
        message = f"the layers of {model.name} say what attention there is"
        raise ScenarioError(message, field="training.attention", hint="leave it out")


def _seq_length(asked: Training, model: Model) -> tuple[int, tuple[Flag, ...]]:
    positions = model.max_positions
    if not asked.gives("seq_length") and positions < 1:
        hint = "the model does not say how long its sequences are; write one, such as 4096"
        raise ScenarioError("'seq_length' is missing", field="training.seq_length", hint=hint)
    seq_length = asked.seq_length or positions
    if not 0 < positions < seq_length:
        return seq_length, ()
    message = f"sequences of {seq_length} tokens, though the model has {positions} positions"
    return seq_length, (Flag(code="long_sequence", message=message),)


def precision_of(asked: Training, accelerators: Sequence[Accelerator]) -> tuple[Precision, tuple[Flag, ...]]:
    """Return the requested precision, or the first that all accelerators have."""
    has = [name for name in accelerators[0].peak_flops_per_s if all(name in each.peak_flops_per_s for each in accelerators)]
    if not asked.gives("precision"):
        known: list[Precision] = [precision for precision in PRECISION_ORDER if precision in has]
        if not known:
            raise ScenarioError("'precision' is missing", field="training.precision", hint=f"use one of {', '.join(has)}")
        assumed: Precision = known[0]
        owners = " and ".join(accelerator.name for accelerator in accelerators)
        message = f"no precision is given: {assumed}, which {owners} {'has' if len(accelerators) == 1 else 'have'}, is assumed"
        return assumed, (Flag(code="assumed_precision", message=message),)
    lacking = next((accelerator.name for accelerator in accelerators if asked.precision not in accelerator.peak_flops_per_s), None)
    if lacking is not None:
        raise ScenarioError(f"{lacking} does not have {asked.precision}", field="training.precision", hint=f"use {' or '.join(has)}")
    return asked.precision, ()


NEAR_STAGES: tuple[Dimension, ...] = ("tp", "cp", "ep", "pp", "dp")
"""Stages of one replica are neighbours, and replicas are far from each other."""

FAR_STAGES: tuple[Dimension, ...] = ("tp", "cp", "ep", "dp", "pp")
"""Replicas of one stage are neighbours, and stages are far from each other."""


def plan_on(scenario: Scenario, nodes: Sequence[Node], fabric: Fabric) -> Planned:
    """Return the training of a scenario on some nodes; the first node represents all where kinds do not matter.

    A setting that does nothing in this plan is as good as left out.
    """
    loaded = load_model(scenario.document.data.get("model"), document=scenario.document)
    planned, unused = _planned(scenario, loaded, nodes, fabric)
    effective, flags = _without_idle(scenario, unused)
    if effective is not scenario:
        planned, _ = _planned(effective, loaded, nodes, fabric)
    # A resolved scenario leaves nothing open, and brings what was assumed for the one that it stands for.
    brought = tuple(Flag(code=each.code, message=each.message) for each in scenario.spec.assumed)
    flags = (*brought, *flags, *planned.flags, *server_flags(stage_of(planned.plan, 0), nodes[0]))
    return replace(planned, flags=tuple(dict.fromkeys(flags)))


def _planned(scenario: Scenario, loaded: LoadedModel, nodes: Sequence[Node], fabric: Fabric) -> tuple[Planned, tuple[Idle, ...]]:
    """Return the plan of a scenario as it is written, and its settings that do nothing."""
    node, kinds, model = nodes[0], tuple(each for each, _ in groupby(nodes)), loaded.model
    # What the model allows comes before what the cluster does: it is the narrower choice.
    for contributor in CONTRIBUTORS:
        contributor.refuse_model(model, scenario.spec.strategy)
    measured = any(code == MEASURED_SPEED for code, _ in loaded.flags)
    usual = {} if measured else usual_settings(circumstances_of(scenario.spec, model, kinds, n_ranks=len(nodes) * node.n_accelerators))
    spec, brought = completed_as_usual(scenario.spec, {key: value for key, (value, _) in usual.items()})
    found = pipelining_of(spec.strategy, model.n_layers, scenario.folder)
    placement, more_flags = placement_of(spec.strategy, nodes, fabric)
    strategy = _strategy(spec, nodes, found).changed(placement=placement)
    load, load_flags = expert_load_of(spec.strategy, model, scenario=scenario.document.name)
    strategy, more_flags = strategy.changed(expert_load=load, expert_skew=load.skew), (*more_flags, *load_flags)
    training, training_flags = training_of(spec, loaded, kinds)
    _check_batches(training, strategy, spec, model)
    plan = Plan(model=model, training=training, strategy=arranged(model, training, strategy, node))
    unused = idle(model, training, plan.strategy)
    idle_keys = {".".join(each.path) for each in unused}
    flags = (
        *(Flag(code=code, message=message) for code, message in loaded.flags),
        *training_flags,
        *found.flags,
        *usual_flags(usual, [key for key in brought if key not in idle_keys]),
        *(() if spec.training.gives("kernels") or spec.strategy.preset else (ASSUMED_KERNELS,)),
        *_reach_flags(strategy, min(kinds, key=lambda each: each.scale_up.nodes_per_domain)),
        *more_flags,
    )
    return Planned(loaded=loaded, plan=plan, flags=flags), unused


def _check_batches(training: Training, strategy: Strategy, spec: ScenarioSpec, model: Model) -> None:
    """Refuse a batch that the layout cannot take: the full one, and the first two of those that grow to it; the others follow."""
    growing = training.batch_ramp.batches(training.global_batch_size)[:2] if training.batch_ramp else ()
    for batch in (training.global_batch_size, *growing):
        asked = training.changed(global_batch_size=batch)
        try:
            check_batch(asked, strategy)
            for contributor in CONTRIBUTORS:
                contributor.refuse(strategy, spec.strategy, model=model, training=asked)
        except (ScenarioError, DomainError) as error:
            if batch == training.global_batch_size:
                raise
            raise ScenarioError(f"while the batch grows, {error.message}", field="training.batch_ramp", hint=error.hint) from error


def circumstances_of(spec: ScenarioSpec, model: Model, kinds: Sequence[Node], *, n_ranks: int) -> Circumstances:
    """Return the software that trains the model of a scenario on nodes of some kinds."""
    training, strategy, accelerators = spec.training, spec.strategy, [node.accelerator for node in kinds]
    precision = precision_of(training, accelerators)[0]
    return Circumstances(
        transformer=model.divisible,
        preset=strategy.preset is not None,
        precision=precision,
        scaling=scaling_of(training, accelerators) if precision == "fp8" else "",
        zero_stage=strategy.zero_stage,
        alone=n_ranks == 1,
        sequence_parallel=strategy.sequence_parallel or not strategy.gives("sequence_parallel"),
        recompute=strategy.recompute,
        cp=strategy.cp,
        schedule=strategy.schedule,
        causal=model.causal,
        experts=model.experts is not None,
        dispatch=strategy.dispatch if strategy.gives("dispatch") else None,
        seq_length=training.seq_length or model.max_positions,
        recent="fp8" in accelerators[0].peak_flops_per_s,
        scaled_formats=accelerators[0].scaled_formats,
        rack=kinds[0].scale_up.nodes_per_domain > 1,
        blocking_launches=training.blocking_launches,
        attention=calibration_for(accelerators[0]).attention.keys(),
    )


def _without_idle(scenario: Scenario, unused: Sequence[Idle]) -> tuple[Scenario, tuple[Flag, ...]]:
    """Return a scenario without settings that have no effect in its plan, and flags for those that were written."""
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
        stage_layers=found.stage_layers,
        optimizer_post_validation=asked.pp > 1 and completed.optimizer_post_validation,
        data_parallel=data_parallel(asked, node, n_nodes),
        shard_degree=None if asked.shard_degree == dp * asked.cp else asked.shard_degree,
        node_size=node.n_accelerators,
        domain_size=node.domain_size,
        symmetric=_symmetric(spec, nodes),
        preset=None,
    )


def _symmetric(spec: ScenarioSpec, nodes: Sequence[Node]) -> bool:
    """Return whether all ranks compute and reach each other alike: in one scale-up domain whose wiring is, without anything uneven."""
    node, cluster, asked = nodes[0], spec.cluster, spec.strategy
    stages_differ = asked.pp > 1 or asked.expert_load.kind != "balanced"
    over_hosts = (
        asked.data_parallel.algorithm == PARAMETER_SERVER
        or asked.data_parallel.single_process
        or (stages_differ and bool(asked.offload.parts))
    )
    uneven = cluster.links or cluster.stragglers or cluster.jitter or spec.background or spec.jobs or over_hosts
    wired_alike = node.scale_up.kind in SYMMETRIC and len(nodes) * node.n_accelerators <= node.domain_size
    return not uneven and wired_alike and all(each is node for each in nodes)


def _reach_flags(strategy: Strategy, node: Node) -> tuple[Flag, ...]:
    """Return the notice on tensor parallelism that leaves the scale-up domain of a node."""
    message = f"groups of tp = {strategy.tp} ranks reach beyond the scale-up domain of {node.domain_size} GPUs"
    return tuple(
        Flag(code="tp_across_fabric", message=message)
        for span in rank_layout(strategy, node_size=node.n_accelerators, domain_size=node.domain_size)
        if span.dimension == "tp" and span.reach == "across the fabric"
    )


def placement_of(asked: StrategySettings, nodes: Sequence[Node], fabric: Fabric) -> tuple[tuple[Dimension, ...], tuple[Flag, ...]]:
    """Return the order of dimensions, fastest-varying first, and the choice for ``auto``.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshDimension:
    """One dimension of the mesh: its groups are ``degree`` ranks, ``stride`` apart."""

    dimension: str
    degree: int
    stride: int
    reach: str
    """Reach of a group: ``inside a node``, ``inside a scale-up domain`` or ``across the fabric``."""


def rank_layout(strategy: Strategy, *, node_size: int, domain_size: int) -> tuple[MeshDimension, ...]:
    """Return the dimensions in placement order, fastest-varying first.

    Parameters
    ----------
    node_size, domain_size
        Accelerators of a node and of a scale-up domain.
    """
    degrees = {"tp": strategy.tp, "cp": strategy.cp, "dp": strategy.dp, "pp": strategy.pp}
    spans: list[MeshDimension] = []
    # A room that holds all ranks has no border for a group to cross.
    n_ranks = math.prod(degrees.values())
    node_size, domain_size = min(node_size, n_ranks), min(domain_size, n_ranks)
    stride = 1
    # Expert parallelism lives inside the data-parallel ranks and has no place of its own.
    for dimension in (name for name in strategy.placement if name != "ep"):
        degree = degrees[dimension]
        spans.append(MeshDimension(dimension=dimension, degree=degree, stride=stride, reach=_reach(degree, stride, node_size, domain_size)))
        stride *= degree
    return tuple(spans)


def _reach(degree: int, stride: int, node_size: int, domain_size: int) -> str:
    if degree == 1:
        return "no communication"
    if _tiles(stride * degree, node_size):
        return "inside a node"
    return "inside a scale-up domain" if _tiles(stride * degree, domain_size) else "across the fabric"


def _tiles(block: int, room: int) -> bool:
    """Return whether consecutive blocks of ranks never cross from one room into the next."""
    return block <= room and room % block == 0


def data_parallel(asked: StrategySettings, node: Node, n_nodes: int) -> DataParallel:
    """Return the gradient exchange on a number of nodes."""
    given = asked.data_parallel
    completed = given.completed(no_sync=_adds_up_first(asked)).changed(overlap=given.overlap and not given.single_process)
    if given.algorithm != PARAMETER_SERVER:
        return DataParallel.of(completed)
    completed = completed.completed(
        servers=n_nodes, placement="colocated", assignment="key_ranges", priority="layers", reduce_in_node=_together(given)
    )
    return DataParallel.of(completed, hosts=hosts_of(completed, n_nodes, node.n_accelerators))


def server_hosts(gradients: DataParallel, node: Node, n_nodes: int) -> ServerHosts | None:
    """Return the dedicated hosts beside a number of nodes, each with processors, memory and adapters of a node; None without any."""
    dedicated = [] if gradients.service is None else [host for host in gradients.service.hosts if host >= n_nodes]
    return ServerHosts(n_hosts=len(dedicated), host=node.host, nic=node.nic, n_nics=node.n_nics) if dedicated else None


def _adds_up_first(asked: StrategySettings) -> bool:
    """Return the default of gradient accumulation before the reduction.

    Sharded gradients are reduced for each micro-batch, so that none is whole; but not under pipeline stages, where PyTorch reduces with
    the last (``torch.distributed.pipelining``, ``set_requires_gradient_sync``).
    """
    return (asked.zero_stage < SHARDS_GRADIENTS or asked.pp > 1) and not asked.data_parallel.single_process


def _together(given: DataParallelSettings) -> bool:
    """Return whether all workers wait for all; asynchronous workers are single replicas, unless the scenario groups them."""
    return given.mode == "sync" and not given.backup_workers

"""A checked scenario to the objects that are simulated: model, cluster, plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from clustersim.errors import ScenarioError
from clustersim.hardware.models import Accelerator, Node
from clustersim.program.background import Background
from clustersim.report.metrics import Flag
from clustersim.scenario.background import background_of
from clustersim.scenario.checks import Check, parse_check
from clustersim.scenario.constraints import (
    check_attention,
    check_batch,
    check_clipping,
    check_recomputation,
    check_scored_tokens,
    check_sequence_parallelism,
    check_sharding,
    check_size,
    check_stages,
    check_tensor_parallelism,
    resolve_dp,
    shard_degree,
    tensor_overlap,
)
from clustersim.scenario.data_parallel import check_algorithm, check_workers, data_parallel, server_flags, server_hosts
from clustersim.scenario.jitter import jitter_of
from clustersim.scenario.jobs import Job, Planned, jobs_of, seat
from clustersim.scenario.layered_checks import check_layered
from clustersim.scenario.layout import rank_layout
from clustersim.scenario.load import Scenario
from clustersim.scenario.machine import hardware_of, link_changes, routing_flags
from clustersim.scenario.model_spec import LoadedModel, load_model
from clustersim.scenario.offloading import host_shortfall, offload_of
from clustersim.scenario.schema import DIMENSIONS, ScenarioSpec
from clustersim.scenario.stragglers import slowdowns_of
from clustersim.scenario.unevenness import Uneven, division_of, own_pace
from clustersim.strategy.plan import Plan, Precision, Strategy, Training
from clustersim.topology.build import build_mixed_cluster
from clustersim.topology.cluster import Cluster
from clustersim.topology.wired import WiredCluster
from clustersim.workload.layered import Layered
from clustersim.workload.transformer import Transformer

if TYPE_CHECKING:
    pass

PRECISION_ORDER: Final[tuple[Precision, ...]] = ("bf16", "fp16", "fp32")
"""Which precision is assumed: the first that the accelerator has."""

STEPS: Final = 50
"""Steps that are replayed where they differ and nobody says how many: the mean is then known to a seventh of the spread."""

_SHORT: Final = ("fp16", "bf16", "fp8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """Everything that one run needs, nothing left open."""

    scenario: Scenario
    plan: Plan
    cluster: WiredCluster
    loaded: LoadedModel
    nodes: tuple[int, ...]
    """Of the plan; all of the cluster where there are no other jobs."""
    jobs: tuple[Job, ...]
    background: tuple[tuple[Background, ...], ...]
    """For each entry of the scenario, its loads."""
    uneven: Uneven | None
    """What is unlike between the ranks of the plan; None where nothing is, and workers go together."""
    n_steps: int
    checks: tuple[Check, ...]
    flags: tuple[Flag, ...]

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return self.scenario.name

    @property
    def tokens(self) -> float | None:
        """Total budget of tokens, if one was given."""
        return self.scenario.spec.training.tokens


def build(scenario: Scenario) -> Built:
    """Return model, cluster and plan of a scenario, with every default filled in.

    Raises
    ------
    ScenarioError
        When values contradict each other, with the place of the one to change.
    """
    try:
        return _build(scenario)
    except ScenarioError as error:
        raise scenario.located(error) from error


def _build(scenario: Scenario) -> Built:
    spec = scenario.spec
    checks = _checks(spec)
    hardware = hardware_of(spec.cluster, scenario.document)
    node, n_nodes = hardware.node, hardware.n_nodes
    check_size(n_nodes, node.n_accelerators)
    seats = seat(spec.jobs, n_nodes)
    nodes = hardware.nodes
    planned = _planned(scenario, [nodes[place] for place in seats.own])
    servers = server_hosts(planned.plan.strategy.data_parallel, node, len(seats.own))
    cluster = build_mixed_cluster(hardware.kinds, hardware.fabric, servers=servers, changes=link_changes(spec.cluster))
    check_algorithm(planned.plan, cluster, seats.own)
    uneven = _uneven(spec, planned.plan, nodes, seats.own)

    def plan(inner: Scenario, places: Sequence[int]) -> Planned:
        inside = _planned(inner, [nodes[place] for place in places])
        check_algorithm(inside.plan, cluster, places)
        return inside

    jobs = jobs_of(scenario, node, seats, plan)
    n_steps, steps_flags = _steps(spec, planned.plan)
    return Built(
        scenario=scenario,
        plan=planned.plan,
        cluster=cluster,
        loaded=planned.loaded,
        nodes=seats.own,
        jobs=jobs,
        background=background_of(spec.background, cluster),
        uneven=uneven,
        n_steps=n_steps,
        checks=checks,
        flags=(
            *planned.flags,
            *steps_flags,
            *_host_flags(planned.plan, cluster),
            *routing_flags(cluster),
            *_unseen_flags(hardware.unseen),
            *_unused(spec),
            *(flag for job in jobs for flag in job.planned.flags),
        ),
    )


def _uneven(spec: ScenarioSpec, plan: Plan, nodes: Sequence[Node], own: Sequence[int]) -> Uneven | None:
    """Return what is unlike between the ranks of a plan that has some of the nodes."""
    per_node = nodes[0].n_accelerators
    slowdowns = slowdowns_of(spec.cluster.stragglers, [node.n_accelerators for node in nodes])
    place_of = {node: place for place, node in enumerate(own)}
    for rank in slowdowns:
        if rank // per_node not in place_of:
            raise ScenarioError(
                f"rank {rank} is on node {rank // per_node}, which belongs to another job",
                field="cluster.stragglers",
                hint="name ranks of the scenario's own job",
            )
    uneven = Uneven(
        slowdowns={place_of[rank // per_node] * per_node + rank % per_node: factor for rank, factor in slowdowns.items()},
        nodes=tuple(nodes[place] for place in own),
        jitter=jitter_of(spec.cluster.jitter),
    )
    if uneven.is_even and not own_pace(plan):
        return None
    check_workers(plan, division_of(plan, uneven).n_parts)
    return uneven


def _steps(spec: ScenarioSpec, plan: Plan) -> tuple[int, tuple[Flag, ...]]:
    """Return how many steps are replayed: one, unless they differ or more were asked for."""
    if spec.steps is not None:
        return spec.steps, ()
    if jitter_of(spec.cluster.jitter) is None and not own_pace(plan):
        return 1, ()
    return STEPS, (Flag(code="assumed_steps", message=f"no number of steps is given: {STEPS} are replayed"),)


def _planned(scenario: Scenario, nodes: Sequence[Node]) -> Planned:
    """Return what a scenario trains, and how, on some nodes; the first of them stands for all where kinds do not matter."""
    spec, node = scenario.spec, nodes[0]
    loaded = load_model(scenario.document.data.get("model"), document=scenario.document)
    model = loaded.model
    # What the model allows comes before what the cluster does: it is the narrower choice.
    if isinstance(model, Layered):
        check_layered(spec, model)
    else:
        check_tensor_parallelism(model, spec.strategy.tp)
    check_stages(model.n_layers, spec.strategy)
    check_recomputation(model.n_layers, spec.strategy)
    check_sharding(spec.strategy)
    strategy = _strategy(spec, nodes)
    training, training_flags = _training(spec, loaded, nodes)
    check_batch(spec.training, spec.strategy, strategy.dp)
    if strategy.sequence_parallel:
        check_sequence_parallelism(training.seq_length, strategy.tp, chosen=spec.strategy.sequence_parallel is not None)
    plan = Plan(model=model, training=training, strategy=strategy)
    flags = (
        *(Flag(code=code, message=message) for code, message in loaded.flags),
        *training_flags,
        *_strategy_flags(spec, strategy, min(nodes, key=lambda each: each.scale_up.nodes_per_domain)),
        *server_flags(plan, node),
    )
    return Planned(loaded=loaded, plan=plan, flags=flags)


def _strategy(spec: ScenarioSpec, nodes: Sequence[Node]) -> Strategy:
    asked, node, n_nodes = spec.strategy, nodes[0], len(nodes)
    dp = resolve_dp(asked, n_nodes * node.n_accelerators)
    return Strategy(
        dp=dp,
        tp=asked.tp,
        pp=asked.pp,
        cp=asked.cp,
        ep=asked.ep,
        sequence_parallel=asked.tp > 1 and asked.sequence_parallel is not False,
        schedule=asked.schedule,
        virtual_stages=asked.virtual_stages,
        zero_stage=asked.zero_stage,
        recompute=asked.recompute,
        recompute_layers=asked.recompute_layers,
        recompute_stops_early=asked.recompute_stops_early,
        data_parallel=data_parallel(asked, node, n_nodes),
        overlap_p2p=asked.schedule == "interleaved_1f1b" if asked.overlap_p2p is None else asked.overlap_p2p,
        overlap_tp=tensor_overlap(asked),
        placement=DIMENSIONS if asked.placement == "auto" else tuple(asked.placement),
        shard_degree=shard_degree(asked, dp),
        gather=asked.gather,
        prefetch=asked.prefetch,
        reshard_after_forward=asked.reshard_after_forward,
        keep_ends=asked.keep_ends,
        offload=offload_of(asked.offload, nodes, zero_stage=asked.zero_stage),
    )


def _training(spec: ScenarioSpec, loaded: LoadedModel, nodes: Sequence[Node]) -> tuple[Training, tuple[Flag, ...]]:
    asked, node = spec.training, nodes[0]
    accelerators = list({node.accelerator.name: node.accelerator for node in nodes}.values())
    precision, flags = _precision(asked.precision, accelerators)
    check_attention(asked.attention, accelerators)
    seq_length, length_flags = _seq_length(asked.seq_length, loaded.model)
    check_scored_tokens(asked.scored_tokens, seq_length)
    check_clipping(clip_micro_batches=asked.clip_micro_batches, fused_accumulation=asked.fused_gradient_accumulation)
    training = Training(
        global_batch_size=asked.global_batch_size,
        micro_batch_size=asked.micro_batch_size,
        seq_length=seq_length,
        precision=precision,
        optimizer=asked.optimizer,
        optimizer_kernels=asked.optimizer_kernels or ("foreach" if asked.kernels == "eager" else "fused"),
        attention=asked.attention,
        gradient_precision=asked.gradient_precision or ("fp32" if precision in _SHORT else "same"),
        fused_gradient_accumulation=asked.fused_gradient_accumulation,
        elementwise_precision=asked.elementwise_precision,
        clip_micro_batches=asked.clip_micro_batches,
        kernels=asked.kernels,
        blocking_launches=asked.blocking_launches,
        fused_loss=asked.fused_loss,
        scored_tokens=asked.scored_tokens,
        loss_metrics=asked.loss_metrics,
        channels_last=precision in _SHORT if asked.channels_last is None else asked.channels_last,
        loader_samples_per_s=None if asked.data_loader is None else asked.data_loader.rate / node.n_accelerators,
    )
    return training, (*flags, *length_flags)


def _seq_length(asked: int | None, model: Transformer | Layered) -> tuple[int, tuple[Flag, ...]]:
    if isinstance(model, Layered):
        return model.tokens_per_sample, ()
    positions = model.max_positions
    if asked is None and positions < 1:
        hint = "the model does not say how long its sequences are; write one, such as 4096"
        raise ScenarioError("'seq_length' is missing", field="training.seq_length", hint=hint)
    seq_length = asked or positions
    if not 0 < positions < seq_length:
        return seq_length, ()
    message = f"sequences of {seq_length} tokens, though the model has {positions} positions"
    return seq_length, (Flag(code="long_sequence", message=message),)


def _precision(asked: Precision | None, accelerators: Sequence[Accelerator]) -> tuple[Precision, tuple[Flag, ...]]:
    """Return the precision that was asked for, or the first that all accelerators have."""
    has = [name for name in accelerators[0].peak_flops_per_s if all(name in each.peak_flops_per_s for each in accelerators)]
    if asked is None:
        known: list[Precision] = [precision for precision in PRECISION_ORDER if precision in has]
        if not known:
            raise ScenarioError("'precision' is missing", field="training.precision", hint=f"use one of {', '.join(has)}")
        assumed: Precision = known[0]
        owners = " and ".join(accelerator.name for accelerator in accelerators)
        message = f"no precision is given: {assumed}, which {owners} {'has' if len(accelerators) == 1 else 'have'}, is assumed"
        return assumed, (Flag(code="assumed_precision", message=message),)
    lacking = next((accelerator.name for accelerator in accelerators if asked not in accelerator.peak_flops_per_s), None)
    if lacking is not None:
        raise ScenarioError(f"{lacking} does not have {asked}", field="training.precision", hint=f"use {' or '.join(has)}")
    return asked, ()


def _strategy_flags(spec: ScenarioSpec, strategy: Strategy, node: Node) -> tuple[Flag, ...]:
    flags: list[Flag] = []
    if spec.strategy.sequence_parallel and strategy.tp == 1:
        flags.append(Flag(code="no_effect", message="sequence_parallel does nothing with tp 1"))
    gradients = strategy.data_parallel
    moves_weights = strategy.zero_stage > 0 or gradients.service is not None or gradients.single_process
    if gradients.gather_precision != "same" and not moves_weights:
        flags.append(Flag(code="no_effect", message="gather_precision does nothing where every rank keeps and updates all parameters"))
    domain_size = node.n_accelerators * node.scale_up.nodes_per_domain
    for span in rank_layout(strategy, node_size=node.n_accelerators, domain_size=domain_size):
        if span.dimension == "tp" and span.reach == "across the fabric":
            message = f"groups of tp = {span.degree} ranks reach beyond the scale-up domain of {domain_size} GPUs"
            flags.append(Flag(code="tp_across_fabric", message=message))
    return tuple(flags)


def _host_flags(plan: Plan, cluster: Cluster) -> tuple[Flag, ...]:
    shortfall = host_shortfall(plan, cluster)
    return (Flag(code="host_memory", message=shortfall),) if shortfall else ()


def _unseen_flags(names: tuple[str, ...]) -> tuple[Flag, ...]:
    if not names:
        return ()
    return (Flag(code="unseen_figures", message=f"not seen in a source, only remembered or assumed: {', '.join(names)}"),)


def _unused(spec: ScenarioSpec) -> tuple[Flag, ...]:
    given = {"cost": spec.cost, "reliability": spec.reliability}
    return tuple(
        Flag(code="unused_key", message=f"{key} is checked, but not used by run in this version")
        for key, value in given.items()
        if value is not None
    )


def _checks(spec: ScenarioSpec) -> tuple[Check, ...]:
    parsed: list[Check] = []
    for index, text in enumerate(spec.checks):
        field = f"checks.{index}"
        try:
            check = parse_check(text)
        except ScenarioError as error:
            raise ScenarioError(error.message, field=field, hint=error.hint) from error
        if check.metric == "time_to_train_s" and spec.training.tokens is None:
            raise ScenarioError("time_to_train_s needs a total budget", field=field, hint="give training.tokens, such as 15T")
        parsed.append(check)
    return tuple(parsed)

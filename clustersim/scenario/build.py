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
    check_batch,
    check_sequence_parallelism,
    check_sharding,
    check_size,
    check_stages,
    check_tensor_parallelism,
    resolve_dp,
    shard_degree,
)
from clustersim.scenario.data_parallel import check_algorithm, data_parallel, server_flags, server_hosts
from clustersim.scenario.jobs import Job, Planned, jobs_of, seat
from clustersim.scenario.layout import rank_layout
from clustersim.scenario.load import Scenario
from clustersim.scenario.machine import hardware_of, link_changes, routing_flags
from clustersim.scenario.model_spec import LoadedModel, load_model
from clustersim.scenario.schema import DIMENSIONS, ScenarioSpec
from clustersim.strategy.plan import Plan, Precision, Strategy, Training
from clustersim.topology.build import build_cluster
from clustersim.topology.wired import WiredCluster

if TYPE_CHECKING:
    pass

PRECISION_ORDER: Final[tuple[Precision, ...]] = ("bf16", "fp16", "fp32")
"""Which precision is assumed: the first that the accelerator has."""

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
    node, fabric, n_nodes, unseen = hardware_of(spec.cluster, scenario.document)
    check_size(n_nodes, node.n_accelerators)
    seats = seat(spec.jobs, n_nodes)
    planned = _planned(scenario, node, len(seats.own))
    servers = server_hosts(planned.plan.strategy.data_parallel, node, len(seats.own))
    cluster = build_cluster(node, n_nodes, fabric, servers=servers, changes=link_changes(spec.cluster))
    check_algorithm(planned.plan, cluster, seats.own)

    def plan(inner: Scenario, nodes: Sequence[int]) -> Planned:
        inside = _planned(inner, node, len(nodes))
        check_algorithm(inside.plan, cluster, nodes)
        return inside

    jobs = jobs_of(scenario, node, seats, plan)
    return Built(
        scenario=scenario,
        plan=planned.plan,
        cluster=cluster,
        loaded=planned.loaded,
        nodes=seats.own,
        jobs=jobs,
        background=background_of(spec.background, cluster),
        checks=checks,
        flags=(
            *planned.flags,
            *routing_flags(cluster),
            *_unseen_flags(unseen),
            *_unused(spec),
            *(flag for job in jobs for flag in job.planned.flags),
        ),
    )


def _planned(scenario: Scenario, node: Node, n_nodes: int) -> Planned:
    """Return what a scenario trains, and how, on so many nodes."""
    spec = scenario.spec
    loaded = load_model(scenario.document.data.get("model"), document=scenario.document)
    model = loaded.model
    # What the model allows comes before what the cluster does: it is the narrower choice.
    check_tensor_parallelism(model, spec.strategy.tp)
    check_stages(model, spec.strategy)
    check_sharding(spec.strategy)
    strategy = _strategy(spec, node, n_nodes)
    training, training_flags = _training(spec, loaded, node)
    check_batch(spec.training, spec.strategy, strategy.dp)
    if strategy.sequence_parallel:
        check_sequence_parallelism(training.seq_length, strategy.tp, chosen=spec.strategy.sequence_parallel is not None)
    plan = Plan(model=model, training=training, strategy=strategy)
    flags = (
        *(Flag(code=code, message=message) for code, message in loaded.flags),
        *training_flags,
        *_strategy_flags(spec, strategy, node),
        *server_flags(plan, node),
    )
    return Planned(loaded=loaded, plan=plan, flags=flags)


def _strategy(spec: ScenarioSpec, node: Node, n_nodes: int) -> Strategy:
    asked = spec.strategy
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
        data_parallel=data_parallel(asked, node, n_nodes),
        overlap_p2p=asked.schedule == "interleaved_1f1b" if asked.overlap_p2p is None else asked.overlap_p2p,
        overlap_tp=asked.overlap_tp,
        placement=DIMENSIONS if asked.placement == "auto" else tuple(asked.placement),
        shard_degree=shard_degree(asked, dp),
        prefetch=asked.prefetch,
        reshard_after_forward=asked.reshard_after_forward,
    )


def _training(spec: ScenarioSpec, loaded: LoadedModel, node: Node) -> tuple[Training, tuple[Flag, ...]]:
    asked = spec.training
    precision, flags = _precision(asked.precision, node.accelerator)
    positions = loaded.model.max_positions
    if asked.seq_length is None and positions < 1:
        hint = "the model does not say how long its sequences are; write one, such as 4096"
        raise ScenarioError("'seq_length' is missing", field="training.seq_length", hint=hint)
    seq_length = asked.seq_length or positions
    if 0 < positions < seq_length:
        message = f"sequences of {seq_length} tokens, though the model has {positions} positions"
        flags = (*flags, Flag(code="long_sequence", message=message))
    training = Training(
        global_batch_size=asked.global_batch_size,
        micro_batch_size=asked.micro_batch_size,
        seq_length=seq_length,
        precision=precision,
        optimizer=asked.optimizer,
        attention=asked.attention,
        gradient_precision=asked.gradient_precision or ("fp32" if precision in _SHORT else "same"),
        fused_gradient_accumulation=asked.fused_gradient_accumulation,
        kernels=asked.kernels,
        loader_samples_per_s=None if asked.data_loader is None else asked.data_loader.rate / node.n_accelerators,
    )
    return training, flags


def _precision(asked: Precision | None, accelerator: Accelerator) -> tuple[Precision, tuple[Flag, ...]]:
    has = accelerator.peak_flops_per_s
    if asked is None:
        known: list[Precision] = [precision for precision in PRECISION_ORDER if precision in has]
        if not known:
            raise ScenarioError("'precision' is missing", field="training.precision", hint=f"use one of {', '.join(has)}")
        assumed: Precision = known[0]
        message = f"no precision is given: {assumed}, which {accelerator.name} has, is assumed"
        return assumed, (Flag(code="assumed_precision", message=message),)
    if asked not in has:
        raise ScenarioError(f"{accelerator.name} does not have {asked}", field="training.precision", hint=f"use {' or '.join(has)}")
    return asked, ()


def _strategy_flags(spec: ScenarioSpec, strategy: Strategy, node: Node) -> tuple[Flag, ...]:
    flags: list[Flag] = []
    if spec.strategy.sequence_parallel and strategy.tp == 1:
        flags.append(Flag(code="no_effect", message="sequence_parallel does nothing with tp 1"))
    domain_size = node.n_accelerators * node.scale_up.nodes_per_domain
    for span in rank_layout(strategy, node_size=node.n_accelerators, domain_size=domain_size):
        if span.dimension == "tp" and span.reach == "across the fabric":
            message = f"groups of tp = {span.degree} ranks reach beyond the scale-up domain of {domain_size} GPUs"
            flags.append(Flag(code="tp_across_fabric", message=message))
    return tuple(flags)


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

"""A checked scenario to the objects that are simulated: model, cluster, plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from clustersim.documents.merging import merged
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import load_cluster, load_node, named
from clustersim.hardware.models import Accelerator, Fabric, Node
from clustersim.hardware.overrides import fabric_from_mapping, node_from_mapping
from clustersim.hardware.provenance import remembered_fields
from clustersim.hardware.schema import NodeChange
from clustersim.report.metrics import Flag
from clustersim.scenario.checks import Check, parse_check
from clustersim.scenario.constraints import (
    check_batch,
    check_sequence_parallelism,
    check_sharding,
    check_size,
    check_stages,
    check_tensor_parallelism,
    resolve_dp,
)
from clustersim.scenario.layout import rank_layout
from clustersim.scenario.load import Scenario
from clustersim.scenario.model_spec import LoadedModel, load_model
from clustersim.scenario.schema import DIMENSIONS, ClusterSpec, ScenarioSpec
from clustersim.strategy.plan import DataParallel, Plan, Precision, Strategy, Training
from clustersim.topology.build import build_cluster
from clustersim.topology.wired import WiredCluster

if TYPE_CHECKING:
    from clustersim.documents.spots import Data
    from clustersim.documents.text import Document

PRECISION_ORDER: Final[tuple[Precision, ...]] = ("bf16", "fp16", "fp32")
"""Which precision is assumed: the first that the accelerator has."""

_SHORT: Final = ("fp16", "bf16", "fp8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """Everything that one run needs, nothing left open."""

    scenario: Scenario
    plan: Plan
    cluster: WiredCluster
    fabric: Fabric
    """The fabric that was asked for; that of the cluster is what is simulated of it."""
    loaded: LoadedModel
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
    loaded = load_model(scenario.document.data.get("model"), document=scenario.document)
    node, fabric, n_nodes, unseen = _hardware(spec.cluster, scenario.document)
    model = loaded.model
    check_size(n_nodes, node.n_accelerators)
    # What the model allows comes before what the cluster does: it is the narrower choice.
    check_tensor_parallelism(model, spec.strategy.tp)
    check_stages(model, spec.strategy)
    check_sharding(spec.strategy)
    strategy = _strategy(spec, n_nodes * node.n_accelerators)
    training, training_flags = _training(spec, loaded, node.accelerator)
    check_batch(spec.training, spec.strategy, strategy.dp)
    if strategy.sequence_parallel:
        check_sequence_parallelism(training.seq_length, strategy.tp, chosen=spec.strategy.sequence_parallel is not None)
    cluster = build_cluster(node, n_nodes, replace(fabric, routing="adaptive"))
    flags = (
        *(Flag(code=code, message=message) for code, message in loaded.flags),
        *training_flags,
        *_strategy_flags(spec, strategy, node),
        *_routing_flags(fabric, cluster),
        *_unseen_flags(unseen),
        *_unused(spec),
    )
    plan = Plan(model=model, training=training, strategy=strategy)
    return Built(scenario=scenario, plan=plan, cluster=cluster, fabric=fabric, loaded=loaded, checks=checks, flags=flags)


def _hardware(spec: ClusterSpec, document: Document) -> tuple[Node, Fabric, int, tuple[str, ...]]:
    """Return the node with its overrides, the fabric, how many nodes there are, and the figures nobody has seen in a source."""
    given = document.data.get("cluster")
    changes: dict[str, Data] = {key: given[key] for key in NodeChange.model_fields if key in given} if isinstance(given, dict) else {}
    if spec.name is not None:
        if spec.node is not None:
            raise ScenarioError("a cluster has a name or a node, not both", field="cluster.node", hint="delete one of the two")
        profile = named(load_cluster, spec.name, document, ("cluster", "name"))
        fabric_change = changes.pop("fabric", None)
        node = node_from_mapping(profile.node.name, changes, document, ("cluster",))
        fabric = profile.fabric
        if isinstance(fabric_change, dict):
            fabric = fabric_from_mapping(fabric, fabric_change, document, ("cluster", "fabric"))
        given_keys = tuple(f"{profile.name}.fabric.{key}" for key in fabric_change) if isinstance(fabric_change, dict) else ()
        unseen = tuple(name for name in remembered_fields(replace(profile, node=node)) if name not in given_keys)
        return node, fabric, spec.nodes or profile.n_nodes, unseen
    if spec.node is None:
        raise ScenarioError("'node' is missing", field="cluster.node", hint="name a shipped node or cluster; see clustersim show nodes")
    if spec.nodes is None:
        raise ScenarioError("'nodes' is missing", field="cluster.nodes", hint="write how many nodes there are, such as 'nodes: 1'")
    if isinstance(spec.node, str):
        named(load_node, spec.node, document, ("cluster", "node"))
        node = node_from_mapping(spec.node, changes, document, ("cluster",))
    else:
        inline = given.get("node") if isinstance(given, dict) else None
        node = node_from_mapping(None, merged(inline if isinstance(inline, dict) else {}, changes), document, ("cluster", "node"))
    return node, node.fabric, spec.nodes, remembered_fields(node)


def _strategy(spec: ScenarioSpec, n_gpus: int) -> Strategy:
    asked = spec.strategy
    gradients = asked.data_parallel
    return Strategy(
        dp=resolve_dp(asked, n_gpus),
        tp=asked.tp,
        pp=asked.pp,
        cp=asked.cp,
        ep=asked.ep,
        sequence_parallel=asked.tp > 1 and asked.sequence_parallel is not False,
        schedule=asked.schedule,
        virtual_stages=asked.virtual_stages,
        zero_stage=asked.zero_stage,
        recompute=asked.recompute,
        data_parallel=DataParallel(
            mode="sync",
            algorithm="ring" if gradients.algorithm == "ring" else "auto",
            overlap=gradients.overlap,
            bucket_bytes=gradients.bucket,
        ),
        overlap_p2p=asked.schedule == "interleaved_1f1b" if asked.overlap_p2p is None else asked.overlap_p2p,
        overlap_tp=asked.overlap_tp,
        placement=DIMENSIONS if asked.placement == "auto" else tuple(asked.placement),
    )


def _training(spec: ScenarioSpec, loaded: LoadedModel, accelerator: Accelerator) -> tuple[Training, tuple[Flag, ...]]:
    asked = spec.training
    precision, flags = _precision(asked.precision, accelerator)
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


def _routing_flags(fabric: Fabric, cluster: WiredCluster) -> tuple[Flag, ...]:
    if fabric.routing == "adaptive" or cluster.tree is None:
        return ()
    message = f"{fabric.routing} routing is simulated as adaptive: flows that a hash puts on the same uplink do not slow each other"
    return (Flag(code="adaptive_routing", message=message),)


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

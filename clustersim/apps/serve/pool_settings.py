"""Layout, rules, engine constants and memory of the replicas of each pool of a deployment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from clustersim.collectives.library import Library
from clustersim.collectives.timing import SmallCollectives
from clustersim.config.node_groups import Hardware
from clustersim.config.serving_scenario import ReplicaPoolSpec, ServingSpec
from clustersim.engine.alone import IdleCollectives
from clustersim.errors import DomainError, InfeasibleError, ScenarioError
from clustersim.hardware.calibrations import calibration_for
from clustersim.hardware.models import Accelerator, Node
from clustersim.serving.batch import ServingLayout
from clustersim.serving.capacity import KvCapacity, kv_capacity
from clustersim.serving.engines import EngineConstants, engine_constants
from clustersim.serving.expert_exchange import expert_exchange
from clustersim.serving.formats import ServedFormats, served_formats
from clustersim.serving.policies import rules_of
from clustersim.serving.rules import BatchWait, EngineDevice, EngineRules, RankWait
from clustersim.topology.cluster_wiring import cluster_of
from clustersim.units.divisors import count_text
from clustersim.workloads.inference import inference_work
from clustersim.workloads.model import Model
from clustersim.workloads.reading.model_spec import LoadedModel

_KEYS: Final = (
    *("max_num_seqs", "max_batched_tokens", "memory_fraction"),
    *("prefix_cache", "chunked_prefill", "asynchronous"),
)
_WAITS: Final = MappingProxyType({"batch_wait": "tensorrt_llm", "rank_wait": "tensorrt_llm", "receive_interval": "sglang"})
"""Engine that has each of the waits of new prompts."""
_STAND_IN: Final = "vllm"
"""Engine whose kernels and host a static server has."""


def rank_rules(serving: ServingSpec, accelerator: Accelerator, layout: ServingLayout) -> EngineRules:
    """Return the rules of one rank of attention data parallelism.

    Raises
    ------
    ScenarioError
        The token budget of a step is too small for its sequences.
    """
    device = EngineDevice(name=accelerator.name, memory_bytes=accelerator.memory_bytes, tp=layout.tp, pp=layout.pp, dp=layout.dp)
    rules = rules_of(serving.engine, device)
    given = {key: value for key in _KEYS if (value := getattr(serving, key)) is not None}
    # Tokens of all ranks by default, of one rank if given.
    budget = given.get("max_batched_tokens", rules.max_batched_tokens * (layout.dp if rules.divides_budget else 1))
    if serving.max_graph_tokens is not None:
        given["largest_graph"] = serving.max_graph_tokens
    rules = replace(rules, **given)
    if rules.default_fraction is not None and "memory_fraction" not in given:
        rules = replace(rules, memory_fraction=rules.default_fraction(device, budget, rules.largest_graph))
    if rules.mixes and rules.max_batched_tokens < rules.max_num_seqs:
        if "max_num_seqs" not in given:
            return replace(rules, max_num_seqs=rules.max_batched_tokens)
        raise ScenarioError(
            f"a budget of {rules.max_batched_tokens} tokens is less than {rules.max_num_seqs} sequences decode in a step",
            field="serving.max_batched_tokens",
            hint=f"give at least {rules.max_num_seqs}",
        )
    return rules


def replica_rules(serving: ServingSpec, rules: EngineRules, n_ranks: int) -> EngineRules:
    """Return the rules of a replica: each rank of attention data parallelism has a batch of its own."""
    idle = idle_waits(serving, n_ranks)
    batch, ranks, interval = (None if key in idle else getattr(serving, key) for key in _WAITS)
    return replace(
        rules,
        max_num_seqs=rules.max_num_seqs * n_ranks,
        max_batched_tokens=rules.max_batched_tokens * n_ranks,
        batch_wait=BatchWait(**batch.model_dump()) if batch else None,
        rank_wait=RankWait(n_ranks=n_ranks, **ranks.model_dump()) if ranks else None,
        receive_interval=interval or 1,
    )


def idle_waits(serving: ServingSpec, n_ranks: int) -> dict[str, str]:
    """Return the waits of new prompts that are asked for and do nothing, with the reason."""
    engine = serving.engine.partition("@")[0]
    found: dict[str, str] = {}
    for key, owner in _WAITS.items():
        if getattr(serving, key) is None:
            continue
        if engine != owner:
            found[key] = f"{engine} has no such wait"
        elif key != "receive_interval" and serving.disaggregated is not None:
            found[key] = "neither pool has new prompts beside decoding sequences"
        elif key == "batch_wait" and n_ranks > 1:
            found[key] = "the engine ignores it under attention data parallelism"
        elif key == "rank_wait" and n_ranks == 1:
            found[key] = "there is no attention data parallelism"
    return found


def engine_of(serving: ServingSpec, rules: EngineRules) -> EngineConstants:
    """Return the constants of the engine."""
    name, _, version = serving.engine.partition("@")
    if name == "static":
        # A static benchmark has no front end: prompts are in place when it starts.
        found = replace(engine_constants(_STAND_IN), frontend_base_s=0.0, frontend_per_token_s=0.0)
    else:
        found = engine_constants(name, version or None)
    if found.states == "share" and serving.max_num_seqs is not None and not rules.prefix_cache:
        return replace(found, states="batch")
    return found


def wide_collectives(hardware: Hardware, engine: EngineConstants) -> SmallCollectives:
    """Return the times of collectives, beyond a scale-up domain on the idle links of the cluster."""
    node = hardware.node
    library = Library(cluster=cluster_of(hardware.kinds, hardware.fabric), calibration=calibration_for(node.accelerator).network)
    across_s = IdleCollectives(library).seconds
    return SmallCollectives(node.accelerator, engine.collectives, n_domain=node.domain_size, across_s=across_s)


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
        parts = " and ".join(f"{count_text(n_replicas, role)} of {_size_text(layout)}" for role, layout, n_replicas in found)
        size = "serving.dp" if serving.dp > 1 else "serving.tp"
        raise ScenarioError(
            f"{parts}: that is {needed} accelerators, and the cluster has {n_accelerators}",
            field="serving.disaggregated" if apart is not None else size if found[0][2] == 1 else "serving.replicas",
            hint=f"{_rank_hint(serving)}use fewer accelerators in a replica, fewer replicas, or more nodes",
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


def _size_text(layout: ServingLayout) -> str:
    """Return the accelerators of a replica, and the degrees that they are the product of."""
    degrees = {"tp": layout.tp, "dp": layout.dp, "pp": layout.pp}
    several = [f"{key} {degree}" for key, degree in degrees.items() if degree > 1]
    return f"{layout.n_accelerators} ({' x '.join(several)})" if len(several) > 1 else str(layout.n_accelerators)


def _rank_hint(serving: ServingSpec) -> str:
    """Return how SGLang's degrees are written, whose tensor-parallel ranks are those of attention data parallelism too."""
    tp, dp = serving.tp, serving.dp
    if serving.engine.partition("@")[0] != "sglang" or dp == 1 or tp % dp:
        return ""
    return f"SGLang's --tp {tp} --dp {dp} is tp: {tp // dp}, dp: {dp}; "


def _layout(pool: ReplicaPoolSpec | ServingSpec, serving: ServingSpec, node: Node, model: Model) -> ServingLayout:
    experts = model.experts
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


Sized = tuple[ServingLayout, EngineRules, EngineConstants, ServedFormats]


def replica_capacity(serving: ServingSpec, loaded: LoadedModel, node: Node, sized: Sized) -> KvCapacity:
    """Return the memory of a replica.

    Raises
    ------
    InfeasibleError
        When nothing is left for the KV cache; names the nearest that fits.
    """
    try:
        return _capacity_of(loaded, node, sized)
    except DomainError as error:
        raise InfeasibleError(f"does not fit in memory: {error.message}; {_nearest(serving, loaded, node, sized)}") from error


def _capacity_of(loaded: LoadedModel, node: Node, sized: Sized) -> KvCapacity:
    layout, rules, engine, formats = sized
    work = inference_work(
        loaded.model,
        tp=layout.tp,
        expert_tp=max(1, layout.tp * layout.dp // layout.ep),
        ep=layout.ep,
        copies=layout.redundant_experts,
    )
    # A static batch is set aside for as it comes.
    budget = min(rules.max_batched_tokens, 8192) if rules.admission == "batch" else rules.max_batched_tokens
    return kv_capacity(work, formats, node.accelerator, layout, engine=engine, rules=replace(rules, max_batched_tokens=budget))


def _nearest(serving: ServingSpec, loaded: LoadedModel, node: Node, sized: Sized) -> str:
    """Return the nearest change with which the weights fit."""
    layout, rules, engine, formats = sized
    if serving.memory_fraction is not None:
        usual = serving.model_copy(update={"memory_fraction": None})
        defaults = rank_rules(usual, node.accelerator, layout)
        try:
            _capacity_of(loaded, node, (layout, defaults, engine_of(usual, defaults), formats))
        except DomainError:
            pass
        else:
            usual_text = f"{defaults.memory_fraction:.3g}, the engine's default"
            return f"it fits with memory_fraction: {usual_text}, in place of {serving.memory_fraction:g}"
    wider = [layout.tp << n for n in range(8) if layout.tp << n <= node.n_accelerators * node.scale_up.nodes_per_domain]
    # More accelerators first, and then fewer bits, on as many as before where that is enough.
    for precision in (None, "fp8", "int4"):
        fewer = served_formats(loaded.model, node.accelerator, precision, formats.kv) if precision else formats
        for tp in wider:
            try:
                _capacity_of(loaded, node, (replace(layout, tp=tp), rules, engine, fewer))
            except DomainError:
                continue
            changes = {"tp": tp if tp != layout.tp else None, "precision": precision}
            return "it fits with " + ", ".join(f"{key}: {value}" for key, value in changes.items() if value)
    return "it fits with no tp inside a node; use pp, fewer bits for each weight, or accelerators with more memory"

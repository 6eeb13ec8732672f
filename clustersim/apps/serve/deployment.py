"""From a checked serving scenario to the simulation: replicas with their schedulers, step models and KV caches, and the requests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clustersim.apps.serve.pool_settings import (
    Asked,
    Ranks,
    asked_layouts,
    engine_of,
    idle_waits,
    placed_ranks,
    rank_rules,
    replica_capacity,
    replica_rules,
    wide_collectives,
)
from clustersim.apps.serve.scenario_requests import DrawnRequests, asked_requests
from clustersim.collectives.library import Library
from clustersim.config.background_loads import background_of
from clustersim.config.cost_section import Priced, priced_nodes
from clustersim.config.machine import hardware_of, link_changes
from clustersim.config.node_groups import Hardware
from clustersim.config.serving_scenario import ServingScenario, ServingSpec
from clustersim.config.stragglers import jitter_of, slowdowns_of
from clustersim.engine.cache_transfers import CacheLinks
from clustersim.engine.serving_run import Deployment, ReplicaPool
from clustersim.errors import DomainError, InfeasibleError, ScenarioError
from clustersim.hardware.calibrations import calibration_for
from clustersim.hardware.models import Fabric, Node
from clustersim.hardware.serving_constants import Borrowed, borrowed_notes
from clustersim.notices import Flag
from clustersim.serving.batch import ServingLayout
from clustersim.serving.capacity import KvCapacity
from clustersim.serving.decoding import DecodingSet
from clustersim.serving.formats import KV_BYTES, served_formats
from clustersim.serving.kv_cache import BlockPool
from clustersim.serving.policies import is_older_than_known
from clustersim.serving.rules import EngineRules
from clustersim.serving.scheduler import Scheduler
from clustersim.serving.speculation import SpeculativeSet, acceptance_of
from clustersim.serving.step_model import TermStepModel, step_model
from clustersim.topology.cluster_wiring import cluster_of
from clustersim.workloads.inference import inference_work
from clustersim.workloads.reading.model_spec import LoadedModel, load_model

_ASSUMED_TRANSFER: Final = (
    "a KV cache does not wait for room in the decode pool; collectives inside a replica and KV caches do not delay each other"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltPool:
    """Replicas of one kind, before they are started."""

    role: str
    layout: ServingLayout
    n_replicas: int
    slowdowns: tuple[float, ...]
    """Factor on the duration of the steps of each replica: that of its slowest accelerator."""
    rules: EngineRules
    model: TermStepModel
    capacity: KvCapacity
    kv_tokens: int
    """KV-cache capacity of one replica in tokens, predicted or given."""

    @property
    def n_accelerators(self) -> int:
        """Accelerators of all replicas of the pool."""
        return self.n_replicas * self.layout.n_accelerators

    def block_pool(self) -> BlockPool:
        """Return the cache of one of the batches that a pipeline has under way, which share replica and cache."""
        size, rules = self.rules.block_tokens, self.rules
        n_blocks = self.kv_tokens // self.layout.pp // size - rules.n_null_blocks
        return BlockPool(n_blocks, size, state_blocks=self.capacity.state_blocks, caches=rules.prefix_cache)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltServing:
    """Everything that one serving run needs, nothing left open."""

    scenario: ServingScenario
    loaded: LoadedModel
    node: Node
    n_nodes: int
    fabric: Fabric
    pools: tuple[BuiltPool, ...]
    """One, or prefill and decode."""
    asked: DrawnRequests
    links: CacheLinks | None
    """Cluster between the pools; None where there is one pool."""
    priced: Priced | None
    seed: int
    flags: tuple[Flag, ...]

    @property
    def n_accelerators(self) -> int:
        """Accelerators of all pools."""
        return sum(pool.n_accelerators for pool in self.pools)

    @property
    def borrowed(self) -> tuple[Borrowed, ...]:
        """Constants that were not measured, of all pools."""
        return tuple(each for pool in self.pools for each in pool.model.borrowed)

    def deployment(self, *, every_step: bool = False) -> Deployment:
        """Return fresh replicas."""
        started = [self._started(pool, number) for number, pool in enumerate(self.pools)]
        jitter = jitter_of(self.scenario.spec.cluster.jitter)
        coupled = [pool.layout.n_accelerators for pool, each in zip(self.pools, started, strict=True) for _ in each.schedulers]
        return Deployment(
            serving=started[0],
            decode=started[1] if len(started) > 1 else None,
            links=self.links,
            router=self.scenario.spec.serving.router,
            jitter=jitter.drawn(coupled, self.seed) if jitter is not None else None,
            seed=self.seed,
            frontend_base_s=self.pools[0].model.engine.frontend_base_s,
            frontend_per_token_s=self.pools[0].model.engine.frontend_per_token_s,
            most_tokens=positions_of(self.loaded),
            every_step=every_step,
        )

    def _started(self, pool: BuiltPool, number: int) -> ReplicaPool:
        # Each batch that a pipeline has under way goes through all stages.
        pp = pool.layout.pp
        rules = replace(pool.rules, max_num_seqs=max(1, pool.rules.max_num_seqs // pp))
        schedulers = [
            Scheduler(
                rules=rules,
                pool=pool.block_pool(),
                decoding=self._decoding(rules, [self.seed, 2, number, replica]),
            )
            for replica in range(pool.n_replicas * pp)
        ]
        slowdowns = tuple(each for each in pool.slowdowns for _ in range(pp))
        graph_tokens = pool.rules.largest_graph * pool.layout.dp
        return ReplicaPool(schedulers=tuple(schedulers), model=pool.model, slowdowns=slowdowns, graph_tokens=graph_tokens)

    def _decoding(self, rules: EngineRules, seed: list[int]) -> DecodingSet:
        speculative = self.scenario.spec.serving.speculative
        if speculative is None:
            return DecodingSet(rules.block_tokens)
        acceptance = acceptance_of(speculative.draft_tokens, speculative.acceptance, speculative.mean_tokens)
        return SpeculativeSet(rules.block_tokens, speculative.draft_tokens, acceptance, np.random.default_rng(seed))


def build_serving(scenario: ServingScenario, *, seed: int = 0, asked: DrawnRequests | None = None) -> BuiltServing:
    """Return replicas and requests of a scenario, with every default filled in.

    Parameters
    ----------
    asked
        Requests of the scenario, where they have been drawn or read before.

    Raises
    ------
    ScenarioError
        When values contradict each other, with the place of the one to change.
    InfeasibleError
        When the weights leave no room for a KV cache, or the cache none for any request.
    """
    try:
        return _build(scenario, seed, asked)
    except DomainError as error:
        raise scenario.located(error) from error


def _build(scenario: ServingScenario, seed: int, asked: DrawnRequests | None) -> BuiltServing:
    spec, serving = scenario.spec, scenario.spec.serving
    hardware = hardware_of(spec.cluster, scenario.document)
    node, n_nodes = hardware.node, hardware.n_nodes
    loaded = load_model(scenario.document.data.get("model"), document=scenario.document)
    n_accelerators = n_nodes * node.n_accelerators
    slowdowns = slowdowns_of(spec.cluster.stragglers, [node.n_accelerators] * n_nodes) if spec.cluster.stragglers else {}
    layouts = asked_layouts(serving, node, loaded.model, n_accelerators)
    ranks = placed_ranks(layouts, node.n_accelerators, n_accelerators)
    pools = tuple(
        _pool(scenario, loaded, hardware, asked, tuple(max(slowdowns.get(rank, 1.0) for rank in replica) for replica in placed))
        for asked, placed in zip(layouts, ranks, strict=True)
    )
    asked = asked or asked_requests(spec.requests, scenario.folder, seed)
    _check_lengths(asked, pools, positions_of(loaded))
    priced = priced_nodes(spec.cost, _own_nodes(node, n_nodes, pools), scenario.folder) if spec.cost else None
    return BuiltServing(
        scenario=scenario,
        loaded=loaded,
        node=node,
        n_nodes=n_nodes,
        fabric=hardware.fabric,
        pools=pools,
        asked=asked,
        links=_links(scenario, hardware, loaded, pools, ranks),
        priced=priced,
        seed=seed,
        flags=tuple(
            dict.fromkeys(
                (
                    *(Flag(code=code, message=message) for code, message in loaded.flags),
                    *asked.flags,
                    *(flag for pool in pools for flag in _pool_flags(pool, serving, node)),
                    *_without_effect(serving, pools),
                    *([Flag(code="assumed_transfer", message=_ASSUMED_TRANSFER)] if len(pools) > 1 else ()),
                    *_idle_flags(priced, n_accelerators, serving, pools),
                )
            )
        ),
    )


def _idle_flags(priced: Priced | None, n_accelerators: int, serving: ServingSpec, pools: tuple[BuiltPool, ...]) -> list[Flag]:
    """Return notices on prices, and on GPUs without a replica that are paid or that replicas of this size leave over."""
    taken = sum(pool.n_accelerators for pool in pools)
    if priced is None:
        idle = n_accelerators - taken if serving.disaggregated is None and serving.replicas == "auto" else 0
        message = f"{idle} of the {n_accelerators} GPUs serve nothing: each replica takes {pools[0].layout.n_accelerators}"
        return [Flag(code="idle_gpus", message=message)] if idle else []
    idle = priced.n_accelerators - taken
    message = f"{idle} of the {priced.n_accelerators} GPUs of the nodes serve nothing, and are paid too"
    return [*priced.flags, *([Flag(code="idle_gpus", message=message)] if idle else [])]


def _own_nodes(node: Node, n_nodes: int, pools: tuple[BuiltPool, ...]) -> list[Node]:
    """Return the nodes that the replicas take, whole ones."""
    taken = sum(pool.n_accelerators for pool in pools)
    return [node] * min(n_nodes, -(-taken // node.n_accelerators))


def _pool(scenario: ServingScenario, loaded: LoadedModel, hardware: Hardware, asked: Asked, slowdowns: tuple[float, ...]) -> BuiltPool:
    role, layout, n_replicas = asked
    serving, model, node = scenario.spec.serving, loaded.model, hardware.node
    rules = rank_rules(serving, node.accelerator, layout)
    engine = engine_of(serving, rules)
    formats = served_formats(model, node.accelerator, serving.precision, serving.kv_precision)
    steps = step_model(model, node.accelerator, layout, engine=engine, rules=rules, formats=formats)
    if layout.n_together > node.domain_size:
        steps = replace(steps, collectives=wide_collectives(hardware, engine))
    capacity = replica_capacity(serving, loaded, node, (layout, rules, engine, formats))
    return BuiltPool(
        role=role,
        layout=layout,
        n_replicas=n_replicas,
        slowdowns=slowdowns,
        rules=replica_rules(serving, replace(rules, max_num_seqs=capacity.max_num_seqs), layout.dp),
        model=steps,
        capacity=capacity,
        kv_tokens=capacity.tokens if serving.kv_tokens == "auto" else serving.kv_tokens,
    )


def positions_of(loaded: LoadedModel) -> int | None:
    """Return the tokens of a sequence that a model has positions for; None where it does not say."""
    return loaded.model.max_positions or None


def _check_lengths(asked: DrawnRequests, pools: tuple[BuiltPool, ...], positions: int | None) -> None:
    """Refuse requests none of which the model or the KV cache has room for, and prompts that no step can take."""
    requests = asked.requests
    shortest = int((requests.input_tokens + requests.output_tokens).min())
    if positions is not None and shortest > positions:
        raise ScenarioError(
            f"every request has {shortest} tokens or more, and the model has {positions} positions",
            field="requests.input_tokens" if asked.requests.arrival_s is None or not asked.files else "requests.trace",
            hint=f"ask for at most {positions} tokens of prompt and answer, or give the model more max_position_embeddings",
        )
    for pool in pools:
        room = pool.block_pool().room_tokens
        if shortest > room:
            given = pool.kv_tokens != pool.capacity.tokens
            blocks = pool.block_pool().blocks(shortest) + pool.rules.n_null_blocks
            enough = blocks * pool.rules.block_tokens * pool.layout.pp
            larger = f"kv_tokens: {enough}" if given else "more accelerators in a replica, fewer bits for each weight"
            raise InfeasibleError(
                f"a KV cache of {room} tokens ({'given' if given else 'predicted'}) is smaller than every request: the shortest has"
                f" {shortest} tokens; use {larger}, or requests of at most {room} tokens"
            )
        longest = int(requests.input_tokens.max())
        rules = pool.rules
        if not rules.chunked_prefill and rules.admission != "batch" and longest > rules.max_batched_tokens:
            raise ScenarioError(
                f"a prompt of {longest} tokens is longer than a step's {rules.max_batched_tokens}, and is not computed in parts",
                field="serving.max_batched_tokens",
                hint=f"give at least {longest}, or chunked_prefill: true",
            )


def _links(
    scenario: ServingScenario, hardware: Hardware, loaded: LoadedModel, pools: tuple[BuiltPool, ...], ranks: tuple[Ranks, ...]
) -> CacheLinks | None:
    """Return the cluster that KV caches cross between two pools, with degraded links and the loads of others; None for one pool."""
    spec = scenario.spec
    if len(pools) == 1:
        for key, given in (("cluster.links", spec.cluster.links), ("background", spec.background)):
            if given:
                text = f"{key} does nothing: collectives inside a replica have whole, idle links, and replicas of one pool send nothing"
                raise ScenarioError(text, field=key, hint="delete it, or use disaggregated: KV caches cross links between pools")
        return None
    cluster = cluster_of(hardware.kinds, hardware.fabric, changes=link_changes(spec.cluster))
    cache, apart = inference_work(loaded.model, tp=1, expert_tp=1, ep=1), spec.serving.disaggregated
    senders, receivers = (
        tuple(replica for replica in placed for _ in range(pool.layout.pp)) for placed, pool in zip(ranks, pools, strict=True)
    )
    return CacheLinks(
        library=Library(cluster=cluster, calibration=calibration_for(hardware.node.accelerator).network),
        senders=senders,
        receivers=receivers,
        bytes_per_token=cache.cache_elements() * KV_BYTES[spec.serving.kv_precision],
        state_bytes=cache.state_bytes(pools[0].model.engine.state_element_bytes),
        n_layers=cache.n_layers if apart is not None and apart.transfer == "layers" else 1,
        background=tuple(load for loads in background_of(spec.background, cluster) for load in loads),
    )


def _pool_flags(pool: BuiltPool, serving: ServingSpec, node: Node) -> list[Flag]:
    """Return the notices on replicas."""
    found = [("uncalibrated_kernel", text) for text in borrowed_notes(pool.model.borrowed)]
    together, pp = pool.layout.n_together, pool.layout.pp
    if together > node.domain_size:
        found.append(("tp_across_fabric", f"collectives of {together} GPUs cross the fabric, and are those of NCCL on idle links"))
    if pp > 1:
        text = f"{pp} batches are under way in a pipeline, each with its share of the KV cache; they do not delay each other"
        found.append(("assumed_pipeline", text))
    if serving.speculative is not None:
        found.append(("draft_not_timed", "the time of drafting tokens is not counted, that of verifying them is"))
    vendor, released = node.accelerator.vendor, pool.model.engine.vendors
    if released and vendor not in (*released, "other"):
        whose = " and ".join(each.upper() for each in released)
        found.append(
            ("engine_not_released", f"{serving.engine} is released for {whose}, and {node.accelerator.name} is of {vendor.upper()}")
        )
    if is_older_than_known(serving.engine):
        text = f"{serving.engine} is older than all engines whose rules are known, and has those of {pool.rules.version}"
        found.append(("extrapolated_engine", text))
    if pool.rules.admission == "batch":
        found.append(("assumed_static_host", "a static server has the kernels and the host time of vLLM"))
    return [Flag(code=code, message=message) for code, message in found]


def _without_effect(serving: ServingSpec, pools: tuple[BuiltPool, ...]) -> list[Flag]:
    """Return the notices on settings that are asked for and do nothing."""
    found = {key: reason for pool in pools for key, reason in idle_waits(serving, pool.layout.dp).items()}
    if any(pool.layout.ep > 1 for pool in pools) and all(layer.experts is None for layer in pools[0].model.work.layers):
        found["ep"] = "the model has no experts"
    return [Flag(code="no_effect", message=f"{key} does nothing: {reason}") for key, reason in found.items()]


def refused_of(built: BuiltServing) -> NDArray[np.bool_]:
    """Return whether each request is longer than what there is room for."""
    requests = built.asked.requests
    return requests.input_tokens + requests.output_tokens > _room_tokens(built)


def refused_text(built: BuiltServing, count: int) -> str:
    """Return how many requests are refused, the limit that they exceed, and a remedy."""
    room, be = _room_tokens(built), "request is" if count == 1 else "requests are"
    limit, remedy = f"{room:,} tokens of the KV cache", "give a replica more accelerators, weights fewer bits, or clip lengths"
    if room == positions_of(built.loaded):
        limit, remedy = f"{room:,} positions of the model", "take a model with more positions, or clip lengths"
    return f"{count:,} {be} longer than the {limit}; {remedy}"


def _room_tokens(built: BuiltServing) -> int:
    rooms = [pool.block_pool().room_tokens for pool in built.pools]
    positions = positions_of(built.loaded)
    return min(rooms) if positions is None else min(*rooms, positions)

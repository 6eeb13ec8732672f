"""The resolved scenario: every default written out, and the hash that names a run."""

from __future__ import annotations

import hashlib
import json
from typing import Final

from clustersim import __version__
from clustersim.documents.spots import Data
from clustersim.hardware.models import Fabric, Node
from clustersim.hardware.overrides import INLINE_NAME
from clustersim.scenario.build import Built
from clustersim.scenario.jobs import Job
from clustersim.scenario.model_spec import LoadedModel
from clustersim.scenario.schema import ClusterSpec
from clustersim.strategy.plan import DataParallel, Plan, Strategy
from clustersim.units.quantity import exact_quantity

HASH_DIGITS: Final = 8


def resolved_scenario(built: Built) -> dict[str, Data]:
    """Return the scenario that this one stands for, with nothing left to defaults; it runs to the same numbers.

    Shipped hardware stays named; the model, which may come from a file elsewhere, is written out.
    """
    spec = built.scenario.spec
    resolved: dict[str, Data] = {
        "version": spec.version,
        "name": built.name,
        "model": _model(built.loaded, built.plan),
        "cluster": _cluster(built.cluster.node, built.cluster.fabric, built.cluster.n_nodes) | _links(spec.cluster),
        "training": _training(built.plan, built.cluster.node) | _tokens(built),
        "strategy": _strategy(built.plan.strategy, len(built.nodes)),
    }
    if spec.steps is not None:
        resolved["steps"] = spec.steps
    for key, part in (("cost", spec.cost), ("reliability", spec.reliability)):
        if part is not None:
            resolved[key] = part.model_dump(mode="json", exclude_none=True)
    resolved["checks"] = [check.text for check in built.checks]
    return resolved | _others(built)


def scenario_hash(resolved: dict[str, Data], seed: int) -> str:
    """Return eight hexadecimal digits for a resolved scenario.

    The first digits of the SHA-256 of the canonical JSON (sorted keys, no spaces) of the resolved scenario, the seed and
    the version of the package. How the scenario was written does not matter: comments, key order, units and defaults
    left out or spelled out give the same hash.
    """
    whole = {"clustersim": __version__, "scenario": resolved, "seed": seed}
    canonical = json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:HASH_DIGITS]


def _others(built: Built) -> dict[str, Data]:
    """Return what else there is on the cluster; nothing where there is nothing."""
    jobs: list[Data] = [{"name": job.name, "nodes": list(job.nodes), "scenario": _job(job, built.cluster.node)} for job in built.jobs]
    background: list[Data] = [load.model_dump(mode="json", exclude_defaults=True) for load in built.scenario.spec.background]
    others: dict[str, Data] = {"jobs": jobs, "background": background}
    return {key: part for key, part in others.items() if part}


def _job(job: Job, node: Node) -> dict[str, Data]:
    plan = job.planned.plan
    return {
        "model": _model(job.planned.loaded, plan),
        "training": _training(plan, node),
        "strategy": _strategy(plan.strategy, len(job.nodes)),
    }


def _model(loaded: LoadedModel, plan: Plan) -> dict[str, Data]:
    spec = loaded.spec.model_dump(mode="json", exclude_none=True, exclude={"name", "description", "sources"})
    return {"name": plan.model.name, **spec}


def _cluster(node: Node, fabric: Fabric, n_nodes: int) -> dict[str, Data]:
    figures = _node(node)
    wires = _fabric(fabric)
    if node.name == INLINE_NAME:
        return {"node": {**figures, "fabric": wires}, "nodes": n_nodes}
    return {"node": node.name, "nodes": n_nodes, **figures, "fabric": wires}


def _node(node: Node) -> dict[str, Data]:
    nics: dict[str, Data] = {} if node.nic.name == INLINE_NAME else {"model": node.nic.name}
    nics |= {
        "count": node.n_nics,
        "bandwidth": exact_quantity(node.nic.bandwidth_bytes_per_s, "B/s"),
        "latency": exact_quantity(node.nic.latency_s, "s"),
    }
    scale_up: dict[str, Data] = {"kind": node.scale_up.kind, "nodes_per_domain": node.scale_up.nodes_per_domain}
    # An accelerator without links of its own has no bandwidth to state.
    if node.accelerator.scale_up_bandwidth_bytes_per_s > 0:
        scale_up["bandwidth"] = exact_quantity(node.accelerator.scale_up_bandwidth_bytes_per_s, "B/s")
    scale_up |= {
        "latency": exact_quantity(node.scale_up.latency_s, "s"),
        "in_network_reduction": node.scale_up.in_network_reduction,
    }
    figures: dict[str, Data] = {
        "accelerator": node.accelerator.name,
        "accelerators_per_node": node.n_accelerators,
        "nics": nics,
        "scale_up": scale_up,
        "host": node.host.name,
        "accelerators_per_pcie_switch": node.accelerators_per_pcie_switch,
    }
    if node.power_w is not None:
        figures["power"] = exact_quantity(node.power_w, "W")
    return figures


def _fabric(fabric: Fabric) -> dict[str, Data]:
    resolved: dict[str, Data] = {
        "topology": fabric.topology,
        "leaf": fabric.leaf.name,
        "spine": fabric.spine.name,
        "nodes_per_leaf": fabric.nodes_per_leaf,
        "leaves_per_pod": fabric.leaves_per_pod,
        "oversubscription": fabric.oversubscription,
        "core_oversubscription": fabric.core_oversubscription,
        "routing": fabric.routing,
        "cable_latency": exact_quantity(fabric.cable_latency_s, "s"),
        "in_network_reduction": fabric.in_network_reduction,
    }
    if fabric.routing == "ecmp":
        resolved["seed"] = fabric.seed
    if fabric.topology == "torus":
        resolved["dimensions"] = list(fabric.dimensions)
    if fabric.topology == "dragonfly":
        resolved |= {"leaves_per_group": fabric.leaves_per_group, "global_links": fabric.global_links}
    if fabric.link_bandwidth_bytes_per_s is not None:
        resolved["link_bandwidth"] = exact_quantity(fabric.link_bandwidth_bytes_per_s, "B/s")
    return resolved


def _links(spec: ClusterSpec) -> dict[str, Data]:
    links: list[Data] = [link.model_dump(mode="json", exclude_defaults=True) for link in spec.links]
    return {"links": links} if links else {}


def _training(plan: Plan, node: Node) -> dict[str, Data]:
    training = plan.training
    rate = training.loader_samples_per_s
    loader: dict[str, Data] = {} if rate is None else {"data_loader": {"rate": exact_quantity(rate * node.n_accelerators, "samples/s")}}
    return loader | {
        "global_batch_size": training.global_batch_size,
        "micro_batch_size": training.micro_batch_size,
        "seq_length": training.seq_length,
        "precision": training.precision,
        "optimizer": training.optimizer,
        "attention": training.attention,
        "gradient_precision": training.gradient_precision,
        "fused_gradient_accumulation": training.fused_gradient_accumulation,
        "kernels": training.kernels,
    }


def _tokens(built: Built) -> dict[str, Data]:
    return {} if built.tokens is None else {"tokens": exact_quantity(built.tokens, "count")}


def _strategy(strategy: Strategy, n_nodes: int) -> dict[str, Data]:
    return {
        "dp": strategy.dp,
        "tp": strategy.tp,
        "pp": strategy.pp,
        "cp": strategy.cp,
        "ep": strategy.ep,
        "sequence_parallel": strategy.sequence_parallel,
        "schedule": strategy.schedule,
        "virtual_stages": strategy.virtual_stages,
        "zero_stage": strategy.zero_stage,
        "recompute": strategy.recompute,
        "data_parallel": _data_parallel(strategy.data_parallel, n_nodes),
        "overlap_p2p": strategy.overlap_p2p,
        "overlap_tp": strategy.overlap_tp,
        "shard_degree": strategy.shard_degree or "auto",
        "prefetch": strategy.prefetch,
        "reshard_after_forward": strategy.reshard_after_forward,
        "offload": [],
        "expert_load": "balanced",
        "placement": list(strategy.placement),
    }


def _data_parallel(gradients: DataParallel, n_nodes: int) -> dict[str, Data]:
    resolved: dict[str, Data] = {
        "mode": gradients.mode,
        "algorithm": gradients.algorithm,
        "overlap": gradients.overlap,
        "bucket": exact_quantity(gradients.bucket_bytes, "B"),
        "no_sync": gradients.no_sync,
        "single_process": gradients.single_process,
        "gather_precision": gradients.gather_precision,
        "reduce_precision": gradients.reduce_precision,
    }
    if gradients.first_bucket_bytes is not None:
        resolved["first_bucket"] = exact_quantity(gradients.first_bucket_bytes, "B")
    if gradients.mode == "ssp":
        resolved["staleness"] = gradients.staleness
    if gradients.backup_workers:
        resolved["backup_workers"] = gradients.backup_workers
    service = gradients.service
    if service is not None:
        resolved |= {
            "servers": len(service.hosts),
            "placement": "dedicated" if service.hosts[0] >= n_nodes else "colocated",
            "assignment": service.assignment,
            "priority": service.priority,
            "reduce_in_node": service.reduce_in_node,
        }
    return resolved

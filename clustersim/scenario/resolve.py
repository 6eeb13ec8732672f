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
from clustersim.strategy.plan import Strategy
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
        "model": _model(built),
        "cluster": _cluster(built.cluster.node, built.fabric, built.cluster.n_nodes),
        "training": _training(built),
        "strategy": _strategy(built.plan.strategy),
    }
    for key, part in (("cost", spec.cost), ("reliability", spec.reliability)):
        if part is not None:
            resolved[key] = part.model_dump(mode="json", exclude_none=True)
    resolved["checks"] = [check.text for check in built.checks]
    return resolved


def scenario_hash(resolved: dict[str, Data], seed: int) -> str:
    """Return eight hexadecimal digits for a resolved scenario.

    The first digits of the SHA-256 of the canonical JSON (sorted keys, no spaces) of the resolved scenario, the seed and
    the version of the package. How the scenario was written does not matter: comments, key order, units and defaults
    left out or spelled out give the same hash.
    """
    whole = {"clustersim": __version__, "scenario": resolved, "seed": seed}
    canonical = json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:HASH_DIGITS]


def _model(built: Built) -> dict[str, Data]:
    spec = built.loaded.spec.model_dump(mode="json", exclude_none=True, exclude={"name", "description", "sources"})
    return {"name": built.plan.model.name, **spec}


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
    return {
        "topology": fabric.topology,
        "leaf": fabric.leaf.name,
        "spine": fabric.spine.name,
        "nodes_per_leaf": fabric.nodes_per_leaf,
        "leaves_per_pod": fabric.leaves_per_pod,
        "oversubscription": fabric.oversubscription,
        "core_oversubscription": fabric.core_oversubscription,
        "routing": fabric.routing,
        "cable_latency": exact_quantity(fabric.cable_latency_s, "s"),
    }


def _training(built: Built) -> dict[str, Data]:
    training = built.plan.training
    resolved: dict[str, Data] = {
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
    if built.tokens is not None:
        resolved["tokens"] = exact_quantity(built.tokens, "count")
    return resolved


def _strategy(strategy: Strategy) -> dict[str, Data]:
    gradients = strategy.data_parallel
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
        "data_parallel": {
            "mode": gradients.mode,
            "algorithm": gradients.algorithm,
            "overlap": gradients.overlap,
            "bucket": exact_quantity(gradients.bucket_bytes, "B"),
        },
        "overlap_p2p": strategy.overlap_p2p,
        "overlap_tp": strategy.overlap_tp,
        "shard_degree": "auto",
        "offload": [],
        "expert_load": "balanced",
        "placement": list(strategy.placement),
    }

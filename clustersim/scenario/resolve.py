"""The resolved scenario: every default written out, and the hash that names a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from clustersim import __version__
from clustersim.documents.spots import Data
from clustersim.hardware.models import Node
from clustersim.report.metrics import Flag
from clustersim.scenario.build import Built
from clustersim.scenario.cost import resolved_cost
from clustersim.scenario.jobs import Job
from clustersim.scenario.model_spec import LoadedModel
from clustersim.scenario.resolved_hardware import resolved_hardware
from clustersim.scenario.schema import ClusterSpec
from clustersim.strategy.plan import SHARDS_PARAMETERS, DataParallel, Offload, Plan, Strategy
from clustersim.strategy.schedules import SCHEDULES
from clustersim.units.quantity import exact_quantity
from clustersim.workload.layered import Layered

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
        "cluster": resolved_cluster(built, spec.cluster.name),
        "training": _training(built.plan, built.cluster.node) | _tokens(built),
        "strategy": _strategy(built.plan.strategy, len(built.nodes)),
    }
    if spec.steps is not None:
        resolved["steps"] = spec.steps
    if spec.cost is not None:
        resolved["cost"] = resolved_cost(spec.cost)
    if spec.reliability is not None:
        resolved["reliability"] = spec.reliability.model_dump(mode="json", exclude_none=True)
    resolved["checks"] = [check.text for check in built.checks]
    return resolved | _others(built) | _assumed(built.planned_flags)


def resolved_cluster(built: Built, profile: str | None = None) -> dict[str, Data]:
    """Return the machine that a scenario stands for, with nothing left to defaults; by its own parts, or as a shipped cluster."""
    hardware = resolved_hardware(built.cluster.kinds, built.cluster.fabric, profile)
    return hardware | _constants(built) | _unlike(built.scenario.spec.cluster)


def files_of(built: Built) -> dict[str, str]:
    """Return the files that a resolved scenario refers to, by name: a schedule, loads of experts, measured constants, and price lists."""
    strategy = built.plan.strategy
    named = {strategy.expert_load.file: strategy.expert_load.text}
    if built.constants is not None:
        named[built.constants.name] = built.constants.text
    if strategy.written is not None:
        named[strategy.schedule] = strategy.written.text
    kept = {name: text for name, text in named.items() if name}
    return kept if built.priced is None else kept | dict(built.priced.files)


def scenario_hash(resolved: dict[str, Data], seed: int, files: dict[str, str] | None = None) -> str:
    """Return eight hexadecimal digits for a resolved scenario.

    The first digits of the SHA-256 of the canonical JSON (sorted keys, no spaces) of the resolved scenario, the seed, the version of the
    package and what stands in files that it refers to. How the scenario was written does not matter: comments, key order, units and
    defaults left out or spelled out give the same hash.
    """
    whole: dict[str, object] = {"clustersim": __version__, "scenario": _as_spelled_out(resolved), "seed": seed}
    whole |= {"files": files} if files else {}
    canonical = json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:HASH_DIGITS]


def _assumed(flags: Sequence[Flag]) -> dict[str, Data]:
    """Return what was assumed where a scenario leaves something open; nothing where it leaves nothing."""
    found: list[Data] = [{"code": flag.code, "message": flag.message} for flag in flags]
    return {"assumed": found} if found else {}


def _as_spelled_out(data: Data) -> Data:
    """Return a resolved scenario without what was assumed: spelled out it gives the same run."""
    if isinstance(data, dict):
        return {key: _as_spelled_out(part) for key, part in data.items() if key != "assumed"}
    return [_as_spelled_out(part) for part in data] if isinstance(data, list) else data


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
        # A run puts the name of the job before them.
        **_assumed([replace(flag, message=flag.message.removeprefix(f"job {job.name}: ")) for flag in job.planned.flags]),
    }


def _model(loaded: LoadedModel, plan: Plan) -> dict[str, Data]:
    spec = loaded.spec.model_dump(mode="json", exclude_none=True, exclude={"name", "description", "sources"})
    return {"name": plan.model.name, **spec}


def _constants(built: Built) -> dict[str, Data]:
    return {} if built.constants is None else {"calibration": built.constants.name}


def _unlike(spec: ClusterSpec) -> dict[str, Data]:
    """Return what is not as built, or not always the same; nothing where all is."""
    links: list[Data] = [link.model_dump(mode="json", exclude_defaults=True) for link in spec.links]
    slow: list[Data] = [each.model_dump(mode="json", exclude_none=True) for each in spec.stragglers]
    jitter = None if spec.jitter is None else spec.jitter.model_dump(mode="json", exclude_none=True)
    unlike: dict[str, Data] = {"links": links, "stragglers": slow, "jitter": jitter}
    return {key: part for key, part in unlike.items() if part}


def _training(plan: Plan, node: Node) -> dict[str, Data]:
    training = plan.training
    rate = training.loader_samples_per_s
    loader: dict[str, Data] = {} if rate is None else {"data_loader": {"rate": exact_quantity(rate * node.n_accelerators, "samples/s")}}
    # A list of layers says itself how large a sample is, and what attention there is; a transformer has no images.
    foreign = (
        ("seq_length", "attention", "elementwise_precision", "vocabulary_multiple")
        if isinstance(plan.model, Layered)
        else ("channels_last",)
    )
    resolved: dict[str, Data] = loader | {
        "global_batch_size": training.global_batch_size,
        "micro_batch_size": training.micro_batch_size,
        "seq_length": training.seq_length,
        "precision": training.precision,
        "optimizer": training.optimizer,
        "optimizer_kernels": training.optimizer_kernels,
        "attention": training.attention,
        "gradient_precision": training.gradient_precision,
        "fused_gradient_accumulation": training.fused_gradient_accumulation,
        "elementwise_precision": training.elementwise_precision,
        "clip_micro_batches": training.clip_micro_batches,
        "kernels": training.kernels,
        "fused_loss": training.fused_loss,
        "fp8_parameters": training.fp8_parameters,
        "grouped_experts": training.grouped_experts,
        "blocking_launches": training.blocking_launches,
        "cuda_graphs": training.cuda_graphs,
        **({"scored_tokens": training.scored_tokens} if training.scored_tokens is not None else {}),
        **({"vocabulary_multiple": training.vocabulary_multiple} if training.vocabulary_multiple is not None else {}),
        "loss_metrics": training.loss_metrics,
        "channels_last": training.channels_last,
    }
    return {key: value for key, value in resolved.items() if key not in foreign}


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
        **({"stage_layers": list(strategy.stage_layers)} if strategy.stage_layers else {}),
        **({"optimizer_post_validation": strategy.optimizer_post_validation} if _may_validate_later(strategy) else {}),
        "zero_stage": strategy.zero_stage,
        "recompute": strategy.recompute,
        **({"recompute_layers": strategy.recompute_layers} if strategy.recompute_layers is not None else {}),
        **({"recompute_modules": list(strategy.recompute_modules)} if strategy.recompute == "selective" else {}),
        "recompute_stops_early": strategy.recompute_stops_early,
        "data_parallel": _data_parallel(strategy.data_parallel, n_nodes),
        "overlap_p2p": strategy.overlap_p2p,
        "overlap_tp": strategy.overlap_tp,
        "shard_degree": strategy.shard_degree or "auto",
        **_gathering(strategy),
        "offload": _offload(strategy.offload),
        **_experts(strategy),
        **({"context_parallel": strategy.context_parallel} if strategy.cp > 1 else {}),
        "placement": list(strategy.placement),
    }


def _gathering(strategy: Strategy) -> dict[str, Data]:
    """Return how sharded parameters are gathered; nothing where they are not."""
    if strategy.zero_stage < SHARDS_PARAMETERS:
        return {}
    return {
        "gather": strategy.gather,
        "prefetch": strategy.prefetch,
        "reshard_after_forward": strategy.reshard_after_forward,
        "keep_ends": strategy.keep_ends,
    }


def _experts(strategy: Strategy) -> dict[str, Data]:
    """Return what is asked of experts, as far as it does anything."""
    load = strategy.expert_load
    resolved: dict[str, Data] = {"expert_load": load.file or load.kind}
    if strategy.ep > 1:
        resolved["dispatch"], resolved["dispatch_precision"] = strategy.dispatch, strategy.dispatch_precision
        resolved["overlap_ep"] = strategy.overlap_ep
    if load.kind in ("zipf", "dirichlet"):
        resolved["expert_skew"] = load.skew
    if load.capacity_factor is not None:
        resolved["expert_capacity"] = load.capacity_factor
    if strategy.etp is not None:
        resolved["etp"] = strategy.etp
    return resolved


def _may_validate_later(strategy: Strategy) -> bool:
    known = SCHEDULES.get(strategy.schedule)
    return strategy.optimizer_post_validation or (known is not None and known.validates_later)


def _offload(offload: Offload) -> list[Data]:
    places = {part: getattr(offload, part) for part in ("optimizer", "gradients", "parameters", "activations")}
    away: list[Data] = [part for part, place in places.items() if place != "accelerator"]
    return [*away, {"to": "nvme"}] if "nvme" in places.values() else away


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

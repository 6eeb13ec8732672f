"""Settings that follow from others: ranks, nodes, batch, stages, shards and tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from clustersim.apps.importing.imported_models import derive_adapters
from clustersim.apps.importing.imported_settings import Draft, Key
from clustersim.apps.importing.transforms import number
from clustersim.documents.near_names import choices_hint
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import load_cluster, load_node, nodes_with, profile_names
from clustersim.hardware.models import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCluster:
    """Cluster that a job is put on."""

    cluster: dict[str, Data]
    n_ranks: int | None
    missing: tuple[str, ...] = ()


def drop_open(draft: Draft) -> None:
    """Forget degrees and batches of 0 or -1, which leave them to the framework."""
    if draft.get("job.expert_axis") is True and draft.get("strategy.ep") == -1:
        draft.derive("job.experts_fill", True, "")
    degrees = ("tp", "pp", "cp", "ep", "etp", "virtual_stages", "expert_capacity")
    served = ("tp", "pp", "dp", "ep", "replicas", "max_num_seqs", "max_batched_tokens")
    batches = ("global_batch_size", "micro_batch_size", "seq_length")
    keys = (
        "model.sliding_window",
        "model.q_lora_rank",
        *(f"strategy.{key}" for key in degrees),
        *(f"training.{key}" for key in batches),
        *(f"serving.{key}" for key in served),
    )
    draft.drop(*(key for key in keys if isinstance(value := draft.get(key), int | float) and value <= 0))


def machine_of(draft: Draft, name: str | None, nodes: int | None) -> TargetCluster:
    """Return the cluster of a job, of a name that was given or of the accelerators that a log shows.

    Raises
    ------
    ScenarioError
        When there is no such cluster, or the ranks of the job do not fill its nodes.
    """
    if (draft.whole("job.ranks_per_node") or 1) == 1 and (each := draft.whole("job.gpus_per_task") or 1) > 1:
        draft.derive("job.ranks_per_node", each, "accelerators of the one task on a node")
    missing: list[str] = []
    known = name or text_of(draft.get("cluster.node"))
    if known is None:
        named = draft.get("job.accelerator") or draft.get("job.instance")
        sizes = [node for node in profile_names("nodes") if f"-{named}-" in node and node.startswith("dgx")]
        asked = "the memory of the accelerators" if sizes else f"which shipped node comes near to {named}" if named else "the accelerators"
        near = "" if draft.get("job.nearest") is None else f"; {draft.get('job.nearest')} comes nearest"
        missing.append(f"{asked}: --cluster {' or '.join(sizes) or f'NAME (a shipped node or cluster{near})'}")
    elif known not in (*profile_names("clusters"), *profile_names("nodes")):
        names = (*profile_names("clusters"), *profile_names("nodes"))
        hint = nodes_with(known, names) or choices_hint(known, names)
        raise ScenarioError(f"there is no cluster or node '{known}'", field="--cluster", hint=hint)
    per_node = _per_node(draft, known)
    ranks = _ranks(draft, per_node)
    if nodes is None and ranks is None and draft.whole("job.nodes") is None:
        each = draft.whole("job.ranks_per_node") or 1
        told = f", only the {each} accelerators of one: --nodes 1 where it is alone, or" if each > 1 else ":"
        missing.append(f"the number of nodes{told} --nodes N")
    cluster: dict[str, Data] = {} if known is None else {"name" if known in profile_names("clusters") else "node": known}
    if missing or known is None or per_node is None:
        return TargetCluster(cluster=cluster, n_ranks=None, missing=tuple(missing))
    shipped = shipped_node(known).n_accelerators
    if nodes is None and ranks is not None:
        each = -(-ranks // (draft.whole("job.nodes") or ranks))
        # Fewer processes than accelerators may be on a node; a launcher alone on each says nothing of them.
        per_node = each if 1 < each < per_node else min(per_node, ranks)
        if ranks % per_node:
            raise ScenarioError(
                f"{ranks} ranks do not fill nodes of {per_node}", field="--cluster", hint="give --nodes, or another --cluster"
            )
        nodes = ranks // per_node
        draft.derive("cluster.nodes", nodes, f"{ranks} {'rank' if ranks == 1 else 'ranks'} on nodes of {per_node}")
    if nodes is not None:
        cluster["nodes"] = nodes
    if per_node != shipped:
        cluster["accelerators_per_node"] = per_node
        draft.derive("cluster.accelerators_per_node", per_node, f"processes of a node; {known} has {shipped}")
    return TargetCluster(cluster=cluster, n_ranks=(nodes or 0) * per_node)


def _per_node(draft: Draft, name: str | None) -> int | None:
    asked = draft.whole("job.ranks_per_node")
    if name is None:
        return asked
    shipped = shipped_node(name).n_accelerators
    return asked if asked is not None and asked < shipped else shipped


def shipped_node(name: str) -> Node:
    """Return a shipped node, or the node of a shipped cluster."""
    return load_node(name) if name in profile_names("nodes") else load_cluster(name).node


def _ranks(draft: Draft, per_node: int | None) -> int | None:
    """Return the processes of the job, as far as files say them."""
    ranks, nodes = draft.whole("job.ranks"), draft.whole("job.nodes")
    # A launcher for each node starts the processes of that node.
    one_each = ranks is not None and ranks == nodes and (draft.whole("job.ranks_per_node") or 1) > 1
    if ranks is not None and not one_each:
        return ranks
    if nodes is not None and (each := draft.whole("job.ranks_per_node") or per_node) is not None:
        return nodes * each
    replicas = draft.whole("job.dp")
    open_ = draft.get("job.replicate") == -1 or draft.get("job.experts_fill") is True
    if replicas is None and not open_ and (shard := _shard(draft)) is not None:
        replicas = shard * (draft.whole("job.replicate") or 1)
    return draft.whole("job.gpus") if replicas is None else replicas * model_parallel(draft)


def _shard(draft: Draft) -> int | None:
    """Return the ranks that shard, those of a mesh axis for experts among them."""
    shard = draft.whole("job.shard")
    return shard and shard * ((draft.whole("strategy.ep") or 1) if draft.get("job.expert_axis") is True else 1)


def model_parallel(draft: Draft) -> int:
    """Return the ranks that hold one replica together."""
    return prod(draft.whole(f"strategy.{key}") or 1 for key in ("tp", "pp", "cp"))


RAMP: Final = ("start", "increment", "samples")
"""Numbers of ``--rampup-batch-size``."""


def derive_strategy(draft: Draft, *, n_ranks: int, n_layers: int | None, has_experts: bool = False) -> None:
    """Fill in batch, stages and shards.

    Raises
    ------
    ScenarioError
        When the ranks do not divide into replicas.
    """
    together = model_parallel(draft)
    if n_ranks % together:
        raise ScenarioError(
            f"{n_ranks} ranks do not divide by tp x pp x cp = {together}",
            field="--nodes",
            hint=f"give nodes with a multiple of {together} ranks",
        )
    dp = n_ranks // together
    if draft.get("job.experts_fill") is True:
        draft.derive("strategy.ep", max(1, (draft.whole("job.node_size") or 1) // together), "the rest of a node")
    _batch(draft, dp, together)
    _stages(draft, n_layers)
    _shards(draft, dp * (draft.whole("strategy.cp") or 1))
    _drop_unused(draft, has_experts=has_experts)
    _offload(draft)
    _recomputation(draft, n_layers, has_experts=has_experts)
    derive_adapters(draft)
    if draft.get("job.fp8_gather") is True and draft.get("training.precision") == "fp8":
        draft.derive("strategy.data_parallel.gather_precision", "fp8", "parameters of products in fp8 are gathered in it")
    if has_experts and (draft.whole("strategy.tp") or 1) > 1 and draft.get("strategy.sequence_parallel") is not True:
        note = "experts beside tensor parallelism are simulated with sequence parallelism: as many bytes are sent, memory too small"
        draft.derive("strategy.sequence_parallel", True, note)
    if (beside := draft.whole("job.etp")) is not None:
        draft.derive("strategy.etp", beside, "counts beside expert parallelism")


def _drop_unused(draft: Draft, *, has_experts: bool) -> None:
    """Forget settings of parallelism, experts and formats that the job does not have."""
    if not has_experts and (draft.whole("strategy.ep") or 1) > 1:
        draft.derive("strategy.ep", 1, "the model has no experts")
    alone = {key for key in ("tp", "pp", "ep") if (draft.whole(f"strategy.{key}") or 1) == 1}
    for unused, keys in (
        ("pp" in alone, [f"strategy.{key}" for key in ("virtual_stages", "schedule", "overlap_p2p", "sync_p2p", "stage_layers")]),
        ("ep" in alone, ["strategy.dispatch", "job.etp"]),
        (not has_experts, ["strategy.expert_capacity", "strategy.etp"]),
        (draft.get("training.precision") != "fp8", ["training.fp8_parameters"]),
    ):
        if unused:
            draft.drop(*keys)
    if "tp" in alone and draft.get("strategy.sequence_parallel") is not None:
        draft.derive("strategy.sequence_parallel", False, "tp is 1")


def _batch(draft: Draft, dp: int, together: int) -> None:
    local, each = draft.whole("job.local_batch"), draft.get("job.batch_per_rank")
    accumulation = draft.whole("job.accumulation")
    key, total = "training.micro_batch_size", "training.global_batch_size"
    if isinstance(each, int | float) and each > 0:
        pp = draft.whole("strategy.pp") or 1
        parts = (draft.whole("job.pipeline_micro_batches") or pp) if pp > 1 else 1
        whole = max(1, round(each * together))
        if parts > 1 and whole % parts == 0:
            draft.derive(total, whole * dp * (accumulation or 1), f"{each} samples a device on {dp * together} devices")
            whole //= parts
        draft.derive(
            key, whole, f"{each} samples a device, times {together} devices of a replica{f', in {parts} parts' if parts > 1 else ''}"
        )
    if local is not None:
        staged = (draft.whole("strategy.pp") or 1) > 1
        if draft.whole(key) is None:
            micro = (draft.whole("job.pipeline_micro_batch") or 1) if staged else local
            draft.derive(key, micro, "the local batch, or a micro-batch of the pipeline")
        if draft.whole(total) is None:
            draft.derive(total, local * dp, f"the local batch on {dp} replicas")
    micro, batch = draft.whole(key), draft.whole(total)
    if batch is None and micro is not None and accumulation is not None:
        draft.derive(total, micro * accumulation * dp, f"{micro} x {accumulation} accumulated x {dp} replicas")
    elif micro is None and batch is not None and accumulation is not None and batch % (dp * accumulation) == 0:
        draft.derive(key, batch // (dp * accumulation), f"{batch} in {dp} replicas and {accumulation} accumulated")
    limit = draft.whole("job.micro_batch_limit")
    if limit is not None and batch is not None:
        draft.derive(key, min(limit, max(1, batch // dp)), f"at most {limit}, and {batch} sequences on {dp} replicas")


def _stages(draft: Draft, n_layers: int | None) -> None:
    pp = draft.whole("strategy.pp") or 1
    if pp == 1:
        return
    per_chunk, layout = draft.whole("job.layers_per_virtual_stage"), draft.get("job.layout")
    if per_chunk is not None and n_layers is not None:
        counted = n_layers + sum(draft.get(f"job.{end}_counts") is True for end in ("embedding", "loss"))
        if counted % (pp * per_chunk) == 0:
            draft.derive("strategy.virtual_stages", counted // (pp * per_chunk), f"{counted} layers, {per_chunk} in a chunk, {pp} stages")
    if (chunks := draft.whole("job.chunks")) is not None and draft.whole("strategy.virtual_stages") is None:
        draft.derive("strategy.virtual_stages", chunks, "the schedule has so many chunks on a stage unless layers of one are given")
    if draft.get("strategy.virtual_stages") == 1:
        draft.drop("strategy.virtual_stages")
    chunks = draft.whole("strategy.virtual_stages") or 1
    if isinstance(layout, list) and len(layout) % pp == 0:
        parts = [count for count in layout if isinstance(count, int)]
        if len(parts) > pp:
            draft.derive("strategy.virtual_stages", len(parts) // pp, f"{len(parts)} parts on {pp} stages")
        _stage_layers(draft, parts, n_layers, "the layout")
    elif isinstance(layout, list):
        draft.derive("strategy.stage_layers", "balanced", f"a layout of {len(layout)} parts does not fill {pp} stages: balanced instead")
    elif n_layers is not None:
        _uneven(draft, pp * chunks, n_layers)


def _uneven(draft: Draft, n_parts: int, n_layers: int) -> None:
    """Put fewer or more layers on the ends of a pipeline."""
    front = draft.get("job.embedding_counts") is True
    back = draft.get("job.loss_counts") is True
    first, last = draft.whole("job.first_stage_layers"), draft.whole("job.last_stage_layers")
    ends = (first is not None) + (last is not None)
    if (front or back) and (n_layers + front + back) % n_parts == 0:
        parts = [(n_layers + front + back) // n_parts] * n_parts
        parts[0] -= front
        parts[-1] -= back
        _stage_layers(draft, parts, n_layers, "embedding and loss count as layers")
    elif draft.get("job.embedding_counts") is False and draft.get("job.loss_counts") is False and not ends and n_layers % n_parts == 0:
        draft.derive("strategy.stage_layers", "even", "embedding and loss count as no layers")
    elif ends and n_parts > ends:
        left = n_layers - (first or 0) - (last or 0)
        if left % (n_parts - ends) == 0:
            parts = [left // (n_parts - ends)] * (n_parts - ends)
            _stage_layers(
                draft, [*([first] if first else []), *parts, *([last] if last else [])], n_layers, "layers of the first or last stage"
            )


def _stage_layers(draft: Draft, parts: Sequence[int], n_layers: int | None, note: str) -> None:
    if all(count > 0 for count in parts) and (n_layers is None or sum(parts) == n_layers):
        if len(set(parts)) > 1:
            draft.derive("strategy.stage_layers", [*parts], note)
    else:
        draft.derive("strategy.stage_layers", "balanced", f"{note} has parts without a layer, or not {n_layers} layers: balanced instead")


def _shards(draft: Draft, replicas: int) -> None:
    # Recipes of Megatron-Bridge name the strategy of its FSDP also where the FSDP is off.
    if draft.get("job.megatron_fsdp") is True and (stage := draft.get("job.fsdp_stage")) is not None:
        draft.derive("strategy.zero_stage", stage, "the sharding strategy of Megatron's FSDP")
    replicate, shard = draft.whole("job.replicate"), _shard(draft)
    if draft.get("job.shard_in_node") is True:
        degree = max(1, (draft.whole("job.node_size") or 8) // (draft.whole("strategy.tp") or 1))
        if degree < replicas and replicas % degree == 0:
            draft.derive("strategy.shard_degree", degree, "replicas of a node shard among themselves")
        return
    cp = draft.whole("strategy.cp") or 1
    if replicate is None and shard is not None and shard * cp < replicas and replicas % (shard * cp) == 0:
        replicate = replicas // (shard * cp)
    if replicate is not None and replicate > 1 and replicas % replicate == 0:
        if replicate == replicas:
            # Nothing is sharded any more: replicas with whole states.
            draft.derive("strategy.preset", "pytorch_ddp", "all replicas hold the whole state")
            draft.drop("strategy.zero_stage", "strategy.reshard_after_forward")
        else:
            draft.derive("strategy.shard_degree", replicas // replicate, f"{replicas} replicas, {replicate} copies of the state")


def _ramp(draft: Draft) -> None:
    """Let the batch grow as in Megatron: from one by increments to the full one, over a number of samples."""
    ramp, full, length = draft.get("job.ramp"), draft.whole("training.global_batch_size"), draft.whole("training.seq_length")
    total = str(draft.get("training.tokens") or "")
    if not (isinstance(ramp, list) and len(ramp) == len(RAMP) and total and full and length):
        return
    start, increment, samples = (number(each) for each in ramp)
    if start < full and not (total.isdecimal() and int(total) < samples * length):
        grown: dict[str, Data] = {"start": start, "increment": increment, "tokens": str(samples * length)}
        draft.derive("training.batch_ramp", grown, f"from {start} by {increment} over {samples} samples")


def _recomputation(draft: Draft, n_layers: int | None, *, has_experts: bool) -> None:
    layers, every = draft.whole("job.recompute_layers"), draft.get("job.recompute_every")
    chunks = (draft.whole("strategy.pp") or 1) * (draft.whole("strategy.virtual_stages") or 1)
    by_block = draft.get("job.recompute_method") == "block"
    if by_block and draft.get("job.recompute_layers") == 0:
        draft.derive("strategy.recompute", "none", "the block method recomputes 0 layers")
    if by_block and draft.get("strategy.recompute") == "full" and layers is not None:
        layers = layers if n_layers is None else min(layers, -(-n_layers // chunks))
        draft.derive("strategy.recompute_layers", layers, "the block method recomputes these layers of each chunk")
    if draft.get("strategy.recompute") == "full" and (granularity := draft.get("job.recompute_granularity")) is not None:
        draft.derive("strategy.recompute", granularity, "the granularity")
    if draft.get("strategy.recompute") == "selective" and isinstance(every, int):
        draft.derive("strategy.recompute", "full" if every else "alternate", f"one layer in {every}" if every else "every second product")
        if every > 1 and n_layers is not None:
            draft.derive("strategy.recompute_layers", max(1, n_layers // chunks // every), "layers of each chunk")
    if has_experts and draft.get("strategy.recompute") == "alternate":
        draft.derive("strategy.recompute", "full", "every second product, of a model with experts")
        loss = "attention and exchanges of experts, which are kept, are simulated as recomputed: too slow"
        draft.keys.append(Key(key="strategy.recompute", how="not_modelled", value="alternate", note=loss))
    if draft.get("strategy.recompute") != "selective":
        draft.drop("strategy.recompute_modules")


def _offload(draft: Draft) -> None:
    parts = [part for part in ("optimizer", "gradients", "parameters", "activations") if draft.get(f"job.offload_{part}")]
    if not parts:
        return
    to_drive = "nvme" in (draft.get("job.offload_optimizer"), draft.get("job.offload_parameters"))
    kept = [part for part in parts if not to_drive or part != "activations"]
    value: list[Data] = [*kept, {"to": "nvme"}] if to_drive else [*kept]
    note = "kept on drives" if to_drive else "kept on the host"
    if draft.get("job.offload_optimizer") and draft.get("training.moment_precision") is not None:
        draft.derive("training.moment_precision", "fp32", "moments on the host are simulated in fp32: memory there too large")
    draft.derive("strategy.offload", value, note if kept == parts else f"{note}; activations, which go to the host, stay: memory too large")


def derive_tokens(draft: Draft) -> None:
    """Fill in the total budget from steps or samples."""
    seq, batch = draft.whole("training.seq_length"), draft.whole("training.global_batch_size")
    steps, samples = draft.whole("job.steps"), draft.whole("job.samples")
    duration = re.fullmatch(
        r"(\d{1,15}(?:\.\d{0,15})?(?:e\d|e1[0-5])?)\s*(ba|tok|T|)", str(draft.get("job.duration") or "").replace("_", "")
    )
    if duration is not None and duration[2] in ("ba", ""):
        steps = int(number(duration[1]))
    elif duration is not None:
        draft.derive("training.tokens", str(int(number(duration[1]))), "the duration")
    if draft.get("training.tokens") is None and seq is not None:
        if samples is not None:
            draft.derive("training.tokens", str(samples * seq), f"{samples} samples of {seq} tokens")
        elif steps is not None and batch is not None:
            draft.derive("training.tokens", str(steps * batch * seq), f"{steps} steps of {batch} x {seq} tokens")
    _ramp(draft)


def text_of(*values: Data) -> str | None:
    """Return the first value that is text; None without one."""
    return next((value for value in values if isinstance(value, str)), None)

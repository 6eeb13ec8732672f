"""Tokens of KV cache that fit beside weights, activations, graphs and communication buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from clustersim.errors import DomainError
from clustersim.hardware.models import Accelerator
from clustersim.serving.batch import ServingLayout
from clustersim.serving.engines import EngineConstants
from clustersim.serving.formats import KV_BYTES, ServedFormats, weight_bytes
from clustersim.serving.rules import EngineRules
from clustersim.workloads.inference import ELEMENT_BYTES, InferenceWork

FP32_BYTES: Final = 4.0

STATE_SHARE: Final = 0.9 / 1.9
"""Share of the memory for states and cache that states have: ``--mamba-full-memory-ratio`` 0.9 of states to cache [1]_.

References
----------
.. [1] sgl-project/sglang, ``python/sglang/srt/model_executor/model_runner_kv_cache_mixin.py``: ``handle_max_mamba_cache``.
"""
STATES_WITH_PREFIXES: Final = 3
"""States of each sequence that runs, where prefixes are kept: ``MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO`` of the same file."""

_GIB: Final = 2.0**30


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCapacity:
    """Memory of one accelerator by category, and the tokens that its replica can hold."""

    tokens: int
    """KV-cache capacity of one replica in tokens; each rank of attention data parallelism has its own cache."""
    bytes_per_token: float
    """On one accelerator."""
    state_blocks: int
    """Blocks that a sequence takes for its states; 0 where they are set aside."""
    max_num_seqs: int
    """Sequences in the batch of a rank: those asked for, or as many as have states."""
    states_limit: bool
    """Whether states are what sets that."""
    by_category: Mapping[str, float]
    """Bytes of weights, activation_peak, states (where some are set aside), graphs, communication, context, kv_cache, fragmentation,
    reserve; they sum to the memory."""


def rank_weight_bytes(work: InferenceWork, formats: ServedFormats, layout: ServingLayout) -> float:
    """Return the weights on one accelerator, in bytes.

    Layers are divided among the stages of the pipeline, the first of which has the token table and the last the logits; table and logits
    stay in 16 bits.
    """
    layers = 0.0
    for layer in work.layers:
        dense = sum(each.parameters * weight_bytes(formats.of(each)) for each in layer.projections)
        router = layer.router.parameters * ELEMENT_BYTES if layer.router is not None else 0.0
        experts = layer.experts
        routed = experts.n_local * experts.parameters_each * weight_bytes(formats.experts) if experts is not None else 0.0
        layers += layer.n_layers * (dense + router + routed)
    ends = work.logits.parameters if work.tied else work.logits.parameters + work.embedding_parameters
    # The stage with the most: of several stages the last one, which has the logits.
    return layers * _stage_share(work.n_layers, layout.pp) + (ends if layout.pp == 1 else work.logits.parameters) * ELEMENT_BYTES


def _stage_share(n_layers: int, pp: int) -> float:
    return ceil(n_layers / pp) / n_layers


def kv_capacity(
    work: InferenceWork,
    formats: ServedFormats,
    accelerator: Accelerator,
    layout: ServingLayout,
    *,
    engine: EngineConstants,
    rules: EngineRules,
) -> KvCapacity:
    """Return how many tokens the cache of one replica holds, and what else is in memory.

    The engine takes a fraction of the memory; weights, the activations of the largest batch, what the driver and NCCL keep, and CUDA
    graphs come off it, and the cache is cut into blocks. Activations at their peak are the widest neighbours of a layer, or the logits of
    all sequences with their copy in fp32.

    Raises
    ------
    DomainError
        Nothing is left for the cache.
    """
    memory, share = accelerator.memory_bytes, _stage_share(work.n_layers, layout.pp)
    max_num_seqs = rules.max_num_seqs
    fixed = _fixed_bytes(work, formats, layout, engine, rules)
    state_bytes = work.state_bytes(engine.state_element_bytes) * share
    if state_bytes and engine.states == "batch":
        fixed["states"] = state_bytes * max_num_seqs
    loaded, budget = sum(fixed.values()), _budget_bytes(engine, rules.memory_fraction, memory, fixed)
    reserve = memory - loaded - budget
    if state_bytes and engine.states == "share":
        n_states = int(STATE_SHARE * max(budget, 0.0) // state_bytes)
        max_num_seqs = min(max_num_seqs, n_states // (STATES_WITH_PREFIXES if rules.prefix_cache else 1))
        if 0 < max_num_seqs < rules.max_num_seqs:
            # The activations are those of the smaller batch.
            smaller = replace(rules, max_num_seqs=max_num_seqs)
            return replace(kv_capacity(work, formats, accelerator, layout, engine=engine, rules=smaller), states_limit=True)
        fixed["states"] = state_bytes * n_states
        budget -= fixed["states"]
    per_token = work.cache_elements() * KV_BYTES[formats.kv] * share
    block = rules.block_tokens * per_token
    n_blocks = int(budget // block) if budget > 0 else 0
    if n_blocks < 1 or max_num_seqs < 1:
        raise DomainError(
            f"{loaded / _GIB:.1f} GiB of weights and buffers leave no room for a cache in {memory * rules.memory_fraction / _GIB:.1f} GiB",
            path=("layout", "tp"),
            hint="use more accelerators in a replica, fewer bits for each weight, or a larger memory fraction",
        )
    fixed["kv_cache"] = n_blocks * block
    fixed["fragmentation"] = budget - n_blocks * block
    fixed["reserve"] = reserve
    return KvCapacity(
        tokens=n_blocks * rules.block_tokens * layout.dp,
        bytes_per_token=per_token,
        state_blocks=ceil(state_bytes / block) if engine.states == "blocks" else 0,
        max_num_seqs=max_num_seqs,
        states_limit=False,
        by_category=fixed,
    )


def _fixed_bytes(
    work: InferenceWork, formats: ServedFormats, layout: ServingLayout, engine: EngineConstants, rules: EngineRules
) -> dict[str, float]:
    """Return the memory that does not depend on what is left for the cache."""
    return {
        "weights": rank_weight_bytes(work, formats, layout),
        "activation_peak": activation_peak_bytes(work, rules),
        "graphs": engine.graph_bytes_per_layer * work.n_layers / layout.pp,
        "communication": engine.communication_bytes if layout.tp * layout.dp * layout.pp > 1 else 0.0,
        "context": engine.context_bytes,
    }


def _budget_bytes(engine: EngineConstants, fraction: float, memory: float, fixed: Mapping[str, float]) -> float:
    """Return the memory for the cache, and for states that are a share of it."""
    loaded = sum(fixed.values())
    match engine.fraction_of:
        case "all":
            return memory * fraction - loaded
        case "static":
            return min((memory - fixed["context"]) * fraction - fixed["weights"] - fixed.get("states", 0.0), memory - loaded)
        case "free":
            return (memory - loaded) * fraction


def activation_peak_bytes(work: InferenceWork, rules: EngineRules) -> float:
    """Return the activations of the largest batch on one accelerator, in bytes.

    Residual, its normalised copy and the input and output of the widest product are alive at once; or the logits, in 16 and in 32 bits.
    """
    widest = max(each.outputs + each.inputs for layer in work.layers for each in layer.projections)
    routed = max(
        (
            layer.experts.top_k * (2.0 * layer.experts.hidden + 3.0 * layer.experts.width)
            for layer in work.layers
            if layer.experts is not None
        ),
        default=0.0,
    )
    rows = rules.max_batched_tokens * (2.0 * work.hidden + max(float(widest), routed)) * ELEMENT_BYTES
    logits = rules.max_num_seqs * work.logits.outputs * (ELEMENT_BYTES + 2.0 * FP32_BYTES)
    return max(rows, logits)

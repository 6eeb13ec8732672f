"""Rules and constants of the engine of a deployment: its own, with what the scenario changes."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from clustersim.config.serving_scenario import ServingSpec
from clustersim.errors import ScenarioError
from clustersim.hardware.models import Accelerator
from clustersim.serving.engines import EngineConstants, engine_constants
from clustersim.serving.policies import rules_of
from clustersim.serving.prompt_waits import BatchWait, RankWait
from clustersim.serving.rules import EngineDevice, EngineRules

_KEYS: Final = (
    *("max_num_seqs", "max_batched_tokens", "memory_fraction"),
    *("prefix_cache", "chunked_prefill", "asynchronous"),
)
_WAITS: Final = MappingProxyType({"batch_wait": "tensorrt_llm", "rank_wait": "tensorrt_llm", "receive_interval": "sglang"})
"""Engine that has each of the waits of new prompts."""
_STAND_IN: Final = "vllm"
"""Engine whose kernels and host a static server has."""


def rank_rules(serving: ServingSpec, accelerator: Accelerator) -> EngineRules:
    """Return the rules of one rank of attention data parallelism.

    Raises
    ------
    ScenarioError
        The token budget of a step is too small for its sequences.
    """
    rules = rules_of(serving.engine, EngineDevice(name=accelerator.name, memory_bytes=accelerator.memory_bytes))
    given = {key: value for key in _KEYS if (value := getattr(serving, key)) is not None}
    rules = replace(rules, **given)
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
    if serving.max_graph_tokens is not None:
        found = replace(found, largest_graph=serving.max_graph_tokens)
    return replace(found, asynchronous=rules.asynchronous, block_tokens=rules.block_tokens, memory_fraction=rules.memory_fraction)

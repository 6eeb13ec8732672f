"""Rules of vLLM, of its V1 engine and of V0 before it.

Sources: vllm-project/vllm, ``vllm/v1/core/sched/scheduler.py`` (one token budget, running requests first, the last admitted is preempted
and computed again), ``vllm/v1/core/block_pool.py`` (a null block), ``vllm/config/cache.py`` (blocks of 16 tokens, 0.9 of the memory),
``vllm/engine/arg_utils.py`` (defaults by device: ``get_batch_defaults``), ``vllm/config/scheduler.py`` (``scheduler_reserve_full_isl``,
``async_scheduling``). V0: ``vllm/core/scheduler.py`` of v0.6 (prompts go before decoding and are not divided, the last admitted is
preempted and computed again) and ``vllm/config.py`` (256 sequences; a budget of the model's positions).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from clustersim.serving.rules import Defaults, EngineRules

_V0: Final = EngineRules(
    engine="vllm",
    version="0.1",
    block_tokens=16,
    admission="prompt",
    mixes=False,
    chunked_prefill=False,
    memory_fraction=0.9,
    defaults=(Defaults(max_num_seqs=256, max_batched_tokens=8192, largest_graphs=(256, 256)),),
)

_V1: Final = EngineRules(
    engine="vllm",
    version="0.8",
    block_tokens=16,
    n_null_blocks=1,
    admission="first_chunk",
    prefix_cache=True,
    memory_fraction=0.9,
    defaults=(
        Defaults(min_memory_bytes=70e9, except_for=("a100",), max_num_seqs=1024, max_batched_tokens=8192, largest_graphs=(512, 512)),
        Defaults(max_num_seqs=256, max_batched_tokens=2048, largest_graphs=(512, 512)),
    ),
)
"""Chunked prefill is always on; a request is admitted with its first chunk."""

_ASYNCHRONOUS: Final = replace(_V1, version="0.14", asynchronous=True)
"""Steps are scheduled ahead by default (release notes of v0.14.0)."""

_FULL_PROMPT: Final = replace(_ASYNCHRONOUS, version="0.19", admission="prompt")
"""``scheduler_reserve_full_isl``: only if the whole prompt has room. First seen in 0.19; its first version is not known here."""

VERSIONS: Final = (_V0, _V1, _ASYNCHRONOUS, _FULL_PROMPT)

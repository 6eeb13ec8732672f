"""Rules of vLLM with its V1 engine.

Sources: vllm-project/vllm, ``vllm/v1/core/sched/scheduler.py`` (one token budget, running requests first, the last admitted is preempted
and computed again), ``vllm/v1/core/block_pool.py`` (a null block), ``vllm/config/cache.py`` (blocks of 16 tokens, 0.9 of the memory),
``vllm/engine/arg_utils.py`` (defaults by device: ``get_batch_defaults``), ``vllm/config/scheduler.py`` (``scheduler_reserve_full_isl``,
``async_scheduling``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from clustersim.serving.rules import Defaults, Rules

_V1: Final = Rules(
    engine="vllm",
    version="0.8",
    block_tokens=16,
    n_null_blocks=1,
    admission="first_chunk",
    prefix_cache=True,
    memory_fraction=0.9,
    defaults=(
        Defaults(min_memory_bytes=70e9, except_for=("a100",), max_num_seqs=1024, max_batched_tokens=8192),
        Defaults(max_num_seqs=256, max_batched_tokens=2048),
    ),
)
"""Chunked prefill is always on; a request is admitted with its first chunk."""

_ASYNCHRONOUS: Final = replace(_V1, version="0.14", asynchronous=True)
"""Steps are scheduled ahead by default (release notes of v0.14.0)."""

_FULL_PROMPT: Final = replace(_ASYNCHRONOUS, version="0.19", admission="prompt")
"""``scheduler_reserve_full_isl``: only if the whole prompt has room. First seen in 0.19; when it came is not known here."""

VERSIONS: Final = (_V1, _ASYNCHRONOUS, _FULL_PROMPT)
